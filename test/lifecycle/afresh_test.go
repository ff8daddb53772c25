//go:build linux

package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// argsOf returns the arguments of a process.
func argsOf(t *testing.T, pid int) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// becameAfresh reports whether a supervisor is the program it became.
func becameAfresh(t *testing.T, pid int) bool {
	t.Helper()
	args := argsOf(t, pid)
	if len(args) < 2 || args[1] != "__supervise" || len(args) > 3 {
		t.Fatalf("a supervisor runs as %q", args)
	}
	if len(args) < 3 {
		return false
	}
	_, err := strconv.Atoi(args[2])
	return err == nil
}

// TestSupervisorAfresh: the supervisor of an open task is not the program that
// opened it. What it was told went with it, nowhere that others look, and nothing
// else did.
func TestSupervisorAfresh(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-of-the-task"
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		for _, how := range []string{"open", "resume"} {
			if how == "open" {
				w.ok("open", "--env", "TOKEN="+secret, "--deny", "shell:rm *", "--keep", "always", "x")
			} else {
				w.ok("resume", "--env", "TOKEN="+secret, "x")
			}
			v := w.show("x")
			pid := v.Supervisor.PID
			if !becameAfresh(t, pid) {
				log, _ := os.ReadFile(w.State + "/supervisor.log")
				t.Fatalf("after %s the supervisor is the program that opened the task: %s", how, log)
			}
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err != nil || strings.Contains(string(env)+strings.Join(argsOf(t, pid), " "), secret) {
				t.Errorf("the value of a variable is in its arguments or environment: %v", err)
			}
			if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) != filepath.Base(w.bin)+"\n" {
				t.Errorf("it is called %q", name)
			}
			sockets := 0
			fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
			for _, f := range fds {
				to, _ := os.Readlink(f)
				if strings.Contains(to, "baton") || strings.Contains(to, "state.db") {
					t.Errorf("descriptor %s is %s", f, to)
				}
				if strings.HasPrefix(to, "socket:") {
					sockets++
				}
				if info, _ := os.ReadFile(strings.Replace(f, "/fd/", "/fdinfo/", 1)); filepath.Base(f) > "2" && !closesOnExec(string(info)) {
					t.Errorf("descriptor %s (%s) would stay open in a program that it starts", f, to)
				}
			}
			// The host's own ones that lead to servers inside are unconnected.
			const inward = 32
			if sockets != 2+inward {
				t.Errorf("%d sockets, not the channel, the control socket and %d that lead inside", sockets, inward)
			}
			if out := w.ok("exec", "x", "--", "sh", "-c", `printf %s "$TOKEN"`); out != secret {
				t.Errorf("the task's variable is %q inside", out)
			}
			w.ok("exec", "x", "--", "sh", "-c", "echo "+secret+how+" >>work.ignored; echo "+how+" >>work")
			if r := w.do(nil, "tool", "x", "shell", `{"command":"rm -rf ."}`); r.Exit == 0 || !strings.Contains(r.Stdout+r.Stderr, "den") {
				t.Errorf("the rules of the task are forgotten: %v", r)
			}
			text, err := os.ReadFile(w.State + "/tasks/" + v.ID + "/evidence/events.jsonl")
			if err != nil || strings.Contains(string(text), secret) {
				t.Errorf("the value of a variable is in the record: %v", err)
			}
			w.do(nil, "close", "x")
			harness.Eventually(t, "the supervisor ends", func() bool { return !alive(pid) })
			w.chain(v.ID)
		}
		w.clean()
	})
}

// closesOnExec reads /proc/PID/fdinfo/N.
func closesOnExec(info string) bool {
	for l := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(l, "flags:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(rest), 8, 64)
			return err == nil && n&0o2000000 != 0
		}
	}
	return false
}

// TestSupervisorStays: one that cannot become another program goes on as it is,
// and the task is as good as any.
func TestSupervisorStays(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		for _, at := range []string{"carry.parked", "carry.exec"} {
			if r := w.do([]string{"CAISSON_FAULT=" + at + ":error"}, "open", "x"); r.Exit != 0 {
				t.Fatalf("%s: %v", at, r)
			}
			v := w.show("x")
			if becameAfresh(t, v.Supervisor.PID) {
				t.Errorf("%s: the fault did nothing", at)
			}
			if log, _ := os.ReadFile(w.State + "/supervisor.log"); !strings.Contains(string(log), v.ID+" goes on as it is") {
				t.Errorf("%s: nothing says so: %s", at, log)
			}
			w.ok("exec", "x", "--", "sh", "-c", "echo done >work")
			w.ok("close", "x")
			if got, _ := w.has(v.ID, "worktree", "work"); got != "done\n" {
				t.Errorf("%s: its work: %q", at, got)
			}
			harness.Eventually(t, "the supervisor ends", func() bool { return !alive(v.Supervisor.PID) })
		}
		w.clean()
	})
}

// TestSupervisorLostAfresh ends the supervisor on its way: whoever opened the task
// is told, and the next command finds nothing running and nothing left.
func TestSupervisorLostAfresh(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		for i, fault := range []string{"carry.parked:kill", "carry.exec:kill", "carry.taken:kill", "carry.taken:error"} {
			r := w.do([]string{"CAISSON_FAULT=" + fault}, "open", "x")
			if r.Exit == 0 || !strings.Contains(r.Stderr, "caisson reap") {
				t.Errorf("%s: %v", fault, r)
			}
			w.settle(fault, i)
			if vs := w.tasks(); !slices.ContainsFunc(vs, func(v view) bool { return v.State == "closed" }) {
				t.Errorf("%s: %+v", fault, vs)
			}
		}
		// One that is stopped there while its boundary ends notices it afterwards.
		opener := w.start([]string{"CAISSON_FAULT=carry.exec:pause"}, "open", "x")
		var sup int
		harness.Eventually(t, "the supervisor stops", func() bool {
			for _, v := range w.tasks() {
				if v.Name == "x" && v.State == "ready" && v.Supervisor != nil {
					sup = v.Supervisor.PID
				}
			}
			return sup != 0 && stopped(sup)
		})
		for _, pid := range w.workers() {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		if err := syscall.Kill(sup, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		_ = opener.Wait()
		harness.Eventually(t, "the supervisor ends", func() bool { return !alive(sup) })
		w.ok("ls")
		w.clean()
	})
}

// TestResumerGone kills whoever resumed a task in the moment between its being
// ready and their hearing so: it is kept, until the time and for the reason of
// before, with every file. Nobody meant to end it.
func TestResumerGone(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		w.ok("open", "x")
		w.ok("exec", "x", "--", "sh", "-c", "echo ignored-by-git >.git-less; echo done >work")
		w.ok("keep", "--for", "90h", "--reason", "for later", "x")
		if r := w.do(nil, "close", "--keep", "always", "x"); r.Exit != 7 {
			t.Fatal(r)
		}
		before := w.show("x")
		for _, at := range []string{"open.ready", "carry.exec"} {
			resumer := w.start([]string{"CAISSON_FAULT=" + at + ":pause"}, "resume", "x")
			var sup int
			harness.Eventually(t, "the supervisor stops at "+at, func() bool {
				v := w.show("x")
				if v.State == "ready" && v.Supervisor != nil {
					sup = v.Supervisor.PID
				}
				return sup != 0 && stopped(sup)
			})
			_ = resumer.Process.Kill()
			_ = resumer.Wait()
			if err := syscall.Kill(sup, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the supervisor ends", func() bool { return !alive(sup) })
			v := w.show("x")
			if v.State != "kept" || v.Retention == nil || before.Retention == nil || v.Retention.Why != before.Retention.Why || !v.Retention.Until.Equal(before.Retention.Until) {
				t.Fatalf("%s: %s (%s), kept by %+v; it was kept by %+v", at, v.State, v.Problem, v.Retention, before.Retention)
			}
		}
		w.ok("resume", "x")
		if out := w.ok("exec", "x", "--", "cat", "work", ".git-less"); out != "done\nignored-by-git\n" {
			t.Errorf("inside: %q", out)
		}
		w.ok("close", "--keep", "never", "x")
		w.ok("ls")
		w.clean()
	})
}

// TestReapWaits: what a killed process had just started holds the task's lock
// until it is another program. `reap` waits for that; it does not pass by what it
// was called for.
func TestReapWaits(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		if r := w.do([]string{"CAISSON_FAULT=open.source:kill"}, "run", "--", "true"); r.Exit != -1 {
			t.Fatal(r)
		}
		locks, _ := filepath.Glob(w.State + "/tasks/*/lock")
		if len(locks) != 1 {
			t.Fatalf("%q", locks)
		}
		holds := w.Command(t.Context(), w.repo, "flock", locks[0], "sh", "-c", "echo held; exec sleep 1")
		out, err := holds.StdoutPipe()
		if err == nil {
			err = holds.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		if r := w.reap(); len(r.Actions) != 1 || r.Actions[0].Result != "closed" {
			t.Errorf("reap did %+v", r.Actions)
		}
		_ = holds.Wait()
		w.clean()
	})
}
