//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/test/harness"
)

// patience bounds a wait that only a bug makes long.
const patience = 30 * time.Second

// prepared is fcaisson, not started yet.
func prepared(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	c := exec.Command(fakeName, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "CAISSON_STATE_DIR="+filepath.Join(dir, ".state"), "HOME="+dir, "TERM=xterm", "PAGER=cat")
	return c
}

// start starts fcaisson; prepare may change how.
func start(t *testing.T, prepare func(*exec.Cmd), args ...string) *exec.Cmd {
	t.Helper()
	c := prepared(t, args...)
	prepare(c)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	})
	return c
}

// onTerminal starts fcaisson on a terminal of its own.
func onTerminal(t *testing.T, args ...string) (*exec.Cmd, *harness.Screen) {
	t.Helper()
	s := harness.OnTerminal(t, prepared(t, args...), os.Getuid())
	return s.Cmd, s
}

func exitOf(t *testing.T, c *exec.Cmd) int {
	t.Helper()
	timer := time.AfterFunc(patience, func() { _ = c.Process.Kill() })
	defer timer.Stop()
	err := c.Wait()
	var e *exec.ExitError
	if err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode()
}

func TestPTY(t *testing.T) {
	c, s := onTerminal(t, "run", "--", "sh", "-c", `trap 'stty size; echo resized' WINCH; stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo terminal; echo ready
while [ -z "$x" ]; do read x || :; done; echo got=$x; exit 5`)
	s.Expect("24 80")
	s.Expect("terminal")
	s.Expect("ready")
	if s.Mode().Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 {
		t.Error("the user's terminal is not in raw mode during the session")
	}
	s.Size(50, 132)
	s.Type("\r") // dash runs the trap when read comes back
	s.Expect("50 132")
	s.Expect("resized")
	s.Type("hello\r")
	s.Expect("got=hello")
	if st := exitOf(t, c); st != 5 {
		t.Errorf("exit %d, want 5", st)
	}
	if s.Mode().Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != unix.ICANON|unix.ECHO|unix.ISIG {
		t.Error("the terminal's mode was not restored")
	}
}

// TestBackground: a session that is not in the foreground of its terminal leaves
// that alone, and goes on. Brought to the foreground it gets what is typed.
func TestBackground(t *testing.T) {
	const inside = `[ -t 0 ] || [ -t 1 ] || echo "no pty"; read x; echo got=$x; exit 5`
	for name, script := range map[string]string{
		// The shell's own job control.
		"job": `set -m; fcaisson run -- sh -c "$0" & read go; fg %1 >/dev/null; echo status=$?`,
		// timeout(1) moves itself out of the foreground, and back never.
		"timeout": `timeout 300 fcaisson run -- sh -c "${0/read x/x=none}"; echo status=$?`,
	} {
		t.Run(name, func(t *testing.T) {
			c := prepared(t)
			own, err := exec.LookPath("bash")
			if err != nil {
				t.Skipf("no bash: %v", err)
			}
			c.Path, c.Args = own, []string{"bash", "--norc", "-c", script, inside}
			s := harness.OnTerminal(t, c, os.Getuid())
			s.Expect("no pty")
			if s.Mode().Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != unix.ICANON|unix.ECHO|unix.ISIG {
				t.Error("the terminal's mode was changed from the background")
			}
			if name == "job" {
				s.Type("go\rhello\r")
				s.Expect("got=hello")
			}
			s.Expect("status=5")
			s.Ends(0)
		})
	}
}

func TestCtrlCBelongsInsideAPTY(t *testing.T) {
	c, s := onTerminal(t, "run", "--", "sh", "-c", `trap 'echo INT inside; exit 7' INT; echo ready; while :; do sleep 0.05; done`)
	s.Expect("ready")
	s.Type("\x03")
	s.Expect("INT inside")
	if st := exitOf(t, c); st != 7 {
		t.Errorf("exit %d, want 7", st)
	}
}

func TestTerminationRestoresTheTerminal(t *testing.T) {
	c, s := onTerminal(t, "run", "--", "sh", "-c", `echo ready; exec sleep 60`)
	s.Expect("ready")
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if st := exitOf(t, c); st != 128+15 {
		t.Errorf("exit %d, want 143", st)
	}
	if s.Mode().Lflag&unix.ICANON == 0 {
		t.Error("the terminal's mode was not restored")
	}
}

func TestClosingTheTerminalCancels(t *testing.T) {
	master, slave, err := harness.OpenPTY(24, 80)
	if err != nil {
		t.Skipf("no pty on this machine: %v", err)
	}
	mark := filepath.Join(t.TempDir(), "mark")
	c := start(t, func(c *exec.Cmd) {
		c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}, "run", "--", "sh", "-c", `trap 'echo term >"$0"; exit 0' TERM; echo ready; while :; do sleep 0.05; done`, mark)
	slave.Close()
	r := bufio.NewReader(master)
	for line := ""; !strings.Contains(line, "ready"); {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	master.Close()
	st := exitOf(t, c)
	if b, _ := os.ReadFile(mark); string(b) != "term\n" {
		t.Errorf("the command was not asked to end: %q, exit %d", b, st)
	}
}

func TestPTYAfterTheCommand(t *testing.T) {
	// A process left behind keeps the pty open; all of the command's output is there.
	c, s := onTerminal(t, "run", "--", "sh", "-c", `trap '' HUP; sleep 20 & seq 1 5000; echo the end`)
	s.Expect("5000\r\nthe end")
	if st := exitOf(t, c); st != 0 {
		t.Errorf("exit %d, want 0", st)
	}
}

// piped starts fcaisson with pipes and returns its output line by line.
func piped(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	c := start(t, func(c *exec.Cmd) { c.Stdout, c.Stderr = w, os.Stderr }, args...)
	w.Close()
	_ = r.SetReadDeadline(time.Now().Add(patience))
	return c, bufio.NewReader(r)
}

func line(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	if got, err := r.ReadString('\n'); strings.TrimSpace(got) != want {
		t.Fatalf("got %q (%v), want %q", got, err, want)
	}
}

func TestSignalsWithoutATerminal(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGALRM} {
		c, r := piped(t, "run", "--", "bash", "-c", `for s in HUP QUIT USR1 USR2 WINCH ALRM; do trap "echo $s; exit 9" $s; done; echo ready; while :; do sleep 0.02; done`)
		line(t, r, "ready")
		if err := c.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		line(t, r, strings.TrimPrefix(unix.SignalName(sig), "SIG"))
		if st := exitOf(t, c); st != 9 {
			t.Errorf("%v: exit %d, want 9", sig, st)
		}
	}
	// A command that dies of one passes it on as a status.
	c, r := piped(t, "run", "--", "sh", "-c", `echo ready; exec sleep 60`)
	line(t, r, "ready")
	_ = c.Process.Signal(syscall.SIGUSR1)
	if st := exitOf(t, c); st != 128+int(syscall.SIGUSR1) {
		t.Errorf("exit %d, want 138", st)
	}
}

func TestCancellationSteps(t *testing.T) {
	c, r := piped(t, "run", "--", "sh", "-c", `trap 'echo TERM' TERM; echo ready; while :; do sleep 0.02; done`)
	line(t, r, "ready")
	_ = c.Process.Signal(os.Interrupt)
	line(t, r, "TERM")
	_ = c.Process.Signal(syscall.SIGTERM)
	line(t, r, "TERM")
	_ = c.Process.Signal(os.Interrupt)
	if st := exitOf(t, c); st != 128+9 {
		t.Errorf("exit %d, want 137", st)
	}
}

func TestSuspend(t *testing.T) {
	c, r := piped(t, "run", "--", "sh", "-c", `echo $$; read x <"$0"; echo on; exit 6`, fifo(t))
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, _ := strconv.Atoi(strings.TrimSpace(text))
	if err := c.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(c.Process.Pid, &ws, unix.WUNTRACED, nil); err != nil || !ws.Stopped() {
		t.Fatalf("fcaisson did not stop: %v %v", ws, err)
	}
	// The signal is on its way by then; taking it is up to the scheduler.
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/stat")
		if err == nil && strings.Contains(string(stat), ") T ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the command is not stopped: %s %v", stat, err)
		}
	}
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(c.Args[len(c.Args)-1], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString("x\n")
	f.Close()
	line(t, r, "on")
	if st := exitOf(t, c); st != 6 {
		t.Errorf("exit %d, want 6", st)
	}
}

func fifo(t *testing.T) string {
	p := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(p, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestInputAfterTheCommandIsNotTaken(t *testing.T) {
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer inW.Close()
	defer outR.Close()
	dir := t.TempDir()
	// The first command closes its input and stays until told: what is typed
	// then belongs to cat.
	c := exec.Command("sh", "-c", fakeName+` run -- sh -c 'echo go; exec <&-; while [ ! -e "$0" ]; do sleep 0.02; done' "$0"; cat`, filepath.Join(dir, "typed"))
	c.Env = append(os.Environ(), "CAISSON_STATE_DIR="+filepath.Join(dir, ".state"))
	c.Stdin, c.Stdout, c.Stderr = inR, outW, os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	_ = outR.SetReadDeadline(time.Now().Add(patience))
	r := bufio.NewReader(outR)
	line(t, r, "go")
	if err := os.WriteFile(filepath.Join(dir, "typed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatal(err)
	}
	// cat is there once the state says the task ended.
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		files, _ := filepath.Glob(filepath.Join(dir, ".state", "*.json"))
		if len(files) == 1 {
			if b, _ := os.ReadFile(files[0]); bytes.Contains(b, []byte(`"closed"`)) {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the first command did not end")
		}
	}
	_, _ = io.WriteString(inW, "later\n")
	inW.Close()
	line(t, r, "later")
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestDiffOnATerminalCannotSteerIt(t *testing.T) {
	dir := t.TempDir()
	open := exec.Command(fakeName, "open", "fix")
	open.Env = append(os.Environ(), "CAISSON_STATE_DIR="+dir)
	if out, err := open.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	master, slave, err := harness.OpenPTY(24, 80)
	if err != nil {
		t.Skipf("no pty on this machine: %v", err)
	}
	defer master.Close()
	// The workspace is a repository whose .env sets PAGER, and which has a pager
	// of its own.
	ws := filepath.Join(dir, "ws")
	ran := filepath.Join(dir, "ran")
	for name, text := range map[string]string{"ws/.git/HEAD": "", "ws/.env": "PAGER=x\n", "ws/bin/mypager": "#!/bin/sh\ntouch " + ran + "\n", "own/mypager": "#!/bin/sh\ncat\ntouch " + ran + ".own\n"} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	diff := func(env ...string) {
		t.Helper()
		c := exec.Command(fakeName, "diff", "fix")
		c.Dir = ws
		c.Env = append(append(os.Environ(), "CAISSON_STATE_DIR="+dir, "TERM=xterm", "LESSOPEN=|touch "+ran+" %s"), env...)
		c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
	}
	diff("CAISSON_PAGER=", "PAGER=touch "+ran)
	diff("PAGER=touch " + ran)                                          // the workspace sets it
	diff("GIT_PAGER=touch "+ran, "PAGER=less")                          // git's own may come from a configuration
	diff("CAISSON_PAGER=" + filepath.Join(ws, "bin/mypager"))           // lies in the workspace
	diff("CAISSON_PAGER=mypager", "PATH="+filepath.Join(ws, "bin"))     // found in the workspace
	diff("CAISSON_PAGER=sh -c 'touch " + ran + "'")                     // needs a shell
	diff("CAISSON_PAGER=no-such-program")                               // missing: no failure
	diff("CAISSON_PAGER=false")                                         // ends at once: no failure
	diff("CAISSON_PAGER=mypager -x", "PATH="+filepath.Join(dir, "own")) // the person's own: run
	if _, err := os.Stat(ran + ".own"); err != nil {
		t.Error("the person's own pager was not run")
	}
	_ = slave.Close()
	var seen bytes.Buffer
	_, _ = io.Copy(&seen, master)
	text := seen.String()
	if strings.Contains(text, "\x1b[2J") || !strings.Contains(text, `new \x1b[2J\xff\r`) {
		t.Errorf("not escaped: %q", text)
	}
	if !strings.Contains(text, "\x1b[32m+new") {
		t.Errorf("not coloured: %q", text)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the workspace chose a program")
	}
}
