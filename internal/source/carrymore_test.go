//go:build linux

package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Nothing that the user's, the repository's or a nested repository's
// configuration names is run, and no nested repository is gone into.
func TestCarryRunsNothing(t *testing.T) {
	l := basic(t)
	l.write("f.x", "x\n")
	l.commit("three")
	l.sh(`git init -q sub.src; (cd sub.src; echo s >s; git add s; git commit -qm s); git -c protocol.file.allow=always submodule add -q ./sub.src sub; git commit -qm sub`)
	canary := l.top + "/canary"
	bad := "touch " + canary + "; cat"
	l.sh(`printf '*.x filter=bad diff=bad\n' >.gitattributes
for where in --global --local; do
git config $where filter.bad.clean '` + bad + `'; git config $where filter.bad.smudge '` + bad + `'; git config $where filter.bad.process '` + bad + `'
git config $where diff.bad.textconv '` + bad + `'; git config $where core.fsmonitor '` + bad + `'; git config $where core.hooksPath "$TOP/hooks"; done
mkdir $TOP/hooks; for h in post-index-change pre-commit reference-transaction; do printf '#!/bin/sh\ntouch ` + canary + `\n' >$TOP/hooks/$h; chmod +x $TOP/hooks/$h; done
git init -q nested; git -C nested config core.fsmonitor '` + bad + `'; echo n >nested/n; echo changed >>f.x; echo s >>sub/s; git -C sub config core.fsmonitor '` + bad + `'
rm -f ` + canary)
	o := l.open(Options{Dirty: task.DirtyAll, Env: l.env})
	if w := o.work(); len(w.Tracked)+len(w.Untracked)+len(w.Ignored) != 0 {
		t.Errorf("work: %+v", w)
	}
	if exists(canary) {
		t.Error("a configured program was run")
	}
	if b, err := os.ReadFile(o.p.Source + "/f.x"); err != nil || string(b) != "x\nchanged\n" {
		t.Errorf("%q %v", b, err)
	}
	if exists(o.p.Source + "/nested/n") {
		t.Error("a nested repository was carried over")
	}
	if n := strings.Join(o.p.Ref.Notes, "\n"); !strings.Contains(n, "nested/") || !strings.Contains(n, "submodules") {
		t.Errorf("notes: %s", n)
	}
	if out, _ := l.tryGit(l.repo, nil, "status"); !exists(canary) {
		t.Errorf("control: plain git status runs nothing either: %s", out)
	}
}

func TestCarryRefused(t *testing.T) {
	l := basic(t)
	if _, err := l.inspect(Options{Dirty: task.DirtyChanged, Base: "side"}); task.CodeOf(err) != task.CodeUsage || task.HintOf(err) == "" {
		t.Errorf("another base: %v", err)
	}
	l.sh(`git checkout -q side; echo side >README; git commit -qam side; git checkout -q main; echo main >README; git commit -qam main; git merge -q side || true`)
	before := picture(t, l.repo, nil)
	if _, err := l.inspect(Options{Dirty: task.DirtyChanged}); task.CodeOf(err) != task.CodeConflict || !strings.Contains(err.Error(), "README") {
		t.Errorf("conflicts: %v", err)
	}
	if picture(t, l.repo, nil) != before {
		t.Error("something was changed")
	}
	if _, err := l.inspect(Options{}); err != nil {
		t.Errorf("control: %v", err)
	}
}

// Repositories of every kind.
func TestCarryKinds(t *testing.T) {
	check := func(o *opened) {
		t.Helper()
		o.sameStory("")
		if w := o.work(); !w.Empty() {
			t.Errorf("work: %+v", w)
		}
	}
	t.Run("no commit yet", func(t *testing.T) {
		l := newLab(t)
		l.sh(`git init -q .; echo a >a; git add a; echo b >b; echo more >>a; echo later >c; git add -N c`)
		o := l.open(Options{Dirty: task.DirtyChanged})
		o.t = t
		check(o)
		o.file("d", "d")
		snap, err := MakeSnapshot(context.Background(), o.ws)
		if err != nil || snap.Files != 1 {
			t.Errorf("%+v %v", snap, err)
		}
	})
	t.Run("no commit, nothing staged", func(t *testing.T) {
		l := newLab(t)
		l.sh(`git init -q .; echo b >b`)
		check(l.open(Options{Dirty: task.DirtyChanged}))
	})
	t.Run("sha256", func(t *testing.T) {
		l := newLab(t)
		l.sh(`git init -q --object-format=sha256 .; echo a >a; git add a; git commit -qm a; echo b >>a; git add a; echo c >>a; echo n >n; echo l >l; git add -N l`)
		check(l.open(Options{Dirty: task.DirtyChanged}))
	})
	t.Run("linked worktree", func(t *testing.T) {
		l := basic(t)
		l.sh(`git worktree add -q ../linked side`)
		l.repo = l.top + "/linked"
		l.sh(`echo b >>README; git add README; echo c >>README; echo n >n`)
		check(l.open(Options{Dirty: task.DirtyChanged, Dir: l.repo}))
	})
	t.Run("sparse", func(t *testing.T) {
		l := basic(t)
		for _, index := range []string{"", "--sparse-index"} {
			l.sh(`git sparse-checkout init --cone ` + index + `; git sparse-checkout set other; echo b >>README; git add README; echo c >>README; mkdir -p other; echo n >other/n`)
			o := l.open(Options{Dirty: task.DirtyChanged})
			args := []string{"status", "--porcelain=v2", "-z", "--untracked-files=all"}
			if a, b := o.plain(o.repo, args...), o.plain(o.p.Source, args...); a != b {
				t.Errorf("%s: status differs: %q %q", index, a, b)
			}
			if b, err := os.ReadFile(o.p.Source + "/dir/a.txt"); err != nil || string(b) != "a\n" {
				t.Errorf("%s: a file that is left out: %q %v", index, b, err)
			}
			if w := o.work(); !w.Empty() {
				t.Errorf("work: %+v", w)
			}
		}
	})
	t.Run("large files", func(t *testing.T) {
		l := basic(t)
		for _, n := range []string{"same.bin", "other.bin"} {
			l.write(n, fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%x\nsize 7\n", sha256.Sum256([]byte("content"))))
		}
		l.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
		l.commit("lfs")
		l.write("same.bin", "content")
		l.write("other.bin", "new content")
		o := l.open(Options{Dirty: task.DirtyChanged})
		if got := o.in("status", "--porcelain"); got != "M other.bin" {
			t.Errorf("status: %q", got)
		}
		if b, _ := os.ReadFile(o.p.Source + "/same.bin"); !bytes.HasPrefix(b, []byte("version")) {
			t.Errorf("not a pointer: %q", b)
		}
	})
	t.Run("as a worktree", func(t *testing.T) {
		l := basic(t)
		l.sh(`echo b >>README; git add README; echo c >>README; rm dir/a.txt; echo n >n`)
		before := l.git("status", "--porcelain=v2", "-z", "--untracked-files=all")
		o := l.open(Options{Dirty: task.DirtyChanged, Strategy: task.StrategyWorktree})
		if got := o.in("status", "--porcelain=v2", "-z", "--untracked-files=all"); got != before {
			t.Errorf("status: %q, want %q", got, before)
		}
		if w := o.work(); !w.Empty() {
			t.Errorf("work: %+v", w)
		}
	})
}

// Ignored files are the user's until the task touches them.
func TestCarryIgnored(t *testing.T) {
	l := basic(t)
	l.sh(`mkdir -p build/deep dist; echo o >build/out; echo d >build/deep/d; chmod 750 build/deep; echo l >x.log; echo s >y.log; ln -s out build/l; git init -q build/dep; mkfifo build/fifo; echo '/dist/' >>.git/info/exclude; echo d >dist/d`)
	before := picture(t, l.repo, nil)
	o := l.open(Options{Dirty: task.DirtyAll})
	if picture(t, l.repo, notOurs) != strings.Join(without(before), "\n") {
		t.Error("the checkout was changed")
	}
	for f, want := range map[string]string{"build/out": "o\n", "build/deep/d": "d\n", "x.log": "l\n", "dist/d": "d\n"} {
		if b, err := os.ReadFile(o.p.Source + "/" + f); err != nil || string(b) != want {
			t.Errorf("%s: %q %v", f, b, err)
		}
	}
	if st, err := os.Stat(o.p.Source + "/build/deep"); err != nil || st.Mode().Perm() != 0o750 {
		t.Errorf("%v %v", st, err)
	}
	if exists(o.p.Source + "/build/dep/.git") {
		t.Error("a .git was carried over")
	}
	if w := o.work(); !w.Empty() {
		t.Fatalf("untouched: %+v", w)
	}
	o.file("y.log", "the task's\n")
	o.file("z.log", "new\n")
	if err := os.Remove(o.p.Source + "/build/deep/d"); err != nil {
		t.Fatal(err)
	}
	has(t, "ignored", o.work().Ignored, "build", "y.log", "z.log")
	rs, err := KeepIgnored(context.Background(), o.ws)
	if err != nil || len(rs) != 1 || rs[0].Count != 3 {
		t.Errorf("kept: %+v %v", rs, err)
	}
	if exists(o.ws.kept()+"/files/x.log") || !exists(o.ws.kept()+"/files/y.log") {
		t.Error("the user's own file was kept, or the task's was not")
	}
	if o.p.Ref.Start != "" {
		t.Error("ignored files became a commit")
	}
}

// TestClockSetBack changes files for which nothing but a time is recorded, after
// the clock was set back: they count as changed. It is the record that is moved
// into the future here, so what was not touched looks changed as well.
func TestClockSetBack(t *testing.T) {
	l := basic(t)
	l.plain(l.top, "-c", "protocol.file.allow=always", "clone", "-q", l.repo, "sub")
	l.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", l.top+"/sub", "mod")
	l.commit("submodule")
	l.sh(`mkdir build; echo o >build/out; echo l >x.log; echo m >y.log`)
	o := l.open(Options{Dirty: task.DirtyAll})
	for _, back := range []time.Duration{0, time.Hour, 24 * 365 * time.Hour} {
		s, err := o.ws.loadState()
		if err != nil {
			t.Fatal(err)
		}
		if s.BegunS == 0 || s.BegunS > s.CutoffS {
			t.Fatalf("begun at %d, ended at %d", s.BegunS, s.CutoffS)
		}
		if back == 0 {
			if w := o.work(); !w.Empty() {
				t.Fatalf("untouched: %+v", w)
			}
			// From here on nothing is older than the start.
			o.file("mod/dir/b.txt", "changed\n")
			o.file("build/out", "changed\n")
			o.file("x.log", "changed\n")
		}
		s.BegunS, s.CutoffS = s.BegunS+int64(back.Seconds()), s.CutoffS+int64(back.Seconds())
		if err := o.ws.saveState(s); err != nil {
			t.Fatal(err)
		}
		if w := o.work(); !slices.Contains(w.Ignored, "mod") || !slices.Contains(w.Ignored, "build") || !slices.Contains(w.Ignored, "x.log") || slices.Contains(w.Ignored, "y.log") != (back > 0) {
			t.Errorf("set back by %v: %+v", back, w)
		}
	}
}

// without drops what notOurs leaves out from a picture.
func without(picture string) []string {
	var out []string
	for _, line := range strings.Split(picture, "\n") {
		if !strings.HasPrefix(line, `".git/refs/caisson`) && !strings.HasPrefix(line, `".git/objects`) {
			out = append(out, line)
		}
	}
	return out
}

// A real project with many edits of every kind, and very many untracked files.
func TestCarryReal(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of files; not with -short")
	}
	project := "github.com/spf13/cobra"
	if full {
		project = "golang.org/x/sys" // ten times as large
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", project).Output()
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	if out, err := l.run(l.top, "cp", "-r", "--no-preserve=mode", strings.TrimSpace(string(out))+"/.", l.repo); err != nil {
		t.Fatal(out)
	}
	l.git("init", "-q")
	l.commit("all")
	r := rand.New(rand.NewSource(11))
	files := strings.Split(strings.TrimSuffix(l.plain(l.repo, "ls-files", "-z"), "\x00"), "\x00")
	pick := func() string { return files[r.Intn(len(files))] }
	for i := range 120 {
		f := pick()
		p := l.repo + "/" + f
		switch r.Intn(8) {
		case 0:
			os.Remove(p)
		case 1:
			_, _ = l.tryGit(l.repo, nil, "rm", "-qf", "--", f)
		case 2:
			_, _ = l.tryGit(l.repo, nil, "mv", "-k", "--", f, fmt.Sprintf("%s.%d", f, i))
		case 3:
			_ = os.Chmod(p, 0o755)
		case 4:
			os.Remove(p)
			_ = os.Symlink("x", p)
		case 5:
			l.write(fmt.Sprintf("new/%d/n", i), "n\n")
			if r.Intn(2) == 0 {
				l.git("add", "-A", "new")
			}
		default:
			if b, err := os.ReadFile(p); err == nil {
				n := r.Intn(len(b) + 1)
				l.write(f, string(b[:n])+"edit\n"+string(b[n:]))
				if r.Intn(2) == 0 {
					l.git("add", "--", f)
				}
			}
		}
	}
	for i := range count(2000, 20_000) {
		l.write(fmt.Sprintf("many/%d/%d", i%100, i), fmt.Sprint(i))
	}
	index, err := os.ReadFile(l.repo + "/.git/index")
	if err != nil {
		t.Fatal(err)
	}
	o := l.open(Options{Dirty: task.DirtyChanged})
	if now, err := os.ReadFile(filepath.Join(l.repo, ".git/index")); err != nil || !bytes.Equal(now, index) {
		t.Errorf("the user's index was changed (%v)", err)
	}
	o.sameStory("")
	if w := o.work(); !w.Empty() {
		t.Errorf("work: %d tracked, %d untracked", len(w.Tracked), len(w.Untracked))
	}
	o.file("many/7/7", "by the task\n")
	cs, err := Changes(context.Background(), o.ws, false)
	if err != nil || len(cs) != 1 || string(cs[0].Path) != "many/7/7" || cs[0].Status != 'M' {
		t.Errorf("%+v %v", cs, err)
	}
}
