package detect

import (
	"strings"
	"testing"
)

// FuzzScript wants no panic, and never less than one simple command of a text
// that is not empty and no comment.
func FuzzScript(f *testing.F) {
	for _, c := range hostile {
		f.Add(c.line)
	}
	f.Add(strings.Repeat("(", 1999))
	f.Add(strings.Repeat("$(", 999))
	f.Add(strings.Repeat("if ", 20000))
	f.Add(strings.Repeat("! ", 30000))
	f.Fuzz(func(t *testing.T, text string) {
		a := Script(text, nil)
		for i, s := range a.Simple {
			if s.Program == "" && !s.Opaque {
				t.Errorf("%q: a command without a name that is not opaque: %+v", text, s)
			}
			if len(s.Argv) > maxWords+maxText {
				t.Errorf("%q: %d words", text, len(s.Argv))
			}
			if i > maxSimple+1 {
				t.Fatalf("%d commands", len(a.Simple))
			}
		}
		Command(strings.Fields(text), nil)
	})
}
