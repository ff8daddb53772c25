//go:build linux

package worker_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/test/harness"
)

// roleAttack makes this program a tool that tries what channel.md lists as
// F2 to F6: it prints "PID NAME ATTEMPT" for everything that worked.
const roleAttack = "attack"

// roleBomb makes this program double until it may not, forever.
const roleBomb = "bomb"

func bomb() {
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
	}
}

// roleStop makes this program stop what I is just starting, between the fork,
// when it still looks like I, and its exec.
const roleStop = "stop"

func stopStarts() {
	fmt.Println("ready")
	self := "/proc/" + strconv.Itoa(os.Getpid())
	for {
		entries, _ := filepath.Glob("/proc/[0-9]*")
		for _, e := range entries {
			if e == "/proc/1" || e == self {
				continue
			}
			if cmd, _ := os.ReadFile(e + "/cmdline"); string(cmd) == "caisson-worker\x00tools\x00" {
				pid, _ := strconv.Atoi(filepath.Base(e))
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
	}
}

func attack() {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, e := range entries {
		pid, _ := strconv.Atoi(filepath.Base(e))
		if pid == os.Getpid() {
			continue
		}
		cmd, _ := os.ReadFile(e + "/cmdline")
		name := strings.TrimSuffix(strings.ReplaceAll(string(cmd), "\x00", " "), " ")
		worked := func(what string) {
			// Between fork and exec a child looks like the guardian that made it; by
			// the time of the attempt it may be a program of the task already.
			if now, _ := os.ReadFile(e + "/cmdline"); string(now) == string(cmd) {
				fmt.Printf("%d %s: %s\n", pid, name, what)
			}
		}
		for _, f := range []string{"environ", "mem", "exe", "maps", "auxv", "stack"} {
			if fd, err := unix.Open(e+"/"+f, unix.O_RDONLY, 0); err == nil {
				worked(f)
				_ = unix.Close(fd)
			}
		}
		if fds, err := os.ReadDir(e + "/fd"); err == nil {
			worked("list of descriptors")
			for _, fd := range fds {
				if got, err := unix.Open(e+"/fd/"+fd.Name(), unix.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
					worked("descriptor " + fd.Name())
					_ = unix.Close(got)
				}
			}
		}
		if p, err := unix.PidfdOpen(pid, 0); err == nil {
			for fd := range 16 {
				if got, err := unix.PidfdGetfd(p, fd, 0); err == nil {
					worked("pidfd_getfd")
					_ = unix.Close(got)
					break
				}
			}
			_ = unix.Close(p)
		}
		buf := make([]byte, 8)
		if _, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &buf[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0); err == nil || err == unix.EFAULT {
			worked("process_vm_readv")
		}
		runtime.LockOSThread()
		if err := unix.PtraceSeize(pid); err == nil {
			// A process that is ending has no memory any more, and with that no
			// protection and nothing to trace.
			if m, _ := os.ReadFile(e + "/statm"); len(m) > 0 && !strings.HasPrefix(string(m), "0 ") {
				worked("ptrace")
			}
			_ = unix.PtraceInterrupt(pid)
			_, _ = syscall.Wait4(pid, nil, unix.WUNTRACED, nil)
			_ = unix.PtraceDetach(pid)
		}
		runtime.UnlockOSThread()
	}
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, f := range fds {
		if l, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(l, "socket:") {
			fmt.Printf("own fd %s: %s\n", f.Name(), l)
		}
	}
	if len(os.Environ()) != 0 && os.Getenv("PLAN") == "" {
		fmt.Println("strange environment")
	}
}

func TestToolCannotReachTheChannel(t *testing.T) {
	uid := os.Getuid()
	if uid == 0 {
		// As the backend does. The kernel's uid 0 owns the /proc entries of
		// non-dumpable processes, so it could list (not open) descriptors.
		uid = 165432
	}
	b := startAs(t, uid)
	victim, err := b.exec(worker.Command{Argv: []string{"sleep", "3333"}})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "victim up", func() bool { return count(b, "sleep 3333") == "1\n" })
	tool := ownProgram(t, 0o755)
	attackNow := func() string {
		r, err := b.exec(worker.Command{Argv: []string{tool, roleAttack}})
		if err != nil {
			t.Fatal(err)
		}
		_ = r.in.Close()
		return string(<-r.out)
	}
	out := attackNow()
	// Again while guardians come and go: a start must have no weak moment.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				b.sh("exit 0")
			}
		})
	}
	for range 5 {
		for line := range strings.Lines(attackNow()) {
			if strings.Contains(line, "caisson-worker") || strings.HasPrefix(line, "own fd") {
				t.Errorf("worked: %s", line)
			}
		}
	}
	wg.Wait()
	control := map[string]bool{}
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), fmt.Sprint(insider(t, b, "sleep 3333"))+" sleep 3333: "); ok {
			control[rest] = true
			continue
		}
		t.Errorf("worked: %s", line)
	}
	// The control: against another tool every attempt is live. ptrace of a
	// stranger is also subject to the host's Yama setting.
	yama, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	for _, want := range []string{"environ", "mem", "pidfd_getfd", "process_vm_readv", "ptrace"} {
		if !control[want] {
			if s := strings.TrimSpace(string(yama)); s != "" && s != "0" {
				t.Logf("control %s not live: ptrace_scope is %s", want, s)
				continue
			}
			if status, _ := os.ReadFile("/proc/self/status"); strings.Contains(string(status), "\nSeccomp:\t2") {
				t.Logf("control %s not live: this process runs under a system call filter already", want)
				continue
			}
			t.Errorf("control: %s did not work against a tool either:\n%s", want, out)
		}
	}
	if err := victim.Cancel(context.Background(), 0); err != nil {
		t.Error(err)
	}
}

func insider(t *testing.T, b *box, pattern string) int {
	_, out, _ := b.sh("pgrep -f '^" + pattern + "$'")
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// W is not there for tools, and I is pid 1: it cannot be killed or stopped.
func TestToolCannotEndTheSpace(t *testing.T) {
	b := start(t)
	_, out, _ := b.sh("tr '\\0' ' ' </proc/1/cmdline; grep -al init /proc/[0-9]*/cmdline | wc -l")
	if !strings.HasPrefix(out, "caisson-worker tools") {
		t.Errorf("pid 1 is %q", out)
	}
	for sig := 1; sig <= 64; sig++ {
		if sig == 32 || sig == 33 {
			continue // the C library keeps these from programs
		}
		b.sh(fmt.Sprintf("kill -%d 1", sig))
	}
	if err := b.client.Ping(deadline(t, 20*time.Second)); err != nil {
		t.Fatalf("pid 1 was ended from inside: %v", err)
	}
	// kill -1 takes the guardians too. The calls are then lost to them, not to
	// the host: the kernel still tells how they ended.
	r, err := b.exec(worker.Command{Argv: []string{"sleep", "2222"}})
	if err != nil {
		t.Fatal(err)
	}
	k, err := b.exec(worker.Command{Argv: []string{"sh", "-c", "read x; kill -KILL -1; exit 8"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = k.in.Close()
	o, err := r.Wait(deadline(t, 20*time.Second))
	if observes() && (err != nil || o.Exit != 137 || !o.Observed) {
		t.Errorf("%+v %v", o, err)
	}
	if o, err := k.Wait(deadline(t, 20*time.Second)); observes() && (err != nil || !o.Observed) {
		t.Errorf("%+v %v", o, err)
	}
	if err := r.Cancel(context.Background(), 0); task.CodeOf(err) != task.CodeStuck {
		t.Errorf("cancel of a call without guardian must not be confirmed: %v", err)
	}
	if exit, _, _ := b.sh("exit 3"); exit != 3 {
		t.Error("the space did not survive kill -1")
	}
}

// A tool stops its guardian. It is woken: the call ends when its program does,
// and a cancel is confirmed.
func TestStoppedGuardian(t *testing.T) {
	b := start(t)
	for _, script := range []string{"read x; kill -STOP $PPID; exit 6", "read x; kill -STOP -1; exit 6"} {
		r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		_ = r.in.Close()
		if o, err := r.Wait(deadline(t, 20*time.Second)); err != nil || o.Exit != 6 {
			t.Errorf("%s: %+v %v", script, o, err)
		}
	}
	r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", "read x; kill -STOP $PPID; sleep 1111"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = r.in.Close()
	harness.Eventually(t, "guardian stopped", func() bool { return count(b, "sleep 1111") == "1\n" })
	if exit, _, _ := b.sh("exit 4"); exit != 4 {
		t.Error("another call was held up")
	}
	if err := r.Cancel(deadline(t, 20*time.Second), 0); err != nil {
		t.Error(err)
	}
	if n := count(b, "sleep 1111"); n != "0\n" {
		t.Errorf("%s of it live", n)
	}
}

// A guardian that is stopped while it is being started is woken as well, though
// the tool space cannot do much else meanwhile.
func TestStoppedStart(t *testing.T) {
	b := start(t)
	stop, err := b.exec(worker.Command{Argv: []string{ownProgram(t, 0o755), roleStop}})
	if err != nil {
		t.Fatal(err)
	}
	_ = stop.in.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				if exit, _, _ := b.sh("exit 3"); exit != 3 {
					t.Error(exit)
				}
			}
		})
	}
	wg.Wait()
	if err := stop.Cancel(context.Background(), 0); err != nil {
		t.Error(err)
	}
}

// A tool kills the guardian that waits for the next call. The next call gets
// another.
func TestKilledSpare(t *testing.T) {
	b := start(t)
	for i := range 20 {
		b.sh("for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q '^caisson-worker call' && [ ${p#/proc/} != $PPID ] && kill -9 ${p#/proc/}; done")
		if exit, out, _ := b.sh(fmt.Sprintf("echo %d; exit 5", i)); exit != 5 || out != fmt.Sprintf("%d\n", i) {
			t.Errorf("%d %q", exit, out)
		}
	}
}

// Closing the channel ends every process, and a process that lives on would
// be seen.
func TestCloseEndsEverything(t *testing.T) {
	b := start(t)
	r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", "setsid sleep 9191 & trap '' TERM HUP; sleep 9192"}})
	if err != nil {
		t.Fatal(err)
	}
	pid := r.PID()
	if observes() && pid == 0 {
		t.Fatal("no pid")
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	_ = b.client.Close()
	select {
	case <-b.exited:
	case <-time.After(20 * time.Second):
		t.Fatal("the worker lives on")
	}
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 20000); n != 1 || err != nil {
		t.Error("the program outlived the channel")
	}
	if _, err := r.Wait(deadline(t, 5*time.Second)); err != nil && task.CodeOf(err) != task.CodeOutcomeUnknown {
		t.Error(err)
	}
}

// The tool space's end is the boundary's end.
func TestSpaceDeathPoisons(t *testing.T) {
	b := start(t)
	pid := b.space()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-b.poison:
		if task.CodeOf(err) != task.CodeChannel {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("not noticed")
	}
	<-b.exited
}
