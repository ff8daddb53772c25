//go:build linux

package lifecycle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// folder makes a folder without git, and another one below it.
func (w *world) folder(name string) string {
	w.t.Helper()
	dir := w.Dir + "/" + name
	w.Mkdir(w.t, dir)
	w.Mkdir(w.t, dir+"/sub")
	w.Write(w.t, dir+"/a", "a\n", 0o640)
	w.Write(w.t, dir+"/sub/b", "b\n", 0o755)
	w.Write(w.t, dir+"/.gitignore", "*\n", 0o644)
	return dir
}

const copyJob = `test ! -e .git && echo more >>a && rm sub/b && echo n >new`

// bundled looks into the bundle that saved a task's changes.
func (w *world) bundled(id string) string {
	w.t.Helper()
	bundle := w.State + "/tasks/" + id + "/work.bundle"
	if !exists(bundle) {
		return ""
	}
	dir := w.Dir + "/look-" + id
	w.Mkdir(w.t, dir)
	w.Git(w.t, dir, "init", "-q")
	w.Git(w.t, dir, "fetch", "-q", bundle, "refs/caisson/*:refs/caisson/*")
	ref := "refs/caisson/" + id + "/worktree"
	return strings.Join(strings.Fields(w.Git(w.t, dir, "diff", "--name-status", "--no-renames", ref+"^", ref)), " ")
}

const copyDone = "M a A new D sub/b"

// The life of a copy, by root and by an ordinary user: unchanged it is closed,
// changed it is kept whole, and in the end a bundle has the changes.
func TestCopyLife(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		dir := w.folder("plain")
		before := harness.TakePicture(t, dir)
		w.ok("run", "--source", "copy", "--repo", dir, "--", "true")
		if v := w.tasks()[0]; v.State != "closed" {
			t.Errorf("unchanged: %s", v.State)
		}
		w.ok("run", "--source", "copy", "--repo", dir, "--name", "kept", "--", "sh", "-ec", copyJob)
		v := w.show("kept")
		if v.State != "kept" {
			t.Fatalf("changed: %s", v.State)
		}
		if got := w.ok("diff", "kept", "--name-status"); strings.Join(strings.Fields(got), " ") != copyDone {
			t.Errorf("diff: %q", got)
		}
		if r := w.do(nil, "close", "kept"); r.Exit != 0 {
			t.Errorf("close of what is kept: %v", r)
		}
		if got := w.bundled(v.ID); got != copyDone {
			t.Errorf("closed: the bundle has %q", got)
		}
		opened := strings.TrimSpace(w.ok("open", "--source", "copy", "--repo", dir))
		w.ok("exec", opened, "--", "sh", "-ec", copyJob)
		if r := w.do(nil, "close", opened); r.Exit != 7 || w.show(opened).State != "kept" {
			t.Errorf("close of an open one: %v", r)
		}
		expire(t, w.State, opened)
		w.ok("reap")
		if got := w.bundled(opened); got != copyDone || w.show(opened).State != "closed" {
			t.Errorf("expired: %s, the bundle has %q", w.show(opened).State, got)
		}
		w.ok("run", "--source", "copy", "--repo", dir, "--keep", "never", "--name", "never", "--", "sh", "-ec", copyJob)
		if v := w.tasks(); !slices.ContainsFunc(v, func(v view) bool { return v.State == "closed" && w.bundled(v.ID) == copyDone && v.ID != opened }) {
			t.Errorf("--keep never: %+v", v)
		}
		if diff := before.Changed(harness.TakePicture(t, dir)); len(diff) > 0 {
			t.Errorf("the folder was changed: %q", diff)
		}
		// What cannot be read stops the start; an ordinary user alone meets that.
		w.Write(t, dir+"/sub/closed", "x", 0)
		r := w.do(nil, "run", "--source", "copy", "--repo", dir, "--", "true")
		if w.UID != 0 && (r.Exit != 125 || !strings.Contains(r.Stderr, "sub/closed") || !strings.Contains(r.Stderr, "hint:")) {
			t.Errorf("unreadable: %v", r)
		}
		if st, err := os.Stat(filepath.Join(dir, "sub/closed")); err != nil || st.Mode().Perm() != 0 {
			t.Errorf("the mode of the user's file is %v (%v)", st.Mode(), err)
		}
		// Folders that hold what must stay apart.
		for _, bad := range []string{w.State, w.State + "/tasks", "/", "/etc", "/proc/self", w.Dir} {
			if r := w.do(nil, "run", "--source", "copy", "--repo", bad, "--", "true"); r.Exit != 125 || !strings.Contains(r.Stderr, "unsafe_path") {
				t.Errorf("%s: %v", bad, r)
			}
		}
		w.clean()
	})
}

// A copy that is killed at any step of its life or end loses nothing and leaves
// nothing.
func TestCopyKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills the program twenty times; not with -short")
	}
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		dir := w.folder("plain")
		for i, p := range []string{"open.source", "open.boundary", "close.dead", "close.rescued", "rescue.snapshot", "rescue.published", "rescue.recorded",
			"close.removing", "close.source", "close.files", "close.pins", "close.sealed"} {
			if id.Name == "user" && os.Getuid() == 0 && i%4 != 0 && !long {
				continue // by root
			}
			r := w.do([]string{"CAISSON_FAULT=" + p + ":kill"}, "run", "--source", "copy", "--repo", dir, "--keep", "never", "--", "sh", "-ec", copyJob)
			if r.Exit != -1 {
				t.Errorf("the step %s was never passed: %v", p, r)
			}
			w.ok("reap")
			for _, v := range w.tasks() {
				if !slices.Contains(w.events(v.ID), "call.outcome") {
					continue
				}
				if w.bundled(v.ID) != copyDone && !exists(w.State+"/tasks/"+v.ID+"/source/new") {
					t.Errorf("%s: the work of task %s (%s) is lost", p, v.ID, v.State)
				}
			}
			w.settle(jobless, i)
			if t.Failed() {
				t.Fatalf("stopping after %s", p)
			}
		}
	})
}

// Uncommitted files come in, and the checkout and its repository stay.
func TestDirtyLife(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.Write(t, w.repo+"/a.txt", "staged\n", 0o644)
		w.Git(t, w.repo, "add", "a.txt")
		w.Write(t, w.repo+"/a.txt", "changed\n", 0o644)
		w.Write(t, w.repo+"/n", "new\n", 0o644)
		w.Write(t, w.repo+"/s.ignored", "secret\n", 0o600)
		status := w.Git(t, w.repo, "status", "--porcelain=v2", "--untracked-files=all")
		w.before = harness.TakePicture(t, w.repo)
		in := w.ok("run", "--dirty", "--", "sh", "-ec", "git status --porcelain=v2 --untracked-files=all; test ! -e s.ignored")
		if strings.TrimSpace(in) != strings.TrimSpace(status) {
			t.Errorf("inside %q, outside %q", in, status)
		}
		w.ok("run", "--dirty=all", "--", "sh", "-ec", "grep -q secret s.ignored; git status --porcelain=v2")
		for _, v := range w.tasks() {
			if v.State != "closed" {
				t.Errorf("nothing was changed, and the task is %s", v.State)
			}
		}
		w.ok("run", "--dirty=all", "--name", "does", "--", "sh", "-ec", "echo more >>n")
		if got := w.ok("diff", "does", "--name-status"); got != "M\tn\n" {
			t.Errorf("diff: %q", got)
		}
		if r := w.do(nil, "run", "--dirty=most", "--", "true"); r.Exit != 125 && r.Exit != 2 || !strings.Contains(r.Stderr, "changed, all") {
			t.Errorf("--dirty=most: %v", r)
		}
		w.clean()
	})
}
