//go:build linux

package lifecycle

import (
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// says writes the user's policy.
func (w *world) says(text string) {
	w.t.Helper()
	w.Write(w.t, w.Home+"/.config/caisson/policy.yaml", "version: 1\n"+text, 0o600)
}

// TestBudgetAtOnce has twenty processes open a task at once where there is room
// for three. Three do, the others are refused with who holds the room, and leave
// nothing.
func TestBudgetAtOnce(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.says("budget: {tasks: 3, memory: 3g}\n")
		w.ok("ls")
		var wg sync.WaitGroup
		rs := make([]harness.Result, 20)
		for i := range rs {
			wg.Go(func() { rs[i] = w.do(nil, "open", "--memory", "1g") })
		}
		wg.Wait()
		in := 0
		for _, r := range rs {
			switch {
			case r.Exit == 0:
				in++
			case r.Exit != 5 || !strings.Contains(r.Stderr, "policy.yaml:2") || !strings.Contains(r.Stderr, "is held by t") || !strings.Contains(r.Stderr, "caisson close"):
				t.Error(r)
			}
		}
		if out := w.ok("ls"); in != 3 || strings.Count(out, "ready") != 3 || !strings.Contains(out, "3 of 3") || !strings.Contains(out, "3 GiB of 3 GiB") {
			t.Errorf("%d got in:\n%s", in, out)
		}
		if r := w.do(nil, "open", "--memory", "4g"); r.Exit != 4 || !strings.Contains(r.Stderr, "smaller than this task") {
			t.Error(r)
		}
	})
}

// TestBudgetInTurn has processes wait for the one place there is. One is killed
// while it waits: who came after it gets the place all the same.
func TestBudgetInTurn(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.says("budget: {tasks: 1, disk: 1g, when_full: wait}\n")
		w.ok("open", "first")
		waits := func(n string) {
			t.Helper()
			for end := time.Now().Add(harness.Limit); ; time.Sleep(20 * time.Millisecond) {
				out := w.ok("ls")
				if n == "0" && !strings.Contains(out, "waiting for their turn") || n != "0" && strings.Contains(out, "waiting for their turn: "+n+"\n") {
					return
				}
				if time.Now().After(end) {
					t.Fatalf("never %s that wait:\n%s", n, out)
				}
			}
		}
		killed := w.start(nil, "open", "killed")
		waits("1")
		second := make(chan harness.Result, 1)
		go func() { second <- w.do(nil, "open", "second") }()
		waits("2")
		canceled := w.start(nil, "open", "canceled")
		waits("3")
		_ = killed.Process.Signal(syscall.SIGKILL)
		_ = killed.Wait()
		_ = canceled.Process.Signal(syscall.SIGINT)
		_ = canceled.Wait()
		waits("1")
		w.ok("close", "first")
		r := <-second
		if r.Exit != 0 {
			t.Fatal(r)
		}
		waits("0")
		if out := w.ok("show", "second"); strings.Contains(out, "no-cgroup") == strings.Contains(out, "all tasks together at most 1g") {
			t.Errorf("without control groups RES is not bounded by the budget, with them it is:\n%s", out)
		}
		if out := w.ok("ls"); strings.Contains(out, "killed") || strings.Contains(out, "canceled") {
			t.Errorf("left:\n%s", out)
		}
	})
}

// TestRaisedFloor raises what a task needs while it is open: what runs goes on,
// nothing new begins, by no door, until the policy says otherwise.
func TestRaisedFloor(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.says("")
		w.ok("open", "x")
		w.ok("exec", "x", "--", "true")
		running := make(chan harness.Result, 1)
		go func() {
			running <- w.do(nil, "exec", "x", "--", "sh", "-c", "touch up; until test -e stop; do sleep 0.1; done")
		}()
		for end := time.Now().Add(harness.Limit); w.do(nil, "exec", "x", "--", "test", "-e", "up").Exit != 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it does not run")
			}
		}
		w.says("\nfloors: {KRN: 3}\n")
		blocked := func(exit int, args ...string) {
			t.Helper()
			r := w.do(nil, args...)
			if r.Exit != exit || !strings.Contains(r.Stderr, "policy.yaml:3") || !strings.Contains(r.Stderr, "KRN 3 (has 1)") || !strings.Contains(r.Stderr, "caisson close") || strings.Contains(r.Stderr, "caisson accept") {
				t.Error(r)
			}
		}
		blocked(125, "exec", "x", "--", "touch", "stop")
		blocked(3, "tool", "x", "write_file", `{"path":"stop","content":""}`)
		w.says("\nfloors: {KRN: }\n")
		if r := w.do(nil, "exec", "x", "--", "touch", "stop"); r.Exit != 125 || !strings.Contains(r.Stderr, "policy.yaml") {
			t.Errorf("with a policy that cannot be read: %v", r)
		}
		select {
		case r := <-running:
			t.Errorf("what ran did not go on: %v", r)
		default:
		}
		w.says("")
		w.ok("exec", "x", "--", "touch", "stop")
		if r := <-running; r.Exit != 0 {
			t.Error(r)
		}
		if n := strings.Count(strings.Join(w.events(w.show("x").ID), " "), "boundary.blocked"); n != 1 {
			t.Errorf("%d times on record that it is blocked", n)
		}
	})
}

// TestLapsed takes back what a boundary rests on: nothing new begins, and what runs,
// also in the background, ends a while later, with the reason told and on record. The
// task and its work stay. Before that, as the control, it goes on for as long.
func TestLapsed(t *testing.T) {
	t.Parallel()
	const grace = 4 * time.Second // of the build with faults
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		w.says("raise: {KRN: 3}\n")
		accept := func(args ...string) {
			t.Helper()
			s := harness.OnTerminal(t, w.Command(t.Context(), w.repo, bin, append(append([]string{"accept"}, args...), "--axis", "KRN=1", "--reason", "for this test", "--scope", "repo")...), w.UID)
			s.Expect("[y/N]")
			s.Type("y\n")
			if code := s.Wait(); code != 0 {
				t.Fatalf("accept: %d\n%s", code, s.All())
			}
		}
		w.Write(t, w.Tmp+"/plan.json", w.do(nil, "plan", "--json").Stdout, 0o600)
		accept(w.Tmp + "/plan.json")
		w.ok("open", "x")
		w.ok("exec", "x", "--", "sh", "-c", "echo done >work")
		running := make(chan harness.Result, 1)
		go func() {
			running <- w.do(nil, "exec", "x", "--", "sh", "-c", "touch up; sleep 10000 & while :; do sleep 0.1; done")
		}()
		harness.Eventually(t, "it runs", func() bool { return w.do(nil, "exec", "x", "--", "test", "-e", "up").Exit == 0 })
		select {
		case r := <-running:
			t.Fatalf("the control ended: %v", r)
		case <-time.After(grace + grace/2):
		}
		for _, l := range strings.Split(w.ok("accept", "--list"), "\n") {
			if f := strings.Fields(l); len(f) > 0 {
				w.ok("accept", "--revoke", f[0])
			}
		}
		if r := w.do(nil, "exec", "x", "--", "true"); r.Exit != 125 || !strings.Contains(r.Stderr, "KRN 3 (has 1)") || !strings.Contains(r.Stderr, "what runs is ended 4s after") {
			t.Errorf("something new began: %v", r)
		}
		if r := <-running; r.Exit != 137 || !strings.Contains(r.Stderr, "the acceptance that KRN may be missing was over") {
			t.Errorf("what ran: %v", r)
		}
		v := w.show("x")
		if ev := w.events(v.ID); v.State != "ready" || !slices.Contains(ev, "boundary.blocked") || !slices.Contains(ev, "limit.hit") {
			t.Errorf("%s, on record: %q", v.State, ev)
		}
		w.ok("close", "x")
		if got, _ := w.has(v.ID, "worktree", "work"); got != "done\n" {
			t.Errorf("its work: %q", got)
		}
		w.clean()
	})
}

// TestUnwatched has the clock go on while nobody does anything in a task that
// asks nobody: it counts as unwatched, until somebody comes, or the operator says
// that it may be. One that asks, and one that is fresh, goes on.
func TestUnwatched(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.says("")
		w.ok("open", "--unattended", "alone")
		w.ok("open", "asked")
		w.ok("exec", "alone", "--", "true")
		shift(t, w.State, -2*time.Hour)
		w.says("\n") // the time of what rests in memory cannot be moved: have it look again
		w.ok("exec", "asked", "--", "true")
		r := w.do(nil, "exec", "alone", "--", "true")
		if r.Exit != 125 || !strings.Contains(r.Stderr, "broad-unsupervised") || !strings.Contains(r.Stderr, "nobody did anything in it for 1h") || !strings.Contains(r.Stderr, "KRN 3") {
			t.Fatal(r)
		}
		// The operator says that it may be longer; then that it may not.
		w.says("unwatched_after: 30m\n")
		if r := w.do(nil, "exec", "alone", "--", "true"); r.Exit != 125 {
			t.Error(r)
		}
		// Somebody comes.
		at := w.State + "/tasks/" + w.show("alone").ID + "/attended"
		w.Write(t, at, "", 0o600)
		if err := os.Chtimes(at, time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		w.ok("exec", "alone", "--", "true")
	})
}
