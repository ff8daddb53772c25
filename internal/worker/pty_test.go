//go:build linux

package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/test/harness"
)

// term is the host's side of a pty with what it has printed.
type term struct {
	t      *testing.T
	master *os.File
	mu     sync.Mutex
	text   bytes.Buffer
}

func openTerm(t *testing.T) (*term, *os.File) {
	t.Helper()
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(m.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(m.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	s, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	tm := &term{t: t, master: m}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := m.Read(buf)
			tm.mu.Lock()
			tm.text.Write(buf[:n])
			tm.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return tm, s
}

func (tm *term) has(s string) bool {
	tm.mu.Lock()
	defer tm.mu.Unlock()
	return strings.Contains(tm.text.String(), s)
}

func (tm *term) expect(s string) {
	tm.t.Helper()
	for end := time.Now().Add(20 * time.Second); !tm.has(s); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tm.mu.Lock()
			defer tm.mu.Unlock()
			tm.t.Fatalf("the terminal does not show %q but %q", s, tm.text.String())
		}
	}
}

func (tm *term) say(s string) {
	if _, err := tm.master.WriteString(s); err != nil {
		tm.t.Error(err)
	}
}

func (tm *term) size(rows, cols uint16) {
	if err := unix.IoctlSetWinsize(int(tm.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		tm.t.Error(err)
	}
}

func TestInteractiveShell(t *testing.T) {
	b := start(t)
	tm, slave := openTerm(t)
	defer func() { _ = tm.master.Close() }()
	tm.size(33, 121)
	call, err := b.client.Exec(context.Background(), worker.Command{Argv: []string{"bash", "--norc", "-i"}, Env: []string{"PS1=> ", "TERM=dumb"}, TTY: true}, []*os.File{slave})
	_ = slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	tm.say("stty size; test -t 0 && test -t 1 && test -t 2 && echo tty-''all\n")
	tm.expect("33 121")
	tm.expect("tty-all")
	tm.size(44, 132)
	tm.say("stty size\n")
	tm.expect("44 132")
	// Ctrl-C ends the foreground job, not the shell and not a background job.
	tm.say("sleep 6161 & sleep 6262; echo after-$?\n")
	harness.Eventually(t, "foreground job", func() bool { return count(b, "sleep 6262") == "1\n" })
	tm.say("\x03")
	// The shell abandons the rest of the line; its status is kept.
	tm.say("echo status-$?\n")
	tm.expect("status-130")
	if n := count(b, "sleep 6161"); n != "1\n" {
		t.Errorf("the background job: %s", n)
	}
	// Job control: stop, look, continue.
	tm.say("sleep 6363\n")
	harness.Eventually(t, "second job", func() bool { return count(b, "sleep 6363") == "1\n" })
	tm.say("\x1a")
	tm.expect("Stopped")
	tm.say("kill %2; wait %2; echo jobs-$?; exit 42\n")
	tm.say("exit 42\n") // the first may only warn of jobs
	o, err := call.Wait(deadline(t, 20*time.Second))
	if err != nil || o.Exit != 42 {
		t.Fatalf("%+v %v", o, err)
	}
}

// Closing the terminal hangs up the shell; a cancel ends one that stays.
func TestCancelTerminal(t *testing.T) {
	b := start(t)
	tm, slave := openTerm(t)
	call, err := b.client.Exec(context.Background(), worker.Command{Argv: []string{"bash", "--norc", "-i"}, Env: []string{"PS1=> "}, TTY: true}, []*os.File{slave})
	_ = slave.Close()
	if err != nil {
		t.Fatal(err)
	}
	tm.say("trap '' HUP; sleep 7171\n")
	harness.Eventually(t, "job", func() bool { return count(b, "sleep 7171") == "1\n" })
	if err := call.Cancel(context.Background(), 20*time.Millisecond); err != nil {
		t.Error(err)
	}
	if _, err := call.Wait(deadline(t, 20*time.Second)); err != nil {
		t.Error(err)
	}
	_ = tm.master.Close()
	if n := count(b, "sleep 7171"); n != "0\n" {
		t.Errorf("%s left", n)
	}
}
