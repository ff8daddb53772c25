//go:build linux

package worker_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/test/harness"
)

func TestNotStarted(t *testing.T) {
	b := start(t)
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		p := dir + "/" + name
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain := write("plain", "#!/bin/sh\n", 0o644)
	path := "PATH=/nowhere:" + dir
	for _, c := range []struct {
		cmd  worker.Command
		code task.Code
	}{
		{worker.Command{Argv: []string{"no-such-program"}}, task.CodeNoCommand},
		{worker.Command{Argv: []string{"/no/such/program"}}, task.CodeNoCommand},
		{worker.Command{Argv: []string{""}}, task.CodeNoCommand},
		{worker.Command{Argv: []string{"sh"}, Env: []string{"PATH=/nowhere"}}, task.CodeNoCommand},
		{worker.Command{Argv: []string{write("lost", "#!/no/interpreter\n", 0o755)}}, task.CodeNoCommand},
		{worker.Command{Argv: []string{plain}}, task.CodeNotExecutable},
		{worker.Command{Argv: []string{"plain"}, Env: []string{path}}, task.CodeNotExecutable},
		{worker.Command{Argv: []string{write("garbage", "\x00\x01", 0o755)}}, task.CodeNotExecutable},
		{worker.Command{Argv: []string{"/etc"}}, task.CodeNotExecutable},
		{worker.Command{Argv: []string{"true"}, Dir: dir + "/absent"}, task.CodeNotFound},
		{worker.Command{Argv: []string{"true"}, Dir: plain}, task.CodeNotFound},
		{worker.Command{}, task.CodeUsage},
		{worker.Command{Builtin: "init"}, task.CodeUsage},
		{worker.Command{Argv: []string{"true", strings.Repeat("x", 900<<10)}}, task.CodeUsage},
	} {
		if _, err := b.exec(c.cmd); task.CodeOf(err) != c.code {
			t.Errorf("%.60v: %v (%s), want %s", c.cmd, err, task.CodeOf(err), c.code)
		}
	}
	if exit, _, _ := b.sh("exit 0"); exit != 0 {
		t.Error("a refused start spoiled the channel")
	}
}

func TestEveryStatus(t *testing.T) {
	b := start(t)
	for n := range 256 {
		if exit, _, _ := b.sh(fmt.Sprintf("exit %d", n)); exit != n {
			t.Errorf("exit %d came back as %d", n, exit)
		}
	}
}

func TestEverySignal(t *testing.T) {
	b := start(t)
	for sig := 1; sig <= 31; sig++ {
		want, signal := 128+sig, sig
		switch syscall.Signal(sig) {
		case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGWINCH, syscall.SIGCONT:
			want, signal = 3, 0 // nothing by default
		case syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
			continue
		}
		r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", "read x; exit 3"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Signal(syscall.Signal(sig)); err != nil {
			t.Errorf("signal %d: %v", sig, err)
		}
		if signal == 0 {
			_ = r.in.Close() // does nothing: the shell ends by itself
		}
		o, err := r.Wait(deadline(t, 20*time.Second))
		if err != nil || o.Exit != want || o.Signal != signal {
			t.Errorf("signal %d: %+v, %v", sig, o, err)
		}
		_ = r.in.Close()
	}
}

func TestStopAndContinue(t *testing.T) {
	b := start(t)
	r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", "read x; exit 5"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	state := func() string {
		s, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.PID()))
		_, rest, _ := strings.Cut(string(s), ") ")
		return rest[:min(1, len(rest))]
	}
	harness.Eventually(t, "stopped", func() bool { return state() == "T" })
	_ = r.in.Close()
	if err := r.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if o, err := r.Wait(deadline(t, 20*time.Second)); err != nil || o.Exit != 5 {
		t.Fatalf("%+v %v", o, err)
	}
	if err := r.Signal(syscall.SIGTERM); task.CodeOf(err) != task.CodeState {
		t.Errorf("signal to an ended call: %v", err)
	}
}

// A signal reaches a pipeline as a whole.
func TestSignalEndsPipeline(t *testing.T) {
	b := start(t)
	r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", "sleep 1000 | sleep 1001 | cat; exit 9"}})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "pipeline up", func() bool { _, out, _ := b.sh("pgrep -c '^sleep$'"); return out == "2\n" })
	if err := r.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if o, err := r.Wait(deadline(t, 20*time.Second)); err != nil || o.Exit != 143 {
		t.Fatalf("%+v %v", o, err)
	}
	harness.Eventually(t, "pipeline gone", func() bool { _, out, _ := b.sh("pgrep -c '^sleep$'"); return out == "0\n" })
}

func TestBytesAreExact(t *testing.T) {
	b := start(t)
	r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", "tee /dev/stderr"}})
	if err != nil {
		t.Fatal(err)
	}
	const n = 50 << 20
	var seed [32]byte
	h := sha256.New()
	src := io.TeeReader(io.LimitReader(rand.NewChaCha8(seed), n), h)
	if _, err := io.Copy(r.in, src); err != nil {
		t.Fatal(err)
	}
	_ = r.in.Close()
	if o, err := r.Wait(deadline(t, 60*time.Second)); err != nil || o.Exit != 0 {
		t.Fatalf("%+v %v", o, err)
	}
	want := h.Sum(nil)
	for _, ch := range []chan []byte{r.out, r.err} {
		got := <-ch
		if sum := sha256.Sum256(got); len(got) != n || !bytes.Equal(sum[:], want) {
			t.Errorf("%d bytes came back, or other ones", len(got))
		}
	}
}

func TestArgumentsAreBytes(t *testing.T) {
	b := start(t)
	odd := "a \xff\xfe\n\"'\\ $x\x01"
	r, err := b.exec(worker.Command{Argv: []string{"printf", "%s|", odd, "", "--", odd}})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(<-r.out); got != odd+"||--|"+odd+"|" {
		t.Errorf("%q", got)
	}
	_ = r.in.Close()
}

// What a program finds: environment, descriptors, signals, mask, umask,
// session, rights.
func TestWhatAProgramFinds(t *testing.T) {
	b := start(t)
	exit, out, _ := b.sh("env | sort; pwd", "MINE=1", "BOTH=call", "MINE=2")
	if exit != 0 || !strings.HasPrefix(out, "BOTH=call\nMINE=2\n") || !strings.Contains(out, "PLAN=yes\n") || strings.Count(out, "=") > 7 || !strings.HasSuffix(out, "/tmp\n") {
		t.Errorf("environment %q", out)
	}
	for line, want := range map[string]string{
		"umask":                           "0022\n",
		"cd /proc/self/fd && echo *":      "0 1 2 3\n", // 3 is the shell's own, on this folder
		"grep ^SigIgn: /proc/self/status": "SigIgn:\t0000000000000000\n",
		"grep ^SigBlk: /proc/self/status": "SigBlk:\t0000000000000000\n",
		"cat /proc/sys/kernel/random/boot_id > /dev/null; ps -o sid= -p $$ | tr -d ' '; echo $$": "",
		"tty":              "not a tty\n",
		"ulimit -n":        "77\n",
		"cat < /dev/stdin": "",
	} {
		r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", line}, Rlimits: rlimits(7, 77)})
		if err != nil {
			t.Fatal(err)
		}
		_ = r.in.Close()
		got := string(<-r.out)
		if strings.HasPrefix(line, "cat /proc/sys") {
			sid, pid, _ := strings.Cut(strings.TrimSpace(got), "\n")
			if sid != pid || sid == "" {
				t.Errorf("not its own session: %q", got)
			}
			continue
		}
		if line == "cd /proc/self/fd && echo *" {
			// Listing is done by the shell itself, whose descriptor varies.
			if !strings.HasPrefix(got, "0 1 2") || len(strings.Fields(got)) > 4 {
				t.Errorf("%s: %q", line, got)
			}
			continue
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	b := start(t)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", fmt.Sprintf("read x; echo $x-%d; exit %d", i, i)}})
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = fmt.Fprintf(r.in, "in%d\n", i)
			_ = r.in.Close()
			o, err := r.Wait(deadline(t, 60*time.Second))
			if out := string(<-r.out); err != nil || o.Exit != i || out != fmt.Sprintf("in%d-%d\n", i, i) {
				t.Errorf("call %d: %+v %v %q", i, o, err, out)
			}
		})
	}
	wg.Wait()
}

// A background process that holds the pipes does not hold up the exit, lives
// on, and is seen by the next call.
func TestServerOutlivesItsCall(t *testing.T) {
	b := start(t)
	r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", "setsid sleep 4321 & echo started; exit 4"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = r.in.Close()
	if o, err := r.Wait(deadline(t, 20*time.Second)); err != nil || o.Exit != 4 {
		t.Fatalf("%+v %v", o, err)
	}
	select {
	case <-r.out:
		t.Error("the pipe ended although the server holds it")
	default:
	}
	harness.Eventually(t, "the server belongs to pid 1", func() bool {
		_, out, _ := b.sh("ps -o ppid= -p $(pgrep -f '^sleep 4321' | head -n1) | tr -d ' '")
		return out == "1\n"
	})
	b.sh("pkill -f '^sleep 4321'")
	if got := string(<-r.out); got != "started\n" {
		t.Errorf("%q", got)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	b := start(t)
	exit, _, _ := b.sh("i=0; while [ $i -lt 1000 ]; do (true & ) ; i=$((i+1)); done")
	if exit != 0 {
		t.Fatal(exit)
	}
	// Orphans of this call outlive it by a moment and then belong to pid 1.
	for range 5 {
		b.sh("sleep 0.02 & sleep 0.01 & exit 0")
	}
	harness.Eventually(t, "no zombie", func() bool {
		_, out, _ := b.sh("grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l")
		return out == "0\n"
	})
}

func TestBuiltin(t *testing.T) {
	b := start(t)
	got, err := b.client.Builtin(deadline(t, 20*time.Second), "probe", []byte("spec"))
	if err != nil || string(got) != "probed spec" {
		t.Fatalf("%q %v", got, err)
	}
}

// While a call runs, a guardian is made ready for the next; not when the host
// says that there is none, and a call that comes all the same is started.
func TestLastCall(t *testing.T) {
	b := start(t)
	// Of the processes that it sees three are the tool space, its guardian and
	// itself. It ends with 0 when for some time there are no others: with the race
	// detector a program ends a second late.
	const alone = `n=0; i=0; while [ $n -lt 20 ]; do set -- /proc/[0-9]*; n=$((n+1)); [ $# -gt 3 ] && n=0; i=$((i+1)); [ $i -gt 500 ] && exit 1; sleep 0.01; done`
	const more = `while set -- /proc/[0-9]*; [ $# -le 3 ]; do sleep 0.01; done`
	run := func(script string, last bool) int {
		r, err := b.exec(worker.Command{Argv: []string{"sh", "-c", script}, Last: last})
		if err != nil {
			t.Fatal(err)
		}
		_ = r.in.Close()
		o, err := r.Wait(deadline(t, 60*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return o.Exit
	}
	run(more, false) // control: one is made ready for the next call, or this does not end
	// Each takes one that was made ready before.
	for n := 0; run(alone, true) != 0; n++ {
		if n == 5 {
			t.Fatal("a guardian is made ready for a call that does not come")
		}
	}
}
