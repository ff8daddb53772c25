//go:build linux

package oci

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// held is what stands on disk of a boundary's runtime.
type held struct {
	Program string
	Args    []string
	ID      string
	Hide    bool

	dir string
	pid int
}

func heldOf(t *testing.T, id *harness.Identity) held {
	t.Helper()
	var h held
	dirs, _ := filepath.Glob(id.State + "/oci/caisson-*")
	if len(dirs) != 1 {
		t.Fatalf("bundles: %q", dirs)
	}
	h.dir = dirs[0]
	b, err := os.ReadFile(filepath.Join(h.dir, "runtime.json"))
	if err == nil {
		err = json.Unmarshal(b, &h)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err = os.ReadFile(filepath.Join(h.dir, "pid"))
	if h.pid, _ = strconv.Atoi(strings.TrimSpace(string(b))); err != nil || h.pid <= 1 {
		t.Fatalf("the boundary's process: %q %v", b, err)
	}
	return h
}

// runtime runs a command of the boundary's runtime, as another person would.
func (h held) runtime(t *testing.T, id *harness.Identity, args ...string) {
	t.Helper()
	argv := append(append([]string{h.Program}, h.Args...), args...)
	if h.Hide {
		argv = append([]string{"unshare", "--mount", "sh", "-c", `umount /sys/fs/cgroup/unified; exec "$@"`, "sh"}, argv...)
	}
	// The supervisor notices and takes away what is left, at times before this has ended.
	if r := harness.Run(t, id.Command(t.Context(), "/", argv[0], argv[1:]...)); r.Exit != 0 {
		t.Log(r)
	}
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(harness.Limit / 4); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it did not come about: %s", what)
		}
	}
}

// What others do to a boundary while a command runs: the command's outcome is unknown
// and it is not repeated, the work is brought out, nothing is left.
func TestLost(t *testing.T) {
	both(t, func(t *testing.T, b string, id *harness.Identity) {
		for _, w := range []struct {
			name   string
			happen func(t *testing.T, h held)
		}{
			{"its process is killed", func(t *testing.T, h held) {
				if err := syscall.Kill(h.pid, syscall.SIGKILL); err != nil { // it lives: the task is open
					t.Error(err)
				}
			}},
			{"the runtime is told to delete it", func(t *testing.T, h held) { h.runtime(t, id, "delete", "--force", h.ID) }},
		} {
			t.Run(w.name, func(t *testing.T) {
				repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
				open := id.Open(t, repo, "--backend", b)
				id.OK(t, repo, "exec", open, "--", "sh", "-c", "echo work >work.txt")
				done := make(chan harness.Result, 1)
				cmd := id.Command(t.Context(), repo, harness.Bin(), "exec", open, "--", "sh", "-c", "echo x >>count.txt; sleep 600")
				go func() { done <- harness.Run(t, cmd) }()
				v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open))
				counted := filepath.Join(v.TaskDir, "source", "count.txt")
				wait(t, "the command runs", func() bool { b, _ := os.ReadFile(counted); return len(b) > 0 })
				w.happen(t, heldOf(t, id))
				select {
				case r := <-done:
					if r.Exit != 125 && r.Exit != 137 {
						t.Errorf("the command ended with %v", r)
					}
				case <-time.After(harness.Limit / 2):
					t.Fatal("the command did not end")
				}
				if b, err := os.ReadFile(counted); err == nil && string(b) != "x\n" {
					t.Errorf("the command ran %d times", strings.Count(string(b), "x"))
				}
				id.Caisson(t, repo, "close", open) // it may have ended by itself
				id.Caisson(t, repo, "reap")
				over(t, id, repo, open)
			})
		}
	})
}

// over waits until nothing of a task stands, and its work is there.
func over(t *testing.T, id *harness.Identity, repo, open string) {
	t.Helper()
	for _, places := range []string{id.State + "/oci/caisson-*", id.Runtime + "/o-*", "/sys/fs/cgroup/*/caisson-*" + open + "*", "/sys/fs/cgroup/caisson-*" + open + "*"} {
		wait(t, "nothing is at "+places, func() bool { left, _ := filepath.Glob(places); return len(left) == 0 })
	}
	if out := id.OK(t, repo, "diff", open); !strings.Contains(out, "work.txt") {
		t.Errorf("the work is lost: %q", out)
	}
	if out, _ := exec.Command("pgrep", "-f", id.Runtime+"/o-").Output(); len(out) > 0 {
		t.Errorf("processes are left: %q", out)
	}
}

// A supervisor that is killed leaves a boundary that ends by itself, and that the next
// command finds and removes.
func TestSupervisorKilled(t *testing.T) {
	both(t, func(t *testing.T, b string, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		open := id.Open(t, repo, "--backend", b)
		id.OK(t, repo, "exec", open, "--", "sh", "-c", "echo work >work.txt")
		h := heldOf(t, id)
		// Its number is its own: the task is open, so it lives.
		if err := syscall.Kill(harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open)).Supervisor.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wait(t, "the boundary ends by itself", func() bool {
			b, err := os.ReadFile("/proc/" + strconv.Itoa(h.pid) + "/stat")
			return err != nil || strings.Contains(string(b), ") Z ")
		})
		id.Caisson(t, repo, "reap")
		over(t, id, repo, open)
	})
}

// What takes more memory than the limit is ended; the task goes on where a control
// group bounds it.
func TestMemory(t *testing.T) {
	each(t, func(t *testing.T, b string) {
		if os.Getuid() != 0 {
			t.Skip("control groups need root")
		}
		id := harness.NewIdentity(t, "root", 0)
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		open := id.Open(t, repo, "--backend", b, "--memory", "192m")
		if r := id.Caisson(t, repo, "exec", open, "--", "sh", "-c", `x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done`); r.Exit == 0 {
			t.Errorf("it ended well: %v", r)
		}
		if b != "gvisor" { // its kernel is one process: it may go as a whole
			if r := id.Caisson(t, repo, "exec", open, "--", "echo", "alive"); r.Stdout != "alive\n" {
				t.Errorf("the open does not go on: %v", r)
			}
		}
		id.Caisson(t, repo, "close", "--discard", open)
	})
}
