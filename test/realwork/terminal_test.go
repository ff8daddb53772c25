//go:build linux

package realwork

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestTerminal has one open task and programs on a terminal in it.
func TestTerminal(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		var text strings.Builder
		for i := range 500 {
			fmt.Fprintf(&text, "line %d of many\n", i+1)
		}
		repo := id.Repo(t, map[string]string{"a.txt": "a\n", "many.txt": text.String(), "full.py": fullScreen})
		on(t, id, repo, func() {
			task := id.Open(t, repo)
			exec := func(t *testing.T, args ...string) *harness.Screen {
				return terminal(t, id, repo, harness.Bin(), append([]string{"exec", task, "--"}, args...)...)
			}
			t.Run("what it is", func(t *testing.T) {
				s := exec(t, "sh", "-c", `tty; stty -a | head -1; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all three; echo "$TERM $COLORTERM"; test -c /dev/tty && echo to tty >/dev/tty; echo byname >/dev/stderr; ls --color=auto -d /tmp; exit 6`)
				s.Expect("/dev/pts/0")
				s.Expect("rows 24; columns 80")
				s.Expect("all three")
				s.Expect("xterm-256color truecolor")
				s.Expect("to tty")
				s.Expect("byname")
				s.Expect("\x1b[")
				s.Ends(6)
			})
			t.Run("run", func(t *testing.T) {
				s := terminal(t, id, repo, harness.Bin(), "run", "--", "sh", "-c", "tty; read x; echo got $x")
				s.Expect("/dev/pts/")
				s.Type("word\r")
				s.Expect("got word")
				s.Ends(0)
			})
			t.Run("no pty when one side is a file", func(t *testing.T) {
				out := id.Dir + "/out.txt"
				s := terminal(t, id, repo, "/bin/sh", "-c", `"$0" exec "$1" -- sh -c 'test -t 0 || test -t 1 || echo no terminal; printf "a\nb\n"' >"$2"; echo first $?; echo x | "$0" exec "$1" -- sh -c 'tty; test -t 1 || echo no terminal either'; echo done`, harness.Bin(), task, out)
				s.Expect("first 0")
				s.Expect("not a tty")
				s.Expect("no terminal either")
				s.Expect("done")
				s.Ends(0)
				equal(t, "the file, without carriage returns", readString(out), "no terminal\na\nb\n")
			})
			t.Run("resize", func(t *testing.T) {
				s := exec(t, "bash", "-c", `trap told=yes WINCH; echo ready; o=; while ! test -e /tmp/enough; do n=$(stty size); [ "$n" = "$o" ] || echo "$n"; o=$n; sleep 0.1; done; echo "told: $told"`)
				s.Expect("ready")
				s.Size(40, 132)
				s.Expect("40 132")
				// bash forgets a second signal that comes while it is at the first;
				// the size itself must arrive all the same.
				s.Size(10, 20)
				s.Expect("10 20")
				in(t, id, task, "touch /tmp/enough")
				s.Expect("told: yes")
				s.Ends(0)
			})
			t.Run("Ctrl-C belongs to the program", func(t *testing.T) {
				s := exec(t, "bash", "-c", `trap 'echo caught' INT; echo ready; read x; echo "after: $x"; trap - INT; echo again; sleep 600`)
				s.Expect("ready")
				s.Type("\x03")
				s.Expect("caught")
				s.Type("on\r")
				s.Expect("after: on")
				s.Expect("again")
				s.Type("\x03")
				s.Ends(130)
			})
			t.Run("Ctrl-D and Ctrl-backslash", func(t *testing.T) {
				s := exec(t, "sh", "-c", "echo ready; cat >/dev/null; echo end of input; exit 3")
				s.Expect("ready")
				s.Type("\x04")
				s.Expect("end of input")
				s.Ends(3)
				s = exec(t, "sh", "-c", "ulimit -c 0; echo ready; exec sleep 600")
				s.Expect("ready")
				s.Type("\x1c")
				s.Ends(131)
			})
			t.Run("shell with job control", func(t *testing.T) {
				needs(t, id, "bash")
				s := terminal(t, id, repo, harness.Bin(), "shell", task)
				s.Type("PS1=; stty -echo; echo re''ady\r")
				s.Expect("ready")
				s.Type("pwd; set -o | grep monitor\r")
				s.Expect(repo)
				s.Expect("on")
				s.Type("cat\r")
				s.Type("to cat\r")
				s.Expect("to cat")
				s.Type("\x1a") // Ctrl-Z
				s.Expect("Stopped")
				s.Type("jobs -l; echo listed\r")
				s.Expect("Stopped")
				s.Expect("listed")
				s.Type("fg\r")
				s.Type("to cat again\r")
				s.Expect("to cat again")
				s.Type("\x04")
				s.Type("sleep 600 & echo bg; kill %1; wait; echo killed\r")
				s.Expect("bg")
				s.Expect("killed")
				s.Type("exit 9\r")
				s.Ends(9)
				if strings.Contains(s.All(), "no job control") || strings.Contains(s.All(), "cannot set terminal") {
					t.Errorf("the shell complains:\n%s", s.All())
				}
			})
			t.Run("pager", func(t *testing.T) {
				needs(t, id, "less")
				s := exec(t, "less", "many.txt")
				s.Expect("line 20 of many")
				s.Type("G")
				s.Expect("line 500 of many")
				s.Type("/line 77 of\r")
				s.Type("g/line 77 of\r")
				s.Expect("77 of")
				s.Type("q")
				s.Ends(0)
				s = exec(t, "git", "log", "-p")
				s.Expect("first")
				s.Type("q")
				s.Ends(0)
			})
			t.Run("editor", func(t *testing.T) {
				needs(t, id, "vi")
				s := exec(t, "vi", "new.txt")
				s.Expect("\x1b[")
				s.Type("ihello from vi\x1b:wq\r")
				s.Ends(0)
				equal(t, "the file", in(t, id, task, "cat new.txt"), "hello from vi\n")
			})
			t.Run("curses", func(t *testing.T) {
				needs(t, id, "python3")
				s := exec(t, "python3", "full.py")
				s.Expect("size 24x80")
				s.Size(30, 100)
				// curses can miss a signal between its look and its wait for a key;
				// a key makes it look again.
				stop := s.Nudge(" ")
				s.Expect("size 30x100")
				stop()
				s.Type("q")
				s.Ends(4)
			})
			t.Run("top", func(t *testing.T) {
				needs(t, id, "top")
				s := exec(t, "top", "-n", "1")
				s.Expect("Tasks:")
				s.Ends(0)
			})
			t.Run("much output", func(t *testing.T) {
				s := exec(t, "sh", "-c", "seq 200000; echo the end")
				s.Expect("200000\r\nthe end")
				s.Ends(0)
			})
			t.Run("hang-up cancels", func(t *testing.T) {
				s := exec(t, "sh", "-c", "echo $$ >/tmp/pid; echo ready; exec sleep 54321")
				s.Expect("ready")
				// The shell says so before it has become the program.
				harness.Eventually(t, "the control sees the program", func() bool { return processes("sleep\x0054321") })
				s.Close()
				_ = s.Cmd.Wait()
				if processes("sleep\x0054321") {
					t.Error("the program outlives its terminal")
				}
				equal(t, "the task is still usable", in(t, id, task, "echo yes"), "yes\n")
			})
			t.Run("ended from outside", func(t *testing.T) {
				s := exec(t, "sh", "-c", "stty raw -echo; echo ready; exec sleep 600")
				s.Expect("ready")
				_ = s.Cmd.Process.Signal(unix.SIGTERM)
				s.Ends(129) // a terminal that goes away hangs up first
			})
			id.OK(t, repo, "close", "--discard", task)
		})
	})
}

// TestSuspend stops and continues the whole of it from the host's shell.
func TestSuspend(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		needs(t, id, "bash")
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		on(t, id, repo, func() {
			// Standard output is a pipe, so there is no pty: Ctrl-Z is the host shell's.
			s := terminal(t, id, repo, "/bin/bash", "--norc", "-i")
			s.Type("PS1=; stty -echo; echo re''ady\r")
			s.Expect("ready")
			s.Type(harness.Bin() + " run -- sh -c 'echo started; sleep 1; for i in 1 2 3 4 5; do sleep 0.3; done; echo finished' | cat\r")
			s.Expect("started")
			s.Type("\x1a")
			s.Expect("Stopped")
			s.Type("fg\r")
			s.Expect("\r\nfinished") // not the line that fg shows
			s.Expect("\x1b[?2004h")  // the prompt: what is typed before is for the command
			s.Type("stty echo; exit 0\r")
			s.Ends(0)
		})
	})
}

// TestMultiplexer works in tmux, where people keep their agents.
func TestMultiplexer(t *testing.T) {
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skipf("no tmux on this machine: %v", err)
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		on(t, id, repo, func() {
			sock := id.Dir + "/tmux"
			tmux := func(args ...string) string {
				t.Helper()
				r := harness.Run(t, id.Command(context.Background(), repo, "tmux", append([]string{"-S", sock, "-f", os.DevNull}, args...)...))
				if r.Exit != 0 {
					t.Fatal(r)
				}
				return r.Stdout
			}
			done := id.Dir + "/done"
			tmux("new-session", "-d", "-x", "90", "-y", "30", "-s", "s", fmt.Sprintf("'%s' run -- sh -c 'stty size; tty; echo \"$TERM\"' >%s.tty 2>&1; '%s' run -- stty size; '%s' run -- sh -c 'stty size' </dev/tty >/dev/tty; echo over >'%s'; tmux -S '%s' wait-for -S over; sleep 600", harness.Bin(), done, harness.Bin(), harness.Bin(), done, sock))
			tmux("wait-for", "over")
			if pane := tmux("capture-pane", "-p", "-t", "s"); strings.Count(pane, "30 90") != 2 {
				t.Errorf("the pane shows %q", pane)
			}
			tmux("kill-server")
			for end := time.Now().Add(harness.Limit); processes(sock) && time.Now().Before(end); {
				time.Sleep(20 * time.Millisecond) // it answers before it and its shells are gone
			}
		})
	})
}

const fullScreen = `
import curses, sys
def main(w):
    curses.use_default_colors(); curses.curs_set(0)
    while True:
        w.erase(); y, x = w.getmaxyx(); w.addstr(0, 0, "size %dx%d" % (y, x)); w.refresh()
        k = w.getch()
        if k == ord("q"): return
        if k == curses.KEY_RESIZE: curses.update_lines_cols(); w.clear()
curses.wrapper(main); sys.exit(4)
`
