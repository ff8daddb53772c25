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
