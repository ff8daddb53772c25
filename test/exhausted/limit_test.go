//go:build linux

package exhausted

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestDescriptors runs the product with few descriptors: it says so before it
// begins anything, or it works.
func TestDescriptors(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		for _, n := range []int{8, 10, 16, 20, 40, 63} {
			limit := fmt.Sprintf(`ulimit -n %d; exec "$CAISSON" `, n)
			w.refused(w.shell(limit+`run -- true`), 125, "ulimit -n", "unavailable")
			w.refused(w.shell(limit+`open`), 5, "ulimit -n", "unavailable")
		}
		if out := w.ok("ls", "--all", "--json"); !strings.Contains(out, `"tasks": []`) {
			t.Errorf("something was begun: %s", out)
		}
		// Enough, and none of what the caller's shell has open stays open.
		r := w.shell(`for i in 3 4 5 6 7 8 9; do eval "exec $i</dev/null"; done; ulimit -n 128; exec "$CAISSON" run -- sh -c 'ls /proc/self/fd | wc -l'`)
		if r.Exit != 0 || strings.TrimSpace(r.Stdout) != "4" { // three, and that of ls
			t.Error(r)
		}
	})
}

// TestUmask: one that shuts out even the user's own process hinders nothing, and
// what it keeps from others stays.
func TestUmask(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		for _, mask := range []string{"0777", "0277", "0077"} {
			patch := w.repo + "-" + mask + ".patch"
			r := w.shell(fmt.Sprintf(`umask %s; "$CAISSON" run --name m%s -- sh -c 'echo y >>README' && exec "$CAISSON" export m%s --patch -o %s`, mask, mask, mask, patch))
			if r.Exit != 0 {
				t.Fatalf("umask %s: %v", mask, r)
			}
			if fi, err := os.Stat(patch); err != nil || fi.Mode().Perm() != 0o600 {
				t.Errorf("umask %s: %v %v", mask, fi, err)
			}
		}
	})
}

// TestStopped: nobody waits for a supervisor that is stopped.
func TestStopped(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		x := w.Open(t, w.repo)
		pid := w.show(x).Supervisor.PID
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer syscall.Kill(pid, syscall.SIGCONT)
		// The kernel stops it when it next has the processor.
		for end := time.Now().Add(harness.Limit); ; time.Sleep(10 * time.Millisecond) {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil || time.Now().After(end) {
				t.Fatalf("it does not stop: %v", err)
			}
			if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "T") {
				break
			}
		}
		w.refused(w.do("exec", x, "--", "true"), 125, "kill -CONT", "unavailable")
		w.refused(w.do("apply", x), 5, "kill -CONT", "unavailable")
		w.refused(w.do("close", x), 5, "kill -CONT", "unavailable")
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if out := w.ok("exec", x, "--", "echo", "hi"); out != "hi\n" {
			t.Errorf("continued: %q", out)
		}
		w.ok("close", x)
	})
}

// TestTaskOutOfProcesses: a task that has used up its processes says so, can be
// looked at and ended, and loses nothing.
func TestTaskOutOfProcesses(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		x := w.Open(t, w.repo, "--pids", "64")
		w.ok("exec", x, "--", "sh", "-c", job)
		hold := `import os, time
for i in range(1000):
  try:
    if os.fork() == 0: time.sleep(3600); os._exit(0)
  except OSError: time.sleep(0.002)
time.sleep(3600)`
		w.ok("exec", x, "--", "sh", "-c", `python3 -c "$1" >/dev/null 2>&1 & sleep 0.5`, "sh", hold)
		var r harness.Result
		for end := time.Now().Add(harness.Limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if r = w.do("exec", x, "--", "true"); r.Exit != 0 {
				break
			}
		}
		w.refused(r, 125, "--pids", "limit")
		if out := w.ok("diff", "--stat", x); !strings.Contains(out, "new.txt") {
			t.Errorf("diff: %s", out)
		}
		w.ok("close", x)
		if got := w.blob(x, "heads/main", "new.txt"); got != "new\n" {
			t.Errorf("the commit: %q", got)
		}
	})
}

// TestInotify: `log -f` follows also where no inotify instance is left.
func TestInotify(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		limit := `unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_inotify_instances && exec "$@"' sh `
		if r := w.shell(limit + `true`); r.Exit != 0 {
			t.Skipf("inotify cannot be limited here: %v", r)
		}
		x := w.Open(t, w.repo)
		r := w.shell(limit + `"$CAISSON" log -f ` + x + ` >log & p=$!
			until grep -q "about to" log; do "$CAISSON" exec ` + x + ` -- echo followed >/dev/null; "$CAISSON" close ` + x + `; done; wait $p; echo "ended with $?"; cat log; rm log`)
		if !strings.Contains(r.Stdout, "ended with 0") || !strings.Contains(r.Stdout, "echo followed") {
			t.Error(r)
		}
	})
}
