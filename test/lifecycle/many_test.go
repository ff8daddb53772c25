//go:build linux

package lifecycle

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// at runs the program without failing the test, for use in goroutines.
func (w *world) at(args ...string) (stdout, stderr string, exit int) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	cmd := w.Command(ctx, w.repo, w.bin, args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestTwentyAtOnce works on one repository with twenty processes at the same time.
func TestTwentyAtOnce(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		var wg sync.WaitGroup
		ids := make([]string, 20)
		for n := range ids {
			wg.Go(func() {
				name := fmt.Sprintf("n%d", n)
				work := fmt.Sprintf("test ! -e mine && echo %d >mine && git add mine && git commit -qm %d && cat a.txt mine", n, n)
				want := fmt.Sprintf("a\n%d\n", n)
				if n%2 == 0 {
					if out, errs, exit := w.at("run", "--name", name, "--keep", "never", "--", "sh", "-c", work); exit != 0 || out != want {
						t.Errorf("run %d: exit %d, %q\n%s", n, exit, out, errs)
					}
					return
				}
				if _, errs, exit := w.at("open", name); exit != 0 {
					t.Errorf("open %d: %s", n, errs)
					return
				}
				if out, errs, exit := w.at("exec", name, "--", "sh", "-c", work); exit != 0 || out != want {
					t.Errorf("exec %d: exit %d, %q\n%s", n, exit, out, errs)
				}
				if _, errs, exit := w.at("close", name); exit != 0 {
					t.Errorf("close %d: exit %d\n%s", n, exit, errs)
				}
			})
		}
		wg.Wait()
		for _, v := range w.tasks() {
			if v.State != "closed" {
				t.Errorf("task %s is %s (%s)", v.Name, v.State, v.Problem)
			}
			if got, _ := w.has(v.ID, "heads/main", "mine"); got != v.Name[1:]+"\n" {
				t.Errorf("task %s brought back %q", v.Name, got)
			}
		}
		if n := len(w.tasks()); n != 20 {
			t.Errorf("%d tasks on record", n)
		}
		w.clean()
		w.git("fsck", "--strict")
	})
}

// TestOneName opens many tasks with one name at once: exactly one gets it.
func TestOneName(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for range count(6, 20) {
			wg.Go(func() {
				_, errs, exit := w.at("open", "same")
				mu.Lock()
				defer mu.Unlock()
				switch {
				case exit == 0:
					won++
				case !strings.Contains(errs, "(conflict)") || !strings.Contains(errs, "is taken by task"):
					t.Errorf("a loser: exit %d: %s", exit, errs)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%d won", won)
		}
		if l := w.tasks(); len(l) != 1 {
			t.Errorf("on record: %+v", l)
		}
		w.ok("exec", "same", "--", "true")
		w.clean()
	})
}

// TestNamesAreDistinct: names that a sanitizer would make equal are two tasks
// or refused, and none of them becomes a path or a ref.
func TestNamesAreDistinct(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.NewIdentity(t, "names", os.Getuid()), harness.Bin())
	names := []string{"feat/foo", "feat-foo", "Fix login", "fix: login", "日本語", "a..b", "x.lock", "../../etc", "-dash", "new\nline", "\xff\xfe"}
	names = append(names, "feat_foo", "feat.foo", "Fix-login", "fix-login")
	names = slices.DeleteFunc(names, func(n string) bool {
		r := w.do(nil, "run", "--keep", "always", "--name", n, "--", "true")
		if r.Exit != 0 {
			w.refused(r, "usage")
		}
		return r.Exit != 0
	})
	if len(names) < 5 {
		t.Errorf("too few names are accepted: %q", names)
	}
	seen := map[string]bool{}
	for _, v := range w.tasks() {
		seen[v.ID] = true
	}
	if len(seen) != len(names) {
		t.Errorf("%d tasks for %d names", len(seen), len(names))
	}
	for _, n := range names {
		if r := w.do(nil, "show", "--json", "--", n); r.Exit != 0 {
			t.Errorf("show %q: %v", n, r)
		}
	}
	if out := w.ok("ls"); strings.Contains(out, "new\nline") {
		t.Errorf("a name acts on the terminal: %q", out)
	}
	w.clean()
}

// TestAgainAndAgain starts and ends two tasks on one repository many times,
// beside each other.
func TestAgainAndAgain(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		var wg sync.WaitGroup
		for who := range 2 {
			wg.Go(func() {
				for n := range count(5, 200) {
					out, errs, exit := w.at("run", "--", "sh", "-c", "git status --porcelain && cat a.txt")
					if exit != 0 || out != "a\n" {
						t.Errorf("task %d, time %d: exit %d %q %s", who, n, exit, out, errs)
						return
					}
				}
			})
		}
		wg.Wait()
		for _, v := range w.tasks() {
			if v.State != "closed" || len(v.Results) > 0 {
				t.Errorf("an unchanged task is %s with %v", v.State, v.Results)
			}
		}
		w.clean()
		if refs := w.git("for-each-ref", "refs/caisson"); refs != "" {
			t.Errorf("refs are left: %s", refs)
		}
	})
}

// TestCloseTogether closes one task from many processes: all succeed with one truth.
func TestCloseTogether(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		for _, dead := range []bool{false, true} {
			w.ok("open", "x")
			w.ok("exec", "x", "--", "sh", "-c", "echo y >y; git add y; git commit -qm y")
			v := w.show("x")
			if dead {
				if err := syscall.Kill(v.Supervisor.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				harness.Eventually(t, "it is dead", func() bool { return !alive(v.Supervisor.PID) })
			}
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					if _, errs, exit := w.at("close", v.ID); exit != 0 {
						t.Errorf("dead %v: close: exit %d: %s", dead, exit, errs)
					}
				})
			}
			wg.Wait()
			if s := w.show(v.ID).State; s != "closed" {
				t.Errorf("dead %v: %s", dead, s)
			}
			if n := len(slices.DeleteFunc(w.events(v.ID), func(s string) bool { return s != "task.closed" })); n != 1 {
				t.Errorf("dead %v: closed %d times: %v", dead, n, w.events(v.ID))
			}
		}
		w.clean()
	})
}
