package lifecycle

import (
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestCheckKilled kills the supervisor at each step of a check: the caller is
// not told that it succeeded, what is not in the record counts for nothing, and
// the work is brought out.
func TestCheckKilled(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		for _, step := range []struct {
			at      string // empty: control
			counted bool
		}{{"", true}, {"check.intended", false}, {"check.measured", false}, {"check.recorded", true}} {
			var env []string
			if step.at != "" {
				env = []string{"CAISSON_FAULT=" + step.at + ":kill"}
			}
			if r := w.do(env, "open", "--name", "x"); r.Exit != 0 {
				t.Fatal(r)
			}
			v := w.show("x")
			w.ok("exec", "x", "--", "sh", "-c", "echo before >work.txt")
			r := w.do(nil, "check", "x", "--", "grep", "-q", "before", "work.txt")
			if (r.Exit == 0) != (step.at == "") {
				t.Errorf("%q: the caller was told %v", step.at, r)
			}
			if step.at == "" {
				w.ok("close", "x")
			} else {
				harness.Eventually(t, "the supervisor is dead", func() bool { return !alive(v.Supervisor.PID) && w.unowned(v.ID) })
			}
			w.reap()
			if s := w.show(v.ID); s.State != "kept" && s.State != "closed" {
				t.Errorf("%q: the task is %s (%s)", step.at, s.State, s.Problem)
			}
			if got := strings.Contains(w.ok("show", "--json", v.ID), `"level": 2,`) && strings.Contains(w.ok("show", "--json", v.ID), `"checks"`); got != step.counted {
				t.Errorf("%q: a check is on record: %v", step.at, got)
			}
			if _, err := evidence.Verify(w.State+"/tasks/"+v.ID+"/evidence", evidence.Head{}); err != nil {
				t.Errorf("%q: the record: %v", step.at, err)
			}
			if got := w.blobs(v.ID, "worktree:work.txt"); !strings.Contains(strings.Join(got, " "), "before") {
				t.Errorf("%q: the work is lost: %v", step.at, got)
			}
			if t.Failed() {
				t.Fatalf("stopping after %q", step.at)
			}
		}
		w.clean()
	})
}
