//go:build linux

package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("line " + string(rune('a'+i%26)) + "\n")
	}
	return b.String()
}

func applyBase() map[string]string {
	return map[string]string{"a.txt": lines(20), "b.txt": "b\n", "c.txt": "c\n", "d/e.txt": "e\n", "d/k.txt": "k\n", ".gitignore": "*.ignored\n"}
}

// applyEdit is what the task makes of it.
const applyEdit = `sed -i '2s/.*/THEIRS/' a.txt; echo more >>b.txt; echo new >new.txt; mkdir -p n; echo in >n/in.txt; rm d/e.txt; echo more >>d/k.txt`

// TestApplyOntoWork puts a user's uncommitted work of every kind in the way:
// apply refuses, names the file, and changes nothing at all.
func TestApplyOntoWork(t *testing.T) {
	cases := []struct{ name, make, names string }{
		{"unstaged", "echo mine >>b.txt", "b.txt"},
		{"unstaged elsewhere in the file", "echo mine >>a.txt", "a.txt"},
		{"staged", "echo mine >>b.txt; git add b.txt", "b.txt"},
		{"staged, then as before in the work tree", "echo mine >>b.txt; git add b.txt; git show HEAD:b.txt >b.txt", "b.txt"},
		{"staged new file in the way", "echo mine >new.txt; git add new.txt", "new.txt"},
		{"untracked in the way", "echo mine >new.txt", "new.txt"},
		{"untracked link in the way", "ln -s b.txt new.txt", "new.txt"},
		{"untracked folder in the way", "mkdir new.txt; echo mine >new.txt/x", "new.txt"},
		{"untracked file where a folder goes", "echo mine >n", "n"},
		{"ignored in the way", "echo new.txt >>.git/info/exclude; echo mine >new.txt", "new.txt"},
		{"ignored folder in the way", "echo new.txt >>.git/info/exclude; mkdir new.txt; echo mine >new.txt/x", "new.txt"},
		{"deleted", "rm b.txt", "b.txt"},
		{"deletion staged", "git rm -q b.txt", "b.txt"},
		{"renamed", "git mv b.txt z.txt", "b.txt"},
		{"mode", "chmod +x b.txt", "b.txt"},
		{"replaced by a link", "rm b.txt; ln -s c.txt b.txt", "b.txt"},
		{"changed file that the task deleted", "echo mine >>d/e.txt", "d/e.txt"},
		{"folder replaced by a link out", "mv d ../else; ln -s ../else d", "d"},
		{"folder where new files go is a link out", "mkdir -p ../other; ln -s ../other n", "n"},
		{"intent to add", "echo mine >new.txt; git add -N new.txt", "new.txt"},
		{"assumed unchanged", "git update-index --assume-unchanged b.txt; echo mine >>b.txt", "b.txt"},
		{"skipped in the work tree", "git update-index --skip-worktree b.txt; echo mine >>b.txt", "b.txt"},
		{"same size and time", "touch -d 2020-01-01 b.txt; git status; printf 'X\\n' >b.txt; touch -d 2020-01-01 b.txt", "b.txt"},
	}
	each(t, applyBase(), func(p *place) {
		id := p.task(applyEdit)
		for i, c := range cases {
			if !p.mine(i) {
				continue
			}
			p.sh(p.repo, c.make)
			p.remember()
			v, r := p.rep("apply", "--yes", "--allow-risky", id)
			p.refused(r, "")
			if !strings.Contains(r.Stderr+r.Stdout, c.names) {
				p.t.Errorf("%s: %s is not named: %v", c.name, c.names, r)
			}
			if v.Applied {
				p.t.Errorf("%s: said to be applied: %v", c.name, r)
			}
			p.untouched(c.name)
			p.sh(p.repo, "for f in assume-unchanged skip-worktree; do git update-index --no-$f b.txt || :; done; rm -rf b.txt; git reset -q --hard; git clean -qfdx; rm -rf ../else ../other; : >.git/info/exclude")
		}
		p.sh(p.repo, "mkdir -p new.txt/deep") // empty folders are nobody's work
		p.ok("apply", "--yes", id)
		p.applied("after all of it")
	})
}

// applied checks the checkout for applyEdit.
func (p *place) applied(what string) {
	p.t.Helper()
	got := harness.Files(p.t, p.repo)
	want := map[string]string{"b.txt": "file b\nmore\n", "c.txt": "file c\n", "new.txt": "file new\n", "n/in.txt": "file in\n", "d/k.txt": "file k\nmore\n", ".gitignore": "file *.ignored\n",
		"a.txt": "file " + strings.Replace(lines(20), "line b", "THEIRS", 1)}
	harness.Same(p.t, what, got, want)
}

// TestApplyBesideWork keeps uncommitted work that is not in the way exactly as it is.
func TestApplyBesideWork(t *testing.T) {
	user(t, applyBase(), func(p *place) {
		id := p.task(applyEdit)
		p.sh(p.repo, "echo staged >s.txt; git add s.txt; echo staged >>c.txt; git add c.txt; echo unstaged >>c.txt; echo u >u.txt; echo i >x.ignored; ln -s nowhere l; mkdir -p q; echo q >q/q; chmod 600 c.txt")
		staged := p.git("diff", "--cached", "--binary")
		p.remember()
		r := p.do("apply", "--yes", id)
		if r.Exit != 0 {
			// Refusing all of a dirty checkout is allowed too, if nothing happens.
			p.refused(r, "")
			p.untouched("refused")
			p.t.Logf("apply beside uncommitted work is refused: %s", r.Stderr)
			return
		}
		p.untouched("apply beside work", `\.|d|d/[ek]\.txt|n|n/in\.txt|new\.txt|a\.txt|b\.txt|\.git/index`)
		now := p.git("diff", "--cached", "--binary", "--", "s.txt", "c.txt")
		if now != staged {
			p.t.Errorf("what was staged is now\n%s\nwas\n%s", now, staged)
		}
		for name, want := range map[string]string{"c.txt": "c\nstaged\nunstaged\n", "u.txt": "u\n", "x.ignored": "i\n", "b.txt": "b\nmore\n", "new.txt": "new\n"} {
			if got := read(p.t, p.repo+"/"+name); got != want {
				p.t.Errorf("%s is %q", name, got)
			}
		}
	})
}

// TestApplyMovedHead merges onto what the user committed meanwhile, and shows
// the hunks where that cannot be.
func TestApplyMovedHead(t *testing.T) {
	user(t, applyBase(), func(p *place) {
		id := p.task(applyEdit)
		p.sh(p.repo, "sed -i '18s/.*/OURS/' a.txt; echo other >o.txt; git add -A; git commit -qm meanwhile")
		head := p.git("rev-parse", "HEAD")
		p.remember()
		p.ok("apply", "--yes", id)
		want := strings.Replace(lines(20), "line b", "THEIRS", 1)
		want = strings.Replace(want, "line r", "OURS", 1)
		if got := read(p.t, p.repo+"/a.txt"); got != want {
			p.t.Errorf("merged to %q", got)
		}
		if p.git("rev-parse", "HEAD") != head || read(p.t, p.repo+"/o.txt") != "other\n" || exists(p.repo+"/d/e.txt") {
			p.t.Error("HEAD moved, or a file is not as it should be")
		}
		p.untouched("merged", `\.|d|d/[ek]\.txt|n|n/in\.txt|new\.txt|a\.txt|b\.txt|\.git/index`)

		// The same line on both sides; a file deleted here and changed there; added on both sides.
		for _, c := range []struct{ name, make, path, hunk string }{
			{"content", "sed -i '2s/.*/OURS/' a.txt", "a.txt", "THEIRS"},
			{"deleted here", "git rm -q b.txt", "b.txt", ""},
			{"deleted there", "echo ours >>d/e.txt", "d/e.txt", ""},
			{"added twice", "echo ours >new.txt", "new.txt", ""},
			{"binary", "printf '\\000\\001' >b.txt", "b.txt", ""},
			{"a folder in its place", "git rm -q b.txt; mkdir b.txt; echo x >b.txt/x", "b.txt", ""},
			{"a file where a folder goes", "echo x >n", "n", ""},
		} {
			p.sh(p.repo, "git reset -q --hard HEAD~; git clean -qfdx; git commit -q --allow-empty -m again;"+c.make+"; git add -A; git commit -qm ours")
			p.remember()
			v, r := p.rep("apply", "--yes", id)
			if r.Exit == 0 || v.Applied || len(v.Conflicts) == 0 {
				p.t.Errorf("%s: %v", c.name, r)
				p.sh(p.repo, "git reset -q --hard; git clean -qfdx")
				continue
			}
			found := false
			for _, x := range v.Conflicts {
				found = found || strings.HasPrefix(x.Path, c.path) && strings.Contains(x.Hunks, c.hunk)
			}
			if !found {
				p.t.Errorf("%s: no conflict of %s with its hunks: %+v", c.name, c.path, v.Conflicts)
			}
			if c.hunk != "" {
				r = p.do("apply", "--yes", id)
			}
			if c.hunk != "" && (!strings.Contains(r.Stderr+r.Stdout, "<<<<<<<") || !strings.Contains(r.Stderr+r.Stdout, "OURS")) {
				p.t.Errorf("%s: the hunks are not shown: %v", c.name, r)
			}
			p.untouched("conflict: " + c.name)
		}

		// Committed by the user word for word: already there.
		p.sh(p.repo, "git reset -q --hard HEAD~;"+applyEdit+"; git add -A; git commit -qm 'by hand'")
		p.remember()
		v, r := p.rep("apply", "--yes", id)
		if r.Exit != 0 || len(v.Changes) != 0 {
			p.t.Errorf("applied by hand before: %v", r)
		}
		p.untouched("already there")
	})
}

// TestApplyStates applies onto a checkout in the middle of something, on a
// detached HEAD, an unborn branch, a linked worktree, a moved repository.
func TestApplyStates(t *testing.T) {
	each(t, applyBase(), func(p *place) {
		id := p.task(applyEdit)
		p.git("branch", "other")
		for name, c := range map[string]struct{ make, undo string }{
			"merge":  {"git switch -qc m; echo m >c.txt; git commit -qam m; git switch -q other; echo o >c.txt; git commit -qam o; git merge m || :", "git merge --abort; git reset -q --hard; git switch -q main; git branch -qD m; git branch -qf other main"},
			"rebase": {"git switch -qc r; echo m >c.txt; git commit -qam m; git switch -q other; echo o >c.txt; git commit -qam o; git rebase r || :", "git rebase --abort; git reset -q --hard; git switch -q main; git branch -qD r; git branch -qf other main"},
			"locked": {"touch .git/index.lock", ":"}, // as plain git apply: what does not touch the index may go on
		} {
			p.sh(p.repo, c.make)
			p.remember()
			if r := p.do("apply", "--yes", id); r.Exit != 0 {
				p.refused(r, "")
				p.untouched(name)
			} else if got := read(p.t, p.repo+"/c.txt"); name != "locked" && !strings.Contains(got, "<<<<<<<") {
				p.t.Errorf("%s: the user's conflict is gone: %q", name, got)
			} else {
				p.t.Logf("%s: applied", name)
				p.sh(p.repo, "rm -f .git/index.lock; git checkout -q HEAD -- a.txt b.txt d; rm -rf new.txt n")
			}
			p.sh(p.repo, c.undo)
		}

		p.sh(p.repo, "git switch -q --detach")
		p.ok("apply", "--yes", id)
		p.applied("detached")
		p.sh(p.repo, "git reset -q --hard; git clean -qfdx; git switch -q main")

		// A task opened in a linked worktree is applied there, and nowhere else (A4).
		p.git("worktree", "add", "-q", p.Dir+"/linked", "other")
		lid := p.Open(p.t, p.Dir+"/linked")
		p.in(lid, applyEdit)
		p.remember()
		p.OK(p.t, p.Dir, "apply", "--yes", lid)
		p.untouched("applied in a linked worktree", `\.git/worktrees/linked/index`)
		if read(p.t, p.Dir+"/linked/new.txt") != "new\n" {
			p.t.Error("not in the linked worktree")
		}

		// The checkout is gone, then another repository stands in its place.
		if err := os.Rename(p.repo, p.repo+"-away"); err != nil {
			p.t.Fatal(err)
		}
		p.refused(p.Caisson(p.t, p.Dir, "apply", "--yes", id), "")
		p.Mkdir(p.t, p.repo)
		p.git("init", "-q", "-b", "main")
		p.git("commit", "-q", "--allow-empty", "-m", "another")
		p.remember()
		p.refused(p.Caisson(p.t, p.Dir, "apply", "--yes", id), "")
		p.untouched("another repository")
		if err := os.RemoveAll(p.repo); err != nil {
			p.t.Fatal(err)
		}
		if err := os.Rename(p.repo+"-away", p.repo); err != nil {
			p.t.Fatal(err)
		}
		p.ok("apply", "--yes", id)
		p.applied("back again")
	})
}

// TestApplyCannotWrite is P05: where the checkout does not let itself be
// written in one place, nothing is written in any.
func TestApplyCannotWrite(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		if id.UID == 0 {
			t.Skip("no folder is closed to root")
		}
		p := newPlace(t, id, applyBase())
		task := p.task(applyEdit + "; echo z >z.txt; echo e >d/new.txt")
		for _, mode := range []os.FileMode{0o555, 0o000} {
			if err := os.Chmod(p.repo+"/d", mode); err != nil {
				t.Fatal(err)
			}
			before := p.sh(p.Dir, "cd '"+p.repo+"'; ls -lA -I .git --time-style=full-iso; cat a.txt b.txt")
			p.refused(p.do("apply", "--yes", task), "")
			if now := p.sh(p.Dir, "cd '"+p.repo+"'; ls -lA -I .git --time-style=full-iso; cat a.txt b.txt"); now != before {
				t.Errorf("folder of mode %o: half of it is there:\n%s\nwas\n%s", mode, now, before)
			}
		}
		_ = os.Chmod(p.repo+"/d", 0o755)
		p.ok("apply", "--yes", task)
		if !exists(filepath.Join(p.repo, "z.txt")) || !exists(p.repo+"/d/new.txt") || exists(p.repo+"/d/e.txt") {
			t.Error("not all of it is there")
		}
	})
}

// TestDryRun changes nothing anywhere but for the record.
func TestDryRun(t *testing.T) {
	user(t, applyBase(), func(p *place) {
		id := p.task(applyEdit)
		p.remember()
		v, r := p.rep("apply", "--dry-run", id)
		if r.Exit != 0 || len(v.Changes) != 6 || v.Digest == "" {
			p.t.Errorf("%v", r)
		}
		w, _ := p.rep("apply", "--dry-run", id)
		if v.Digest != w.Digest {
			p.t.Error("the digest of the same change is another one")
		}
		p.untouched("apply --dry-run")
		p.in(id, "echo >>b.txt")
		if w, _ = p.rep("apply", "--dry-run", id); v.Digest == w.Digest {
			p.t.Error("the digest of another change is the same")
		}
	})
}
