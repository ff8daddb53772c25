//go:build linux

package tools

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

func TestEditFile(t *testing.T) {
	type edits = []contract.Edit
	for _, c := range []struct {
		name, before string
		edits        edits
		after        string // when done
		code         contract.Code
		n            int
		line         int64
	}{
		{"one", "a\nb\nc\n", edits{{Old: "b", New: "B"}}, "a\nB\nc\n", "", 1, 2},
		{"remove", "a\nb\nc\n", edits{{Old: "b\n", New: ""}}, "a\nc\n", "", 1, 2},
		{"grow", "a\n", edits{{Old: "a\n", New: "a\nb\nc\n"}}, "a\nb\nc\n", "", 1, 1},
		{"in order", "a\n", edits{{Old: "a", New: "b"}, {Old: "b", New: "c"}}, "c\n", "", 2, 1},
		{"all or none", "a\n", edits{{Old: "a", New: "b"}, {Old: "zz", New: "c"}}, "", contract.NoMatch, 0, 0},
		{"twice there", "a a\n", edits{{Old: "a", New: "b"}}, "", contract.Ambiguous, 0, 0},
		{"overlapping", "xaaax", edits{{Old: "aa", New: "b"}}, "", contract.Ambiguous, 0, 0},
		{"the second", "a\na\na\n", edits{{Old: "a", New: "b", Occurrence: 2}}, "a\nb\na\n", "", 1, 2},
		{"the fourth", "a\na\na\n", edits{{Old: "a", New: "b", Occurrence: 4}}, "", contract.NoMatch, 0, 0},
		{"all", "a\na\na\n", edits{{Old: "a", New: "aa", All: true}}, "aa\naa\naa\n", "", 3, 1},
		{"all of none", "a\n", edits{{Old: "b", New: "c", All: true}}, "", contract.NoMatch, 0, 0},
		{"crlf by lf", "a\r\nb\r\nc\r\n", edits{{Old: "a\nb\n", New: "x\ny\nz\n"}}, "x\r\ny\r\nz\r\nc\r\n", "", 1, 1},
		{"crlf by crlf", "a\r\nb\r\n", edits{{Old: "a\r\nb", New: "x\r\ny"}}, "x\r\ny\r\n", "", 1, 1},
		{"crlf in one line", "a\r\nb\r\n", edits{{Old: "b", New: "c\nd"}}, "a\r\nc\r\nd\r\n", "", 1, 2},
		{"crlf at a line's end", "a\r\nb\r\n", edits{{Old: "a\n", New: ""}}, "b\r\n", "", 1, 1},
		{"crlf joined", "a\r\nb\r\n", edits{{Old: "a\nb", New: "ab"}}, "ab\r\n", "", 1, 1},
		{"crlf only", "a\r\nb", edits{{Old: "a\r\nb", New: "a\nb"}}, "", contract.BadArgs, 0, 0},
		{"mixed: as where it stands", "a\r\nb\nc\r\n", edits{{Old: "b\n", New: "x\ny\n"}}, "a\r\nx\ny\nc\r\n", "", 1, 2},
		{"mixed by lf: the crlf place", "a\r\nb\nc\r\n", edits{{Old: "a\n", New: "x\ny\n"}}, "x\r\ny\r\nb\nc\r\n", "", 1, 1},
		{"mixed by crlf: exactly", "a\r\nb\na\n", edits{{Old: "a\r\n", New: "x\n"}}, "x\nb\na\n", "", 1, 1},
		{"lf given crlf", "a\nb\n", edits{{Old: "a\r\nb", New: "x"}}, "", contract.NoMatch, 0, 0},
		{"a lone cr", "a\rb\r\n", edits{{Old: "a\rb", New: "c\rd"}}, "c\rd\r\n", "", 1, 1},
		{"mark", "\xef\xbb\xbfa\n", edits{{Old: "a", New: "é"}}, "\xef\xbb\xbfé\n", "", 1, 1},
		{"utf-16", "\xff\xfea\x00\r\x00\n\x00", edits{{Old: "a\n", New: "é\n"}}, "\xff\xfe\xe9\x00\r\x00\n\x00", "", 1, 1},
		{"utf-16be", "\xfe\xff\x00a", edits{{Old: "a", New: "😀"}}, "\xfe\xff\xd8\x3d\xde\x00", "", 1, 1},
		{"broken utf-16", "\xff\xfea\x00\x00", edits{{Old: "a", New: "b"}}, "", contract.Encoding, 0, 0},
		{"latin-1", "caf\xe9 a\n", edits{{Old: "é a", New: "é ü"}}, "caf\xe9 \xfc\n", "", 1, 1},
		{"not in latin-1", "caf\xe9\n", edits{{Old: "caf", New: "日"}}, "", contract.Encoding, 0, 0},
		{"binary", "a\x00b", edits{{Old: "a", New: "b"}}, "", contract.Binary, 0, 0},
		{"no final line end", "a\nb", edits{{Old: "b", New: "c"}}, "a\nc", "", 1, 2},
		{"empty file", "", edits{{Old: "b", New: "c"}}, "", contract.NoMatch, 0, 0},
		{"unicode as bytes", "e\u0301", edits{{Old: "é", New: "c"}}, "", contract.NoMatch, 0, 0}, // composed is not decomposed
	} {
		p := at(t)
		p.put("f", c.before)
		if err := os.Chmod(p.path("f"), 0o600); err != nil {
			t.Fatal(err)
		}
		var r contract.EditFileResult
		fail := p.call(contract.EditFile, contract.EditFileArgs{Path: "f", Edits: c.edits, ExpectSHA256: digestOf([]byte(c.before))}, &r)
		want := c.after
		if c.code != "" {
			want = c.before
		}
		if code(fail) != c.code || p.get("f") != want || r.Replacements != c.n || r.FirstLine != c.line {
			t.Errorf("%s: %v, %q, %+v", c.name, fail, p.get("f"), r)
		}
		if fail == nil && (r.SHA256 != digestOf([]byte(want)) || r.Before != digestOf([]byte(c.before)) || r.Size != int64(len(want))) {
			t.Errorf("%s: %+v", c.name, r)
		}
		if st, _ := os.Stat(p.path("f")); st.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", c.name, st.Mode())
		}
		p.clean()
	}
}

// The messages help with what goes wrong in practice.
func TestEditSaysWhy(t *testing.T) {
	p := at(t)
	p.put("f", "func a() {\n\treturn  1\n}\nfunc b() {\n\treturn 2\n}\n}\n")
	for old, want := range map[string]string{
		"    return 1\n": "line 2 is like",
		"}":              "lines 3, 6, 7",
		"return 3":       "does not occur",
	} {
		fail := p.call(contract.EditFile, contract.EditFileArgs{Path: "f", Edits: []contract.Edit{{Old: old, New: "x"}}}, nil)
		if fail == nil || !strings.Contains(fail.Msg, want) {
			t.Errorf("%q: %v, want %q", old, fail, want)
		}
	}
	if got := code(p.call(contract.EditFile, contract.EditFileArgs{Path: "none", Edits: []contract.Edit{{Old: "a", New: "x"}}}, nil)); got != contract.NotFound {
		t.Errorf("a missing file: %q", got)
	}
	if got := code(p.call(contract.EditFile, contract.EditFileArgs{Path: "f", ExpectSHA256: digestOf(nil), Edits: []contract.Edit{{Old: "a", New: "x"}}}, nil)); got != contract.Changed {
		t.Errorf("another file than expected: %q", got)
	}
}

// An edit and the edit back leave every byte, whatever the bytes are.
func FuzzEditBack(f *testing.F) {
	for _, s := range []string{"a\r\nQ\r\nb", "\xef\xbb\xbfQ\n", "caf\xe9 Q\r\n\n", "\xff\xfeQ\x00\n\x00", "\xfe\xff\x00Q\x00\r\x00\n", "Q\r\r\n\n\rQ"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		was, fail := decodeText(raw, "f")
		if fail != nil {
			return
		}
		same, fail := was.encode("f")
		if fail != nil || string(same) != string(raw) {
			t.Fatalf("%q read and written is %q (%v)", raw, same, fail)
		}
		mark := "\u00a7zz\u00a7" // in Latin-1 too
		if strings.Contains(string(was.body), "zz") {
			return
		}
		out, _, n, fail := replaceText(was.body, &contract.Edit{Old: "Q", New: mark, All: true}, was.newline, "f", 0)
		if fail != nil {
			return
		}
		var nl newlines
		nl.add(out)
		back, _, m, fail := replaceText(out, &contract.Edit{Old: mark, New: "Q", All: true}, nl.style(), "f", 0)
		if fail != nil || m != n || string(back) != string(was.body) {
			t.Fatalf("%q became %q and then %q (%v)", was.body, out, back, fail)
		}
	})
}
