//go:build linux

package source

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/source/git"
)

func TestWholeRoad(t *testing.T) {
	l := basic(t)
	before := picture(t, l.repo, notOurs)
	if _, err := findGit(context.Background()); err != nil {
		t.Fatal(err)
	}
	spawned := git.Spawns.Load()
	o := l.open(Options{Dir: l.repo + "/dir"})
	if n := git.Spawns.Load() - spawned; n > 8 {
		t.Errorf("%d processes to open a task; the budget is 8", n)
	}
	if !o.p.Ref.Shared || o.p.Ref.Branch != "main" || o.p.Ref.Repo != l.repo || o.p.Ref.Target != l.repo || o.p.Ref.Base != l.git("rev-parse", "HEAD") {
		t.Errorf("ref: %+v", o.p.Ref)
	}
	if st := o.in("status", "--porcelain=v2", "--branch", "--ignored"); strings.Contains(st, "\n1 ") || !strings.Contains(st, "branch.head main") {
		t.Errorf("status inside:\n%s", st)
	}
	if got, want := o.in("for-each-ref", "--format=%(refname) %(objectname)"), l.git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags", "refs/remotes"); got != want {
		t.Errorf("refs inside:\n%s\nwant\n%s", got, want)
	}
	if w := o.work(); !w.Empty() {
		t.Errorf("work in an untouched task: %+v", w)
	}
	if need, err := NeedsBundle(context.Background(), o.ws); err != nil || need {
		t.Errorf("NeedsBundle = %v, %v", need, err)
	}

	// The task works.
	o.file("dir/a.txt", "changed\n")
	o.in("commit", "-qam", "inside")
	head := o.in("rev-parse", "HEAD")
	o.file("new file", "new\n")
	o.file("x.log", "ignored\n")
	o.file("build/deep/y", "ignored\n")
	if err := os.Remove(o.p.Source + "/README"); err != nil {
		t.Fatal(err)
	}
	w := o.work()
	has(t, "tracked", w.Tracked, "dir/a.txt", "README")
	has(t, "untracked", w.Untracked, "new file")
	has(t, "ignored", w.Ignored, "x.log", "build")
	has(t, "commits", w.Commits, "refs/heads/main "+head)

	var patch bytes.Buffer
	if err := Diff(context.Background(), o.ws, &patch, DiffOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+changed", "deleted file mode", "new file mode"} {
		if !strings.Contains(patch.String(), want) {
			t.Errorf("diff lacks %q:\n%s", want, patch.String())
		}
	}

	// Its results come back.
	rs := o.imports(o.bundle())
	if len(rs) != 1 || rs[0].Name != refPrefix(o.ws.Task)+"heads/main" || rs[0].Object != head || rs[0].Count != 1 {
		t.Errorf("results: %+v", rs)
	}
	snap, err := MakeSnapshot(context.Background(), o.ws)
	if err != nil || !snap.Changed {
		t.Fatalf("snapshot: %+v, %v", snap, err)
	}
	if _, err := PublishSnapshot(context.Background(), o.ws, snap); err != nil {
		t.Fatal(err)
	}
	if got := l.git("diff", "--name-status", "HEAD", refPrefix(o.ws.Task)+"worktree"); got != "D\tREADME\nM\tdir/a.txt\nA\tnew file" {
		t.Errorf("published snapshot:\n%s", got)
	}
	kept, err := KeepIgnored(context.Background(), o.ws)
	if err != nil || len(kept) != 1 || kept[0].Count != 2 {
		t.Errorf("kept: %+v, %v", kept, err)
	}
	if b, _ := os.ReadFile(o.ws.Dir + "/kept/files/build/deep/y"); string(b) != "ignored\n" {
		t.Errorf("kept file: %q", b)
	}

	// It ends.
	if err := RemoveTree(context.Background(), o.p.Source); err != nil {
		t.Error(err)
	}
	if err := Unpin(context.Background(), o.r.Ref.CommonDir, o.ws.Task); err != nil {
		t.Error(err)
	}
	if got := l.git("for-each-ref", "--format=%(refname)", "refs/caisson"); got != refPrefix(o.ws.Task)+"heads/main\n"+refPrefix(o.ws.Task)+"worktree" {
		t.Errorf("refs left: %s", got)
	}
	if after := picture(t, l.repo, notOurs); after != before {
		t.Errorf("the user's repository changed:\n%s\nwas\n%s", after, before)
	}
	l.git("fsck", "--strict", "--full")
}
