package lifecycle

import (
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestInstallKilled kills the supervisor at each step of an installation: its
// boundary ends with it, nothing of it is left, and the work is brought out.
func TestInstallKilled(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		id.Write(t, id.Dir+"/tools/bin/npm", "#!/bin/sh\necho installed >node_modules/it\n", 0o755)
		path := "PATH=" + id.Dir + "/tools/bin:/usr/local/bin:/usr/bin:/bin"
		for _, at := range []string{"", "install.intended", "install.standing", "install.ended", "install.destroyed"} {
			env := []string{path}
			if at != "" {
				env = append(env, "CAISSON_FAULT="+at+":kill")
			}
			if r := w.do(env, "open", "--name", "x", "--phase", "install"); r.Exit != 0 {
				t.Fatal(r)
			}
			v := w.show("x")
			w.ok("exec", "x", "--", "sh", "-c", "echo before >work.txt; echo node_modules >.gitignore")
			r := w.do(nil, "tool", "x", "install_dependencies", `{"manager": "npm"}`)
			if (r.Exit == 0) != (at == "") {
				t.Errorf("%q: the caller was told %v", at, r)
			}
			if at == "" {
				if r := w.do(nil, "exec", "x", "--", "cat", "node_modules/it"); r.Stdout != "installed\n" {
					t.Error(r)
				}
				w.do(nil, "close", "x")
			} else {
				harness.Eventually(t, "the supervisor is dead", func() bool { return !alive(v.Supervisor.PID) && w.unowned(v.ID) })
			}
			w.reap()
			if s := w.show(v.ID); s.State != "kept" && s.State != "closed" {
				t.Errorf("%q: the task is %s (%s)", at, s.State, s.Problem)
			}
			if _, err := evidence.Verify(w.State+"/tasks/"+v.ID+"/evidence", evidence.Head{}); err != nil {
				t.Errorf("%q: the record: %v", at, err)
			}
			if got := w.blobs(v.ID, "worktree:work.txt"); !strings.Contains(strings.Join(got, " "), "before") {
				t.Errorf("%q: the work is lost: %v", at, got)
			}
			if t.Failed() {
				t.Fatalf("stopping after %q", at)
			}
		}
		w.clean()
	})
}
