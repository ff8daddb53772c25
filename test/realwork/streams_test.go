//go:build linux

package realwork

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// noise is n bytes of every value that compress to nothing.
func noise(n int) []byte {
	src := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = src.Read(b)
	return b
}

// ways calls f with `run` and with `exec` in an open task: the same rules hold.
func ways(t *testing.T, f func(t *testing.T, id *harness.Identity, repo string, args ...string)) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n", "sub/deep/b.txt": "b\n"})
		on(t, id, repo, func() {
			t.Run("run", func(t *testing.T) { f(t, id, repo, "run") })
			task := id.Open(t, repo)
			t.Run("exec", func(t *testing.T) { f(t, id, repo, "exec", task) })
			id.OK(t, repo, "close", "--discard", task)
		})
	})
}

func cat(args []string, more ...string) []string { return append(append([]string{}, args...), more...) }

// TestStreams passes bytes both ways.
func TestStreams(t *testing.T) {
	ways(t, func(t *testing.T, id *harness.Identity, repo string, how ...string) {
		data := noise(20 << 20)
		r := feed(t, id, repo, bytes.NewReader(data), cat(how, "--", "tee", "/dev/stderr")...)
		if r.Exit != 0 || r.Stdout != string(data) || r.Stderr != string(data) {
			t.Errorf("exit %d; 20 MiB came back as %d and %d bytes or changed", r.Exit, len(r.Stdout), len(r.Stderr))
		}
		// The streams can be opened by name too.
		r = feed(t, id, repo, strings.NewReader("x"), cat(how, "--", "sh", "-c", "cat /dev/stdin >/dev/stdout; echo e >/dev/stderr; cat </proc/self/fd/0; echo o >>/dev/fd/1")...)
		if r.Exit != 0 || r.Stdout != "xo\n" || r.Stderr != "e\n" {
			t.Errorf("streams by name: %v", r)
		}
		for name, stdin := range map[string]io.Reader{"empty": strings.NewReader(""), "none": nil} {
			r = feed(t, id, repo, stdin, cat(how, "--", "sh", "-c", "cat | od -An -c; echo end")...)
			if r.Exit != 0 || r.Stdout != "end\n" || r.Stderr != "" {
				t.Errorf("%s standard input: %v", name, r)
			}
		}
		// Nothing is added: no line feed, no colour, no word of ours.
		r = feed(t, id, repo, strings.NewReader("no line feed"), cat(how, "--", "sh", "-c", "cat; printf err >&2")...)
		if r.Stdout != "no line feed" || r.Stderr != "err" {
			t.Errorf("something was added: %v", r)
		}
		// A command that reads nothing, and one that closes its input early.
		r = feed(t, id, repo, bytes.NewReader(data), cat(how, "--", "true")...)
		status(t, r, 0)
		r = feed(t, id, repo, bytes.NewReader(data), cat(how, "--", "sh", "-c", "head -c 10 >/dev/null; exec <&-; echo closed")...)
		equal(t, "closed early", r.Stdout, "closed\n")
		// The two outputs are apart and each is in order.
		r = feed(t, id, repo, nil, cat(how, "--", "sh", "-c", "for i in $(seq 500); do echo o$i; echo e$i >&2; done")...)
		for name, got := range map[string]string{"o": r.Stdout, "e": r.Stderr} {
			var want strings.Builder
			for i := 1; i <= 500; i++ {
				fmt.Fprintf(&want, "%s%d\n", name, i)
			}
			equal(t, "stream "+name, got, want.String())
		}
	})
}

// TestHalfClosed answers on standard output after the end of input, and before it.
func TestHalfClosed(t *testing.T) {
	ways(t, func(t *testing.T, id *harness.Identity, repo string, how ...string) {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
		defer cancel()
		cmd := id.Command(ctx, repo, harness.Bin(), cat(how, "--", "sh", "-c", `read a; echo "got $a"; cat >/dev/null; echo at end`)...)
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		fmt.Fprintln(in, "first")
		n, _ := io.ReadAtLeast(out, buf, len("got first\n"))
		equal(t, "while input is open", string(buf[:n]), "got first\n")
		in.Close()
		rest, _ := io.ReadAll(out)
		equal(t, "after the end of input", string(rest), "at end\n")
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestStatus passes every exit status and signal through.
func TestStatus(t *testing.T) {
	ways(t, func(t *testing.T, id *harness.Identity, repo string, how ...string) {
		codes, signals := []int{0, 1, 2, 125, 126, 127, 128, 137, 255}, []int{1, 9, 11, 15}
		if how[0] == "exec" || long() {
			codes, signals = nil, nil
			for i := range 256 {
				codes = append(codes, i)
			}
			for i := 1; i < 32; i++ {
				if (i < 17 || i > 23) && i != 28 { // these stop, continue or are ignored
					signals = append(signals, i)
				}
			}
		}
		if !long() && how[0] == "exec" {
			codes = append(codes[:8], codes[120:140]...)
		}
		for _, c := range codes {
			status(t, feed(t, id, repo, nil, cat(how, "--", "sh", "-c", "exit "+strconv.Itoa(c))...), c)
		}
		for _, s := range signals {
			r := feed(t, id, repo, nil, cat(how, "--", "sh", "-c", "kill -"+strconv.Itoa(s)+" $$; sleep 5")...)
			status(t, r, 128+s)
		}
	})
}

// TestStart starts what can be started, and says why what cannot be cannot.
func TestStart(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"plain.txt": "no program\n", "sub/x.txt": "x\n"})
		for name, text := range map[string]string{"ok.sh": "#!/bin/sh\necho script \"$@\"\n", "bare": "echo no first line\n", "lost.sh": "#!/no/such/program\n", "sub/rel.sh": "#!/bin/sh\necho rel\n"} {
			id.Write(t, repo+"/"+name, text, 0o755)
		}
		id.Git(t, repo, "add", "-A")
		id.Git(t, repo, "commit", "-qm", "programs")
		id.Write(t, repo+"/new.sh", "#!/bin/sh\n", 0o755)
		own := id.Home + "/progs"
		id.Write(t, own+"/hidden", "#!/bin/sh\necho seen\n", 0o755)
		on(t, id, repo, func() {
			task := id.Open(t, repo)
			for _, how := range [][]string{{"run"}, {"exec", task}} {
				try := func(dir string, want int, out string, errs []string, cmd ...string) {
					t.Helper()
					r := feed(t, id, dir, nil, cat(how, cmd...)...)
					if r.Exit != want || r.Stdout != out {
						t.Errorf("want %d and %q: %v", want, out, r)
					}
					contains(t, fmt.Sprint(cmd), r.Stderr, errs...)
				}
				try(repo, 0, "script a b\n", nil, "./ok.sh", "a", "b")
				try(repo, 0, "script -x -- --json\n", nil, "./ok.sh", "-x", "--", "--json")
				try(repo, 0, "script \n", nil, "--", repo+"/ok.sh", "")
				try(repo+"/sub", 0, "rel\n", nil, "./rel.sh")
				try(repo+"/sub", 0, "script\n", nil, "../ok.sh")
				try(repo, 126, "", []string{"./bare", "exec format error", "(not_executable)", "hint: "}, "./bare")
				try(repo, 126, "", []string{"./plain.txt", "permission denied"}, "./plain.txt")
				try(repo, 126, "", []string{"is a directory"}, "./sub")
				try(repo, 127, "", []string{"./lost.sh", "/no/such/program"}, "./lost.sh")
				try(repo, 127, "", []string{"./new.sh", "commit it"}, "./new.sh")
				try(repo, 127, "", []string{"no-such-program", "(no_command)", "PATH"}, "no-such-program")
				try(repo, 127, "", []string{own + "/hidden", "--ro " + own}, own+"/hidden")
				try(repo, 127, "", nil, "--", "")
				try(repo, 125, "", []string{"no such file", "(not_found)"}, "--dir", "/no/such", "--", "true")
				try(repo, 125, "", []string{"absolute", "(usage)"}, "--dir", "sub", "--", "true")
				try(repo, 0, "/tmp\n", nil, "--dir", "/tmp", "--", "pwd")
				try(repo, 125, "", []string{"(usage)"}, "--")
				// A shell that is told the same gives the same: the statuses are right.
				for prog, want := range map[string]int{"./bare": 0, "./plain.txt": 126, "./sub": 126, "./lost.sh": 127, "no-such-program": 127} {
					if r := feed(t, id, repo, nil, cat(how, "--", "sh", "-c", prog)...); r.Exit != want {
						t.Errorf("the control: sh -c %s: %v", prog, r)
					}
				}
			}
			// The way out that the hint names works.
			r := feed(t, id, repo, nil, "run", "--ro", own, "--", own+"/hidden")
			if r.Stdout != "seen\n" {
				t.Errorf("with --ro: %v", r)
			}
			id.OK(t, repo, "close", task)
		})
	})
}

// TestArguments passes any bytes in arguments and variables.
func TestArguments(t *testing.T) {
	ways(t, func(t *testing.T, id *harness.Identity, repo string, how ...string) {
		odd := []string{"", " ", "a b", "tab\t", "line\nfeed", "quote'\"", "$HOME", "*", "\xff\xfe", "ü→", "-n", "--", strings.Repeat("x", 100000)}
		r := feed(t, id, repo, nil, cat(cat(how, "--", "sh", "-c", `for a; do printf '%s\0' "$a"; done`, "sh"), odd...)...)
		equal(t, "arguments", r.Stdout, strings.Join(odd, "\x00")+"\x00")
		r = feed(t, id, repo, nil, cat(how, "--env", "ODD=a b\n\xff=", "--", "sh", "-c", `printf %s "$ODD"`)...)
		equal(t, "a variable", r.Stdout, "a b\n\xff=")
		r = feed(t, with(id, "TOKEN=geheim", "AWS_SECRET_ACCESS_KEY=geheim", "SSH_AUTH_SOCK=/tmp/x", "LC_TIME=C"), repo, nil, cat(how, "--", "env")...)
		if strings.Contains(r.Stdout, "geheim") || strings.Contains(r.Stdout, "SSH_AUTH_SOCK") {
			t.Errorf("the environment went inside: %s", r.Stdout)
		}
	})
}

// TestBrokenPipe ends a writer whose reader went away, as a pipeline does.
func TestBrokenPipe(t *testing.T) {
	ways(t, func(t *testing.T, id *harness.Identity, repo string, how ...string) {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
		defer cancel()
		cmd := id.Command(ctx, repo, "/bin/bash", append([]string{"-c", `"$@" | head -n 1; echo "${PIPESTATUS[0]}"`, "bash", harness.Bin()}, cat(how, "--", "yes")...)...)
		r := harness.Run(t, cmd)
		if r.Stdout != "y\n141\n" || r.Stderr != "" {
			t.Errorf("got %v", r)
		}
	})
}

// TestSignals without a terminal: the command gets what we get; the first
// interrupt asks it to end.
func TestSignals(t *testing.T) {
	ways(t, func(t *testing.T, id *harness.Identity, repo string, how ...string) {
		var errs bytes.Buffer
		start := func(script string) (*exec.Cmd, io.Reader, func()) {
			ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
			cmd := id.Command(ctx, repo, harness.Bin(), cat(how, "--", "bash", "-c", script)...)
			errs.Reset()
			cmd.Stderr = &errs
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 6)
			if _, err := io.ReadFull(out, buf); err != nil || string(buf) != "ready\n" {
				t.Fatalf("%v: %q", err, buf)
			}
			return cmd, out, cancel
		}
		for _, s := range []os.Signal{sigUSR1, sigHUP, sigQUIT} {
			cmd, out, cancel := start(`trap 'echo usr1; exit 9' USR1; trap 'echo hup; exit 9' HUP; trap 'echo quit; exit 9' QUIT; echo ready; while :; do sleep 0.1; done`)
			_ = cmd.Process.Signal(s)
			rest, _ := io.ReadAll(out)
			_ = cmd.Wait()
			want := map[os.Signal]string{sigUSR1: "usr1\n", sigHUP: "hup\n", sigQUIT: "quit\n"}[s]
			if string(rest) != want || cmd.ProcessState.ExitCode() != 9 {
				t.Errorf("%v: %q, exit %d", s, rest, cmd.ProcessState.ExitCode())
			}
			cancel()
		}
		cmd, out, cancel := start(`trap 'echo cleaning; exit 5' TERM; echo ready; while :; do sleep 0.1; done`)
		defer cancel()
		_ = cmd.Process.Signal(os.Interrupt)
		rest, _ := io.ReadAll(out)
		_ = cmd.Wait()
		if string(rest) != "cleaning\n" || cmd.ProcessState.ExitCode() != 5 {
			t.Errorf("interrupt: %q, exit %d: %s", rest, cmd.ProcessState.ExitCode(), &errs)
		}
		cmd, out, cancel = start(`trap '' TERM INT HUP; echo ready; while :; do sleep 0.1; done`)
		defer cancel()
		for range 3 {
			_ = cmd.Process.Signal(os.Interrupt)
			time.Sleep(50 * time.Millisecond) // so that the kernel does not fold three signals into one
		}
		_, _ = io.ReadAll(out)
		_ = cmd.Wait()
		if cmd.ProcessState.ExitCode() != 137 {
			t.Errorf("after three interrupts: exit %d: %s", cmd.ProcessState.ExitCode(), &errs)
		}
	})
}
