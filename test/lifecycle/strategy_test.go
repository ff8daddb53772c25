//go:build linux

package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// ofStrategy matches the points that only a worktree or a checkout passes.
var ofStrategy = regexp.MustCompile(`^(source\.(worktreebranched|registering|registered|linked|unregistering|unregistered|unbranched|captured|pointmade|pointnamed)|points\.(intended|made|removed))$`)

// jobless stands for the point in settle, which then looks for nothing that the
// usual job makes.
const jobless = "close.sealed"

// strategyPoints are those, and the ends that a task of every strategy passes.
func strategyPoints(t *testing.T) []string {
	var out []string
	for _, p := range points(t) {
		if ofStrategy.MatchString(p) || slices.Contains([]string{"open.source", "open.boundary", "close.dead", "close.rescued", "close.removing", "close.source", "close.files", "close.pins"}, p) {
			out = append(out, p)
		}
	}
	return out
}

// TestWorktreeKilled kills a worktree task at every step of its registration
// and of its removal. Nothing of it stays in the repository, and its work does.
func TestWorktreeKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills the program twenty times; not with -short")
	}
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		hit := map[string]bool{}
		for i, p := range strategyPoints(t) {
			if id.Name == "user" && os.Getuid() == 0 && i%4 != 0 && !long {
				hit[p] = true // by root
				continue
			}
			cmd := w.start([]string{"CAISSON_FAULT=" + p + ":kill"}, "run", "--source", "worktree", "--keep", "never", "--ro", "/usr/share:"+w.repo+"/deep/seed", "--",
				"sh", "-c", "echo changed >a.txt; echo new >n.txt")
			_ = cmd.Wait()
			hit[p] = killed(cmd)
			w.settle(jobless, i)
			for _, v := range w.tasks() {
				if !slices.Contains(w.events(v.ID), "call.outcome") {
					continue
				}
				if got, _ := w.has(v.ID, "worktree", "n.txt"); got != "new\n" && !exists(w.State+"/tasks/"+v.ID+"/source/n.txt") {
					t.Errorf("%s: the work of task %s is lost", p, v.ID)
				}
			}
			w.registrations(p)
			if t.Failed() {
				t.Fatalf("stopping after %s", p)
			}
		}
		for p, fired := range hit {
			if !fired && p != "source.captured" {
				t.Errorf("the step %s was never passed", p)
			}
		}
	})
}

// registrations fails when something of a task's is left in the repository.
func (w *world) registrations(target string) {
	w.t.Helper()
	if out := w.git("worktree", "list", "--porcelain"); strings.Contains(out, "caisson") && strings.Count(out, "worktree ") > 1 {
		w.t.Errorf("%s: a worktree is left: %s", target, out)
	}
	if out := w.git("for-each-ref", "refs/heads/caisson", "refs/caisson/*/pin"); out != "" {
		w.t.Errorf("%s: refs are left: %s", target, out)
	}
	if exists(w.repo + "/.git/worktrees") {
		w.t.Errorf("%s: the folder of worktrees is left", target)
	}
}

// TestCheckoutKilled kills a task that works in a folder itself, where mount
// points are missing: the folder is as it was, but for the task's work, and the
// lock is free.
func TestCheckoutKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills the program twenty times; not with -short")
	}
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		for i, p := range strategyPoints(t) {
			if id.Name == "user" && os.Getuid() == 0 && i%4 != 0 && !long {
				continue // by root
			}
			dir := fmt.Sprintf("%s/plain%d", id.Dir, i)
			id.Mkdir(t, dir)
			id.Write(t, dir+"/f", "f\n", 0o644)
			cmd := w.start([]string{"CAISSON_FAULT=" + p + ":kill"}, "run", "--repo", dir, "--source", "checkout", "--trust", "--ro", "/usr/share:"+dir+"/deep/seed", "--",
				"sh", "-c", "echo changed >f; test -d .git && ! touch .git/x 2>/dev/null && ls deep/seed >/dev/null")
			err := cmd.Wait()
			if fired := killed(cmd); !fired && err != nil {
				t.Errorf("%s: %v", p, err)
			} else if fired {
				f, err := os.Open(dir)
				if err == nil {
					err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
					f.Close()
				}
				if err != nil {
					t.Errorf("%s: a dead process holds the checkout: %v", p, err)
				}
			}
			w.settle(jobless, i)
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 || entries[0].Name() != "f" {
				t.Errorf("%s: the folder has %v (%v)", p, entries, err)
			}
			if t.Failed() {
				t.Fatalf("stopping after %s", p)
			}
		}
	})
}

// TestCheckoutRace opens the same checkout from many processes at once, and
// again after the one that won was killed.
func TestCheckoutRace(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		const n = 20
		done := make(chan harness.Result, n)
		for i := range n {
			go func() { done <- w.do(nil, "open", "--source", "checkout", "--trust", "-q", fmt.Sprintf("r%d", i)) }()
		}
		won := 0
		for range n {
			r := <-done
			switch {
			case r.Exit == 0:
				won++
			case !strings.Contains(r.Stderr, "is in use") && !strings.Contains(r.Stderr, "end what uses the checkout"):
				t.Error(r)
			}
		}
		if won != 1 {
			t.Fatalf("%d processes have the checkout", won)
		}
		var v view
		for _, x := range w.tasks() {
			if x.State == "ready" {
				v = x
			}
		}
		if r := w.do(nil, "run", "--source", "checkout", "--trust", "--", "true"); r.Exit == 0 || !strings.Contains(r.Stderr, v.ID) {
			t.Errorf("the holder %s is not named: %v", v.ID, r)
		}
		if err := syscall.Kill(v.Supervisor.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the supervisor is dead", func() bool { return !alive(v.Supervisor.PID) })
		w.ok("run", "--source", "checkout", "--trust", "--", "true")
		if out := w.git("--no-optional-locks", "status", "--porcelain"); out != "" {
			t.Errorf("the checkout: %s", out)
		}
		w.clean()
	})
}

// TestWorktreeFolder does to the folder of a worktree task what a person can.
func TestWorktreeFolder(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		for _, c := range []struct {
			name string
			do   func(folder, admin string)
			says string // by show
			git  bool   // the user's git works in the folder
		}{
			{"left alone", func(_, _ string) {}, "", true},
			{"folder deleted", func(folder, _ string) { check(t, os.RemoveAll(folder)) }, "is gone", false},
			{".git deleted", func(folder, _ string) { check(t, os.Remove(folder+"/.git")) }, "repository around it", false},
			{"pruned", func(_, admin string) { check(t, os.RemoveAll(admin)) }, "does not know the worktree", false},
			{"unlocked and pruned", func(folder, _ string) {
				w.git("worktree", "unlock", folder)
				w.git("worktree", "prune", "--expire", "now")
			}, "", true},
		} {
			task := id.Open(t, w.repo, "--source", "worktree")
			folder := w.State + "/tasks/" + task + "/source"
			w.ok("exec", task, "--", "sh", "-c", "echo live >live.txt")
			if out := w.Git(t, folder, "--no-optional-locks", "status", "--porcelain"); out != "?? live.txt" {
				t.Errorf("%s: the live view is %q", c.name, out)
			}
			c.do(folder, w.repo+"/.git/worktrees/caisson-"+task)
			if out := w.ok("show", task); !strings.Contains(out, c.says) {
				t.Errorf("%s: show does not say %q:\n%s", c.name, c.says, out)
			}
			r := w.do(nil, "diff", "--name-status", task)
			if c.name != "folder deleted" && (r.Exit != 0 || !strings.Contains(r.Stdout, "live.txt")) {
				t.Errorf("%s: diff: %v", c.name, r)
			}
			if c.name == "folder deleted" && (r.Exit == 0 || !strings.Contains(r.Stderr, "hint:")) {
				t.Errorf("%s: diff: %v", c.name, r)
			}
			w.ok("close", "--keep", "never", task)
			w.registrations(c.name)
			if got, _ := w.has(task, "worktree", "live.txt"); got != "live\n" && c.name != "folder deleted" {
				t.Errorf("%s: the work is not rescued", c.name)
			}
			if filepath.Dir(folder) == "" || exists(folder) {
				t.Errorf("%s: the folder is left", c.name)
			}
		}
		w.clean()
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
