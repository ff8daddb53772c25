//go:build linux

package calls

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestBackgroundShells has programs that go on beside other calls.
func TestBackgroundShells(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id)
		_, s := sh(c, contract.ShellArgs{Command: "echo up; while read x; do echo got $x; done; echo over; exit 4", Background: true})
		if s.Shell == "" || s.State != "running" {
			t.Fatalf("%+v", s)
		}
		var from *int64
		read := func(want string) (o *contract.ShellOutputResult) {
			t.Helper()
			var all strings.Builder
			for range 1000 {
				_, o = call[contract.ShellOutputResult](c, contract.ShellOutput, contract.ShellOutputArgs{Shell: s.Shell, From: from, WaitMS: 20_000})
				if all.WriteString(o.Text); strings.Contains(all.String(), want) {
					return o
				}
			}
			t.Fatalf("never came: %q, but %q", want, all.String())
			return nil
		}
		read("up\n")
		call[contract.ShellInputResult](c, contract.ShellInput, contract.ShellInputArgs{Shell: s.Shell, Text: "a\nb\n"})
		read("got b\n")
		if _, l := call[contract.ShellListResult](c, contract.ShellList, "{}"); len(l.Shells) != 1 || l.Shells[0].State != "running" || l.Shells[0].Bytes < 10 {
			t.Errorf("list: %+v", l)
		}
		call[contract.ShellInputResult](c, contract.ShellInput, contract.ShellInputArgs{Shell: s.Shell, EOF: true})
		if o := read("over\n"); o.State != "exited" || o.Exit == nil || *o.Exit != 4 {
			t.Errorf("its end: %+v", o)
		}
		zero := int64(0)
		from = &zero
		if o := read("up\ngot a\ngot b\nover\n"); o.From != 0 {
			t.Errorf("all of it again: %+v", o)
		}
		if res, _ := try(c, contract.ShellInput, contract.ShellInputArgs{Shell: s.Shell, Text: "x"}); res.Claimed.Failure == nil {
			t.Error("input for a program that ended")
		}
		if res, _ := try(c, contract.ShellOutput, contract.ShellOutputArgs{Shell: "s99"}); res.Claimed.Failure == nil || res.Claimed.Failure.Code != "not_found" {
			t.Errorf("a shell that never was: %+v", res.Claimed)
		}

		// On a terminal of its own.
		_, s = sh(c, contract.ShellArgs{Command: "test -t 1 && echo tty; cat", Background: true, PTY: true})
		from = nil
		read("tty")
		call[contract.ShellInputResult](c, contract.ShellInput, contract.ShellInputArgs{Shell: s.Shell, Text: "x", EOF: true})
		call[contract.ShellInputResult](c, contract.ShellInput, contract.ShellInputArgs{Shell: s.Shell, EOF: true})
		for read("x"); ; {
			if _, o := call[contract.ShellOutputResult](c, contract.ShellOutput, contract.ShellOutputArgs{Shell: s.Shell, WaitMS: 20_000}); o.State == "exited" {
				break
			}
		}
		// Its own time limit.
		_, s = sh(c, contract.ShellArgs{Command: "sleep 1000", Background: true, TimeoutMS: 200})
		for {
			if _, o := call[contract.ShellOutputResult](c, contract.ShellOutput, contract.ShellOutputArgs{Shell: s.Shell, WaitMS: 20_000}); o.State == "timeout" {
				break
			} else if o.State != "running" {
				t.Fatalf("%+v", o)
			}
		}
		// One that does not start leaves no shell behind.
		if res, _ := try(c, contract.Shell, contract.ShellArgs{Argv: []string{"no-such-program"}, Background: true}); res.Claimed.Failure == nil {
			t.Errorf("no such program: %+v", res)
		}
		if _, l := call[contract.ShellListResult](c, contract.ShellList, "{}"); len(l.Shells) != 3 {
			t.Errorf("list: %+v", l)
		}
		// A shell that runs ends with the task.
		sh(c, contract.ShellArgs{Command: "sleep 1000", Background: true})
		id.OK(t, c.repo, "close", c.task)
		if log := id.OK(t, c.repo, "log", c.task, "--json"); strings.Count(log, `"type":"shell.ended"`) != 4 {
			t.Errorf("ends of shells on record: %s", log)
		}
	})
}

// TestKillIsProof has a shell ignore every signal it can and start children that
// leave its group and session: the answer to shell_kill comes when all are dead.
func TestKillIsProof(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id)
		const hard = `trap '' TERM HUP INT
for i in 1 2 3; do (trap '' TERM HUP; setsid sh -c 'trap "" TERM HUP; while :; do echo beat >>beats; sleep 0.05; done' </dev/null >/dev/null 2>&1 &) done
echo up; while :; do sleep 0.1; done`
		_, s := sh(c, contract.ShellArgs{Command: hard, Background: true})
		_, other := sh(c, contract.ShellArgs{Command: "while read x; do echo $x; done", Background: true})
		for {
			if _, r := sh(c, contract.ShellArgs{Command: "test $(wc -l <beats) -gt 5 && echo yes"}); r.Stdout == "yes\n" {
				break
			}
		}
		if _, k := call[contract.ShellKillResult](c, contract.ShellKill, contract.ShellKillArgs{Shell: s.Shell}); k.State != "killed" {
			t.Errorf("%+v", k)
		}
		// No time passes between the answer and this look, and none may write after it.
		_, r := sh(c, contract.ShellArgs{Command: "a=$(wc -l <beats); sleep 0.5; b=$(wc -l <beats); echo $((b-a))"})
		if r.Stdout != "0\n" {
			t.Errorf("after the answer %s more lines were written", strings.TrimSpace(r.Stdout))
		}
		// Another one goes on untouched.
		call[contract.ShellInputResult](c, contract.ShellInput, contract.ShellInputArgs{Shell: other.Shell, Text: "alive\n"})
		if _, o := call[contract.ShellOutputResult](c, contract.ShellOutput, contract.ShellOutputArgs{Shell: other.Shell, WaitMS: 20_000}); o.Text != "alive\n" {
			t.Errorf("another shell: %+v", o)
		}
	})
}

// TestCancelStorm cancels calls at arbitrary moments while others run. Whatever
// was canceled is dead when its answer comes, and no other call notices.
func TestCancelStorm(t *testing.T) {
	t.Parallel()
	harness.Each(t, storm)
}

func storm(t *testing.T, id *harness.Identity) {
	repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
	h := drives(t, id, repo)
	defer h.end()
	n := 40
	if os.Getenv("CAISSON_TEST_FULL") != "" {
		n = 1000
	}
	for range 4 { // what is made once, is made
		h.call(contract.Shell, contract.ShellArgs{Command: "exit 0"})
	}
	// W, I, and one guardian that waits.
	quiet := func() (c counts) {
		harness.Eventually(t, "no process of a call is left", func() bool {
			c = h.counts(id)
			return c.processes == 3
		})
		return c
	}
	before := quiet()
	var wg sync.WaitGroup
	places := make(chan struct{}, 12)
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			mark := fmt.Sprintf("mark%d", i)
			// It writes its file for as long as it lives.
			num, c := h.begin(contract.Shell, contract.ShellArgs{Command: "(while :; do echo >>" + mark + "; sleep 0.02; done) & wait"}, nil)
			_, beside := h.begin(contract.Shell, contract.ShellArgs{Command: "echo " + mark + "; exit 7"}, nil)
			time.Sleep(time.Duration(rand.Int64N(int64(60 * time.Millisecond))))
			h.cancel(num)
			if a := <-c; a.Code != task.CodeCanceled || a.Result == nil {
				t.Errorf("canceled call %d: %+v", i, a)
			}
			before, _ := os.Stat(filepath.Join(id.State, "tasks", h.id, "source", mark))
			if a := <-beside; a.Result == nil || !strings.Contains(string(a.Result.Claimed.Result), mark) || !strings.Contains(string(a.Result.Claimed.Result), `"exit":7`) {
				t.Errorf("a call beside: %+v", a)
			}
			time.Sleep(50 * time.Millisecond)
			after, _ := os.Stat(filepath.Join(id.State, "tasks", h.id, "source", mark))
			if after != nil && (before == nil || before.Size() != after.Size()) {
				t.Errorf("call %d wrote after its end was told", i)
			}
		})
	}
	wg.Wait()
	// Nothing is left of any of them, as the host counts it.
	quiet()
	var after counts
	harness.Eventually(t, fmt.Sprintf("what the storm took is given back: %+v", before), func() bool {
		after = h.counts(id)
		return after.supervisor <= before.supervisor && after.worker == before.worker && after.space == before.space && after.groups == before.groups
	})
	t.Logf("%d calls were canceled beside as many that were not; before %+v, after %+v", n, before, after)
	res, err := h.call(contract.Shell, contract.ShellArgs{Command: "cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep"})
	if err != "" || !strings.Contains(string(res.Claimed.Result), `"stdout":"0\n"`) {
		t.Errorf("%s: %s", err, res.Claimed.Result)
	}
	if _, err := h.call(contract.ShellList, contract.ShellListArgs{}); err != "" {
		t.Error(err)
	}
}

// counts is what a storm could leave behind, as the host sees it.
type counts struct {
	processes                 int // of the boundary
	supervisor, worker, space int // descriptors; -1: the kernel does not let this user look
	groups                    int // control groups of the installation
}

func (d *driver) counts(id *harness.Identity) (c counts) {
	fds := func(pid int) int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return -1
		}
		return len(list)
	}
	below := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		text, _ := os.ReadFile(s)
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 1 {
			parent, _ := strconv.Atoi(f[1])
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(s)))
			below[parent] = append(below[parent], pid)
		}
	}
	c.supervisor, c.worker, c.space = fds(d.cmd.Process.Pid), -1, -1
	queue := below[d.cmd.Process.Pid]
	if len(queue) == 1 && len(below[queue[0]]) == 1 {
		c.worker, c.space = fds(queue[0]), fds(below[queue[0]][0])
	}
	for ; len(queue) > 0; queue = queue[1:] {
		c.processes++
		queue = append(queue, below[queue[0]]...)
	}
	for _, l := range id.Left() {
		if strings.HasPrefix(l, "cgroup ") {
			c.groups++
		}
	}
	return c
}
