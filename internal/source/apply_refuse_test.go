//go:build linux

package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestApplyRefuses changes the checkout after the task began, in every way that
// is in the way of the task's changes. Nothing may be touched.
func TestApplyRefuses(t *testing.T) {
	remove := func(o *opened, name string) {
		if err := os.RemoveAll(o.repo + "/" + name); err != nil {
			o.t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		change func(o *opened)
		path   string
		why    string
	}{
		{"uncommitted", func(o *opened) { o.write("README", "mine\n") }, "README", "uncommitted"},
		{"uncommitted, same size and time", func(o *opened) {
			st, _ := os.Stat(o.repo + "/README")
			o.write("README", "ten\n")
			_ = os.Chtimes(o.repo+"/README", st.ModTime(), st.ModTime())
		}, "README", "uncommitted"},
		{"mode", func(o *opened) { _ = os.Chmod(o.repo+"/README", 0o755) }, "README", "uncommitted"},
		{"staged", func(o *opened) { o.write("README", "mine\n"); o.git("add", "README") }, "README", "staged"},
		{"staged and taken back in the file", func(o *opened) {
			o.write("README", "mine\n")
			o.git("add", "README")
			o.write("README", "one\n")
		}, "README", "staged"},
		{"assume-unchanged", func(o *opened) {
			o.git("update-index", "--assume-unchanged", "README")
			o.write("README", "mine\n")
		}, "README", "uncommitted"},
		{"skip-worktree", func(o *opened) {
			o.git("update-index", "--skip-worktree", "README")
			o.write("README", "mine\n")
		}, "README", "uncommitted"},
		{"deleted", func(o *opened) { remove(o, "README") }, "README", "deleted"},
		{"removed from the index", func(o *opened) { o.git("rm", "-q", "--cached", "README") }, "README", "removed from the index"},
		{"sparse", func(o *opened) {
			o.git("update-index", "--skip-worktree", "README")
			remove(o, "README")
		}, "README", "sparse"},
		{"sparse deletion", func(o *opened) {
			o.git("update-index", "--skip-worktree", "dir/b.txt")
			remove(o, "dir/b.txt")
		}, "dir/b.txt", "sparse"},
		{"sparse index", func(o *opened) { o.git("sparse-checkout", "set", "--cone", "--sparse-index", "other") }, "dir/b.txt", "sparse"},
		{"untracked", func(o *opened) { o.write("new/file", "mine\n") }, "new/file", "untracked"},
		{"ignored", func(o *opened) { o.write(".git/info/exclude", "new\n"); o.write("new/file", "mine\n") }, "new/file", "untracked"},
		{"added", func(o *opened) { o.write("new/file", "mine\n"); o.git("add", "new/file") }, "new/file", "added"},
		{"intent to add", func(o *opened) { o.write("new/file", "mine\n"); o.git("add", "-N", "new/file") }, "new/file", "added"},
		{"folder in the way", func(o *opened) { o.write("new/file/x", "mine\n") }, "new/file", "folder"},
		{"file in the way of a folder", func(o *opened) { o.write("new", "mine\n") }, "new/file", "is a file"},
		{"link in the way of a folder", func(o *opened) { _ = os.Symlink("/tmp", o.repo+"/new") }, "new/file", "is a link"},
		{"own repository", func(o *opened) { o.git("init", "-q", "new") }, "new/file", "repository of its own"},
		{"FIFO", func(o *opened) { remove(o, "README"); _ = unix.Mkfifo(o.repo+"/README", 0o600) }, "README", "uncommitted"},
		{"parent a link", func(o *opened) {
			if err := os.Rename(o.repo+"/dir", o.top+"/moved"); err != nil {
				o.t.Fatal(err)
			}
			_ = os.Symlink(o.top+"/moved", o.repo+"/dir")
		}, "dir/c.txt", "is a link"},
		{"HEAD changed the same line", func(o *opened) { o.write("README", "mine\n"); o.commit("mine") }, "README", "both"},
		{"HEAD deleted it", func(o *opened) { remove(o, "README"); o.commit("mine") }, "README", "deleted"},
		{"HEAD made the same file", func(o *opened) { o.write("new/file", "mine\n"); o.commit("mine") }, "new/file", "both"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := basic(t).open(Options{})
			o.file("README", "task\n")
			o.file("new/file", "task\n")
			o.file("dir/c.txt", "task\n")
			if err := os.Remove(o.p.Source + "/dir/b.txt"); err != nil {
				t.Fatal(err)
			}
			c.change(o)
			before := picture(t, o.repo, notOurs)
			r := o.result()
			p := o.plan(r)
			found := ""
			for _, x := range p.Conflicts {
				if x.Path == c.path {
					found = x.Why
				}
			}
			if found == "" || !strings.Contains(found, c.why) {
				t.Errorf("conflicts: %+v", p.Conflicts)
			}
			if strings.HasPrefix(found, "both") && c.path == "README" {
				if want := "<<<<<<< checkout\nmine\n=======\ntask\n>>>>>>> task\n"; !strings.Contains(p.Conflicts[0].Hunks, want) {
					t.Errorf("hunks: %q", p.Conflicts[0].Hunks)
				}
			}
			if err := p.Apply(context.Background()); task.CodeOf(err) != task.CodeConflict {
				t.Errorf("apply: %v", err)
			}
			differ(t, "touched", picture(t, o.repo, notOurs), before)
			o.clean()
		})
	}
}

// TestApplyBesideChanges leaves alone what the task did not touch, and counts
// what is there already.
func TestApplyBesideChanges(t *testing.T) {
	o := basic(t).open(Options{})
	o.file("README", "task\n")
	o.file("dir/c.txt", "task\n")
	o.write("dir/a.txt", "mine, not committed\n")
	o.write("dir/mine", "untracked\n")
	o.write("x.log", "ignored\n")
	o.write("dir/c.txt", "task\n")
	o.git("add", "dir/mine")
	before, _ := os.Stat(o.repo + "/dir/a.txt")
	index, _ := os.ReadFile(o.repo + "/.git/index")
	p := o.plan(o.result())
	if len(p.Conflicts) > 0 || p.Already != 1 || len(p.Changes) != 1 {
		t.Fatalf("%+v", p)
	}
	if err := p.Apply(context.Background()); err != nil {
		t.Fatal(err)
	}
	after, _ := os.Stat(o.repo + "/dir/a.txt")
	if !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Error("a file that is not in the plan was touched")
	}
	if now, _ := os.ReadFile(o.repo + "/.git/index"); string(now) != string(index) {
		t.Error("the index changed")
	}
	if got := o.git("status", "--porcelain"); got != "M README\n M dir/a.txt\nA  dir/mine\n?? dir/c.txt" {
		t.Errorf("%q", got)
	}
}

// TestApplyOntoMovedHead merges with what the user committed since.
func TestApplyOntoMovedHead(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprint("pathwise=", old), func(t *testing.T) {
			l := basic(t)
			var lines []string
			for i := range 30 {
				lines = append(lines, fmt.Sprint("line ", i))
			}
			l.write("long", strings.Join(lines, "\n")+"\n")
			l.commit("long")
			o := l.open(Options{})
			o.file("README", "task\n")
			o.file("dir/c.txt", "task\n")
			if !old {
				o.file("long", strings.Replace(strings.Join(lines, "\n")+"\n", "line 25", "task", 1))
				l.write("long", strings.Replace(strings.Join(lines, "\n")+"\n", "line 3\n", "mine\n", 1))
			}
			l.write("dir/mine", "mine\n")
			l.commit("mine")
			r := o.result()
			m := &merging{g: r.g, start: r.Start, theirs: r.Tree, ours: l.git("rev-parse", "HEAD^{tree}"), pathwise: old}
			sc, err := newScratch(context.Background(), o.ws.Dir)
			if err != nil {
				t.Fatal(err)
			}
			defer sc.remove()
			if m.dir, err = sc.makeGit("m.git", gitSpec{format: "sha1", stores: []string{o.ws.shadow() + "/objects", o.repo + "/.git/objects"}}); err != nil {
				t.Fatal(err)
			}
			got, err := m.run(context.Background())
			if err != nil || len(got.conflicts) > 0 {
				t.Fatalf("%v %+v", err, got)
			}
			o.apply()
			if b, _ := os.ReadFile(o.repo + "/README"); string(b) != "task\n" {
				t.Errorf("%q", b)
			}
			if b, _ := os.ReadFile(o.repo + "/long"); !old && (!strings.Contains(string(b), "mine\n") || !strings.Contains(string(b), "task\n")) {
				t.Errorf("%q", b)
			}
			o.git("add", "-A")
			if tree := o.git("write-tree"); tree != got.tree {
				t.Errorf("the checkout is %s, the merge %s", tree, got.tree)
			}
		})
	}
}

// TestApplyElsewhere looks at checkouts of other kinds.
func TestApplyElsewhere(t *testing.T) {
	t.Run("unborn", func(t *testing.T) {
		l := newLab(t)
		l.git("init", "-q")
		o := l.open(Options{})
		o.file("a/first", "x\n")
		o.apply()
		if b, _ := os.ReadFile(l.repo + "/a/first"); string(b) != "x\n" {
			t.Errorf("%q", b)
		}
	})
	t.Run("linked worktree", func(t *testing.T) {
		l := basic(t)
		l.git("worktree", "add", "-q", l.top+"/linked", "-b", "linked")
		main := facts(t, l.repo)
		o := l.open(Options{Dir: l.top + "/linked"})
		o.file("README", "task\n")
		o.apply()
		if b, _ := os.ReadFile(l.top + "/linked/README"); string(b) != "task\n" || facts(t, l.repo) != main {
			t.Errorf("%q", b)
		}
	})
	t.Run("subfolder's own bits", func(t *testing.T) {
		l := basic(t)
		_ = os.Chmod(l.repo+"/README", 0o600)
		_ = os.Chmod(l.repo+"/run.sh", 0o710)
		l.git("update-index", "--refresh")
		o := l.open(Options{})
		o.file("README", "task\n")
		_ = os.Chmod(o.p.Source+"/run.sh", 0o644)
		o.apply()
		a, _ := os.Stat(l.repo + "/README")
		b, _ := os.Stat(l.repo + "/run.sh")
		if a.Mode() != 0o600 || b.Mode() != 0o600 {
			t.Errorf("%v %v", a.Mode(), b.Mode())
		}
	})
	for name, move := range map[string]func(o *opened){
		"moved away": func(o *opened) { _ = os.Rename(o.repo, o.repo+".moved") },
		"a link": func(o *opened) {
			_ = os.Rename(o.repo, o.repo+".moved")
			_ = os.Symlink(o.repo+".moved", o.repo)
		},
		"made anew": func(o *opened) {
			_ = os.RemoveAll(o.repo)
			_ = os.Mkdir(o.repo, 0o755)
			o.git("init", "-q")
			o.write("README", "other\n")
			o.commit("other")
		},
		"no repository": func(o *opened) { _ = os.RemoveAll(o.repo + "/.git") },
		"another git directory": func(o *opened) {
			_ = os.Rename(o.repo+"/.git", o.top+"/elsewhere")
			o.write(".git", "gitdir: "+o.top+"/elsewhere\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := basic(t).open(Options{History: task.HistoryBase})
			o.file("new", "task\n")
			r, err := Look(context.Background(), o.ws)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			move(o)
			_, err = r.PlanApply(context.Background(), o.applyOptions())
			if err == nil || task.HintOf(err) == "" {
				t.Errorf("%v", err)
			}
			if exists(o.repo + "/new") {
				t.Error("it was written")
			}
		})
	}
}

// TestDigestCoversTheBytes: what is agreed to is what will be in the files, not
// only which objects; attributes that are in no tree can change between the two.
func TestDigestCoversTheBytes(t *testing.T) {
	o := basic(t).open(Options{})
	o.file("README", "two\n")
	digest := func() string { return o.plan(o.result()).Digest }
	before := digest()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(o.repo+"/.git/info", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(o.repo+"/.git/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("description", "nothing to do with it\n")
	if digest() != before {
		t.Error("the digest of the same change differs")
	}
	write("info/attributes", "* text eol=crlf\n")
	if digest() == before {
		t.Error("other bytes have the same digest")
	}
}

// TestApplyPlanGoesStale changes the checkout between plan and apply.
func TestApplyPlanGoesStale(t *testing.T) {
	for name, change := range map[string]func(o *opened){
		"file": func(o *opened) { o.write("README", "mine\n") },
		"HEAD": func(o *opened) { o.write("dir/mine", "mine\n"); o.commit("mine") },
		"folder": func(o *opened) {
			_ = os.Rename(o.repo, o.top+"/old")
			o.plain(o.top, "clone", "-q", o.top+"/old", o.repo)
		},
		"parent": func(o *opened) {
			_ = os.Rename(o.repo+"/dir", o.top+"/dir")
			_ = os.Symlink(o.top+"/dir", o.repo+"/dir")
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := basic(t).open(Options{})
			o.file("README", "task\n")
			o.file("dir/a.txt", "task\n")
			p := o.plan(o.result())
			if len(p.Conflicts) > 0 {
				t.Fatal(p.Conflicts)
			}
			change(o)
			before := facts(t, o.repo)
			err := p.Apply(context.Background())
			if task.CodeOf(err) != task.CodeConflict || task.HintOf(err) == "" {
				t.Errorf("%v", err)
			}
			differ(t, "changed", facts(t, o.repo), before)
		})
	}
	o := basic(t).open(Options{})
	o.file("README", "task\n")
	p := o.plan(o.result())
	release, err := LockCheckout(o.repo)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Apply(context.Background()); task.CodeOf(err) != task.CodeConflict {
		t.Errorf("applied under another's lock: %v", err)
	}
	release()
	if err := p.Apply(context.Background()); err != nil {
		t.Error(err)
	}
}

// hostileTree makes a tree with a name that git would refuse, from raw objects,
// as the result of a task.
func (o *opened) hostileTree(r *Result, mode, name, content string) {
	o.t.Helper()
	blob := strings.TrimSpace(o.stdin(o.ws.shadow(), content, "hash-object", "-w", "--stdin"))
	base := o.plain(o.ws.shadow(), "ls-tree", r.Start)
	tree := o.stdin(o.ws.shadow(), base+fmt.Sprintf("%s blob %s\t%s\n", mode, blob, name), "mktree", "--missing")
	r.Tree = strings.TrimSpace(tree)
}

func (o *opened) stdin(dir, in string, args ...string) string {
	o.t.Helper()
	f := filepath.Join(o.top, "stdin")
	if err := os.WriteFile(f, []byte(in), 0o600); err != nil {
		o.t.Fatal(err)
	}
	out, err := o.run(dir, "sh", append([]string{"-c", `f=$1; shift; exec git "$@" < "$f"`, "sh", f}, args...)...)
	if err != nil {
		o.t.Fatalf("git %q: %v %s", args, err, out)
	}
	return out
}

// TestApplyHostileNames has trees that no task's files can make, but commits
// can.
func TestApplyHostileNames(t *testing.T) {
	o := basic(t).open(Options{})
	for _, c := range []struct{ mode, name string }{
		{"100644", ".GIT"}, {"100644", ".git\u200c"}, {"100644", "git~1"}, {"100644", "GIT~1"}, {"100644", ".git. "}, {"100644", ".git::$INDEX_ALLOCATION"},
		{"120000", ".gitmodules"}, {"120000", ".GITMODULES"}, {"160000", "sub"}, {"120000", ".git"},
	} {
		r := o.result()
		if c.mode == "160000" {
			base := o.plain(o.ws.shadow(), "ls-tree", r.Start)
			r.Tree = strings.TrimSpace(o.stdin(o.ws.shadow(), base+"160000 commit "+r.Base+"\tsub\n", "mktree", "--missing"))
		} else {
			o.hostileTree(r, c.mode, c.name, "x")
		}
		before := picture(t, o.repo, nil)
		p := o.plan(r)
		if len(p.Conflicts) == 0 {
			t.Errorf("%s %q is accepted", c.mode, c.name)
		}
		if err := p.Apply(context.Background()); task.CodeOf(err) != task.CodeConflict {
			t.Errorf("%s %q: %v", c.mode, c.name, err)
		}
		if picture(t, o.repo, nil) != before {
			t.Errorf("%s %q: something was changed", c.mode, c.name)
		}
		r.Close()
	}
	// The control: a writer that takes names as they are makes the file.
	if err := os.WriteFile(o.repo+"/.GIT", nil, 0o600); err != nil {
		t.Error(err)
	}
}

// TestApplyRunsNothing has attributes in the result and configuration in the
// user's repository that would run programs.
func TestApplyRunsNothing(t *testing.T) {
	l := basic(t)
	mark := l.top + "/ran"
	for _, k := range []string{"filter.evil.smudge", "filter.evil.clean", "merge.evil.driver", "diff.evil.textconv", "core.fsmonitor", "core.hooksPath"} {
		l.git("config", k, "touch "+mark)
	}
	l.git("config", "filter.evil.required", "true")
	o := l.open(Options{})
	o.file(".gitattributes", "* filter=evil merge=evil diff=evil\n")
	o.file("README", "task\n")
	l.write("dir/mine", "x\n")
	l.git("-c", "core.fsmonitor=false", "commit", "-qam", "x", "--allow-empty")
	_ = os.Remove(mark)
	o.apply()
	if exists(mark) {
		t.Error("a program ran")
	}
	if _, err := l.tryGit(l.repo, nil, "status"); err == nil && !exists(mark) {
		t.Error("the control: plain git did not run it either")
	}
}
