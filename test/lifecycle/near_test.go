//go:build linux

package lifecycle

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// nameLink is where the hint for a task's name lies.
func nameLink(w *world, name string) string {
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s/%x.name", w.Runtime, sum[:16])
}

// lookedNow notes, or forgets, that a command has just looked for what is due.
func lookedNow(t *testing.T, w *world, yes bool) {
	t.Helper()
	at := time.Now()
	if !yes {
		at = at.Add(-time.Hour)
	}
	if err := os.Chtimes(filepath.Join(w.State, "reaped"), at, at); err != nil {
		t.Fatal(err)
	}
}

// TestExecNeedsNoInventory: the supervisor of an open task knows whether it is
// meant; a command in it does not read the inventory at all.
func TestExecNeedsNoInventory(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("open", "--name", "With.Dots_9")
		v := w.show("With.Dots_9")
		db := filepath.Join(w.State, "state.db")
		harness.Eventually(t, "the supervisor lets go of the inventory", func() bool {
			fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", v.Supervisor.PID))
			for _, f := range fds {
				if to, _ := os.Readlink(f); to == db {
					return false
				}
			}
			return true
		})
		if err := os.Rename(db, db+".aside"); err != nil {
			t.Fatal(err)
		}
		w.Write(t, db, "no inventory", 0o600)
		for _, ref := range []string{"With.Dots_9", v.ID} {
			lookedNow(t, w, true)
			if out := w.ok("exec", ref, "--", "printenv", "CAISSON_TASK"); out != v.ID+"\n" {
				t.Errorf("exec %q ran in %q, not in %s", ref, out, v.ID)
			}
		}
		if r := w.do(nil, "exec", v.ID[:4], "--", "true"); r.Exit != 125 {
			t.Errorf("what only the inventory can tell: %v", r)
		}
		if err := os.Rename(db+".aside", db); err != nil {
			t.Fatal(err)
		}
		if out := w.ok("exec", v.ID[:4], "--", "printenv", "CAISSON_TASK"); out != v.ID+"\n" {
			t.Errorf("by the beginning of the id: %q", out)
		}
		w.ok("close", v.ID)
		if left, _ := filepath.Glob(w.Runtime + "/*"); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		w.clean()
	})
}

// TestExecByAHintThatIsWrong: a hint leads to the supervisor that is asked, never
// to one that runs what is not meant for it.
func TestExecByAHintThatIsWrong(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("open", "one")
		w.ok("open", "two")
		one, two := w.show("one"), w.show("two")
		runs := func(in string) {
			t.Helper()
			for _, stamp := range []bool{true, false} {
				lookedNow(t, w, stamp)
				if out := w.ok("exec", "one", "--", "sh", "-c", "cat; printenv CAISSON_TASK"); out != in+"\n" {
					t.Errorf("exec one ran in %q, not in %s", out, in)
				}
			}
		}
		link := nameLink(w, "one")
		if to, err := os.Readlink(link); err != nil || to != one.ID+".sock" {
			t.Fatalf("the hint: %q %v", to, err)
		}
		for _, to := range []string{two.ID + ".sock", "gone.sock", one.ID + ".sock", "/", "../" + one.ID + ".sock"} {
			if err := os.Remove(link); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, link); err != nil {
				t.Fatal(err)
			}
			runs(one.ID)
		}
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
		runs(one.ID)
		// Another installation with the same runtime folder has no such task.
		other := w.Tmp + "/other"
		for _, ref := range []string{"two", two.ID} {
			if r := w.do([]string{"CAISSON_STATE_DIR=" + other}, "exec", ref, "--", "true"); r.Exit != 125 || !strings.Contains(r.Stderr, "not_found") {
				t.Errorf("exec %s of another installation: %v", ref, r)
			}
		}
		// The name goes on to the next task that has it.
		w.ok("close", "one")
		w.ok("open", "one")
		runs(w.show("one").ID)
		w.ok("close", "one")
		w.ok("close", "two")
		w.clean()
	})
}

// TestExecLooksForWhatIsDue: as every command does, but not each of many that
// follow each other.
func TestExecLooksForWhatIsDue(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("open", "dies")
		w.ok("open", "lives")
		v := w.show("dies")
		lookedNow(t, w, true)
		if err := syscall.Kill(v.Supervisor.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "it is dead", func() bool { return !alive(v.Supervisor.PID) })
		lost := func() bool {
			b, err := os.ReadFile(filepath.Join(w.State, "tasks", v.ID, "evidence", "events.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			return strings.Contains(string(b), `"supervisor.lost"`)
		}
		lookedNow(t, w, false)
		w.ok("exec", "lives", "--", "true")
		if !lost() {
			t.Error("the dead one was not found")
		}
		// A dead task's own name leads to nobody: the inventory answers.
		lookedNow(t, w, true)
		if r := w.do(nil, "exec", "dies", "--", "true"); r.Exit != 125 || !strings.Contains(r.Stderr, "not ready") {
			t.Errorf("a command in a task that ended: %v", r)
		}
		w.ok("close", "lives")
		w.do(nil, "close", "dies")
		w.clean()
	})
}
