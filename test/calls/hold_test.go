//go:build linux

package calls

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestHeldTask is a task that lives as long as the process that holds it: other
// commands reach it meanwhile, and its end is that of `run`.
func TestHeldTask(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})

		h := holds(t, id, repo, "well")
		if out := id.OK(t, repo, "exec", h.id, "--", "cat", "a.txt"); out != "a\n" {
			t.Errorf("exec: %q", out)
		}
		if w := h.end(); w.Report.State != task.Closed || w.Err != "" {
			t.Errorf("nothing was done in it, and it ended as %s: %s", w.Report.State, w.Err)
		}

		h = holds(t, id, repo, "well")
		id.OK(t, repo, "exec", h.id, "--", "sh", "-c", "echo b >b.txt")
		if w := h.end(); w.Report.State != task.Kept || len(w.Report.Rescued) == 0 || w.Err != "" {
			t.Errorf("work was done in it, and it ended as %+v: %s", w.Report, w.Err)
		}
		if out := id.OK(t, repo, "diff", h.id); !strings.Contains(out, "+b") {
			t.Errorf("diff of what was held: %q", out)
		}

		// An error of its holder counts as a failed command: the files stay.
		h = holds(t, id, repo, "fail")
		if w := h.end(); w.Report.State != task.Kept || !strings.Contains(w.Err, errUse.Error()) {
			t.Errorf("its holder failed, and it ended as %s: %q", w.Report.State, w.Err)
		}

		// Somebody else ends it: the holder learns of it, and of the same report.
		h = holds(t, id, repo, "well")
		id.OK(t, repo, "close", h.id)
		if w := h.next(); w.Report.State != task.Closed {
			t.Errorf("closed by another: %+v", w.Report)
		}
		_ = h.cmd.Wait()

		// A holder that is killed takes the boundary with it; the next command
		// brings the work out.
		h = holds(t, id, repo, "well")
		id.OK(t, repo, "exec", h.id, "--", "sh", "-c", "echo c >c.txt; sleep 1000 >/dev/null 2>&1 &")
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
		id.OK(t, repo, "reap")
		if out := id.OK(t, repo, "show", h.id, "--json"); !strings.Contains(out, `"kept"`) {
			t.Errorf("its holder was killed: %s", out)
		}
		if _, err := os.Stat(filepath.Join(id.Runtime, h.id+".sock")); err == nil {
			t.Error("its control socket stayed")
		}
	})
}
