package lifecycle

import (
	"os"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestBudgetKilled: who is killed while it waits for room, or at its turn, leaves
// nothing behind that others wait for.
func TestBudgetKilled(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		dir := id.Home + "/.config/caisson"
		w.Write(t, dir+"/policy.yaml", "version: 1\nbudget: {tasks: 1, when_full: wait}\n", 0o600)
		for _, step := range []string{"budget.queued", "budget.turn"} {
			w.ok("open", "--name", "first", "--keep", "never")
			waiting := w.start([]string{"CAISSON_FAULT=" + step + ":kill"}, "run", "--keep", "never", "--", "true")
			if step == "budget.turn" {
				time.Sleep(time.Second) // until it waits; earlier, it is killed all the same
				w.ok("close", "first")
			}
			_ = waiting.Wait()
			if !killed(waiting) {
				t.Errorf("the step %s was never passed", step)
			}
			if step == "budget.queued" {
				w.ok("close", "first")
			}
			w.ok("run", "--keep", "never", "--", "true") // the dead stand before nobody
			w.ok("reap")
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		w.clean()
	})
}
