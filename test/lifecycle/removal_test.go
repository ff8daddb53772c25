//go:build linux

package lifecycle

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// newManyFiles is a world whose tasks have more files than a close removes
// while one waits for it.
func newManyFiles(t *testing.T, id *harness.Identity) *world {
	t.Helper()
	w := newWorld(t, id, faultBin(t))
	cmd := w.Command(t.Context(), w.repo, "sh", "-c", `for d in 1 2 3 4 5 6 7 8; do mkdir m$d; (cd m$d; for i in $(seq 300); do echo >$i; done); done`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	w.git("add", "-A")
	w.git("commit", "-qm", "many")
	w.before = harness.TakePicture(t, w.repo)
	return w
}

// removing reports what is on record of the one task that is not closed; its
// remover's pid is 0 when there is none.
func (w *world) removing() (id string, removing bool, pid int) {
	w.t.Helper()
	var l struct {
		Tasks []struct {
			ID, State  string
			Removing   bool
			Supervisor *struct{ PID int }
		}
	}
	w.decode(w.ok("ls", "--json"), &l)
	if len(l.Tasks) != 1 {
		w.t.Fatalf("not one task: %+v", l)
	}
	v := l.Tasks[0]
	if v.Supervisor != nil {
		pid = v.Supervisor.PID
	}
	return v.ID, v.Removing && v.State == "closing", pid
}

// TestManyFilesAreRemovedLater closes a task of many files: it returns while a
// process of its own removes them, which everybody can see and wait for.
func TestManyFilesAreRemovedLater(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newManyFiles(t, id)
		later := []string{"CAISSON_FAULT=removal.told:pause"}
		for _, c := range []struct {
			name string
			end  func() harness.Result
		}{
			{"run", func() harness.Result { return w.do(later, "run", "--", "true") }},
			{"close", func() harness.Result {
				if r := w.do(later, "open", "many"); r.Exit != 0 {
					t.Fatal(r)
				}
				return w.do(nil, "close", "many")
			}},
		} {
			r := c.end()
			if r.Exit != 0 || c.name == "close" && !strings.Contains(r.Stdout, " removing\n") {
				t.Fatalf("%s: %v", c.name, r)
			}
			task, removing, pid := w.removing()
			if !removing || pid <= 1 {
				t.Fatalf("%s: %s is removing: %v, by %d", c.name, task, removing, pid)
			}
			if out := w.ok("ls"); !strings.Contains(out, "removing") {
				t.Errorf("%s: ls does not say so: %s", c.name, out)
			}
			if refs := w.git("for-each-ref", "refs/caisson/"); refs != "" {
				t.Errorf("%s: the user's repository still has %s", c.name, refs)
			}
			if r := w.reap(); len(r.Actions)+len(r.Orphans) > 0 {
				t.Errorf("%s: a reap is in its way: %+v", c.name, r)
			}
			again := w.start(nil, "close", task) // waits
			time.Sleep(50 * time.Millisecond)    // so that it often does; right without, too
			// The process that show names, which cannot be another: it was stopped by
			// itself and still owns the task.
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if err := again.Wait(); err != nil {
				t.Errorf("%s: a second close: %v", c.name, err)
			}
			if v := w.show(task); v.State != "closed" {
				t.Errorf("%s: %+v", c.name, v)
			}
			if ev := w.events(task); slices.Index(ev, "task.closed") != len(ev)-1 {
				t.Errorf("%s: the record does not end with the task: %v", c.name, ev)
			}
			w.ok("log", task) // which checks the chain
			w.clean()
		}
	})
}

// TestRemovalKilled kills and fails either process at each step of the hand-over.
func TestRemovalKilled(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newManyFiles(t, id)
		for i, c := range []struct {
			fault string
			dies  bool // whoever closes the task
		}{
			{"removal.handing:kill", true}, {"removal.handing:error", false}, {"removal.handed:kill", true},
			{"removal.owned:kill", false}, {"removal.owned:error", false}, {"removal.told:kill", false}, {"removal.told:error", false},
		} {
			if id.UID != 0 && os.Getuid() == 0 && i%3 != 0 && !long {
				continue // by root
			}
			r := w.do([]string{"CAISSON_FAULT=" + c.fault}, "run", "--", "true")
			if (r.Exit == -1) != c.dies || !c.dies && r.Exit != 0 {
				t.Errorf("%s: %v", c.fault, r)
			}
			if i%2 == 0 {
				w.ok("reap")
			}
			for _, v := range w.tasks() {
				w.ok("close", v.ID) // whoever is at it
				if v := w.show(v.ID); v.State != "closed" {
					t.Errorf("%s: %+v", c.fault, v)
				}
				if dir := w.State + "/tasks/" + v.ID; exists(dir+"/source") || exists(dir+"/.source.trash") {
					t.Errorf("%s: files are left", c.fault)
				}
			}
			for _, l := range settled(w.processes) {
				t.Errorf("%s: still runs: %s", c.fault, l)
			}
			if t.Failed() {
				t.Fatal(fmt.Sprint("stopping after ", c.fault))
			}
			w.clean()
		}
		if b, _ := os.ReadFile(w.State + "/supervisor.log"); strings.Contains(string(b), "panic") {
			t.Error(string(b))
		}
	})
}
