//go:build linux

package results

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// dirt makes uncommitted state of every kind in a checkout.
const dirt = `echo staged >>a.txt; git add a.txt; echo unstaged >>a.txt; echo u >>b.txt; echo new >new.txt; git add new.txt; echo unt >unt.txt; mkdir -p deep/er; echo x >deep/er/x; git rm -q c.txt; rm d/e.txt; git mv m.txt moved.txt; chmod +x x.sh
ln -s a.txt l; printf 'o\n' >"$(printf 'n\nl')"; printf x >"$(printf '\377')"; echo i >my.ignored; mkdir -p node.ignored/x; echo i >node.ignored/x/y; git update-index --assume-unchanged ass.txt; echo ass >ass.txt; echo add >ita.txt; git add -N ita.txt; touch -d 2001-01-01 b.txt; chmod 600 unt.txt`

func dirtyBase() map[string]string {
	m := map[string]string{}
	for _, n := range []string{"a.txt", "b.txt", "c.txt", "d/e.txt", "m.txt", "x.sh", "ass.txt"} {
		m[n] = n + "\n"
	}
	m[".gitignore"] = "*.ignored\n"
	return m
}

// TestDirty is A22: a task with the user's uncommitted state, and the user's
// checkout is byte-identical, index, times and all. Inside, git says what it
// says outside.
func TestDirty(t *testing.T) {
	each(t, dirtyBase(), func(p *place) {
		p.sh(p.repo, dirt)
		status := "git -c core.quotePath=true status --porcelain"
		outside := p.sh(p.repo, "git update-index --no-assume-unchanged ass.txt; "+status)
		p.remember()
		id := p.open("--dirty")
		p.untouched("open --dirty")
		if got := p.in(id, status); got != outside {
			p.t.Errorf("git status inside is\n%s\noutside it is\n%s", got, outside)
		}
		want := harness.Files(p.t, p.repo)
		for k := range want {
			if strings.Contains(k, ".ignored") {
				delete(want, k)
			}
		}
		harness.Same(p.t, "inside", p.inside(id), want)
		// What the task has made of it is only what it did itself.
		if out := p.ok("diff", "--name-status", id); out != "" {
			p.t.Errorf("nothing was done, and the change set is %s", out)
		}
		p.in(id, "echo task >>b.txt; echo task >task.txt; rm unt.txt")
		if f := strings.Fields(p.ok("diff", "--name-status", id)); !slices.Equal(f, []string{"M", "b.txt", "A", "task.txt", "D", "unt.txt"}) {
			p.t.Errorf("the change set is %q", f)
		}
		// The user's uncommitted files are in the way of being written.
		p.refused(p.do("apply", "--yes", id), "")
		p.untouched("apply onto uncommitted state")
		p.ok("export", "--dir", p.Dir+"/d", id)
		want["b.txt"] += "task\n"
		want["task.txt"] = "file task\n"
		delete(want, "unt.txt")
		harness.Same(p.t, "export --dir", harness.Files(p.t, p.Dir+"/d"), want)
		if r := p.do("close", id); r.Exit != 0 && r.Exit != 7 {
			p.t.Error(r)
		}
		p.untouched("close")

		all := p.open("--dirty=all")
		if out := p.in(all, "cat my.ignored node.ignored/x/y; git status --porcelain"); out != "i\ni\n"+outside {
			p.t.Errorf("--dirty=all: %q", out)
		}
		clean := p.open()
		if out := p.in(clean, "git status --porcelain; cat a.txt"); out != "a.txt\n" {
			p.t.Errorf("without --dirty: %q", out)
		}
		p.untouched("open")
		p.git("fsck", "--strict", "--no-dangling")
	})
}

// TestDirtyHostile carries a checkout in which everything is planted: opening a
// task with it starts nothing of it.
func TestDirtyHostile(t *testing.T) {
	user(t, dirtyBase(), func(p *place) {
		// The user's repository has drivers configured by the user; carrying must not run them either.
		p.sh(p.repo, fmt.Sprintf("git config filter.f.clean '%s; cat'; git config filter.f.smudge '%s; cat'; git config core.fsmonitor '%s'; git config diff.d.textconv '%s'; printf '* filter=f diff=d\\n' >.git/info/attributes",
			p.mark("clean"), p.mark("smudge"), p.mark("fsmonitor"), p.mark("textconv")))
		p.sh(p.repo, "echo u >>b.txt; echo unt >unt.txt; mkfifo pipe; ln -s /etc/passwd pw; ln -s '"+p.Home+"/.secret/f' sec; git init -q nested; echo n >nested/n; rm -f '"+p.marks+"'/*")
		if r := p.shell(p.repo, "git diff"); len(p.marked()) == 0 {
			p.t.Errorf("the control does not act: %v", r)
		}
		p.sh(p.Dir, "rm -f '"+p.marks+"'/*")
		p.remember()
		r := p.do("open", "--dirty", "--json")
		p.untouched("open --dirty")
		if r.Exit != 0 {
			p.refused(r, "")
			return
		}
		id := harness.Decode[struct{ ID string }](p.t, r.Stdout).ID
		if out := p.in(id, "cat b.txt unt.txt; readlink pw"); out != "b.txt\nu\nunt\n/etc/passwd\n" {
			p.t.Errorf("%q", out)
		}
		p.clear("dirty", append(p.brief(id), p.do("close", id)))
		p.untouched("brief", afterPaths...)
	})
}

// TestWorktree is the strategy of that name: files are live in a linked
// worktree, git inside says clearly that there is none, every way back works,
// the repository is byte-identical, and the end leaves nothing.
func TestWorktree(t *testing.T) {
	each(t, applyBase(), func(p *place) {
		id := p.open("--source", "worktree")
		dir := p.worktreeOf(id)
		p.in(id, applyEdit)
		if got := read(p.t, dir+"/new.txt"); got != "new\n" {
			p.t.Errorf("not live: %q", got)
		}
		p.Write(p.t, dir+"/c.txt", "by the user\n", 0o644)
		if out := p.in(id, "cat c.txt"); out != "by the user\n" {
			p.t.Errorf("not live inside: %q", out)
		}
		p.Write(p.t, dir+"/c.txt", "c\n", 0o644)
		if r := p.Caisson(p.t, p.Dir, "exec", id, "--", "git", "status"); r.Exit == 0 || r.Stderr == "" {
			p.t.Errorf("git inside: %v", r)
		}
		// .git cannot be written, removed, replaced, or looked behind.
		r := p.Caisson(p.t, p.Dir, "exec", id, "--", "sh", "-c", "ls -A .git; cat .git; echo 'gitdir: evil' >.git; mkdir -p .git/hooks; rm -rf .git; mv .git x; ln -sfn evil .git; umount .git; ls -A .git")
		if strings.Contains(r.Stdout, "HEAD") || strings.Contains(r.Stdout, "gitdir") {
			p.t.Errorf("behind the mask: %v", r)
		}
		if out := p.Git(p.t, dir, "status", "--porcelain"); !strings.Contains(out, "new.txt") {
			p.t.Errorf("host-side git in the worktree: %q", out)
		}
		want := harness.Files(p.t, dir)
		p.Mkdir(p.t, p.Dir+"/o")
		p.ok("export", "--dir", p.Dir+"/o/d", id)
		harness.Same(p.t, "export --dir", harness.Files(p.t, p.Dir+"/o/d"), want)
		p.ok("branch", id, "wt")
		p.git("branch", "-qD", "wt")
		p.ok("apply", "--yes", id)
		p.applied("apply")
		p.sh(p.repo, "git reset -q --hard; git clean -qfdx")
		p.ok("close", id)
		if exists(dir) {
			p.t.Errorf("%s is still there", dir)
		}
		if out := p.git("worktree", "list", "--porcelain"); strings.Count(out, "worktree ") != 1 {
			p.t.Errorf("worktrees: %s", out)
		}
		p.git("fsck", "--strict", "--no-dangling")
		p.after("closed", id, want)
	})
}

// worktreeOf finds the folder of a task's files on the host.
func (p *place) worktreeOf(id string) string {
	p.t.Helper()
	for _, d := range strings.Split(p.git("worktree", "list", "--porcelain"), "\n") {
		if dir, ok := strings.CutPrefix(d, "worktree "); ok && strings.Contains(dir, id) {
			return dir
		}
	}
	dir := p.State + "/tasks/" + id + "/source"
	if !exists(dir) {
		p.t.Fatalf("where are the files of %s?", id)
	}
	return dir
}

// TestCheckout is the strategy of that name: the task works in the checkout
// itself, one at a time.
func TestCheckout(t *testing.T) {
	each(t, applyBase(), func(p *place) {
		p.remember()
		r := p.do("open", "--json", "--source", "checkout", "--trust")
		if r.Exit != 0 {
			p.refused(r, "")
			p.untouched("refused")
			p.t.Logf("checkout is refused: %s", r.Stderr)
			return
		}
		id := harness.Decode[struct{ ID string }](p.t, r.Stdout).ID
		p.refused(p.do("open", "--source", "checkout", "--trust"), "")
		p.in(id, applyEdit)
		p.applied("live in the checkout")
		if out := p.ok("diff", "--name-status", id); !strings.Contains(out, "new.txt") {
			p.t.Errorf("diff: %s", out)
		}
		for _, d := range p.before.Changed(harness.TakePicture(p.t, p.repo), `\.|d|d/[ek]\.txt|n|n/in\.txt|new\.txt|a\.txt|b\.txt`, harness.Results) {
			p.t.Error(d)
		}
		// It has the user's own git, so what it plants there acts on the user's
		// next command; on none of ours.
		p.in(id, "git config core.fsmonitor '"+p.mark("fsmonitor")+"'; git config diff.external '"+p.mark("external")+"'; printf '#!/bin/sh\\n"+p.mark("hook")+"\\n' >.git/hooks/reference-transaction; chmod +x .git/hooks/reference-transaction")
		all := []harness.Result{p.do("diff", id), p.do("diff", "--stat", id), p.do("show", id), p.do("export", "--patch", id), p.do("branch", id, "co"), p.do("apply", "--yes", id), p.do("close", id), p.do("reap")}
		p.unmarked("checkout")
		p.clear("checkout", all)
		p.applied("after close")
		if r := p.shell(p.repo, "git status; git diff; git branch x"); len(p.marked()) != 3 {
			p.t.Errorf("the control does not act: %v: %v", p.marked(), r)
		}
		p.sh(p.repo, "git config --unset core.fsmonitor; git config --unset diff.external; rm .git/hooks/reference-transaction")
		p.git("fsck", "--strict")
	})
}

// TestCopy is the strategy for trees without git.
func TestCopy(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		p := newPlace(t, id, map[string]string{"a.txt": "a\n"})
		data := p.Dir + "/data"
		for n, c := range exactBase() {
			p.Write(t, data+"/"+n, c, 0o644)
		}
		_ = os.Symlink("/etc/passwd", data+"/abs")
		_ = os.Symlink("loop", data+"/loop")
		p.sh(data, "mkfifo pipe; chmod 700 d; touch -d 1999-01-01 a.txt; mkdir emptydir; echo '*.bin' >.gitignore")
		before := harness.TakePicture(t, data)
		task := p.Open(t, data, "--source", "copy")
		for _, d := range before.Changed(harness.TakePicture(t, data)) {
			t.Errorf("open: %s", d)
		}
		want := harness.Files(t, data)
		delete(want, "pipe")
		got := p.inside(task)
		delete(got, "pipe")
		harness.Same(t, "inside", got, want)
		p.python(task, exactEdit())
		want = p.inside(task)
		delete(want, "pipe")
		patch := p.ok("diff", task)
		p.Write(t, p.Dir+"/p", patch, 0o644)
		plain := p.Dir + "/plain"
		p.sh(p.Dir, "cp -a data plain; rm plain/pipe")
		p.Git(t, plain, "init", "-q")
		p.Git(t, plain, "apply", "--binary", p.Dir+"/p")
		harness.Same(t, "git apply of diff", harness.Files(t, plain), want)
		p.ok("export", "--dir", p.Dir+"/folder", task)
		harness.Same(t, "export --dir", harness.Files(t, p.Dir+"/folder"), want)
		p.refused(p.do("branch", task), "")
		r := p.do("close", task)
		if r.Exit != 0 && r.Exit != 7 {
			t.Error(r)
		}
		for _, d := range before.Changed(harness.TakePicture(t, data)) {
			t.Errorf("close: %s", d)
		}
		p.ok("export", "--dir", p.Dir+"/after", task)
		harness.Same(t, "export --dir after the end", harness.Files(t, p.Dir+"/after"), want)
	})
}
