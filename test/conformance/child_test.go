//go:build linux

package conformance

import (
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestChildTasks: a child has at most its parent's authority, says whose child it
// is, and ends with it, its work brought out as at any end.
func TestChildTasks(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n", ".gitignore": "*.log\n"})
		id.Write(t, repo+"/secret.log", "x", 0o644)
		parent := id.Open(t, repo, "--name", "parent", "--memory", "512m", "--pids", "500", "--timeout", "2h")
		child := strings.TrimSpace(id.OK(t, id.Dir, "open", "-q", "--parent", "parent", "--name", "child"))
		grandchild := strings.TrimSpace(id.OK(t, id.Dir, "open", "-q", "--parent", "child", "--memory", "200m"))
		view := func(ref string) task.View { return harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", ref)) }
		p, c, g := view(parent), view(child), view(grandchild)
		if string(c.Parent) != parent || string(g.Parent) != child || p.Parent != "" {
			t.Errorf("parents %q, %q, %q", p.Parent, c.Parent, g.Parent)
		}
		if c.Source.Repo != repo || c.Limits.MemoryBytes != 512<<20 || c.Limits.Pids != 500 || c.Limits.Timeout > p.Limits.Timeout || g.Limits.MemoryBytes != 200<<20 {
			t.Errorf("child %+v, its child %+v", c.Limits, g.Limits)
		}
		for _, flags := range [][]string{
			{"--memory", "1g"}, {"--pids", "501"}, {"--timeout", "3h"}, {"--grant", "ptrace"}, {"--grant", "userns"}, {"--dirty=all"}, {"--source", "checkout"},
			{"--env", "X=1"}, {"--ro", id.Dir + ":/opt/x"}, {"--trust"}, {"--source", "copy"},
		} {
			r := id.Caisson(t, repo, append([]string{"open", "--json", "--parent", parent}, flags...)...)
			if r.Exit == 0 || code(r) != "denied" && code(r) != "unsafe_path" && code(r) != "not_found" && (code(r) != "unsupported" || harness.Backend() == "linux") {
				t.Errorf("%q: %v", flags, r)
			}
		}
		if r := id.Caisson(t, repo, "open", "--parent", "nobody"); r.Exit == 0 {
			t.Errorf("a child of nobody: %v", r)
		}
		id.OK(t, repo, "exec", grandchild, "--", "sh", "-c", "echo work >work.txt")
		if out := id.OK(t, repo, "close", "--dry-run", parent); !strings.Contains(out, "its child "+child+" (child), which is ready, would be closed with it") {
			t.Errorf("a preview without the child:\n%s", out)
		}
		id.OK(t, repo, "close", parent, "--keep", "never")
		for _, ref := range []string{parent, child, grandchild} {
			if v := view(ref); v.State != task.Closed {
				t.Errorf("%s is %s", ref, v.State)
			}
		}
		if out := id.OK(t, repo, "diff", grandchild); !strings.Contains(out, "work.txt") {
			t.Errorf("the child's work is gone:\n%s", out)
		}
		if out := id.OK(t, repo, "log", parent); !strings.Contains(out, child) {
			t.Errorf("the parent's record does not name its child:\n%s", out)
		}
		if out := id.OK(t, repo, "log", "--json", child); !strings.Contains(out, `"parent":"`+parent+`"`) {
			t.Errorf("the child's record does not name its parent:\n%s", out)
		}
		if r := id.Caisson(t, repo, "open", "--json", "--parent", parent); r.Exit == 0 || code(r) != "wrong_state" {
			t.Errorf("a child of a closed task: %v", r)
		}
	})
}

// TestNoAuthorityInside: a program inside that asks caisson for a boundary, a
// task of the host or its state is told which layer refuses.
func TestNoAuthorityInside(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		tool := id.Dir + "/tool"
		id.Mkdir(t, tool)
		data, err := os.ReadFile(harness.Bin())
		if err != nil {
			t.Fatal(err)
		}
		id.Write(t, tool+"/caisson", string(data), 0o755)
		outer := id.Open(t, repo, "--ro", tool+":/opt/tool")
		for _, c := range []struct{ layer, args string }{
			{"layer KRN", "open"}, {"layer KRN", "run -- true"}, {"layer KRN", "mcp"}, {"layer CPL", "exec " + outer + " -- true"}, {"layer CPL", "tool " + outer + " list_dir {}"},
			{"layer CPL", "close " + outer}, {"layer CPL", "log " + outer}, {"layer CPL", "show " + outer}, {"layer CPL", "diff " + outer}, {"layer CPL", "open --parent " + outer},
		} {
			r := id.Caisson(t, repo, "exec", outer, "--", "sh", "-c", "/opt/tool/caisson "+c.args+" </dev/null")
			if r.Exit == 0 || !strings.Contains(r.Stdout+r.Stderr, c.layer) || !strings.Contains(r.Stdout+r.Stderr, outer) {
				t.Errorf("caisson %s inside: %v", c.args, r)
			}
		}
		// The files that a way around would need are not there either.
		v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", outer))
		r := id.Caisson(t, repo, "exec", outer, "--", "sh", "-c", `for f in "$@"; do test ! -e "$f" || echo "$f"; done`, "sh", v.TaskDir, v.TaskDir+"/evidence", v.TaskDir+"/task.json")
		if r.Exit != 0 || r.Stdout != "" {
			t.Errorf("inside there is %v", r)
		}
	})
}
