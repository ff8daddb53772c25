//go:build linux

package source

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestApplyFolder brings changes back into a folder without git, whatever its
// .gitattributes says.
func TestApplyFolder(t *testing.T) {
	l := newLab(t)
	l.write("a.txt", "one\r\ntwo\n")
	l.write(".gitattributes", "* text=auto eol=crlf\n")
	l.write("gone/x", "x\n")
	l.write("kept", "kept\n")
	p, ws, err := copied(t, l.repo, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{lab: l, ws: ws, p: p}
	o.file("a.txt", "one\ntwo\r\nthree\n")
	o.file("new/b", "b\n")
	if err := os.RemoveAll(p.Source + "/gone"); err != nil {
		t.Fatal(err)
	}
	want := facts(t, p.Source)
	r, err := Look(context.Background(), ws)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pl := o.plan(r)
	if len(pl.Conflicts) > 0 {
		t.Fatalf("%+v", pl.Conflicts)
	}
	// Changed by the user meanwhile: nothing is done.
	l.write("a.txt", "mine\n")
	before := picture(t, l.repo, nil)
	if err := pl.Apply(context.Background()); task.CodeOf(err) != task.CodeConflict || picture(t, l.repo, nil) != before {
		t.Errorf("%v", err)
	}
	l.write("a.txt", "one\r\ntwo\n")
	if err := pl.Apply(context.Background()); err != nil {
		t.Fatal(err)
	}
	o.clean()
	differ(t, "folder", facts(t, l.repo), want)
}

// TestApplyDirty has a task that began with uncommitted changes of the user's:
// those it did not touch stay, those it changed are not overwritten.
func TestApplyDirty(t *testing.T) {
	l := basic(t)
	l.write("README", "mine\n")
	l.write("dir/mine", "untracked\n")
	o := l.open(Options{Dirty: task.DirtyChanged})
	o.file("dir/a.txt", "task\n")
	o.apply()
	if b, _ := os.ReadFile(l.repo + "/README"); string(b) != "mine\n" {
		t.Errorf("%q", b)
	}
	o.file("README", "mine and the task's\n")
	p := o.plan(o.result())
	if len(p.Conflicts) != 1 || p.Conflicts[0].Path != "README" || !strings.Contains(p.Conflicts[0].Why, "commit yours first") || len(p.Notes) == 0 {
		t.Errorf("%+v %q", p.Conflicts, p.Notes)
	}
	p.Close()
	// Committed as it was carried in: now it can be.
	l.git("add", "README")
	l.git("commit", "-qm", "mine")
	o.apply()
	if b, _ := os.ReadFile(l.repo + "/README"); string(b) != "mine and the task's\n" {
		t.Errorf("%q", b)
	}
	// Committed otherwise: a conflict like any other.
	l.write("README", "another\n")
	l.git("commit", "-qam", "another")
	p = o.plan(o.result())
	if len(p.Conflicts) != 1 || !strings.Contains(p.Conflicts[0].Why, "both") || p.Conflicts[0].Hunks == "" {
		t.Errorf("%+v", p.Conflicts)
	}
	p.Close()
}

// TestLockCheckout lets one process in at a time, and writes nothing.
func TestLockCheckout(t *testing.T) {
	l := basic(t)
	before := picture(t, l.repo, nil)
	release, err := LockCheckout(l.repo)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockCheckout(l.repo); task.CodeOf(err) != task.CodeConflict || task.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	release()
	again, err := LockCheckout(l.repo)
	if err != nil {
		t.Fatal(err)
	}
	again()
	if picture(t, l.repo, nil) != before {
		t.Error("something was written")
	}
	if err := os.Symlink(l.repo, l.top+"/link"); err != nil {
		t.Fatal(err)
	}
	if _, err := LockCheckout(l.top + "/link"); err == nil {
		t.Error("a link was followed")
	}
}
