package policy

import (
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func TestVerdictFor(t *testing.T) {
	ask := func(tool, pat string) task.ToolRule {
		return task.ToolRule{Verdict: task.VerdictAsk, Tool: tool, Pattern: pat}
	}
	deny := func(tool, pat string) task.ToolRule {
		return task.ToolRule{Verdict: task.VerdictDeny, Tool: tool, Pattern: pat}
	}
	allow := task.ToolRule{Verdict: task.VerdictAllow, Tool: "*"}
	call := func(tool string, subjects ...string) Call { return Call{Proved: true, Tool: tool, Subjects: subjects} }
	for name, c := range map[string]struct {
		rules []task.ToolRule
		call  Call
		want  task.Verdict
	}{
		"zero":                       {nil, Call{}, task.VerdictDeny},
		"zero, everything allowed":   {[]task.ToolRule{allow}, Call{}, task.VerdictDeny},
		"no boundary":                {nil, Call{Tool: "shell"}, task.VerdictDeny},
		"no tool":                    {nil, Call{Proved: true}, task.VerdictDeny},
		"default":                    {nil, call("shell", "ls"), task.VerdictAllow},
		"ask":                        {[]task.ToolRule{ask("shell", "")}, call("shell", "ls"), task.VerdictAsk},
		"another tool":               {[]task.ToolRule{ask("shell", "")}, call("grep"), task.VerdictAllow},
		"ask, unattended":            {[]task.ToolRule{ask("shell", "")}, Call{Proved: true, Unattended: true, Tool: "shell"}, task.VerdictDeny},
		"allow, unattended":          {nil, Call{Proved: true, Unattended: true, Tool: "shell"}, task.VerdictAllow},
		"pattern":                    {[]task.ToolRule{ask("shell", "git push*")}, call("shell", "git push -f"), task.VerdictAsk},
		"pattern, other":             {[]task.ToolRule{ask("shell", "git push*")}, call("shell", "git pull"), task.VerdictAllow},
		"one of the names":           {[]task.ToolRule{deny("write_file", ".github/*")}, call("write_file", "/r/.github/x", ".github/x"), task.VerdictDeny},
		"by a link":                  {[]task.ToolRule{deny("write_file", ".github/*")}, Call{Proved: true, Tool: "write_file", Subjects: []string{"l/x"}, Unsure: true}, task.VerdictDeny},
		"deny before ask":            {[]task.ToolRule{ask("*", ""), deny("shell", "")}, call("shell"), task.VerdictDeny},
		"deny before ask, other way": {[]task.ToolRule{deny("shell", ""), ask("*", "")}, call("shell"), task.VerdictDeny},
		"allow undoes nothing":       {[]task.ToolRule{allow, deny("shell", ""), allow}, call("shell"), task.VerdictDeny},
		"ask before allow":           {[]task.ToolRule{allow, ask("shell", ""), allow}, call("shell"), task.VerdictAsk},
		"a rule without a verdict":   {[]task.ToolRule{{Tool: "shell"}}, call("shell"), task.VerdictDeny},
		"a rule with another word":   {[]task.ToolRule{{Verdict: "permit", Tool: "shell"}}, call("shell"), task.VerdictDeny},
		"all shells":                 {[]task.ToolRule{ask("shell*", "")}, call("shell_input"), task.VerdictAsk},
	} {
		if got, why := VerdictFor(c.rules, c.call); got != c.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "a/b", true}, {"a*c", "abbc", true}, {"a*c", "ab", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"?", "é", true}, {"*.go", "a/b.go", true}, {"*.go", "a/b.gox", false}, {"a**", "a", true}, {"*a*b*", "xxaxxbxx", true}, {"*a*b*", "xxbxxaxx", false}, {"*ab", "aab", true},
		{"a", "b", false}, {"a*", "b", false},
	} {
		if got := Match(c.pattern, c.s); got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.s, got)
		}
	}
}
