//go:build linux

package exhausted

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

const writable = "read-only" // of the hint about a file system that takes no writes

// TestStateReadOnly makes the state folder read-only while a task is open, as
// the kernel does after a disk error, and writable again.
func TestStateReadOnly(t *testing.T) {
	t.Parallel()
	mounts(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		x := w.Open(t, w.repo)
		w.ok("exec", x, "--", "sh", "-c", job)
		before := harness.TakePicture(t, w.repo)
		again := w.readOnly(w.State)
		for _, args := range []string{"ls", "show " + x, "diff " + x, "apply " + x, "branch " + x, "open", "reap", "close " + x} {
			w.refused(w.do(strings.Fields(args)...), 1, writable, "state_store")
		}
		w.refused(w.do("exec", x, "--", "true"), 125, writable, "state_store")
		w.refused(w.do("run", "--", "true"), 125, writable, "state_store")
		w.same("commands that were refused", before)
		again()
		if out := w.ok("exec", x, "--", "cat", "new.txt"); out != "new\n" {
			t.Errorf("writable again: %q", out)
		}
		w.ok("close", x)
		if got := w.blob(x, "worktree", "a.txt"); got != "a\nmore\n" {
			t.Errorf("the file: %q", got)
		}
		w.verified(x, "task.closed")
	})
}

// TestRepositoryReadOnly does it to the user's repository.
func TestRepositoryReadOnly(t *testing.T) {
	t.Parallel()
	mounts(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		x := w.Open(t, w.repo)
		w.ok("exec", x, "--", "sh", "-c", job)
		before := harness.TakePicture(t, w.repo)
		again := w.readOnly(w.repo)
		w.refused(w.do("apply", x), 1, writable, "source")
		w.refused(w.do("branch", x), 1, "caisson export", "source")
		if out := w.ok("export", "--patch", x); !strings.Contains(out, "+new") {
			t.Errorf("a patch needs no room there: %q", out)
		}
		for _, s := range []string{"worktree", "checkout"} {
			w.refused(w.do("run", "--source", s, "--", "true"), 125, "--source clone", "unsupported")
		}
		w.ok("run", "--keep", "never", "--", "cat", "a.txt")
		w.refused(w.do("close", x), 1, writable, "source")
		w.same("commands that were refused", before)
		again()
		w.ok("close", x)
		if got := w.blob(x, "heads/main", "new.txt"); got != "new\n" {
			t.Errorf("the commit: %q", got)
		}
	})
}

// TestRuntimeFolder takes the folder of control sockets away in every way.
func TestRuntimeFolder(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		x := w.Open(t, w.repo)
		// A logout, or a cleaner of temporary files: the task is reached again.
		for range 2 {
			if err := os.RemoveAll(w.Runtime); err != nil {
				t.Fatal(err)
			}
			if out := w.ok("exec", x, "--", "echo", "hi"); out != "hi\n" {
				t.Errorf("without its folder: %q", out)
			}
		}
		// What somebody else put there is theirs.
		if err := os.Remove(w.Runtime + "/" + x + ".sock"); err != nil {
			t.Fatal(err)
		}
		w.Write(t, w.Runtime+"/"+x+".sock", "mine\n", 0o600)
		w.refused(w.do("exec", x, "--", "true"), 125, "caisson reap", "wrong_state")
		if text, _ := os.ReadFile(w.Runtime + "/" + x + ".sock"); string(text) != "mine\n" {
			t.Errorf("a stranger's file became %q", text)
		}
		_ = os.Remove(w.Runtime + "/" + x + ".sock")
		_ = os.RemoveAll(w.Runtime)
		w.ok("close", x)
		if names, _ := os.ReadDir(w.Runtime); len(names) != 0 {
			t.Errorf("left: %v", names)
		}
	})
}

// TestRuntimeFolderFull: nothing is opened that could not be reached.
func TestRuntimeFolderFull(t *testing.T) {
	t.Parallel()
	mounts(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		w.ok("ls")
		w.small(w.Runtime, 4096, 1) // its own folder is the one
		w.refused(w.do("open"), 1, room, "state_store")
		w.refused(w.do("run", "--", "true"), 125, room, "state_store")
		if err := syscall.Unmount(w.Runtime, 0); err != nil {
			t.Fatal(err)
		}
		again := w.readOnly(w.Runtime)
		w.refused(w.do("open"), 1, writable, "state_store")
		w.refused(w.do("run", "--", "true"), 125, writable, "state_store")
		again()
		if out := w.ok("reap", "--json"); !strings.Contains(out, `"actions": []`) {
			t.Errorf("something was left to do: %s", out)
		}
		w.ok("run", "--", "true")
	})
}

// TestStateDeleted deletes all of the state while a task is open and while a
// command runs: no process outlives the record of it.
func TestStateDeleted(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		x := w.Open(t, w.repo)
		w.ok("exec", x, "--", "sh", "-c", job)
		before := harness.TakePicture(t, w.repo)
		remove := func() {
			t.Helper()
			for end := time.Now().Add(harness.Limit); ; time.Sleep(20 * time.Millisecond) {
				err := os.RemoveAll(w.State)
				if err == nil {
					return
				}
				if time.Now().After(end) { // it is written to meanwhile
					t.Fatal(err)
				}
			}
		}
		remove()
		for end := time.Now().Add(harness.Limit); len(w.Left()) != 0; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("left: %q", w.Left())
			}
		}
		for _, d := range before.Changed(harness.TakePicture(t, w.repo), harness.Results) { // its pins are gone
			t.Error("the repository: " + d)
		}
		r := w.shell(`"$CAISSON" run -- sleep 1000 & until ls "$CAISSON_STATE_DIR"/tasks/*/evidence/events.jsonl && grep -q call.intent "$CAISSON_STATE_DIR"/tasks/*/evidence/events.jsonl; do sleep 0.1; done >/dev/null 2>&1
			rm -rf "$CAISSON_STATE_DIR"; wait $!; echo "ended with $?"`)
		if strings.Contains(r.Stdout, "ended with 0") || !strings.Contains(r.Stderr, "was deleted") {
			t.Error(r)
		}
		w.ok("run", "--", "true") // and it goes on from nothing
	})
}

// TestStateWithoutIDMaps: where root's files cannot be shown as another id's,
// nothing runs, since it would run as the kernel's user 0; plan and doctor
// foresee it. An ordinary user needs no such thing.
func TestStateWithoutIDMaps(t *testing.T) {
	t.Parallel()
	mounts(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		w.Mkdir(t, w.State)
		if err := syscall.Mount("ramfs", w.State, "ramfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(w.State, syscall.MNT_DETACH) })
		if err := errors.Join(os.Chmod(w.State, 0o700), os.Chown(w.State, w.UID, w.UID)); err != nil {
			t.Fatal(err)
		}
		if w.UID != 0 {
			if out := w.ok("run", "--", "echo", "hi"); out != "hi\n" {
				t.Error(out)
			}
			return
		}
		// Runtimes that are here would be taken instead.
		w.Env = append(w.Env, "CAISSON_CRUN=/nonexistent/crun", "CAISSON_RUNC=/nonexistent/runc", "CAISSON_RUNSC=/nonexistent/runsc")
		if out := w.do("doctor").Stdout; strings.Contains(out, "✓  id-mapped-mounts") {
			t.Skip("this kernel maps ids on ramfs too")
		} else if !strings.Contains(out, "not usable: the file system of the state folder") {
			t.Errorf("doctor:\n%s", out)
		}
		for _, args := range [][]string{{"plan"}, {"plan", "--grant", "userns"}} {
			if r := w.do(append(args, "--", "true")...); r.Exit != 3 || !strings.Contains(r.Stdout, "kernel's user 0") {
				t.Error(r)
			}
		}
		w.refused(w.do("run", "--", "true"), 125, "ordinary user", "boundary_missing")
		w.refused(w.do("run", "--grant", "userns", "--", "true"), 125, "ordinary user", "boundary_missing")
		if out := w.ok("ls", "--all", "--json"); strings.Contains(out, `"ready"`) || strings.Contains(out, `"kept"`) {
			t.Errorf("something was made: %s", out)
		}
	})
}
