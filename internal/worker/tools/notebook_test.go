//go:build linux

package tools

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// As Jupyter writes one: one space of indentation, names sorted, a final line end.
const jupyter = `{
 "cells": [
  {
   "cell_type": "markdown",
   "id": "aa",
   "metadata": {"tags":   ["odd", "spaces"]},
   "attachments": {},
   "source": [
    "# Title é \u00e9\n",
    "text"
   ]
  },
  {
   "cell_type": "code",
   "execution_count": 3,
   "id": "bb",
   "metadata": {},
   "outputs": [
    {
     "name": "stdout",
     "output_type": "stream",
     "text": [
      "]}\"\\\n"
     ]
    }
   ],
   "source": [
    "print(1)"
   ],
   "x_future": 1.50
  },
  {
   "cell_type": "raw",
   "id": "cc",
   "metadata": {},
   "source": "one string"
  }
 ],
 "metadata": {
  "kernelspec": {"name": "python3"}
 },
 "nbformat": 4,
 "nbformat_minor": 5
}
`

func TestNotebookEdit(t *testing.T) {
	zero, one, two := 0, 1, 2
	for _, c := range []struct {
		name string
		args contract.NotebookEditArgs
		from string // in jupyter
		to   string // in its place
		want contract.NotebookEditResult
	}{
		{"code", contract.NotebookEditArgs{CellID: "bb", Source: "a = \"<b>\"\nprint(a)\n"},
			jupyter[strings.Index(jupyter, `"execution_count": 3`):strings.Index(jupyter, `   "x_future"`)],
			"\"execution_count\": null,\n   \"id\": \"bb\",\n   \"metadata\": {},\n   \"outputs\": [],\n   \"source\": [\n    \"a = \\\"<b>\\\"\\n\",\n    \"print(a)\\n\"\n   ],\n",
			contract.NotebookEditResult{Mode: "replace", Index: 1, CellID: "bb", CellType: "code", Cells: 3}},
		{"text, by index", contract.NotebookEditArgs{Index: &zero, Source: "new"}, "\n    \"# Title é \\u00e9\\n\",\n    \"text\"\n", "\n    \"new\"\n",
			contract.NotebookEditResult{Mode: "replace", Index: 0, CellID: "aa", CellType: "markdown", Cells: 3}},
		{"one string stays one", contract.NotebookEditArgs{Index: &two, Source: "a\nb"}, `"one string"`, `"a\nb"`,
			contract.NotebookEditResult{Mode: "replace", Index: 2, CellID: "cc", CellType: "raw", Cells: 3}},
		{"emptied", contract.NotebookEditArgs{Index: &zero}, "[\n    \"# Title é \\u00e9\\n\",\n    \"text\"\n   ]", "[]",
			contract.NotebookEditResult{Mode: "replace", Index: 0, CellID: "aa", CellType: "markdown", Cells: 3}},
		{"to code", contract.NotebookEditArgs{Index: &two, CellType: "code", Source: "x"}, "\"cell_type\": \"raw\",\n   \"id\": \"cc\",\n   \"metadata\": {},\n   \"source\": \"one string\"",
			"\"cell_type\": \"code\",\n   \"id\": \"cc\",\n   \"metadata\": {},\n   \"execution_count\": null,\n   \"outputs\": [],\n   \"source\": \"x\"",
			contract.NotebookEditResult{Mode: "replace", Index: 2, CellID: "cc", CellType: "code", Cells: 3}},
		{"to markdown", contract.NotebookEditArgs{Index: &one, CellType: "markdown", Source: "x"},
			jupyter[strings.Index(jupyter, "\"code\",\n"):strings.Index(jupyter, `   "x_future"`)],
			"\"markdown\",\n   \"id\": \"bb\",\n   \"metadata\": {},\n   \"source\": [\n    \"x\"\n   ],\n",
			contract.NotebookEditResult{Mode: "replace", Index: 1, CellID: "bb", CellType: "markdown", Cells: 3}},
		{"delete the first", contract.NotebookEditArgs{Mode: "delete", CellID: "aa"}, jupyter[strings.Index(jupyter, "{\n   \"cell_type\": \"markdown\""):strings.Index(jupyter, "{\n   \"cell_type\": \"code\"")], "",
			contract.NotebookEditResult{Mode: "delete", Index: 0, CellID: "aa", CellType: "markdown", Cells: 2}},
		{"delete the last", contract.NotebookEditArgs{Mode: "delete", Index: &two}, ",\n  {\n   \"cell_type\": \"raw\",\n   \"id\": \"cc\",\n   \"metadata\": {},\n   \"source\": \"one string\"\n  }", "",
			contract.NotebookEditResult{Mode: "delete", Index: 2, CellID: "cc", CellType: "raw", Cells: 2}},
		{"insert at the start", contract.NotebookEditArgs{Mode: "insert", CellType: "markdown", Source: "a\nb"}, "  {\n   \"cell_type\": \"markdown\",\n   \"id\": \"aa\"",
			"  {\n   \"cell_type\": \"markdown\",\n   \"id\": \"NEW\",\n   \"metadata\": {},\n   \"source\": [\n    \"a\\n\",\n    \"b\"\n   ]\n  },\n  {\n   \"cell_type\": \"markdown\",\n   \"id\": \"aa\"",
			contract.NotebookEditResult{Mode: "insert", Index: 0, CellType: "markdown", Cells: 4}},
		{"insert at the end", contract.NotebookEditArgs{Mode: "insert", Index: &two, Source: "x"}, "\"one string\"\n  }\n",
			"\"one string\"\n  },\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": null,\n   \"id\": \"NEW\",\n   \"metadata\": {},\n   \"outputs\": [],\n   \"source\": [\n    \"x\"\n   ]\n  }\n",
			contract.NotebookEditResult{Mode: "insert", Index: 3, CellType: "code", Cells: 4}},
	} {
		p := at(t)
		p.put("n.ipynb", jupyter)
		c.args.Path = "n.ipynb"
		var r contract.NotebookEditResult
		if fail := p.call(contract.NotebookEdit, c.args, &r); fail != nil {
			t.Errorf("%s: %v", c.name, fail)
			continue
		}
		got := p.get("n.ipynb")
		if c.want.CellID == "" && len(r.CellID) == 8 {
			got = strings.Replace(got, r.CellID, "NEW", 1)
			r.CellID = ""
		}
		if n := strings.Count(jupyter, c.from); n != 1 {
			t.Fatalf("%s: the test's own text occurs %d times", c.name, n)
		}
		if want := strings.Replace(jupyter, c.from, c.to, 1); got != want {
			t.Errorf("%s: got\n%s", c.name, got)
		}
		c.want.Path, c.want.Before, c.want.Size, c.want.SHA256 = p.path("n.ipynb"), digestOf([]byte(jupyter)), r.Size, r.SHA256
		if r != c.want || r.SHA256 != digestOf([]byte(p.get("n.ipynb"))) {
			t.Errorf("%s: %+v", c.name, r)
		}
		p.clean()
	}
}

// Other layouts stay as they are; old formats get no id.
func TestNotebookLayouts(t *testing.T) {
	zero := 0
	for _, c := range []struct{ name, before, after string }{
		{"one line", `{"cells": [{"cell_type": "raw", "metadata": {}, "source": "x"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}`,
			`{"cells": [{"cell_type": "raw", "metadata": {}, "source": "x"}, {"cell_type": "markdown", "metadata": {}, "source": ["a\n", "b"]}], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}`},
		{"no spaces", `{"cells":[{"cell_type":"raw","metadata":{},"source":"x"}],"metadata":{},"nbformat":4,"nbformat_minor":4}`,
			`{"cells":[{"cell_type":"raw","metadata":{},"source":"x"},{"cell_type":"markdown","metadata":{},"source":["a\n","b"]}],"metadata":{},"nbformat":4,"nbformat_minor":4}`},
		{"two spaces, crlf", "{\r\n  \"nbformat\": 4,\r\n  \"nbformat_minor\": 2,\r\n  \"metadata\": {},\r\n  \"cells\": [\r\n    {\r\n      \"cell_type\": \"raw\",\r\n      \"metadata\": {},\r\n      \"source\": \"x\"\r\n    }\r\n  ]\r\n}",
			"{\r\n  \"nbformat\": 4,\r\n  \"nbformat_minor\": 2,\r\n  \"metadata\": {},\r\n  \"cells\": [\r\n    {\r\n      \"cell_type\": \"raw\",\r\n      \"metadata\": {},\r\n      \"source\": \"x\"\r\n    },\r\n    {\r\n      \"cell_type\": \"markdown\",\r\n      \"metadata\": {},\r\n      \"source\": [\r\n        \"a\\n\",\r\n        \"b\"\r\n      ]\r\n    }\r\n  ]\r\n}"},
		{"tabs", "{\n\t\"nbformat\": 4,\n\t\"nbformat_minor\": 2,\n\t\"metadata\": {},\n\t\"cells\": [\n\t\t{\n\t\t\t\"cell_type\": \"raw\",\n\t\t\t\"metadata\": {},\n\t\t\t\"source\": \"x\"\n\t\t}\n\t]\n}\n",
			"{\n\t\"nbformat\": 4,\n\t\"nbformat_minor\": 2,\n\t\"metadata\": {},\n\t\"cells\": [\n\t\t{\n\t\t\t\"cell_type\": \"raw\",\n\t\t\t\"metadata\": {},\n\t\t\t\"source\": \"x\"\n\t\t},\n\t\t{\n\t\t\t\"cell_type\": \"markdown\",\n\t\t\t\"metadata\": {},\n\t\t\t\"source\": [\n\t\t\t\t\"a\\n\",\n\t\t\t\t\"b\"\n\t\t\t]\n\t\t}\n\t]\n}\n"},
	} {
		p := at(t)
		p.put("n", c.before)
		var r contract.NotebookEditResult
		p.must(contract.NotebookEdit, contract.NotebookEditArgs{Path: "n", Mode: "insert", Index: &zero, CellType: "markdown", Source: "a\nb"}, &r)
		if got := p.get("n"); got != c.after || r.CellID != "" {
			t.Errorf("%s: %+v\n%s", c.name, r, got)
		}
	}
	p := at(t)
	p.put("n", "{\n \"cells\": [],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 4\n}\n")
	var r contract.NotebookEditResult
	p.must(contract.NotebookEdit, contract.NotebookEditArgs{Path: "n", Mode: "insert", CellType: "raw", Source: ""}, &r)
	want := "{\n \"cells\": [\n  {\n   \"cell_type\": \"raw\",\n   \"metadata\": {},\n   \"source\": []\n  }\n ],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 4\n}\n"
	if got := p.get("n"); got != want || r.Index != 0 || r.Cells != 1 {
		t.Errorf("the first cell: %+v\n%s", r, got)
	}
	p.must(contract.NotebookEdit, contract.NotebookEditArgs{Path: "n", Mode: "delete", Index: &zero}, &r)
	if got := p.get("n"); !strings.Contains(got, `"cells": [],`) || r.Cells != 0 {
		t.Errorf("the last cell: %+v\n%s", r, got)
	}
}

func TestNotebookRefuses(t *testing.T) {
	four := 4
	for name, c := range map[string]struct {
		content string
		args    contract.NotebookEditArgs
		want    contract.Code
	}{
		"no such id":     {jupyter, contract.NotebookEditArgs{CellID: "zz"}, contract.NoMatch},
		"no such index":  {jupyter, contract.NotebookEditArgs{Index: &four}, contract.NoMatch},
		"one id twice":   {strings.Replace(jupyter, `"id": "aa"`, `"id": "bb"`, 1), contract.NotebookEditArgs{CellID: "bb"}, contract.Ambiguous},
		"changed":        {jupyter, contract.NotebookEditArgs{CellID: "bb", ExpectSHA256: digestOf(nil)}, contract.Changed},
		"no JSON":        {jupyter[:200], contract.NotebookEditArgs{CellID: "bb"}, contract.Invalid},
		"empty":          {"", contract.NotebookEditArgs{CellID: "bb"}, contract.Invalid},
		"a list":         {"[]", contract.NotebookEditArgs{CellID: "bb"}, contract.Invalid},
		"an object":      {"{}", contract.NotebookEditArgs{CellID: "bb"}, contract.Invalid},
		"nbformat 3":     {`{"worksheets":[],"nbformat":3}`, contract.NotebookEditArgs{CellID: "bb"}, contract.Invalid},
		"no cells":       {`{"nbformat":4,"nbformat_minor":4,"cells":{}}`, contract.NotebookEditArgs{CellID: "bb"}, contract.Invalid},
		"a cell is none": {`{"nbformat":4,"nbformat_minor":4,"cells":[1]}`, contract.NotebookEditArgs{CellID: "bb"}, contract.Invalid},
		"an empty cell":  {`{"nbformat":4,"nbformat_minor":4,"cells":[{}]}`, contract.NotebookEditArgs{CellID: "bb"}, contract.Invalid},
		"cells twice":    {`{"nbformat":4,"nbformat_minor":4,"cells":[],"cells":[]}`, contract.NotebookEditArgs{Mode: "insert"}, contract.Invalid},
		"a mark":         {"\ufeff" + jupyter, contract.NotebookEditArgs{CellID: "bb"}, contract.Invalid},
	} {
		p := at(t)
		p.put("n", c.content)
		c.args.Path = "n"
		if got := code(p.call(contract.NotebookEdit, c.args, nil)); got != c.want || p.get("n") != c.content {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		p.clean()
	}
}

// jq reads what was written, and sees the change and nothing else.
func TestNotebookByJQ(t *testing.T) {
	jq, err := exec.LookPath("jq")
	if err != nil {
		t.Skip("jq is not installed")
	}
	query := func(text, q string) string {
		cmd := exec.Command(jq, "-cS", q)
		cmd.Stdin = strings.NewReader(text)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("jq %s: %v", q, err)
		}
		return string(out)
	}
	p := at(t)
	source := "a\u2028b\t\"\\ <&> \u0001 é 😀\r\nc\n\n"
	p.put("n", jupyter)
	p.must(contract.NotebookEdit, contract.NotebookEditArgs{Path: "n", CellID: "bb", Source: source}, new(contract.NotebookEditResult))
	after := p.get("n")
	text, _ := json.Marshal(source)
	if got := query(after, `.cells[1].source | join("")`); got != query(string(text), ".") {
		t.Errorf("the source reads %s", got)
	}
	const others = `del(.cells[1].source, .cells[1].outputs, .cells[1].execution_count)`
	if a, b := query(jupyter, others), query(after, others); a != b {
		t.Errorf("something else changed:\n%s%s", a, b)
	}
	if got := query(after, `[.cells[1].outputs, .cells[1].execution_count]`); got != "[[],null]\n" {
		t.Errorf("outputs: %s", got)
	}
}

// Whatever a file holds, an edit ends in a refusal or in JSON with the change.
func FuzzNotebook(f *testing.F) {
	f.Add([]byte(jupyter), "x\ny", byte(0))
	f.Add([]byte(`{"cells":[{"cell_type":"code","source":[]}],"nbformat":4,"nbformat_minor":10}`), "", byte(1))
	f.Add([]byte(`{"nbformat":4,"cells":[ {"source":"","cell_type":"raw","id":5} ,{"cell_type":"\u0061","source":1}]}`), "é", byte(2))
	f.Fuzz(func(t *testing.T, raw []byte, source string, how byte) {
		nb, fail := parseNotebook(raw, "n")
		if fail != nil {
			return
		}
		zero := 0
		a := &contract.NotebookEditArgs{Source: source, Index: &zero, CellType: []string{"", "code", "markdown", "raw"}[how>>2&3]}
		want := len(nb.cells)
		var out []byte
		switch {
		case how&3 == 0:
			want++
			out, _ = nb.insert(int(how>>4)%(len(nb.cells)+1)-1, "code", source)
		case len(nb.cells) == 0:
			return
		case how&3 == 1:
			want--
			out = nb.remove(int(how>>4) % len(nb.cells))
		default:
			out, _ = nb.replace(int(how>>4)%len(nb.cells), a)
		}
		again, fail := parseNotebook(out, "n")
		if fail != nil || len(again.cells) != want {
			t.Fatalf("%q became %q: %v", raw, out, fail)
		}
	})
}
