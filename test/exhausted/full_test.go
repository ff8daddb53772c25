//go:build linux

package exhausted

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

const room = "make room" // of the hint about a full file system

// TestStateFull fills the file system of the state folder before anything was
// opened, and by a task's own hand while it is open, with bytes and with inodes.
func TestStateFull(t *testing.T) {
	mounts(t)
	for _, c := range []struct {
		name          string
		bytes, inodes int
		use           string // fills what is left, from inside
	}{
		{"bytes", 40 << 20, 4000, `cat /dev/zero >x.ignored`},
		{"inodes", 40 << 20, 500, `mkdir m && i=0 && while : >m/$i.ignored; do i=$((i+1)); done`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			harness.Each(t, func(t *testing.T, id *harness.Identity) {
				w := newWorld(t, id)
				w.small(w.State, c.bytes, c.inodes)
				if c.name == "bytes" {
					empty := w.fill(w.State)
					w.refused(w.do("run", "--", "true"), 125, room, "state_store")
					w.refused(w.do("open"), 1, room, "state_store")
					w.refused(w.do("ls"), 1, room, "state_store")
					empty()
				}
				x := w.Open(t, w.repo)
				w.ok("exec", x, "--", "sh", "-c", job)
				if r := w.do("exec", x, "--", "sh", "-c", c.use); r.Exit == 0 {
					t.Fatalf("it did not get full: %v", r)
				}
				// No byte is left to end a task with either.
				if c.name == "bytes" {
					w.do("exec", x, "--", "sh", "-c", `for n in 1 2 3 4 5 6 7 8 9; do cat /dev/zero >y$n.ignored; done`)
				}
				w.whileFull(x, c.name == "bytes")

				left := w.do("close", x)
				w.refused(left, 1, room, "state_store", "evidence", "stuck")
				w.ok("ls", "--all")
				for _, p := range []string{"x.ignored", "m"} {
					if err := os.RemoveAll(w.State + "/tasks/" + x + "/source/" + p); err != nil {
						t.Fatal(err)
					}
				}
				if r := w.do("reap"); r.Exit != 0 && r.Exit != 7 {
					t.Error(r)
				}
				if v := w.show(x); v.State != "kept" && v.State != "closed" {
					t.Errorf("with room again it is %s (%s)", v.State, v.Problem)
				}
				if out := w.ok("diff", "--stat", x); !strings.Contains(out, "new.txt") || !strings.Contains(out, "a.txt") {
					t.Errorf("with room again: %s", out)
				}
				if r := w.do("close", x); r.Exit != 0 && r.Exit != 7 { // 7: its ignored files are kept
					t.Error(r)
				}
				if got := w.blob(x, "heads/main", "new.txt"); got != "new\n" {
					t.Errorf("the commit: %q", got)
				}
				if got := w.blob(x, "worktree", "a.txt"); got != "a\nmore\n" {
					t.Errorf("the file: %q", got)
				}
				w.verified(x, "call.outcome", "rescue.done")
				w.ok("run", "--", "true")
			})
		})
	}
}

// whileFull asks for everything there is while nothing can be written.
func (w *world) whileFull(x string, bytes bool) {
	w.t.Helper()
	before := harness.TakePicture(w.t, w.repo)
	out := filepath.Join(w.Dir, "out")
	w.ok("ls")
	w.ok("show", x)
	w.ok("log", x)
	for _, args := range [][]string{
		{"diff", x}, {"apply", x}, {"export", "--patch", x}, {"export", "--dir", out, x}, {"open", "--name", "other"},
	} {
		w.refused(w.do(args...), 1, room, "state_store", "evidence", "source")
	}
	if bytes {
		w.refused(w.do("branch", x), 1, room, "state_store", "evidence", "source")
		w.refused(w.do("keep", "--for", "1h", "--reason", "x", x), 1, room, "state_store", "evidence")
	}
	w.refused(w.do("run", "--", "true"), 125, room, "state_store", "evidence")
	if _, err := os.Lstat(out); err == nil {
		w.t.Errorf("%s is there after an export that failed", out)
	}
	w.same("commands that were refused", before)
}

// TestRepositoryFull fills the file system of the user's repository.
func TestRepositoryFull(t *testing.T) {
	t.Parallel()
	mounts(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		disk := filepath.Join(w.Dir, "disk")
		w.small(disk, 4<<20, 1000)
		from := w.repo
		w.repo = disk + "/repo"
		w.Git(t, w.Dir, "clone", "-q", "--no-hardlinks", from, w.repo)
		x := w.Open(t, w.repo)
		w.ok("exec", x, "--", "sh", "-c", job+` && head -c 200000 /dev/urandom >big.bin`)
		empty := w.fill(disk)
		before := harness.TakePicture(t, w.repo)
		for _, args := range [][]string{{"apply", x}, {"branch", x}, {"export", "--dir", disk + "/out", x}, {"export", "--patch", "-o", disk + "/p", x}} {
			w.refused(w.do(args...), 1, room, "source", "conflict")
			w.same(args[0], before)
		}
		if names, _ := os.ReadDir(disk); len(names) != 2 {
			t.Errorf("beside the repository: %v", names)
		}
		// A task needs no room there: it gets a clone that shares nothing.
		if out := w.ok("run", "--", "cat", "a.txt"); out != "a\n" {
			t.Errorf("run: %q", out)
		}
		w.refused(w.do("close", x), 1, room, "source")
		if v := w.show(x); v.State != "kept" {
			t.Errorf("it is %s (%s)", v.State, v.Problem)
		}
		empty()
		w.ok("apply", x)
		w.ok("close", x)
		if got := w.blob(x, "heads/main", "new.txt"); got != "new\n" {
			t.Errorf("the commit: %q", got)
		}
		w.Git(t, w.repo, "fsck", "--strict")
		if left, _ := filepath.Glob(w.repo + "/.git/objects/pack/*.keep"); left != nil {
			t.Errorf("left: %v", left)
		}
		w.verified(x, "rescue.failed", "rescue.done", "apply.outcome")
	})
}

// TestStandardOutputFull: a result that could not be written is no success.
func TestStandardOutputFull(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		x := w.Open(t, w.repo)
		w.ok("exec", x, "--", "sh", "-c", job)
		for _, args := range []string{"ls", "ls --json", "show " + x, "log " + x, "diff " + x, "export --patch " + x, "version", "plan"} {
			w.refused(w.shell(`"$CAISSON" `+args+` >/dev/full`), 1, room, "conflict")
		}
		w.refused(w.shell(`"$CAISSON" exec `+x+` -- echo hi >/dev/full`), 125, room, "conflict")
		w.ok("close", x)
	})
}
