//go:build linux

package exhausted

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// bombs use up the memory of a task, each in its own way. They end by
// themselves, what they leave behind too, so that the next call finds room again.
var bombs = []struct{ name, script string }{
	{"one that grows", python + `'
b = []
while True: b.append(bytearray(8 << 20))'`},
	{"full temporary folders", `for d in /tmp /var/tmp ~ /dev/shm; do dd if=/dev/zero of=$d/bomb bs=64k; done 2>/dev/null; exec tail /dev/zero`},
	{"many that are smaller than the worker", `for i in $(seq 80); do { head -c 1000000 /dev/zero; sleep 1; } | tail -c 1000000 >/dev/null & done; wait`},
	{"a storm of forks", python + `'
import os, time
end, keep = time.time() + 1, []
while time.time() < end:
  try: os.fork()
  except OSError: pass
  keep.append(bytearray(1 << 20))'`},
	{"one that would rather be ended last", python + `'
import os
for p in "/proc/self/oom_score_adj", "/proc/%d/oom_score_adj" % os.getppid():
  for s in "0", "-1000":
    try: os.write(os.open(p, os.O_WRONLY), s.encode())
    except OSError: pass
while True: # files without a name, which are no part of its own size
  f = os.memfd_create("bomb")
  for j in range(16): os.write(f, bytes(1 << 20))'`},
}

const python = "exec python3 -c "

// family are the processes of one boundary that no tool may hurt, by what the
// kernel cannot give to another: pid and start.
type family struct{ worker, space string }

// familyOf finds them: W is a child of the supervisor, and I its only child.
func (w *world) familyOf(id string) (f family, pid, space int) {
	w.t.Helper()
	pid, f.worker = w.childOf(w.show(id).Supervisor.PID)
	space, f.space = w.childOf(pid)
	return f, pid, space
}

func (w *world) childOf(parent int) (pid int, ident string) {
	w.t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		text, _ := os.ReadFile(s)
		_, rest, _ := strings.Cut(string(text), ") ")
		f := strings.Fields(rest)
		line, _ := os.ReadFile(filepath.Dir(s) + "/cmdline")
		if len(f) > 19 && f[1] == strconv.Itoa(parent) && strings.HasPrefix(string(line), "caisson-worker\x00") {
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(s)))
			return pid, fmt.Sprint(pid, " since ", f[19])
		}
	}
	w.t.Fatalf("no worker process below %d", parent)
	return 0, ""
}

// score is whom the kernel ends first: the higher, the sooner.
func (w *world) score(pid int) int {
	w.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	n, aerr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || aerr != nil {
		w.t.Fatalf("the score of %d: %v, %v", pid, err, aerr)
	}
	return n
}

// bounded reports whether a control group bounds the memory of tasks here.
func (w *world) bounded(id string) bool {
	w.t.Helper()
	return strings.Contains(w.ok("show", "--json", id), "cgroup limits read back: memory")
}

// TestMemoryBombs: what uses up the memory of a task is ended, and nothing else.
// Its call has failed as a tool fails, the worker is the one it was, and the next
// call works.
func TestMemoryBombs(t *testing.T) {
	t.Parallel()
	rounds := 1
	if os.Getenv("CAISSON_TEST_FULL") != "" {
		rounds = 20
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		limit := "64M"
		if id.UID != 0 {
			limit = "128M" // of each process, where there is no control group
		}
		x := w.Open(t, w.repo, "--memory", limit, "--pids", "500")
		before, _, _ := w.familyOf(x)
		bounded := w.bounded(x)
		for i := range rounds {
			for _, b := range bombs {
				if !bounded && b.name != bombs[0].name && b.name != bombs[1].name {
					continue // it would be the machine's memory
				}
				begun := time.Now()
				r := w.do("exec", x, "--", "timeout", "-s", "KILL", "60", "sh", "-c", b.script)
				t.Logf("%s: %d after %s", b.name, r.Exit, time.Since(begun).Round(time.Millisecond))
				if strings.Contains(r.Stderr, "unknown") || r.Exit == 125 {
					t.Errorf("%s, %d: %v", b.name, i, r)
				}
				if bounded && r.Exit == 137 && !strings.Contains(r.Stderr, "memory: the kernel ended a process at the limit") {
					t.Errorf("%s, %d: not said why: %v", b.name, i, r)
				}
				// The kernel takes its time to give back what a storm of processes held:
				// meanwhile the next one may be ended for it, and is told so.
				for end := time.Now().Add(harness.Limit); ; {
					r := w.do("exec", x, "--", "sh", "-c", "rm -f /tmp/bomb /var/tmp/bomb ~/bomb /dev/shm/bomb")
					if r.Exit == 0 {
						break
					}
					if !bounded || r.Exit != 137 || !strings.Contains(r.Stderr, "memory: the kernel ended a process at the limit") || time.Now().After(end) {
						t.Fatalf("%s, %d: the next call: %v", b.name, i, r)
					}
				}
				if out := w.ok("exec", x, "--", "echo", "next"); out != "next\n" {
					t.Errorf("%s, %d: the next call says %q", b.name, i, out)
				}
				if now, _, _ := w.familyOf(x); now != before {
					t.Fatalf("%s, %d: the worker was %+v, now %+v", b.name, i, before, now)
				}
			}
		}
		w.ok("close", x)
	})
}

// withoutScores is the product with a worker that leaves the choice to the kernel.
var withoutScores = sync.OnceValues(func() (string, error) {
	out := filepath.Join(filepath.Dir(harness.Bin()), "without-scores")
	return out, harness.BuildWithout(out, "scores")
})

// TestScores: the kernel ends a program before its guardian, and this before the
// worker, and no program changes that. Without the worker's care it would not.
func TestScores(t *testing.T) {
	t.Parallel()
	bare, err := withoutScores()
	if err != nil {
		t.Fatal(err)
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		x := w.Open(t, w.repo)
		_, worker, space := w.familyOf(x)
		own := w.score(w.show(x).Supervisor.PID)
		cmd := w.Command(t.Context(), w.repo, harness.Bin(), "exec", x, "--", "sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		guardian, program := 0, 0
		for end := time.Now().Add(harness.Limit); program == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the program is not to be seen")
			}
			guardian, program = guarded(space)
		}
		if a, b := w.score(worker), w.score(space); a != own || b != own {
			t.Errorf("worker %d, tool space %d; both must have their supervisor's score %d", a, b, own)
		}
		if g, p := w.score(guardian), w.score(program); g <= own || p <= g || p != 1000 {
			t.Errorf("worker %d, guardian %d, program %d: the kernel would not end them the other way round", own, g, p)
		}
		// What a program inherits it keeps; it may raise it, which is no harm, nowhere.
		lower := `until [ $(cat /proc/$$/oom_score_adj) = 1000 ]; do :; done
			for s in 0 -1000 999; do printf $s | dd of=/proc/self/oom_score_adj conv=notrunc 2>/dev/null && exit 9; done; cat /proc/self/oom_score_adj`
		if out := w.ok("exec", x, "--", "sh", "-c", lower); out != "1000\n" {
			t.Errorf("a program changed its score: %q", out)
		}
		w.ok("close", "--discard", x)

		// The control: a worker without this.
		r := harness.Run(t, w.Command(t.Context(), w.repo, bare, "run", "--", "sh", "-c", `cat /proc/self/oom_score_adj; printf 7 | dd of=/proc/self/oom_score_adj conv=notrunc 2>/dev/null; cat /proc/$$/oom_score_adj`))
		if first, _, _ := strings.Cut(r.Stdout, "\n"); r.Exit != 0 || first != strconv.Itoa(own) {
			t.Errorf("control: %v", r)
		}
	})
}

// guarded finds the program of a call below I, and its guardian.
func guarded(space int) (guardian, program int) {
	parents := map[int]int{}
	names := map[int]string{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		text, _ := os.ReadFile(s)
		_, rest, _ := strings.Cut(string(text), ") ")
		if f := strings.Fields(rest); len(f) > 1 {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(s)))
			parents[pid], _ = strconv.Atoi(f[1])
			line, _ := os.ReadFile(filepath.Dir(s) + "/cmdline")
			names[pid], _, _ = strings.Cut(string(line), "\x00")
		}
	}
	for pid, parent := range parents {
		if names[pid] == "sleep" && parents[parent] == space {
			return parent, pid
		}
	}
	return 0, 0
}

// TestMemoryWithoutScores is the control of TestMemoryBombs: the same bomb ends
// a worker that does without.
func TestMemoryWithoutScores(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a control group that bounds a task's memory is root's on this road")
	}
	bare, err := withoutScores()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, harness.NewIdentity(t, "bare", 0))
	for range 10 {
		r := harness.Run(t, w.Command(t.Context(), w.repo, bare, "run", "--keep", "never", "--memory", "64M", "--pids", "500", "--", "timeout", "-s", "KILL", "60", "sh", "-c", bombs[2].script))
		if r.Exit == 125 && strings.Contains(r.Stderr, "unknown") {
			return
		}
		if r.Exit == 0 && !strings.Contains(r.Stderr, "memory") {
			t.Skip("no control group bounds memory here")
		}
	}
	t.Error("control: the worker survived ten times without what is to protect it: the bombs prove nothing")
}
