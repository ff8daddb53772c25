//go:build linux

package lifecycle

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestDaemons: what forks twice survives its exec, is seen by the next, and is
// dead when close returns: the host looks.
func TestDaemons(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("open", "x")
		mark := fmt.Sprintf("31%d%d", os.Getpid(), id.UID)
		w.ok("exec", "x", "--", "sh", "-c", "(setsid sh -c 'trap \"\" TERM HUP INT; (sleep "+mark+" &) ; sleep "+mark+"' >/dev/null 2>&1 </dev/null &) ; echo started")
		running := func() []string {
			var out []string
			lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, l := range lines {
				if b, _ := os.ReadFile(l); string(b) == "sleep\x00"+mark+"\x00" {
					out = append(out, l)
				}
			}
			return out
		}
		harness.Eventually(t, "both daemons run", func() bool { return len(running()) == 2 })
		w.ok("exec", "x", "--", "true")
		if n := len(running()); n != 2 {
			t.Errorf("%d daemons after the next command", n)
		}
		w.ok("close", "x")
		if l := running(); len(l) != 0 {
			t.Errorf("alive when close has returned: %v", l)
		}
		w.ok("run", "--keep", "never", "--", "sh", "-c", "(setsid sleep "+mark+" >/dev/null 2>&1 </dev/null &); sleep 0.1")
		if l := running(); len(l) != 0 {
			t.Errorf("alive when run has returned: %v", l)
		}
		w.clean()
	})
}

// TestGreedy: commands that fill memory, pids and disk end with a reason and
// leave the task usable.
func TestGreedy(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("open", "--memory", "128m", "--pids", "64", "--disk", "32m", "x")
		r := w.do(nil, "exec", "x", "--", "python3", "-c", "x = bytearray(1 << 30); print(len(x))")
		if r.Exit == 0 && !strings.Contains(w.ok("show", "--json", "x"), `"no-cgroup"`) {
			t.Errorf("memory is not limited and nothing says so: %v", r)
		}
		if id.UID == 0 && r.Exit == 137 && !strings.Contains(r.Stderr, "memory") {
			t.Errorf("memory: no reason: %v", r)
		}
		r = w.do(nil, "exec", "x", "--", "python3", "-c", `
import os, time, sys
n = 0
try:
    for i in range(300):
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        n += 1
except OSError as e:
    print("stopped", n); sys.exit(0)
print("free", n); sys.exit(1)`)
		if r.Exit != 0 || !strings.Contains(r.Stdout, "stopped") {
			t.Errorf("pids: %v", r)
		}
		if out := w.do(nil, "exec", "x", "--", "echo", "well"); id.UID == 0 && out.Stdout != "well\n" && out.Exit == 0 {
			t.Errorf("after that: %v", out)
		}
		// With more memory: what lies on a file system in memory counts as such, and
		// its limit would be the first to end this.
		w.ok("open", "--memory", "2g", "--disk", "32m", "y")
		r = w.do(nil, "exec", "y", "--", "sh", "-c", "i=0; while :; do head -c 4194304 /dev/zero >big$i || exit 9; i=$((i+1)); test $i -lt 200 || sleep 0.05; test $i -lt 400 || exit 0; done")
		if r.Exit == 0 {
			t.Errorf("disk: %v", r)
		}
		if r.Exit == 137 && !strings.Contains(r.Stderr, "limit is") {
			t.Errorf("disk: no reason: %v", r)
		}
		w.ok("close", "--discard", "y")
		w.ok("close", "--discard", "x")
		w.clean()
	})
}

// TestTimeout bounds run and an open task.
func TestTimeout(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		r := w.do(nil, "run", "--timeout", "1s", "--", "sh", "-c", "echo x >x; trap '' TERM; while :; do sleep 1; done")
		if r.Exit != 137 && r.Exit != 143 || !strings.Contains(r.Stderr, "time") {
			t.Errorf("run: %v", r)
		}
		for _, v := range w.tasks() {
			if got, _ := w.has(v.ID, "worktree", "x"); got != "x\n" || v.State != "kept" {
				t.Errorf("%s: %q", v.State, got)
			}
		}
		w.clean()
		w.ok("open", "--timeout", "4s", "x") // on a busy machine it takes a second to say what to do in it
		v := w.show("x")
		w.do(nil, "exec", "x", "--", "sh", "-c", "echo x >x; sleep 100")
		harness.Eventually(t, "the task ends by itself", func() bool { return w.show(v.ID).State == "closed" })
		if got, _ := w.has(v.ID, "worktree", "x"); got != "x\n" {
			t.Errorf("its file: %q", got)
		}
		harness.Eventually(t, "the supervisor ends", func() bool { return !alive(v.Supervisor.PID) })
		w.clean()
	})
}

// TestInterrupted sends SIGINT and SIGTERM at every stage of run: 130, no
// trace, work rescued.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	stages := []string{"open.after-record", "source.pinned", "source.checkedout", "open.intended", "linux.joined", "probe.planted", "open.served", "call.started",
		"call.ended", "close.begun", "rescue.standing", "close.removing"}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		for i, stage := range stages {
			if id.Name == "root" && i%2 == 1 && !long {
				continue
			}
			work := job + "; sleep 0.3"
			midway := stage == "open.served" || stage == "call.started"
			if midway {
				work = "sleep 1000" // the signal may find it at work
			}
			sig := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}[i/2%2]
			cmd := w.start([]string{"CAISSON_FAULT=" + stage + ":pause:1"}, "run", "--keep", "never", "--", "sh", "-c", work)
			harness.Eventually(t, stage+" is reached", func() bool { return stopped(cmd.Process.Pid) })
			_ = cmd.Process.Signal(sig)
			_ = cmd.Process.Signal(syscall.SIGCONT)
			_ = cmd.Wait()
			if killed(cmd) {
				t.Errorf("%s: %v killed the program", stage, sig)
			}
			code := cmd.ProcessState.ExitCode()
			switch {
			case stage == "open.served" && code == 128+int(syscall.SIGTERM):
			case i < 7 && code != 125 && code != 130:
				t.Errorf("%s: exit %d before the command started", stage, code)
			case stage == "call.started" && code != 128+int(syscall.SIGTERM):
				t.Errorf("%s: exit %d", stage, code)
			case i > 7 && code != 0:
				t.Errorf("%s: exit %d after the command had ended", stage, code)
			}
			if midway {
				w.clean()
				continue
			}
			w.settle(stage, i)
			if t.Failed() {
				return
			}
		}
	})
}

// stopped reports whether the process is stopped by a signal.
func stopped(pid int) bool {
	b, _ := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest != "" && rest[0] == 'T'
}

// impatient interrupts a command three times and waits for it. The next wish is
// sent when the last one was heard: else the kernel may make one of two.
func impatient(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	pending := regexp.MustCompile(`(?m)^ShdPnd:\s+[0-9a-f]*[2367abef]$`) // the bit of SIGINT
	for range 3 {
		_ = cmd.Process.Signal(syscall.SIGINT)
		harness.Eventually(t, "the signal is taken", func() bool {
			b, _ := os.ReadFile("/proc/" + itoa(cmd.Process.Pid) + "/status")
			return !pending.Match(b)
		})
		time.Sleep(100 * time.Millisecond)
	}
	_ = cmd.Wait()
}

// TestImpatience: one signal asks a command that does not listen, the second
// hurries, the third kills; then everything is gone.
func TestImpatience(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		cmd := w.start(nil, "run", "--", "sh", "-c", job+"; trap '' TERM INT; echo x >/run/boundary/out/ready; while :; do sleep 1; done")
		harness.Eventually(t, "it runs", func() bool {
			m, _ := filepath.Glob(w.State + "/tasks/*/out/ready")
			return len(m) == 1
		})
		impatient(t, cmd)
		// 125: the boundary was killed before it could tell of the command's death.
		if code := cmd.ProcessState.ExitCode(); code != 137 && code != 125 {
			t.Errorf("exit %d", code)
		}
		w.settle("impatience", 0)
	})
}
