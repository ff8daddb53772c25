package policy

import "testing"

func TestTouchesOpaque(t *testing.T) {
	c := Command{Argv{"git", "push"}}
	for name, p := range map[string]CommandPoint{"no words": {Opaque: true}, "nothing": {}, "words": {Argv: []string{"make"}, Opaque: true}} {
		if !c.Touches(p) || c.Covers(p) {
			t.Errorf("%s: touches %v, covers %v", name, c.Touches(p), c.Covers(p))
		}
	}
	if c.Touches(CommandPoint{Argv: []string{"ls"}}) {
		t.Error("ls")
	}
}

func TestCalledTool(t *testing.T) {
	for _, c := range []struct {
		r  CallRule
		ok bool
	}{
		{CallRule{Tool: "shell"}, true}, {CallRule{Tool: "*"}, true}, {CallRule{Tool: "shell_*"}, true}, {CallRule{Path: "/etc"}, true}, {CallRule{Tool: "*", Path: "/etc"}, true}, {CallRule{Tool: "read_file", Path: "/etc"}, true},
		{CallRule{Tool: "shel"}, false}, {CallRule{Tool: "shel?x"}, false}, {CallRule{Tool: "shell", Path: "/etc"}, false}, {CallRule{Tool: "shell*", Path: "/etc"}, false}, {CallRule{}, false},
		{CallRule{Command: Argv{"git"}}, true}, {CallRule{Tool: "shell*", Command: Argv{"git"}}, true}, {CallRule{Tool: "read_file", Command: Argv{"git"}}, false}, {CallRule{Tool: "*", Path: "/etc", Command: Argv{"git"}}, false},
		{CallRule{Host: "a.example"}, true}, {CallRule{Tool: "fetch", Host: "a.example", Methods: []Method{"GET"}}, true}, {CallRule{Host: "a.example", Path: "/etc"}, false}, {CallRule{Tool: "shell", Methods: []Method{"GET"}}, false}, {CallRule{Credential: "npm"}, false},
	} {
		if err := c.r.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
	for _, c := range []struct {
		q  Question
		ok bool
	}{
		{Question{Tool: "shell", Command: Argv{"ls"}}, true}, {Question{Tool: "read_file", Path: "/etc"}, true}, {Question{Tool: "*"}, true},
		{Question{Tool: "shel"}, false}, {Question{Tool: "shell", Path: "/etc"}, false}, {Question{Tool: "read_file", Command: Argv{"ls"}}, false},
	} {
		if err := c.q.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.q, err)
		}
	}
}
