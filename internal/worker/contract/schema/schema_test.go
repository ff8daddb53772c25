package schema

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

var update = flag.Bool("update", false, "write testdata/tools.json anew")

// Every argument of the types has its text, and no text is of something else.
func TestEveryArgumentIsDescribed(t *testing.T) {
	seen := map[string]bool{}
	var walk func(typ reflect.Type, at string)
	walk = func(typ reflect.Type, at string) {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				name, _ := contract.Field(typ.Field(i))
				walk(typ.Field(i).Type, at+"."+name)
			}
			return
		case reflect.Slice:
			walk(typ.Elem(), at+"[]")
		case reflect.Map:
			walk(typ.Elem(), at+"{}")
		}
		seen[at] = true
		if text, ok := fields[at]; !ok || text == "" && !bytes.HasSuffix([]byte(at), []byte("]")) && !bytes.HasSuffix([]byte(at), []byte("}")) {
			t.Errorf("%s has no text", at)
		}
	}
	for _, tool := range contract.Tools {
		walk(reflect.TypeOf(tool.Args()), tool.Name)
		if x := texts[tool.Name]; x.title == "" || x.doc == "" || x.readOnly && x.destructive {
			t.Errorf("%s: %+v", tool.Name, x)
		}
	}
	for at := range fields {
		if !seen[at] {
			t.Errorf("a text for %s, which is no argument", at)
		}
	}
	for at, words := range contract.Choices {
		if !seen[at] || len(words) < 2 {
			t.Errorf("choices for %s, which is no argument", at)
		}
	}
	if len(texts) != len(contract.Tools) {
		t.Errorf("%d texts for %d tools", len(texts), len(contract.Tools))
	}
}

// A changed schema or text is a change that somebody looked at.
func TestGolden(t *testing.T) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(Tools()); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/tools.json"
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(want, b.Bytes()) {
		t.Fatalf("%s is not what Tools says (%v); look at the change, then: go test ./internal/worker/contract/schema -run Golden -update", golden, err)
	}
}

// What Decode takes and refuses is what the schemas say: the same names, the
// same ones needed.
func TestSchemasAgreeWithDecode(t *testing.T) {
	for _, tool := range Tools() {
		var s struct {
			Type       string
			Properties map[string]struct {
				Type string
				Enum []string
			}
			Required []string
		}
		if err := json.Unmarshal(tool.Input, &s); err != nil || s.Type != "object" {
			t.Fatalf("%s: %v", tool.Name, err)
		}
		all := map[string]any{"zz_unknown": 1}
		for name, p := range s.Properties {
			all[name] = []any{map[string]any{}} // of no argument's type
			if p.Type == "array" {
				all[name] = "text"
			}
		}
		for name := range s.Properties {
			one, _ := json.Marshal(map[string]any{name: all[name]})
			if _, _, err := contract.Decode(tool.Name, one); err == nil {
				t.Errorf("%s took another type for %s", tool.Name, name)
			}
		}
		_, refused, err := contract.Decode(tool.Name, []byte(`{"zz_unknown":1}`))
		if len(s.Required) > 0 && err == nil {
			t.Errorf("%s: nothing was missing", tool.Name)
		}
		if err == nil && !slices.Equal(refused, []string{"zz_unknown"}) {
			t.Errorf("%s: refused %q", tool.Name, refused)
		}
	}
}
