package cli

import (
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/caisson-dev/caisson/internal/task"
)

// askingFlags are what a person says about the tool calls of a task.
type askingFlags struct {
	ask, deny []string
	frozen    bool
	hook      string
	wait      string
}

func (g *askingFlags) add(f *pflag.FlagSet) {
	f.StringArrayVar(&g.ask, "ask", nil, "ask a person about calls of this tool, or those whose path or command matches `TOOL[:PATTERN]`")
	f.StringArrayVar(&g.deny, "deny", nil, "deny them `TOOL[:PATTERN]`")
	f.BoolVar(&g.frozen, "frozen", false, "a command that you agreed to runs alone, and only on exactly the files that you were asked about")
	f.StringVar(&g.hook, "approve-hook", "", "program of yours that answers questions: the question on its input, status 0 is yes, 1 is no `PROGRAM`")
	f.StringVar(&g.wait, "ask-timeout", "", "how long a question waits for an answer (default 10m) `DURATION`")
}

// read turns them into rules.
func (g *askingFlags) read(env []string) (a task.Asking, err error) {
	for _, list := range []struct {
		verdict task.Verdict
		texts   []string
	}{{task.VerdictDeny, g.deny}, {task.VerdictAsk, g.ask}} {
		for _, s := range list.texts {
			tool, pattern, cut := strings.Cut(s, ":")
			if tool == "" || cut && pattern == "" || !utf8.ValidString(s) {
				return a, invalid(string(list.verdict), s, "must be a tool, or a tool and a pattern", "shell or 'write_file:.github/*'")
			}
			a.Rules = append(a.Rules, task.ToolRule{Verdict: list.verdict, Tool: tool, Pattern: pattern})
		}
	}
	a.Frozen = g.frozen
	if g.wait != "" {
		a.Wait, err = time.ParseDuration(g.wait)
		if err != nil || a.Wait <= 0 {
			return a, invalid("ask-timeout", g.wait, "must be a duration above zero, with a unit", "10m")
		}
	}
	if g.hook != "" {
		a.Hook, err = hookPath(g.hook, env)
	}
	return a, err
}

// hookPath finds the program that answers, as a shell would but for folders of
// PATH that are not absolute: those are whatever folder one stands in.
func hookPath(name string, env []string) (string, error) {
	bad := func(why string) error { return invalid("approve-hook", name, why, "~/bin/approve") }
	path := name
	if !strings.Contains(name, "/") {
		path = ""
		list, _ := lookup(env, "PATH")
		for _, dir := range filepath.SplitList(list) {
			if p := filepath.Join(dir, name); filepath.IsAbs(dir) && isProgram(p) {
				path = p
				break
			}
		}
	}
	if path == "" || !isProgram(path) {
		return "", bad("is no program that can be run")
	}
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil || !utf8.ValidString(path) {
		return "", bad("cannot be resolved")
	}
	return path, nil
}

func isProgram(path string) bool {
	i, err := os.Stat(path)
	return err == nil && i.Mode().IsRegular() && i.Mode()&0o111 != 0
}
