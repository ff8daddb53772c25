//go:build linux

package realwork

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/test/harness"
)

// screen is a terminal with a program on it.
type screen struct {
	t      *testing.T
	fd     int
	master *os.File // fd
	slave  *os.File // open here too, so that its mode can be read at any time
	cmd    *exec.Cmd
	before unix.Termios

	mu    sync.Mutex
	grown *sync.Cond
	text  strings.Builder // guarded by mu
	from  int             // guarded by mu: where the next expect looks
	ended bool            // guarded by mu
}

// terminal starts a program of id as the leader of a session with a terminal.
func terminal(t *testing.T, id *harness.Identity, dir, prog string, args ...string) *screen {
	t.Helper()
	// Non-blocking, so that closing it ends a read: else it would not be closed.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skipf("no pty on this machine: %v", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, fd: fd, master: os.NewFile(uintptr(fd), "terminal")}
	s.grown = sync.NewCond(&s.mu)
	if s.slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	_ = s.slave.Chown(id.UID, id.UID) // as login does; fails where we are that user
	s.size(24, 80)
	s.before = s.mode()
	s.cmd = id.Command(t.Context(), dir, prog, args...)
	s.cmd.Env = append(s.cmd.Env, "TERM=xterm-256color", "COLORTERM=truecolor", "PS1=$ ")
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.slave, s.slave, s.slave
	if s.cmd.SysProcAttr == nil {
		s.cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	s.cmd.SysProcAttr.Setsid, s.cmd.SysProcAttr.Setctty = true, true
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // only still there when the test failed
		s.close()
	})
	go s.read()
	return s
}

func (s *screen) close() {
	s.master.Close()
	s.slave.Close()
}

func (s *screen) read() {
	buf := make([]byte, 4096)
	for {
		n, err := s.master.Read(buf)
		s.mu.Lock()
		s.text.Write(buf[:n])
		s.ended = s.ended || err != nil
		s.grown.Broadcast()
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// expect waits until want appears after what was expected before.
func (s *screen) expect(want string) {
	s.t.Helper()
	timer := time.AfterFunc(harness.Limit, func() {
		s.mu.Lock()
		s.ended = true
		s.grown.Broadcast()
		s.mu.Unlock()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if i := strings.Index(s.text.String()[s.from:], want); i >= 0 {
			s.from += i + len(want)
			return
		}
		if s.ended {
			s.t.Fatalf("%q never came; the screen:\n%q", want, clip(s.text.String()))
		}
		s.grown.Wait()
	}
}

func (s *screen) typed(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.master, text); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) size(rows, cols uint16) {
	s.t.Helper()
	if err := unix.IoctlSetWinsize(s.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		s.t.Fatal(err)
	}
}

// nudge types text every two seconds until the returned func is called.
func (s *screen) nudge(text string) (stop func()) {
	quit := make(chan struct{})
	go func() {
		for {
			select {
			case <-quit:
				return
			case <-time.After(2 * time.Second):
				_, _ = unix.Write(s.fd, []byte(text))
			}
		}
	}()
	return func() { close(quit) }
}

func (s *screen) mode() unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *m
}

// ends waits for the program, checks its status and that the terminal is as it was.
func (s *screen) ends(want int) {
	s.t.Helper()
	timer := time.AfterFunc(harness.Limit, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	_ = s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != want {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.t.Errorf("exit %d, want %d; the screen:\n%q", got, want, clip(s.text.String()))
	}
	if s.mode() != s.before {
		s.t.Error("the terminal's mode is not what it was")
	}
}

// all returns what came so far.
func (s *screen) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
