//go:build linux

package source

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// direct opens a checkout task.
func (l *lab) direct(o Options) *opened {
	l.t.Helper()
	o.Strategy = task.StrategyCheckout
	r, err := l.inspect(o)
	if err != nil {
		l.t.Fatal(err)
	}
	id := task.NewID()
	op := &opened{lab: l, r: r, ws: Workspace{Task: id, Dir: l.state + "/" + string(id), Files: r.Ref.Repo}}
	must(l.t, os.Mkdir(op.ws.Dir, 0o700))
	if op.p, err = Prepare(context.Background(), r, op.ws, Inside{ObjectsDir: "/none", UID: 1000, GID: 1000}); err != nil {
		l.t.Fatalf("prepare: %v (hint: %s)", err, task.HintOf(err))
	}
	return op
}

// changes lists what the task changed, "M path".
func (o *opened) changes() []string {
	o.t.Helper()
	r, err := Look(context.Background(), o.ws)
	if err != nil {
		o.t.Fatal(err)
	}
	defer r.Close()
	var out []string
	for _, c := range r.Changes {
		out = append(out, string(c.Status)+" "+string(c.Path))
	}
	return out
}

// TestCheckoutStart: diff is against how the checkout was, dirty state included,
// and looking changes nothing.
func TestCheckoutStart(t *testing.T) {
	l := basic(t)
	l.write("README", "changed before\n")
	l.write("before.txt", "untracked before\n")
	must(t, os.Remove(l.repo+"/run.sh"))
	before := picture(t, l.repo, nil)
	o := l.direct(Options{})
	if got := o.changes(); len(got) != 0 {
		t.Errorf("nothing was done, yet: %v", got)
	}
	if after := picture(t, l.repo, nil); after != before {
		t.Errorf("the checkout changed:\n%s\nwas\n%s", after, before)
	}
	l.write("README", "changed by the task\n")
	l.write("before.txt", "untracked, changed\n")
	l.write("dir/a.txt", "a by the task\n")
	l.write("new.txt", "new\n")
	must(t, os.Remove(l.repo+"/dir/b.txt"))
	l.write("run.sh", "#!/bin/sh\n")
	want := []string{"M README", "M before.txt", "M dir/a.txt", "D dir/b.txt", "A new.txt", "A run.sh"}
	if got := o.changes(); !slices.Equal(got, want) {
		t.Errorf("changes %v, want %v", got, want)
	}
	if refs := l.git("for-each-ref", "refs/caisson"); refs != "" {
		t.Errorf("refs were written: %s", refs)
	}
	// Back to the base, not to the start: that is a change.
	l.git("checkout", "-q", "README")
	if got := o.changes(); !slices.Contains(got, "M README") {
		t.Errorf("a file that is as in the base again: %v", got)
	}
	// Commits inside are the user's own: nothing is to be rescued.
	l.commit("by the task")
	if needs, err := NeedsBundle(context.Background(), o.ws); needs || err != nil {
		t.Errorf("a bundle is wanted: %v", err)
	}
	if got := o.changes(); !slices.Contains(got, "M dir/a.txt") {
		t.Errorf("after a commit the changes are %v", got)
	}
}

// TestCheckoutUnborn starts in a repository without a commit, and in a folder
// without a repository.
func TestCheckoutUnborn(t *testing.T) {
	for _, init := range []bool{true, false} {
		l := newLab(t)
		if init {
			l.git("init", "-q")
		}
		l.write("a", "a\n")
		o := l.direct(Options{})
		if got := o.changes(); len(got) != 0 {
			t.Errorf("init %v: %v", init, got)
		}
		l.write("a", "b\n")
		l.write("c", "c\n")
		if got := o.changes(); !slices.Equal(got, []string{"M a", "A c"}) {
			t.Errorf("init %v: %v", init, got)
		}
	}
}

// TestCheckoutUnfit refuses what cannot be shown as it is.
func TestCheckoutUnfit(t *testing.T) {
	l := basic(t)
	l.git("worktree", "add", "-q", l.top+"/linked")
	l.plain(l.top, "init", "-q", "--separate-git-dir", l.top+"/away.git", l.top+"/separate")
	must(t, os.MkdirAll(l.top+"/sub/.git", 0o755))
	for name, o := range map[string]Options{
		"linked": {Dir: l.top + "/linked"}, "separate": {Dir: l.top + "/separate"}, "base": {Base: "HEAD~1"}, "dirty": {Dirty: task.DirtyAll},
	} {
		o.Strategy = task.StrategyCheckout
		_, err := l.inspect(o)
		if c := task.CodeOf(err); c != task.CodeUnsupported && c != task.CodeUsage || task.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTrustedChanges lists every change of a git directory that host git acts on.
func TestTrustedChanges(t *testing.T) {
	l := basic(t)
	must(t, os.MkdirAll(l.repo+"/.git/modules/m/hooks", 0o755))
	must(t, os.WriteFile(l.repo+"/.git/modules/m/config", []byte("[core]\n"), 0o644))
	must(t, os.WriteFile(l.repo+"/.git/hooks/pre-push", []byte("#!/bin/sh\n"), 0o755))
	o := l.direct(Options{})
	ctx := context.Background()
	if got, err := TrustedChanges(ctx, o.ws); err != nil || len(got) != 0 {
		t.Fatalf("nothing was done, yet: %v, %v", got, err)
	}
	// Ordinary work is not listed.
	l.write("README", "work\n")
	l.git("commit", "-qam", "work")
	l.git("branch", "more")
	if got, err := TrustedChanges(ctx, o.ws); err != nil || len(got) != 0 {
		t.Errorf("a commit counts: %v, %v", got, err)
	}
	l.git("config", "core.fsmonitor", "x")
	l.write(".git/hooks/pre-commit", "#!/bin/sh\n")
	must(t, os.Remove(l.repo+"/.git/hooks/pre-push"))
	l.write(".git/info/attributes", "* filter=x\n")
	l.write(".git/modules/m/hooks/post-checkout", "#!/bin/sh\n")
	l.write(".git/objects/info/alternates", "/elsewhere\n")
	l.write(".git/worktrees/w/gitdir", "/elsewhere/.git\n")
	l.write(".git/config.worktree", "[core]\n")
	must(t, os.Chmod(l.repo+"/.git/modules/m/config", 0o755))
	got, err := TrustedChanges(ctx, o.ws)
	want := []string{".git/config", ".git/config.worktree", ".git/hooks/pre-commit", ".git/hooks/pre-push (removed)", ".git/info/attributes",
		".git/modules/m/config", ".git/modules/m/hooks/post-checkout", ".git/objects/info/alternates", ".git/worktrees/w/gitdir"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if n := TrustedNote(got); !strings.Contains(n, ".git/config") || !strings.Contains(n, "4 more") {
		t.Errorf("note: %s", n)
	}
}

// TestCheckoutPlanted runs every look with what a task can plant in the
// checkout and its git directory.
func TestCheckoutPlanted(t *testing.T) {
	l := basic(t)
	o := l.direct(Options{})
	canary := l.top + "/canary"
	for _, k := range []string{"core.fsmonitor", "filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.external", "diff.x.textconv", "core.pager", "core.sshCommand"} {
		l.git("config", k, "touch "+canary+"; cat")
	}
	l.write(".gitattributes", "* filter=x diff=x\n")
	l.write("dir/a.txt", "changed\n")
	l.plain(l.top, "init", "-q", l.repo+"/nested")
	l.plain(l.repo+"/nested", "config", "core.fsmonitor", "touch "+canary+"; false")
	for _, name := range []string{"post-index-change", "reference-transaction", "pre-commit"} {
		l.write(".git/hooks/"+name, "#!/bin/sh\ntouch "+canary+"\n")
		must(t, os.Chmod(l.repo+"/.git/hooks/"+name, 0o755))
	}
	_ = os.Remove(canary)
	_ = o.changes()
	r, err := Look(context.Background(), o.ws)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b strings.Builder
	if err := r.Diff(context.Background(), &b, DiffOptions{}); err != nil {
		t.Fatal(err)
	}
	if exists(canary) {
		t.Error("something planted ran")
	}
	if _, err := l.inspect(Options{Strategy: task.StrategyCheckout}); err != nil {
		t.Error(err)
	}
	if exists(canary) {
		t.Error("something planted ran at the next look")
	}
	_, _ = l.tryGit(l.repo, nil, "status")
	if !exists(canary) {
		t.Error("nothing planted runs under plain git: the test shows nothing")
	}
}
