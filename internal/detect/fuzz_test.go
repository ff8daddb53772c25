package detect

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// FuzzScript wants no panic, and never less than one simple command of a text
// that is not empty and no comment.
func FuzzScript(f *testing.F) {
	for _, c := range hostile {
		f.Add(c.line)
	}
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

// TestLongScripts: what is too much for an answer is opaque, and the answer comes
// at once. Of each there is a control that is short.
func TestLongScripts(t *testing.T) {
	for _, s := range []string{"(", "$(", "if ", "! ", "sudo ", "find -exec ", "xargs ", "a|", "a;", "sh -c 'a;' ", "`", "${a:-", "<<a\n", "case x in x) ", "env ", "eval a;"} {
		long := Script(strings.Repeat(s, 64<<10/len(s)), nil)
		opaque := 0
		for _, c := range long.Simple {
			if c.Opaque {
				opaque++
			}
		}
		if opaque == 0 || len(long.Simple) > maxSimple+1 {
			t.Errorf("%q again and again: %d commands, %d of them opaque", s, len(long.Simple), opaque)
		}
	}
	if a := Script(strings.Repeat("a;", maxSimple), nil); len(a.Simple) != maxSimple || hasFact(a.Facts, task.Executes, "generated") {
		t.Errorf("%d commands", len(a.Simple))
	}
	if a := Script("sudo env nice docker ps", nil); render(a) != "sudo env nice docker" {
		t.Errorf("got %s", render(a))
	}
	if a := Command(make([]string, maxWords+1), nil); render(a) != "?!" {
		t.Errorf("got %s", render(a))
	}
}

// FuzzQuick: without a parser comes what comes with one.
func FuzzQuick(f *testing.F) {
	for _, c := range hostile {
		f.Add(c.line)
	}
	for _, s := range quickLines {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var a, b analyser
		if len(text) > 4<<10 || !a.quick(text) {
			return
		}
		b.parse(text)
		if len(b.simple) == 1 && b.simple[0].Why == "not a script that bash can parse" {
			return // what bash refuses runs nothing
		}
		if !reflect.DeepEqual(a.simple, b.simple) || !slices.Equal(a.effects, b.effects) || !slices.Equal(a.at, b.at) {
			t.Errorf("%q\nquick %+v %v %v\nparse %+v %v %v", text, a.simple, a.effects, a.at, b.simple, b.effects, b.at)
		}
	})
}

var quickLines = []string{
	"cd x && npm ci && npm test 2>&1 | tail -20", "git add -A; git commit -m 'a b\nc' \"d\"e", "ls >out 2>/dev/null <in", "a|b||c&&d;e\nf", "a\n\n\nb;\n", "a |\n b", "a > b c", "a 2> b", "a2>b", "'if' x", "if x", "a 'b\nc'; d", "a >>x >&2",
}

func TestQuick(t *testing.T) {
	for _, c := range quickLines[:3] {
		if a := new(analyser); !a.quick(c) {
			t.Errorf("%q needs a parser", c)
		}
	}
}
