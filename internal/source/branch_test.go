//go:build linux

package source

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// result fetches what was committed inside and looks.
func (o *opened) result() *Result {
	o.t.Helper()
	ctx := context.Background()
	if need, err := NeedsFetch(ctx, o.ws); err != nil {
		o.t.Fatal(err)
	} else if need {
		if err := Fetch(ctx, o.ws, bytes.NewReader(o.bundle()), 64<<20); err != nil {
			o.t.Fatalf("fetch: %v", err)
		}
	}
	r, err := Look(ctx, o.ws)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(r.Close)
	return r
}

func (o *opened) branch(name string) *task.BranchReport {
	o.t.Helper()
	rep, err := o.result().Branch(context.Background(), BranchOptions{Repo: o.r.Ref, Name: name})
	if err != nil {
		o.t.Fatalf("branch %s: %v", name, err)
	}
	return rep
}

// onlyBranch leaves out what a new branch may change in the user's repository:
// its ref and log, the folders they are in, and objects.
func onlyBranch(name string) func(string) bool {
	return func(rel string) bool {
		for _, top := range []string{".git/refs/heads/", ".git/logs/refs/heads/"} {
			if in, ok := strings.CutPrefix(rel, top); ok && (in == name || strings.HasPrefix(name, in+"/")) {
				return true
			}
		}
		return strings.HasPrefix(rel, ".git/objects")
	}
}

func TestBranchOfFilesAlone(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("dir/a.txt", "changed\n")
	o.file("new", "new\n")
	o.file("build/out", "ignored\n")
	before := picture(t, l.repo, onlyBranch("caisson/"+string(o.ws.Task)))
	rep := o.branch("")
	if rep.Branch != "refs/heads/caisson/"+string(o.ws.Task) || !rep.Created || rep.Commits != 1 || rep.Files != 2 || rep.Base != o.r.Ref.Base {
		t.Errorf("%+v", rep)
	}
	if picture(t, l.repo, onlyBranch("caisson/"+string(o.ws.Task))) != before {
		t.Error("more than the branch changed")
	}
	if got := l.git("log", "-1", "--format=%an <%ae> %P", rep.Object); got != "Ada <ada@example.org> "+o.r.Ref.Base {
		t.Error(got)
	}
	if got := l.git("diff", "--name-status", o.r.Ref.Base, rep.Branch); got != "M\tdir/a.txt\nA\tnew" {
		t.Error(got)
	}
	if !strings.Contains(strings.Join(rep.Notes, "\n"), "build") {
		t.Errorf("%q", rep.Notes)
	}
	again := o.branch("")
	if again.Created || again.Object != rep.Object {
		t.Errorf("%+v", again)
	}
	l.git("fsck", "--strict", "--full")
}

func TestBranchOfCommits(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("one", "1\n")
	o.in("add", "one")
	o.in("commit", "-qm", "one inside")
	o.file("two", "2\n")
	o.in("add", "two")
	o.in("commit", "-qm", "two inside")
	head := o.in("rev-parse", "HEAD")
	rep := o.branch("feature/x")
	if rep.Object != head || rep.Commits != 2 {
		t.Errorf("%+v", rep)
	}
	o.file("three", "3\n")
	rep = o.branch("feature/y")
	if rep.Commits != 3 || l.git("rev-parse", rep.Object+"^") != head {
		t.Errorf("%+v", rep)
	}
	if got := l.git("log", "-1", "--format=%s", rep.Object); got != "uncommitted files of caisson task "+string(o.ws.Task) {
		t.Error(got)
	}
}

func TestExportForms(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("dir/a.txt", "changed\n")
	o.file("new", "new\n")
	r := o.result()
	ctx := context.Background()
	var patch, bundle bytes.Buffer
	if _, err := r.Export(ctx, ExportOptions{Form: FormPatch, W: &patch}); err != nil {
		t.Fatal(err)
	}
	rep, err := r.Export(ctx, ExportOptions{Form: FormBundle, W: &bundle})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.top+"/b", bundle.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	l.git("bundle", "verify", l.top+"/b")
	l.git("fetch", "-q", l.top+"/b", "refs/heads/*:refs/heads/*")
	if got := l.git("rev-parse", "caisson/"+string(o.ws.Task)); got != rep.Object {
		t.Error(got)
	}
	if _, err := r.Export(ctx, ExportOptions{Form: FormDir, Dir: l.top + "/out"}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(l.top + "/out/dir/a.txt"); err != nil || string(b) != "changed\n" {
		t.Errorf("%q %v", b, err)
	}
}

// refused asks for a branch that must not be made and checks that the user's
// repository did not change.
func (o *opened) refused(what string, opt BranchOptions, code task.Code) {
	o.t.Helper()
	if opt.Repo.CommonDir == "" {
		opt.Repo = o.r.Ref
	}
	r := o.result()
	// Making a commit that is there freshens its pack's time, as git always does.
	_, _, _ = r.Tip(context.Background())
	before := picture(o.t, o.repo, nil)
	rep, err := r.Branch(context.Background(), opt)
	if task.CodeOf(err) != code || task.HintOf(err) == "" {
		o.t.Errorf("%s: %+v, %v (hint %q), want code %s", what, rep, err, task.HintOf(err), code)
	}
	if picture(o.t, o.repo, nil) != before {
		o.t.Errorf("%s: the user's repository changed", what)
	}
}

func TestBranchNames(t *testing.T) {
	l := basic(t)
	l.git("branch", "feature/one", "HEAD^")
	l.git("branch", "Mixed", "HEAD^")
	l.git("symbolic-ref", "refs/heads/alias", "refs/heads/side")
	l.git("pack-refs", "--all")
	o := l.open(Options{})
	o.file("new", "new\n")
	oid := strings.Repeat("a1", 20)
	for _, n := range []string{
		"-x", "--upload-pack=touch x", "HEAD", "head", "FETCH_HEAD", "@", "refs/heads/x", "a..b", "x.lock", "a/.b", "a//b", "/a", "a/", "a b", "a\nb", "a\x00b",
		"x~1", "x^", "x:y", "x?", "x*", "[x", "a\\b", "x@{1}", oid, oid[:7], strings.ToUpper(oid), oid + oid[:24], "x.", strings.Repeat("n", 300), "../x", "\x1b[31m",
	} {
		if ref, err := branchRef(n); task.CodeOf(err) != task.CodeUsage || task.HintOf(err) == "" {
			t.Errorf("%s: %s %v", quote(n), ref, err)
		}
	}
	o.refused("an option", BranchOptions{Name: "--upload-pack=touch x"}, task.CodeUsage)
	for _, n := range []string{"feature", "feature/one/two", "FEATURE/two", "mixed", "MIXED/x", "Side"} {
		o.refused(n, BranchOptions{Name: n}, task.CodeConflict)
	}
	o.refused("a symbolic ref", BranchOptions{Name: "alias", Force: true}, task.CodeConflict)
	for _, n := range []string{"feature/two", "v1+build", "feat#12", "日本", "$(id)", "deadbeef-fix", "cafe", "x;y", "a'b", "origin/main"} {
		if rep := o.branch(n); rep.Branch != "refs/heads/"+n || l.git("rev-parse", "refs/heads/"+n) != rep.Object {
			t.Errorf("%s: %+v", n, rep)
		}
	}
}

func TestBranchThatExists(t *testing.T) {
	l := basic(t)
	old := l.git("rev-parse", "side")
	l.git("worktree", "add", "-q", l.top+"/linked", "-b", "linked")
	l.git("worktree", "add", "-q", "--detach", l.top+"/rebasing")
	admin := l.git("-C", l.top+"/rebasing", "rev-parse", "--git-dir")
	o := l.open(Options{})
	o.file("new", "new\n")
	for name, opt := range map[string]BranchOptions{
		"another commit":                  {Name: "side"},
		"checked out":                     {Name: "main", Force: true},
		"checked out in a worktree":       {Name: "linked", Force: true},
		"checked out without a commit":    {Name: "unborn"},
		"being rebased in a worktree":     {Name: "side", Force: true},
		"the old form of a symbolic HEAD": {Name: "side", Force: true},
	} {
		undo := func() {}
		switch {
		case opt.Name == "unborn":
			l.git("worktree", "add", "-q", "--detach", l.top+"/empty")
			l.plain(l.top+"/empty", "symbolic-ref", "HEAD", "refs/heads/unborn")
		case strings.HasPrefix(name, "being rebased"):
			if err := os.MkdirAll(admin+"/rebase-merge", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(admin+"/rebase-merge/head-name", []byte("refs/heads/side\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			undo = func() { _ = os.RemoveAll(admin + "/rebase-merge") }
		case strings.HasPrefix(name, "the old form"):
			b, err := os.ReadFile(admin + "/HEAD")
			if err != nil {
				t.Fatal(err)
			}
			_ = os.Remove(admin + "/HEAD")
			if err := os.Symlink("refs/heads/side", admin+"/HEAD"); err != nil {
				t.Fatal(err)
			}
			undo = func() { _ = os.Remove(admin + "/HEAD"); _ = os.WriteFile(admin+"/HEAD", b, 0o644) }
		}
		o.refused(name, opt, task.CodeConflict)
		undo()
	}
	// Moved when a person says so, and it can be found again.
	rep, err := o.result().Branch(context.Background(), BranchOptions{Repo: o.r.Ref, Name: "side", Force: true})
	if err != nil || !rep.Created || !strings.Contains(strings.Join(rep.Notes, "\n"), old) {
		t.Fatalf("%+v %v", rep, err)
	}
	if got := l.git("rev-parse", "side@{1}"); got != old {
		t.Errorf("the log leads to %s", got)
	}
}

func TestBranchLogs(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("new", "new\n")
	o.branch("kept")
	if got := l.git("reflog", "show", "--format=%gn %gs", "kept"); got != "Ada branch: made from caisson task "+string(o.ws.Task) {
		t.Errorf("%q", got)
	}
	l.git("config", "core.logAllRefUpdates", "false")
	o.branch("plain")
	if exists2(l.repo + "/.git/logs/refs/heads/plain") {
		t.Error("a log was written although the repository keeps none")
	}
}

func TestBranchRunsNoHook(t *testing.T) {
	l := basic(t)
	mark := l.top + "/fired"
	o := l.open(Options{})
	o.file("new", "new\n")
	o.file(".gitattributes", evilAttributes)
	o.in("add", ".")
	o.in("commit", "-qm", "inside")
	o.file("more", "new\n")
	plant(t, l.repo+"/.git", mark)
	l.git("-c", "core.hooksPath="+l.repo+"/.git/hooks", "update-ref", "refs/heads/control", "HEAD")
	if !exists2(mark) {
		t.Fatal("control: a plain git did not run the hook")
	}
	_ = os.Remove(mark)
	o.branch("x")
	ctx := context.Background()
	r := o.result()
	for _, e := range []ExportOptions{{Form: FormPatch}, {Form: FormBundle}, {Form: FormDir, Dir: l.top + "/out"}} {
		e.W = &bytes.Buffer{}
		if _, err := r.Export(ctx, e); err != nil {
			t.Errorf("%s: %v", e.Form, err)
		}
	}
	if b, err := os.ReadFile(mark); err == nil {
		t.Errorf("the host ran what was planted: %s", b)
	}
}

// TestBranchWhereNothingCanBeWritten: the way on is a bundle.
func TestBranchWhereNothingCanBeWritten(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("new", "new\n")
	if os.Geteuid() == 0 {
		if err := os.Lchown(l.repo+"/.git/refs", 4321, 4321); err != nil {
			t.Fatal(err)
		}
	} else {
		if err := os.Chmod(l.repo+"/.git/refs", 0o555); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(l.repo+"/.git/refs", 0o755) //nolint:errcheck // for the removal
	}
	o.refused("foreign", BranchOptions{Name: "x"}, task.CodeSource)
	o.refused("gone", BranchOptions{Name: "x", Repo: task.SourceRef{CommonDir: l.top + "/nowhere"}}, task.CodeSource)
	other := l.top + "/other"
	l.plain(l.top, "init", "-q", "--object-format=sha256", "other")
	o.refused("another format", BranchOptions{Name: "x", Repo: task.SourceRef{CommonDir: other + "/.git"}}, task.CodeSource)
	l.plain(l.top, "init", "-q", "stranger")
	o.refused("a repository without the base", BranchOptions{Name: "x", Repo: task.SourceRef{CommonDir: l.top + "/stranger/.git"}}, task.CodeSource)
	if got := strings.TrimSpace(l.plain(l.top+"/stranger", "for-each-ref")); got != "" {
		t.Errorf("a branch without its history was made: %s", got)
	}
}

func TestRewrittenHistory(t *testing.T) {
	l := basic(t)
	for name, act := range map[string]func(o *opened){
		"amended": func(o *opened) { o.in("commit", "-q", "--amend", "-m", "amended") },
		"orphan": func(o *opened) {
			o.in("checkout", "-q", "--orphan", "fresh")
			o.in("commit", "-qm", "all anew")
		},
		"older": func(o *opened) {
			o.in("checkout", "-q", "--detach", "HEAD^")
			o.file("x", "x\n")
			o.in("add", "x")
			o.in("commit", "-qm", "on an older commit")
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := l.open(Options{})
			act(o)
			head := o.in("rev-parse", "HEAD")
			rep := o.branch("rewritten/" + name)
			if rep.Object != head || !strings.Contains(strings.Join(rep.Notes, "\n"), "history was rewritten") {
				t.Errorf("%+v", rep)
			}
			o.bundleFits(name)
			l.git("fsck", "--strict", "--full")
		})
	}
}

// bundleFits exports a bundle and lets plain git fetch it into a clone that
// has the base alone.
func (o *opened) bundleFits(name string) *task.ExportReport {
	o.t.Helper()
	var b bytes.Buffer
	r := o.result()
	rep, err := r.Export(context.Background(), ExportOptions{Form: FormBundle, W: &b, Branch: "from/bundle"})
	if err != nil {
		o.t.Fatalf("bundle: %v", err)
	}
	file, clone := o.top+"/"+name+".bundle", o.top+"/clone-"+name
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		o.t.Fatal(err)
	}
	o.plain(o.top, "init", "-q", "--object-format="+r.format, clone)
	if r.Base != "" {
		o.plain(clone, "fetch", "-q", o.repo, r.Base+":refs/heads/base")
	}
	o.plain(clone, "bundle", "verify", file)
	o.plain(clone, "fetch", "-q", file, "refs/heads/*:refs/heads/*")
	if got := strings.TrimSpace(o.plain(clone, "rev-parse", "from/bundle", "from/bundle^{tree}")); got != rep.Object+"\n"+r.Tree {
		o.t.Errorf("%s: fetched %q, want %s with %s", name, got, rep.Object, r.Tree)
	}
	if got := strings.TrimSpace(o.plain(clone, "bundle", "list-heads", file)); got != rep.Object+" refs/heads/from/bundle\n"+rep.Object+" HEAD" {
		o.t.Errorf("%s: heads %q", name, got)
	}
	o.plain(clone, "fetch", "-q", file) // as the help says it, without a ref
	if got := strings.TrimSpace(o.plain(clone, "rev-parse", "FETCH_HEAD")); got != rep.Object {
		o.t.Errorf("%s: fetched %q, want %s", name, got, rep.Object)
	}
	o.plain(clone, "fsck", "--strict", "--full")
	return rep
}

func TestBranchOfEveryKindOfClone(t *testing.T) {
	l := basic(t)
	for _, h := range []task.History{task.HistoryFull, task.HistoryBase, task.HistoryNone} {
		o := l.open(Options{History: h})
		o.file("in", "in\n")
		o.in("add", "in")
		o.in("commit", "-qm", "inside")
		o.file("loose", "loose\n")
		rep := o.branch("of/" + string(h))
		if rep.Commits != 2 || l.git("rev-parse", rep.Object+"~2") != o.r.Ref.Base {
			t.Errorf("%s: %+v", h, rep)
		}
		o.bundleFits(string(h))
	}
	l.git("fsck", "--strict", "--full")

	empty := newLab(t)
	empty.git("init", "-q", "--object-format=sha256")
	o := empty.open(Options{})
	o.file("first", "first\n")
	o.refused("checked out without a commit", BranchOptions{Name: "main"}, task.CodeConflict)
	if rep := o.branch("start"); rep.Commits != 1 || rep.Base != "" {
		t.Errorf("%+v", rep)
	}
	o.bundleFits("empty")
	o.in("add", ".")
	o.in("commit", "-qm", "inside")
	if rep := o.branch("more"); rep.Object != o.in("rev-parse", "HEAD") {
		t.Errorf("%+v", rep)
	}
}
