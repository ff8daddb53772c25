//go:build linux

package source

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// refused fails unless a repository is refused with the code and a hint that
// holds the text.
func refused(t *testing.T, err error, code task.Code, hint string) {
	t.Helper()
	if task.CodeOf(err) != code || !strings.Contains(task.HintOf(err), hint) {
		t.Errorf("got %v (code %s, hint %q), want code %s with a hint about %q", err, task.CodeOf(err), task.HintOf(err), code, hint)
	}
}

func TestBases(t *testing.T) {
	l := basic(t)
	first, second := l.git("rev-parse", "HEAD^"), l.git("rev-parse", "HEAD")
	for _, b := range []string{"v1+build", "feat#12", "日本", "feat/deep/er", "a,b"} {
		l.git("branch", b, first)
	}
	// git itself makes such a branch only by plumbing.
	l.git("update-ref", "refs/heads/-dash", first)
	for _, c := range []struct{ base, want, branch string }{
		{"", second, "main"}, {"HEAD", second, "main"}, {"@", second, "main"}, {"HEAD^", first, ""}, {"main~1", first, ""},
		{"v1+build", first, "v1+build"}, {"feat#12", first, "feat#12"}, {"日本", first, "日本"}, {"feat/deep/er", first, "feat/deep/er"},
		{"refs/heads/side", first, "side"}, {"heads/side", first, "side"}, {"v1", second, ""}, {"origin/main", first, ""}, {"origin", first, ""},
		{first, first, ""}, {first[:8], first, ""}, {"-dash", first, "-dash"}, {":/two", second, ""}, {"HEAD^{/one}", first, ""},
	} {
		r, err := l.inspect(Options{Base: c.base})
		if err != nil {
			t.Errorf("%q: %v", c.base, err)
			continue
		}
		if r.Ref.Base != c.want || r.Ref.Branch != c.branch {
			t.Errorf("%q: base %s branch %q, want %s %q", c.base, r.Ref.Base, r.Ref.Branch, c.want, c.branch)
		}
	}
	for _, bad := range []string{"nothing", "--all", "--git-dir=/x", "-h", "HEAD^{tree}", "v1:README", "main..side", "a\nb", strings.Repeat("x", 5000), "HEAD^9"} {
		if r, err := l.inspect(Options{Base: bad}); err == nil {
			t.Errorf("%q was taken as %s", bad, r.Ref.Base)
		}
	}
	// Really opened, not only looked at.
	o := l.open(Options{Base: "日本"})
	if got := o.in("symbolic-ref", "--short", "HEAD"); got != "日本" {
		t.Errorf("branch inside: %s", got)
	}
	l.git("tag", "side", second)
	_, err := l.inspect(Options{Base: "side"})
	refused(t, err, task.CodeSource, "full name")
	l.git("checkout", "-q", "--detach")
	if o := l.open(Options{}); o.p.Ref.Branch != "" || o.in("rev-parse", "--abbrev-ref", "HEAD") != "HEAD" {
		t.Errorf("detached: %+v", o.p.Ref)
	}
}

func TestHistories(t *testing.T) {
	for _, c := range []struct {
		h       task.History
		commits string
		shared  bool
	}{{task.HistoryFull, "2", true}, {task.HistoryBase, "2", false}, {task.HistoryNone, "1", false}} {
		t.Run(string(c.h), func(t *testing.T) {
			l := basic(t)
			l.git("checkout", "-q", "side")
			l.write("secret", "only on side\n")
			side := l.commit("secret on side")
			l.git("checkout", "-q", "main")
			o := l.open(Options{History: c.h})
			if o.p.Ref.Shared != c.shared || (len(o.p.Objects) > 0) != c.shared {
				t.Errorf("shared: %+v", o.p)
			}
			if got := o.in("rev-list", "--count", "HEAD"); got != c.commits {
				t.Errorf("%s commits inside, want %s", got, c.commits)
			}
			_, err := l.tryGit(o.p.Source, nil, "cat-file", "-e", side)
			if readable := err == nil; readable != c.shared {
				t.Errorf("another branch's commit readable: %v", readable)
			}
			if o.in("status", "--porcelain") != "" {
				t.Error("not clean")
			}
			o.in("fsck", "--strict")
			o.file("x", "x\n")
			o.in("add", "x")
			o.in("commit", "-qm", "inside")
			head := o.in("rev-parse", "HEAD")
			if rs := o.imports(o.bundle()); len(rs) != 1 || rs[0].Object != head {
				t.Errorf("results: %+v", rs)
			}
			if l.git("rev-parse", head+"^") != o.r.Ref.Base {
				t.Error("the task's commit does not stand on the user's base")
			}
			l.git("fsck")
		})
	}
}

func TestLinkedWorktree(t *testing.T) {
	l := basic(t)
	wt := l.top + "/wt"
	l.git("worktree", "add", "-q", "-b", "linked", wt)
	l.plain(wt, "commit", "-q", "--allow-empty", "-m", "in the worktree")
	o := l.open(Options{Dir: wt + "/dir"})
	if o.p.Ref.Repo != wt || o.p.Ref.CommonDir != l.repo+"/.git" || o.p.Ref.Branch != "linked" || o.p.Ref.Base != strings.TrimSpace(l.plain(wt, "rev-parse", "HEAD")) {
		t.Errorf("ref: %+v", o.p.Ref)
	}
	o.in("status")
	// Of a bare repository, with per-worktree configuration.
	l.plain(l.top, "clone", "-q", "--bare", l.repo, "bare.git")
	l.plain(l.top+"/bare.git", "config", "extensions.worktreeConfig", "true")
	l.plain(l.top+"/bare.git", "worktree", "add", "-q", l.top+"/wt2", "side")
	if r, err := l.inspect(Options{Dir: l.top + "/wt2"}); err != nil || r.Ref.Branch != "side" {
		t.Errorf("worktree of a bare repository: %+v, %v", r, err)
	} else {
		l.prepare(r).in("status")
	}
	l.plain(l.top, "init", "-q", "--separate-git-dir", l.top+"/elsewhere.git", "apart")
	l.plain(l.top+"/apart", "commit", "-q", "--allow-empty", "-m", "apart")
	if r, err := l.inspect(Options{Dir: l.top + "/apart"}); err != nil || r.Ref.CommonDir != l.top+"/elsewhere.git" {
		t.Errorf("separate git directory: %+v, %v", r, err)
	} else {
		l.prepare(r).in("status")
	}
	_, err := l.inspect(Options{Dir: l.repo + "/.git/refs"})
	refused(t, err, task.CodeUnsupported, "git worktree add")
	// Its administrative folder is gone; never the parent instead.
	if err := os.RemoveAll(l.repo + "/.git/worktrees/wt"); err != nil {
		t.Fatal(err)
	}
	_, err = l.inspect(Options{Dir: wt})
	refused(t, err, task.CodeSource, "worktree repair")
}

func TestPlantedWorktreePointer(t *testing.T) {
	l := basic(t)
	l.git("worktree", "add", "-q", l.top+"/wt", "side")
	fake := l.top + "/fake"
	if err := os.Mkdir(fake, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fake+"/.git", []byte("gitdir: "+l.repo+"/.git/worktrees/wt\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := l.inspect(Options{Dir: fake})
	refused(t, err, task.CodeSource, "worktree repair")
}

func TestUnborn(t *testing.T) {
	l := newLab(t)
	l.git("init", "-q", "-b", "trunk")
	l.write("left alone", "x\n")
	o := l.open(Options{})
	if o.p.Ref.Base != "" || o.p.Ref.Branch != "trunk" || o.p.Pins != 0 {
		t.Errorf("ref: %+v", o.p)
	}
	if w := o.work(); !w.Empty() {
		t.Errorf("work: %+v", w)
	}
	o.file("a", "a\n")
	o.in("add", "a")
	o.in("commit", "-qm", "first")
	o.file("b", "b\n")
	head := o.in("rev-parse", "HEAD")
	has(t, "untracked", o.work().Untracked, "a", "b")
	if rs := o.imports(o.bundle()); len(rs) != 1 || rs[0].Object != head {
		t.Errorf("results: %+v", rs)
	}
	snap, err := MakeSnapshot(context.Background(), o.ws)
	if err != nil {
		t.Fatal(err)
	}
	if rs, err := PublishSnapshot(context.Background(), o.ws, snap); err != nil || len(rs) != 1 || rs[0].Kind != "worktree" {
		t.Errorf("snapshot: %+v %v", rs, err)
	}
	l.git("fsck", "--strict")
}

func TestSubmodulesAndLFS(t *testing.T) {
	l := basic(t)
	l.plain(l.top, "-c", "protocol.file.allow=always", "clone", "-q", l.repo, "sub")
	l.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", l.top+"/sub", "mod")
	l.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
	l.write("big.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
	l.commit("submodule and lfs")
	o := l.open(Options{})
	notes := strings.Join(o.p.Ref.Notes, "\n")
	if !strings.Contains(notes, "have their files") || !strings.Contains(notes, "LFS") {
		t.Errorf("notes: %s", notes)
	}
	if w := o.work(); !w.Empty() {
		t.Errorf("work: %+v", w)
	}
	if got := o.in("status", "--porcelain"); got != "" {
		t.Errorf("status: %s", got)
	}
	if b, err := os.ReadFile(o.p.Source + "/mod/dir/b.txt"); err != nil {
		t.Errorf("the submodule's files are not there: %q, %v", b, err)
	}
	o.file("mod/inner", "written into the submodule's folder\n")
	if w := o.work(); len(w.Untracked) > 0 || !slices.Contains(w.Ignored, "mod") {
		t.Errorf("work: %+v", w)
	}
	// The submodule itself is a repository with a pointer file.
	r, err := l.inspect(Options{Dir: l.repo + "/mod"})
	if err != nil {
		t.Fatal(err)
	}
	s := l.prepare(r)
	if s.p.Ref.Repo != l.repo+"/mod" || s.in("status", "--porcelain") != "" {
		t.Errorf("submodule as source: %+v", s.p.Ref)
	}
}

func TestShallow(t *testing.T) {
	l := basic(t)
	l.plain(l.top, "-c", "protocol.file.allow=always", "clone", "-q", "--depth=1", "file://"+l.repo, "shallow")
	for _, h := range []task.History{task.HistoryFull, task.HistoryBase, task.HistoryNone} {
		o := l.open(Options{Dir: l.top + "/shallow", History: h})
		if got := o.in("rev-list", "--count", "HEAD"); got != "1" {
			t.Errorf("%s: %s commits", h, got)
		}
		o.in("fsck")
		o.file("x", "x")
		o.in("add", "x")
		o.in("commit", "-qm", "x")
		if rs := o.imports(o.bundle()); len(rs) != 1 {
			t.Errorf("%s: results %+v", h, rs)
		}
	}
}

func TestRefusedFormats(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(l *lab)
		code task.Code
		hint string
	}{
		{"partial", func(l *lab) {
			l.git("config", "core.repositoryformatversion", "1")
			l.git("config", "extensions.partialClone", "origin")
		}, task.CodeUnsupported, "--history none"},
		{"promisor", func(l *lab) { l.git("config", "remote.origin.promisor", "true") }, task.CodeUnsupported, "--history none"},
		{"unknown extension", func(l *lab) {
			l.git("config", "core.repositoryformatversion", "1")
			l.git("config", "extensions.fromTheFuture", "1")
		}, task.CodeUnsupported, "without that extension"},
		{"reftable", func(l *lab) {
			l.git("config", "core.repositoryformatversion", "1")
			l.git("config", "extensions.refStorage", "reftable")
		}, task.CodeUnsupported, "refs migrate"},
		{"bare", func(l *lab) { l.git("config", "core.bare", "true") }, task.CodeUnsupported, "core.bare"},
		{"broken config", func(l *lab) { l.write(".git/config", "[core\n") }, task.CodeSource, "git fsck"},
		{"no repository", func(l *lab) { _ = os.RemoveAll(l.repo + "/.git") }, task.CodeSource, "git init"},
		{"empty pointer", func(l *lab) { _ = os.RemoveAll(l.repo + "/.git"); l.write(".git", "hello") }, task.CodeSource, "repair"},
		{"head is gone", func(l *lab) { l.write(".git/refs/heads/main", strings.Repeat("1", 40)+"\n") }, task.CodeSource, "fsck"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := basic(t)
			c.do(l)
			before := picture(t, l.repo, nil)
			_, err := l.inspect(Options{})
			refused(t, err, c.code, c.hint)
			if picture(t, l.repo, nil) != before {
				t.Error("a refusal had an effect")
			}
		})
	}
}

func TestSHA256(t *testing.T) {
	l := newLab(t)
	l.git("init", "-q", "--object-format=sha256")
	l.write("a", "a\n")
	l.commit("a")
	o := l.open(Options{})
	if o.in("status", "--porcelain") != "" {
		t.Error("not clean")
	}
	o.file("a", "b\n")
	o.in("commit", "-qam", "b")
	head := o.in("rev-parse", "HEAD")
	if rs := o.imports(o.bundle()); len(rs) != 1 || rs[0].Object != head || len(head) != 64 {
		t.Errorf("results: %+v", rs)
	}
}

func TestBorrowedObjects(t *testing.T) {
	l := basic(t)
	l.plain(l.top, "clone", "-q", "--shared", l.repo, "borrower")
	o := l.open(Options{Dir: l.top + "/borrower"})
	if o.p.Ref.Shared || len(o.p.Objects) > 0 || !strings.Contains(strings.Join(o.p.Ref.Notes, " "), "borrows") {
		t.Errorf("%+v", o.p)
	}
	o.in("fsck", "--strict")
}

func TestForeignOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("giving a folder to another user needs root")
	}
	l := basic(t)
	for _, p := range []string{l.repo, l.repo + "/.git"} {
		if err := os.Lchown(p, 4711, 4711); err != nil {
			t.Fatal(err)
		}
	}
	_, err := l.inspect(Options{})
	refused(t, err, task.CodeSource, "safe.directory")
	// What is printed to be run is one word of a shell, whatever the folder is called.
	odd := l.top + "/it's; touch x"
	if err := os.Rename(l.repo, odd); err != nil {
		t.Fatal(err)
	}
	_, err = l.inspect(Options{Dir: odd})
	if want := task.ShellWord(odd); !strings.HasSuffix(task.HintOf(err), "--add safe.directory "+want) {
		t.Errorf("hint %q, want %s", task.HintOf(err), want)
	}
	if err := os.Rename(odd, l.repo); err != nil {
		t.Fatal(err)
	}
	// The repository cannot say so for itself.
	l.write(".git/config", "[core]\n\tbare = false\n[safe]\n\tdirectory = *\n")
	_, err = l.inspect(Options{})
	refused(t, err, task.CodeSource, "safe.directory")
	l.write("../home/.gitconfig", "[safe]\n\tdirectory = "+l.repo+"\n")
	o := l.open(Options{})
	if o.p.Ref.Shared || o.p.Pins != 0 {
		t.Errorf("refs would be written into somebody else's repository: %+v", o.p)
	}
	if o.r.Identity != defaultIdentity {
		t.Errorf("identity: %+v", o.r.Identity)
	}
	// Results leave as a bundle.
	o.file("x", "x\n")
	o.in("add", "x")
	o.in("commit", "-qm", "x")
	head := o.in("rev-parse", "HEAD")
	rs := o.imports(o.bundle())
	if len(rs) != 1 || rs[0].Kind != "bundle" {
		t.Fatalf("results: %+v", rs)
	}
	if out := l.plain(l.top, "bundle", "list-heads", rs[0].Name); !strings.Contains(out, head) {
		t.Errorf("bundle: %s", out)
	}
}

func TestIdentity(t *testing.T) {
	if out, err := exec.Command("git", "config", "--system", "user.email").Output(); err == nil && len(out) > 0 {
		t.Skipf("the git configuration of this machine names a user: %s", out)
	}
	l := basic(t)
	l.git("config", "user.name", "Local <Name>")
	r, err := l.inspect(Options{})
	if err != nil || r.Identity != (task.GitIdentity{Name: "Local Name", Email: "ada@example.org"}) {
		t.Errorf("%+v %v", r.Identity, err)
	}
	r, err = l.inspect(Options{Env: []string{"HOME=/nonexistent"}})
	if err != nil || r.Identity != defaultIdentity {
		t.Errorf("%+v %v", r.Identity, err)
	}
	r, err = l.inspect(Options{Env: []string{"GIT_AUTHOR_NAME=E", "GIT_AUTHOR_EMAIL=e@x"}})
	if err != nil || r.Identity != (task.GitIdentity{Name: "Local Name", Email: "e@x"}) && r.Identity.Name != "E" {
		t.Errorf("%+v %v", r.Identity, err)
	}
	o := l.open(Options{})
	o.file("x", "x")
	o.in("add", "x")
	c := []string{"-u", "GIT_AUTHOR_NAME", "-u", "GIT_AUTHOR_EMAIL", "-u", "GIT_COMMITTER_NAME", "-u", "GIT_COMMITTER_EMAIL", "-u", "HOME", "git", "commit", "-qm", "x"}
	if out, err := l.run(o.p.Source, "env", c...); err != nil {
		t.Errorf("a commit inside without any environment: %v %s", err, out)
	}
	if got := o.in("log", "-1", "--format=%an|%ae"); got != "Local Name|ada@example.org" {
		t.Errorf("author inside: %s", got)
	}
}

// TestBaseWithNamesThatGitRefuses: such a commit starts nothing, and the refusal
// says what to do.
func TestBaseWithNamesThatGitRefuses(t *testing.T) {
	for _, name := range []string{".git", ".."} {
		l := basic(t)
		l.sh(`b=$(echo evil | git hash-object -w --stdin); t=$(printf '100644 blob %s\tconfig\n' $b | git mktree)
t=$(printf '040000 tree %s\t` + name + `\n' $t | git mktree); git update-ref refs/heads/main $(git commit-tree -m evil $t)`)
		r, err := l.inspect(Options{})
		if err != nil {
			t.Fatal(err)
		}
		id := task.NewID()
		ws := Workspace{Task: id, Dir: l.state + "/" + string(id)}
		if err := os.Mkdir(ws.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		_, err = Prepare(context.Background(), r, ws, Inside{ObjectsDir: l.top + "/objects", UID: 1000, GID: 1000})
		if task.CodeOf(err) != task.CodeSource || !strings.Contains(task.HintOf(err), "--base") {
			t.Errorf("%s: %v (%s)", name, err, task.HintOf(err))
		}
	}
}
