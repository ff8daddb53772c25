package wire

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/boundary"
	"github.com/caisson-dev/caisson/internal/config"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

func TestToolsOfRules(t *testing.T) {
	var names []string
	for _, x := range contract.Tools {
		names = append(names, x.Name)
	}
	if !slices.Equal(names, policy.CalledTools) {
		t.Errorf("rules know %v, the contract %v", policy.CalledTools, names)
	}
}

// TestExplainIsEnforcement: the answer to a question is what becomes of the call.
func TestExplainIsEnforcement(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.yaml")
	text := "version: 1\ntools:\n  deny:\n  - {tool: shell, command: [git, push]}\n  - {tool: \"*\", path: /etc}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := policies{&config.Loader{Home: "/home/me", Now: time.Now}}
	l, err := p.file(task.SourceOperator, file, true)
	if err != nil {
		t.Fatal(err)
	}
	calls := l.Rules.Calls()
	for line, want := range map[string]task.Verdict{
		"git push": task.VerdictDeny, "env git push": task.VerdictDeny, "sudo git push": task.VerdictDeny, "git -c a=b push": task.VerdictDeny, "xargs git push": task.VerdictDeny,
		"find . -exec git push ;": task.VerdictDeny, "git -C x push --force": task.VerdictDeny, "git --no-pager push": task.VerdictDeny, "git status": task.VerdictAllow, "ls": task.VerdictAllow,
		"make -f-": task.VerdictAsk, "go run .": task.VerdictAsk, "gcc -wrapper git,push x.c": task.VerdictAsk, "pip install .": task.VerdictAsk, "./x.sh": task.VerdictAsk, "cat /etc/passwd": task.VerdictAllow,
	} {
		words := strings.Fields(line)
		forms := [][]string{words, {"sh", "-c", line}, {strings.ReplaceAll(line, ";", `\;`)}, {"true && " + strings.ReplaceAll(line, ";", `\;`)}}
		if strings.Contains(line, ";") {
			forms = slices.Delete(forms, 1, 2)
		}
		for _, w := range forms {
			argv, script := w, ""
			if len(w) == 1 {
				argv, script = nil, w[0]
			}
			call := policy.Call{Proved: true, Tool: "shell", Point: policy.ToolPoint{Commands: boundary.CommandPoints(argv, script, nil)}}
			enforced := calls.Judge(nil, call).Verdict
			out, err := p.Explain(context.Background(), door.ExplainIn{PolicyIn: door.PolicyIn{File: file}, Kind: "tool", Words: append([]string{"shell"}, w...)})
			if err != nil {
				t.Errorf("%q: %v", w, err)
				continue
			}
			if out.Verdict != enforced || out.Verdict != want {
				t.Errorf("%q: explain says %s, enforcement %s, want %s (%s)", w, out.Verdict, enforced, want, out.Rule)
			}
		}
	}
	for _, c := range []struct {
		words []string
		want  task.Verdict // empty: no such question
	}{
		{[]string{"read_file", "/etc/passwd"}, task.VerdictDeny}, {[]string{"read_file", "/srv/x"}, task.VerdictAllow},
		{[]string{"shell", "/etc/x"}, task.VerdictAllow}, {[]string{"shel", "ls"}, ""}, {[]string{"shell_input", "ls"}, task.VerdictAllow},
	} {
		out, err := p.Explain(context.Background(), door.ExplainIn{PolicyIn: door.PolicyIn{File: file}, Kind: "tool", Words: c.words})
		if c.want == "" && err != nil {
			continue
		}
		if err != nil || out.Verdict != c.want {
			t.Errorf("%q: %+v, %v, want %q", c.words, out, err, c.want)
		}
	}
}

// TestToolOfRuleIsThere: a name in a rule that no tool has stops the load, with
// its line and the nearest name.
func TestToolOfRuleIsThere(t *testing.T) {
	for rule, want := range map[string]string{
		"{tool: shel}":              "did you mean shell?",
		"{tool: shell, path: /etc}": "boundary",
	} {
		_, _, err := config.Decode("p.yaml", []byte("version: 1\ntools:\n  deny:\n  - "+rule+"\n"))
		if err == nil || !strings.Contains(err.Error(), "p.yaml:4") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
}
