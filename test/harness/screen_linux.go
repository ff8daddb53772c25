package harness

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
)

// OpenPTY opens a terminal of this size: what a program writes to slave comes
// out of master. Closing master ends a read of it.
func OpenPTY(rows, cols uint16) (master, slave *os.File, err error) {
	// Non-blocking, so that closing it ends a read: else it would not be closed.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("/dev/ptmx: %w", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), "terminal"), slave, nil
}

// Screen is a terminal with a program on it.
type Screen struct {
	Cmd *exec.Cmd

	t      *testing.T
	fd     int
	master *os.File // fd
	slave  *os.File // open here too, so that its mode can be read at any time
	before unix.Termios

	mu    sync.Mutex
	grown *sync.Cond
	text  strings.Builder // guarded by mu
	from  int             // guarded by mu: where the next Expect looks
	ended bool            // guarded by mu
}

// OnTerminal starts a prepared command as the leader of a session with a
// terminal of 24 by 80, owned by uid. Without a pty on this machine the test
// is skipped.
func OnTerminal(t *testing.T, cmd *exec.Cmd, uid int) *Screen {
	t.Helper()
	master, slave, err := OpenPTY(24, 80)
	if err != nil {
		t.Skipf("no pty on this machine: %v", err)
	}
	s := &Screen{t: t, Cmd: cmd, master: master, slave: slave}
	s.grown = sync.NewCond(&s.mu)
	conn, err := master.SyscallConn() // Fd would make it blocking
	if err == nil {
		err = conn.Control(func(fd uintptr) { s.fd = int(fd) })
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = slave.Chown(uid, uid) // as login does; fails where we are that user
	s.before = s.Mode()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil { // only when the test failed
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		s.Close()
	})
	go s.read()
	return s
}

// Close takes the terminal away from whoever is on it, as a closed window does.
func (s *Screen) Close() {
	s.slave.Close()
	s.master.Close()
}

func (s *Screen) read() {
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

// Expect waits until want appears after what was expected before.
func (s *Screen) Expect(want string) {
	s.t.Helper()
	late := false
	timer := time.AfterFunc(Limit, func() {
		s.mu.Lock()
		late = true
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
		if s.ended || late {
			s.t.Fatalf("%q never came; the screen:\n%q", want, clip(s.text.String()))
		}
		s.grown.Wait()
	}
}

// Type types text.
func (s *Screen) Type(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.master, text); err != nil {
		s.t.Fatal(err)
	}
}

// Size changes the window's size.
func (s *Screen) Size(rows, cols uint16) {
	s.t.Helper()
	if err := unix.IoctlSetWinsize(s.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		s.t.Fatal(err)
	}
}

// Nudge types text every two seconds until the returned func is called.
func (s *Screen) Nudge(text string) (stop func()) {
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

// Mode returns the terminal's mode.
func (s *Screen) Mode() unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *m
}

// Wait waits for the program and returns its status, -1 when it had to be killed.
func (s *Screen) Wait() int {
	s.t.Helper()
	timer := time.AfterFunc(Limit, func() { _ = s.Cmd.Process.Kill() })
	defer timer.Stop()
	_ = s.Cmd.Wait()
	// What it wrote has been read once what comes after it has.
	if _, err := s.slave.WriteString(over); err == nil {
		s.mu.Lock()
		for !s.ended && !strings.Contains(s.text.String(), over) {
			s.grown.Wait()
		}
		s.mu.Unlock()
	}
	return s.Cmd.ProcessState.ExitCode()
}

// over is what Wait writes behind the program's output.
const over = "(the program is over)"

// Ends waits for the program, checks its status and that the terminal is as it was.
func (s *Screen) Ends(want int) {
	s.t.Helper()
	if got := s.Wait(); got != want {
		s.t.Errorf("exit %d, want %d; the screen:\n%q", got, want, clip(s.All()))
	}
	if s.Mode() != s.before {
		s.t.Error("the terminal's mode is not what it was")
	}
}

// All returns what came so far.
func (s *Screen) All() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}
