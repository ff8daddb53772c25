//go:build linux

package source

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestWorktree opens and closes a worktree task: the user's own git works in its
// folder, and nothing is left in the repository but what was rescued.
func TestWorktree(t *testing.T) {
	l := basic(t)
	before := picture(t, l.repo, notOurs)
	o := l.open(Options{Strategy: task.StrategyWorktree})
	if got := o.in("status", "--porcelain"); got != "" {
		t.Errorf("a fresh worktree has changes: %s", got)
	}
	if got := o.in("rev-parse", "--abbrev-ref", "HEAD"); got != "caisson/"+string(o.ws.Task) || o.p.Ref.Branch != got {
		t.Errorf("it stands on %q, the record says %q", got, o.p.Ref.Branch)
	}
	if o.p.Ref.Folder != o.p.Source || o.p.Ref.Shared || len(o.p.Objects) != 0 {
		t.Errorf("folder %q, shared %v, objects %v", o.p.Ref.Folder, o.p.Ref.Shared, o.p.Objects)
	}
	if !strings.Contains(l.git("worktree", "list", "--porcelain"), "locked caisson task "+string(o.ws.Task)) {
		t.Error("the repository does not list it as locked by the task")
	}
	l.git("worktree", "prune", "--expire", "now")
	o.file("new.txt", "new\n")
	if got := o.in("status", "--porcelain"); got != "?? new.txt" {
		t.Errorf("the user's git sees %q", got)
	}
	if w := o.work(); len(w.Untracked) != 1 || w.Untracked[0] != "new.txt" || len(w.Tracked)+len(w.Commits)+len(w.Special) != 0 {
		t.Errorf("work: %+v", w)
	}
	o.unlink()
	sameRepo(t, l, before)
}

// sameRepo compares the user's repository with an earlier picture of it.
func sameRepo(t *testing.T, l *lab, before string) {
	t.Helper()
	was, is := strings.Split(before, "\n"), strings.Split(picture(t, l.repo, notOurs), "\n")
	for _, line := range was {
		if !slices.Contains(is, line) {
			t.Errorf("the user's repository had: %s", line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			t.Errorf("the user's repository has: %s", line)
		}
	}
}

// unlink removes the task as the boundary does, and returns what stays.
func (o *opened) unlink() []string {
	o.t.Helper()
	ctx := context.Background()
	if err := RemoveTree(ctx, o.ws.source()); err != nil {
		o.t.Fatal(err)
	}
	var left []string
	for range 2 { // the second finds nothing to do
		l, err := Unlink(ctx, o.ws, o.p.Ref)
		if err != nil {
			o.t.Fatal(err)
		}
		left = l
	}
	if err := Unpin(ctx, o.p.Ref.CommonDir, o.ws.Task); err != nil {
		o.t.Fatal(err)
	}
	return left
}

// TestWorktreeHostCommits commits in the worktree's folder with the host's git.
func TestWorktreeHostCommits(t *testing.T) {
	l := basic(t)
	for _, detached := range []bool{false, true} {
		o := l.open(Options{Strategy: task.StrategyWorktree})
		o.file("mine.txt", "mine\n")
		if detached {
			o.in("checkout", "-q", "--detach")
		}
		o.in("add", "mine.txt")
		o.in("commit", "-qm", "by hand")
		tip := o.in("rev-parse", "HEAD")
		if w := o.work(); len(w.Commits) != 1 || !strings.Contains(w.Commits[0], tip) {
			t.Errorf("detached %v: commits: %v", detached, w.Commits)
		}
		if needs, err := NeedsBundle(context.Background(), o.ws); needs || err != nil {
			t.Errorf("detached %v: a bundle is wanted: %v", detached, err)
		}
		rs, err := HostCommits(context.Background(), o.ws)
		if err != nil || len(rs) != 1 || rs[0].Object != tip || rs[0].Count != 1 {
			t.Fatalf("detached %v: %+v, %v", detached, rs, err)
		}
		left := o.unlink()
		if got := l.git("rev-parse", rs[0].Name); got != tip {
			t.Errorf("detached %v: %s is %s, not %s", detached, rs[0].Name, got, tip)
		}
		if _, err := os.Lstat(adminOf(o.p.Ref.CommonDir, o.ws.Task)); !os.IsNotExist(err) {
			t.Errorf("the administrative folder: %v", err)
		}
		if detached != (len(left) == 0) {
			t.Errorf("detached %v: left %v", detached, left)
		}
	}
}

// TestWorktreeOthers changes the registration behind the task's back. Nothing
// of others is removed, and what is wrong is said.
func TestWorktreeOthers(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(o *opened)
		state string // part of what State says
		left  string // part of what Unlink leaves
	}{
		{"untouched", func(*opened) {}, "", ""},
		{"folder deleted", func(o *opened) { must(o.t, os.RemoveAll(o.ws.source())) }, "is gone", ""},
		{".git deleted", func(o *opened) { must(o.t, os.Remove(o.ws.source()+"/.git")) }, "repository around it", ""},
		{".git replaced", func(o *opened) {
			must(o.t, os.Remove(o.ws.source()+"/.git"))
			o.plain(o.ws.source(), "init", "-q")
		}, "was replaced", ""},
		{".git changed", func(o *opened) {
			must(o.t, os.WriteFile(o.ws.source()+"/.git", []byte("gitdir: /nowhere\n"), 0o644))
		}, "was changed", ""},
		{"admin folder pruned", func(o *opened) { must(o.t, os.RemoveAll(adminOf(o.p.Ref.CommonDir, o.ws.Task))) }, "does not know", ""},
		{"unlocked", func(o *opened) { o.git("worktree", "unlock", o.ws.source()) }, "", ""},
		{"removed by git", func(o *opened) { o.git("worktree", "remove", "-f", "-f", o.ws.source()) }, "is gone", ""},
		{"moved by git", func(o *opened) { o.git("worktree", "move", "-f", "-f", o.ws.source(), o.top+"/mine") }, "is gone", "it names the worktree"},
		{"somebody else's", func(o *opened) {
			must(o.t, os.RemoveAll(adminOf(o.p.Ref.CommonDir, o.ws.Task)))
			must(o.t, os.Mkdir(adminOf(o.p.Ref.CommonDir, o.ws.Task), 0o755))
			must(o.t, os.WriteFile(adminOf(o.p.Ref.CommonDir, o.ws.Task)+"/locked", []byte("mine\n"), 0o644))
		}, "", "does not carry"},
		{"checked out elsewhere", func(o *opened) {
			o.git("checkout", "-q", "--ignore-other-worktrees", "caisson/"+string(o.ws.Task))
		}, "", "is checked out in"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := basic(t)
			l.t = t
			other := l.top + "/other"
			l.git("worktree", "add", "-q", "-b", "theirs", other)
			o := l.open(Options{Strategy: task.StrategyWorktree})
			c.do(o)
			says := strings.Join(State(o.ws, o.p.Ref), "; ")
			if c.state == "" && says != "" || !strings.Contains(says, c.state) {
				t.Errorf("the state is said to be %q, not %q", says, c.state)
			}
			left := strings.Join(o.unlink(), "; ")
			if c.left == "" && left != "" || !strings.Contains(left, c.left) {
				t.Errorf("left: %q, not %q", left, c.left)
			}
			if got := l.plain(other, "status", "--porcelain"); got != "" {
				t.Errorf("the other worktree: %s", got)
			}
			if c.name == "moved by git" {
				if got := strings.TrimSpace(l.plain(l.top+"/mine", "rev-parse", "HEAD")); got != o.p.Ref.Base {
					t.Errorf("the moved worktree stands at %s", got)
				}
			} else if admin := adminOf(o.p.Ref.CommonDir, o.ws.Task); c.left == "" && exists(admin) {
				t.Errorf("%s is still there", admin)
			}
			if out, err := l.tryGit(l.repo, nil, "rev-parse", "-q", "--verify", WorktreeBranch(o.ws.Task)); (err == nil) != (c.name == "moved by git" || c.name == "checked out elsewhere") {
				t.Errorf("the branch: %s, %v", out, err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWorktreeReplacedGit: what took the place of the pointer is not lost with
// the files, and is never taken for the task's repository.
func TestWorktreeReplacedGit(t *testing.T) {
	l := basic(t)
	o := l.open(Options{Strategy: task.StrategyWorktree})
	must(t, os.Remove(o.ws.source()+"/.git"))
	o.plain(o.ws.source(), "init", "-q")
	canary := l.top + "/canary"
	o.plain(o.ws.source(), "config", "core.fsmonitor", "touch "+canary+"; false")
	o.plain(o.ws.source(), "config", "filter.x.clean", "touch "+canary+"; cat")
	o.file(".gitattributes", "* filter=x\n")
	o.file("a.txt", "changed\n")
	if _, err := MakeSnapshot(context.Background(), o.ws); err != nil {
		t.Fatal(err)
	}
	w := o.work()
	if strings.Join(w.Special, " ") != ".git" {
		t.Errorf("special: %v", w.Special)
	}
	if _, err := KeepIgnored(context.Background(), o.ws); err != nil {
		t.Fatal(err)
	}
	if !exists(o.ws.kept() + "/files/.git/config") {
		t.Error("the repository that was made in the folder is not kept")
	}
	o.unlink()
	if exists(canary) {
		t.Error("a program of the planted repository ran")
	}
	// The control: the user's git does run it.
	must(t, os.Mkdir(l.top+"/control", 0o755))
	must(t, os.Rename(o.ws.kept()+"/files/.git", l.top+"/control/.git"))
	_, _ = l.tryGit(l.top+"/control", nil, "status")
	if !exists(canary) {
		t.Error("the planted repository does nothing: the test shows nothing")
	}
}

// TestWorktreeUnfit refuses, before any effect, what cannot hold a worktree.
func TestWorktreeUnfit(t *testing.T) {
	l := newLab(t)
	l.git("init", "-q")
	if _, err := l.inspect(Options{Strategy: task.StrategyWorktree}); task.CodeOf(err) != task.CodeUnsupported || task.HintOf(err) == "" {
		t.Errorf("without a commit: %v", err)
	}
	l = basic(t)
	must(t, os.WriteFile(l.repo+"/.git/worktrees", nil, 0o644))
	if _, err := l.inspect(Options{Strategy: task.StrategyWorktree}); task.CodeOf(err) != task.CodeUnsupported || task.HintOf(err) == "" {
		t.Errorf("with a file called worktrees: %v", err)
	}
	// A branch of the user's in the way: no branch, and that is said.
	l = basic(t)
	l.git("branch", "caisson")
	before := picture(t, l.repo, notOurs)
	o := l.open(Options{Strategy: task.StrategyWorktree})
	if o.p.Ref.Branch != "" || o.in("rev-parse", "HEAD") != o.p.Ref.Base || !strings.Contains(strings.Join(o.p.Ref.Notes, "\n"), "without a branch") {
		t.Errorf("branch %q, notes %q", o.p.Ref.Branch, o.p.Ref.Notes)
	}
	o.unlink()
	sameRepo(t, l, before)
}

// TestWorktreeOfLinked starts in linked worktrees, of a bare repository too.
func TestWorktreeOfLinked(t *testing.T) {
	l := basic(t)
	l.git("config", "extensions.worktreeConfig", "true")
	bare := l.top + "/bare.git"
	l.plain(l.top, "clone", "-q", "--bare", l.repo, bare)
	for _, from := range []string{l.repo, bare} {
		dir := l.top + "/linked-" + filepath.Base(from)
		l.plain(from, "worktree", "add", "-q", "-b", "linked", dir)
		o := l.open(Options{Dir: dir, Strategy: task.StrategyWorktree})
		if got := o.in("status", "--porcelain"); got != "" {
			t.Errorf("%s: %s", from, got)
		}
		o.file("a", "b\n")
		if w := o.work(); len(w.Untracked) != 1 {
			t.Errorf("%s: %+v", from, w)
		}
		if left := o.unlink(); len(left) != 0 {
			t.Errorf("%s: left %v", from, left)
		}
		if got := l.plain(dir, "status", "--porcelain"); got != "" {
			t.Errorf("%s: the user's worktree: %s", from, got)
		}
	}
}
