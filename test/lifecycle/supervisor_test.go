//go:build linux

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// terminate asks a process to end and waits until it has.
func terminate(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, fmt.Sprintf("%d ends", pid), func() bool { return !alive(pid) })
}

// TestSupervisorOutlivesItsTerminal opens from a session whose terminal goes
// away, with descriptors that must not be held on to.
func TestSupervisorOutlivesItsTerminal(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		lock := w.Tmp + "/lock"
		w.Write(t, lock, "", 0o600)
		shell := w.Command(context.Background(), w.repo, "sh", "-c", `exec 9<"$1"; flock 9 || exit 9; "$2" open x >/dev/null || exit 8; kill -HUP 0; exit 7`, "sh", lock, w.bin)
		if shell.SysProcAttr == nil {
			shell.SysProcAttr = &syscall.SysProcAttr{}
		}
		shell.SysProcAttr.Setsid = true
		err := shell.Run()
		if ws := shell.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGHUP {
			t.Fatalf("the opener's session: %v", err)
		}
		v := w.show("x")
		if !alive(v.Supervisor.PID) {
			t.Fatal("the supervisor went with the terminal")
		}
		if err := syscall.Kill(v.Supervisor.PID, syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if out := w.ok("exec", "x", "--", "echo", "still here"); out != "still here\n" {
			t.Errorf("%q", out)
		}
		if err := exec.Command("flock", "-n", lock, "true").Run(); err != nil {
			t.Errorf("the supervisor holds a lock of the shell that opened it: %v", err)
		}
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", v.Supervisor.PID))
		for _, f := range fds {
			if to, _ := os.Readlink(f); to == lock {
				t.Errorf("descriptor %s is %s", f, to)
			}
		}
		if to, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", v.Supervisor.PID)); to != "/" {
			t.Errorf("the supervisor stands in %s", to)
		}
		w.ok("close", "x")
		w.clean()
	})
}

// TestSupervisorEnds: by SIGTERM with a rescue, by close, by the boundary's death.
func TestSupervisorEnds(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("open", "term")
		w.ok("exec", "term", "--", "sh", "-c", "echo t >t; git add t; git commit -qm t")
		v := w.show("term")
		terminate(t, v.Supervisor.PID)
		after := w.show(v.ID)
		if after.State != "closed" {
			t.Errorf("after SIGTERM the task is %s (%s)", after.State, after.Problem)
		}
		if got, _ := w.has(v.ID, "heads/main", "t"); got != "t\n" {
			t.Errorf("its commit: %q", got)
		}
		w.ok("open", "closed")
		v = w.show("closed")
		w.ok("close", "closed")
		harness.Eventually(t, "the supervisor ends after close", func() bool { return !alive(v.Supervisor.PID) })
		w.clean()
	})
}

// TestCloseDuringExec: the command is ended, its caller told; no further
// command is let in.
func TestCloseDuringExec(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("open", "x")
		v := w.show("x")
		running := w.start(nil, "exec", "x", "--", "sh", "-c", "echo before >before; trap '' TERM; sleep 1000")
		harness.Eventually(t, "the command runs", func() bool { return exists(w.State + "/tasks/" + v.ID + "/source/before") })
		closing := w.start(nil, "close", "x")
		harness.Eventually(t, "closing has begun", func() bool {
			r := w.do(nil, "exec", v.ID, "--", "true")
			return r.Exit != 0
		})
		_ = running.Wait()
		if code := running.ProcessState.ExitCode(); code != 137 && code != 143 {
			t.Errorf("the command's caller got %d", code)
		}
		if err := closing.Wait(); err != nil {
			t.Errorf("close: %v", err)
		}
		if got, _ := w.has(v.ID, "worktree", "before"); got != "before\n" {
			t.Errorf("the command's file: %q", got)
		}
		w.clean()
	})
}

// TestClientKilled: a command whose caller is gone is canceled; the task stays.
func TestClientKilled(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("open", "x")
		v := w.show("x")
		running := w.start(nil, "exec", "x", "--", "sh", "-c", "echo $$ >pid; sleep 1000")
		harness.Eventually(t, "the command runs", func() bool { return exists(w.State + "/tasks/" + v.ID + "/source/pid") })
		_ = running.Process.Kill()
		_ = running.Wait()
		harness.Eventually(t, "the command is ended", func() bool {
			ev := w.events(v.ID)
			return ev[len(ev)-1] == "call.outcome"
		})
		if out := w.ok("exec", "x", "--", "sh", "-c", "ps ax 2>/dev/null | grep -c '[s]leep 1000'; kill -0 $(cat pid) 2>/dev/null && echo alive; true"); strings.Contains(out, "alive") {
			t.Errorf("it still runs: %q", out)
		}
		w.ok("close", "x")
		w.clean()
	})
}

// TestControlSocket: its mode, and who may speak to it.
func TestControlSocket(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.ok("open", "x")
		v := w.show("x")
		sock := w.Runtime + "/" + v.ID + ".sock"
		i, err := os.Lstat(sock)
		if err != nil || i.Mode().Perm() != 0o600 {
			t.Fatalf("socket: %v %v", i.Mode(), err)
		}
		if d, _ := os.Stat(w.Runtime); d.Mode().Perm() != 0o700 {
			t.Errorf("its folder: %v", d.Mode())
		}
		ping := func(how string, cmd *exec.Cmd) string {
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Sprintf("%s: %v: %s", how, err, out)
			}
			return string(out)
		}
		helper := func() *exec.Cmd {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = []string{"CAISSON_TEST_PING=" + sock}
			return cmd
		}
		as := func(cmd *exec.Cmd, uid int) *exec.Cmd {
			if os.Getuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
			}
			return cmd
		}
		own := as(helper(), id.UID)
		if out := ping("own user", own); !strings.Contains(out, "done") || strings.Contains(out, "denied") {
			t.Errorf("the control: %s", out)
		}
		// The same user in other namespaces.
		for _, flags := range []uintptr{syscall.CLONE_NEWUSER, syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID} {
			cmd := helper()
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
			if os.Getuid() == 0 && id.UID != 0 {
				cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(id.UID), Gid: uint32(id.UID)}
				cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: id.UID, HostID: id.UID, Size: 1}}
				cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: id.UID, HostID: id.UID, Size: 1}}
			} else {
				cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id.UID, Size: 1}}
			}
			if out := ping(fmt.Sprintf("namespaces %x", flags), cmd); !strings.Contains(out, "denied") {
				t.Errorf("flags %x: %s", flags, out)
			}
		}
		if os.Getuid() != 0 {
			t.Log("not root: another user's attempt cannot be made here")
		} else if id.UID == 0 {
			if err := errors.Join(os.Chmod(w.Dir, 0o711), os.Chmod(w.Runtime, 0o711), os.Chmod(sock, 0o666)); err != nil {
				t.Fatal(err)
			}
			if out := ping("another user", as(helper(), harness.UserID)); !strings.Contains(out, "denied") {
				t.Errorf("another user: %s", out)
			}
			_ = os.Chmod(w.Runtime, 0o700)
		}
		w.ok("close", "x")
		w.clean()
	})
}

// ping is the program that TestControlSocket runs as somebody else. It speaks
// the socket's four bytes of length and JSON.
func ping(sock string) int {
	c, err := net.DialTimeout("unix", sock, 10*time.Second)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	body := `{"op":"ping"}`
	_, _ = c.Write(append([]byte{0, 0, 0, byte(len(body))}, body...))
	b := make([]byte, 4096)
	n, _ := c.Read(b)
	m, _ := c.Read(b[n:])
	fmt.Printf("answer %q\n%s\n", b[:n], b[n:n+m])
	return 0
}

// TestOpenerKilled kills the command that opens while its supervisor works.
func TestOpenerKilled(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		for i := range count(4, 40) {
			cmd := w.start(nil, "open", fmt.Sprint("n", i))
			time.Sleep(time.Duration(i*60) * time.Millisecond) // at another step each time
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			// Either nobody opened anything, or it is there to be closed.
			harness.Eventually(t, "the supervisor made up its mind", func() bool {
				for _, v := range w.tasks() {
					if v.State != "ready" && v.State != "closed" {
						return false
					}
				}
				return true
			})
			for _, v := range w.tasks() {
				if v.State == "ready" {
					w.ok("close", v.ID)
				}
			}
		}
		harness.Eventually(t, "all is over", func() bool { return len(w.Left()) == 0 })
		w.clean()
	})
}
