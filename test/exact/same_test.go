//go:build linux

package exact

import (
	"errors"
	"os"
	"strings"

	"github.com/caisson-dev/caisson/test/harness"
)

// matches compares every way out of a task with what plain git says of the
// plain clone, where the same edits were made and nothing else was: the change
// set in three forms, a branch, a patch, a bundle, a folder.
// base is the commit that both began with. It returns the number of changes.
func (w *world) matches(id, base string) int {
	t := w.t
	t.Helper()
	index := w.Dir + "/index"
	// The clone's own index knows how content was recorded before.
	w.sh(w.plain, "cp .git/index '"+index+"'; GIT_INDEX_FILE='"+index+"' git -c core.safecrlf=false add -A")
	tree := strings.TrimSpace(w.sh(w.plain, "GIT_INDEX_FILE='"+index+"' git write-tree"))
	plain := func(args string) string {
		// Without a work tree: attributes in the tree do not choose how a change is shown.
		return w.sh(w.Dir, "git --git-dir='"+w.plain+"/.git' -c core.bare=true -c attr.tree=4b825dc642cb6eb9a060e54bf8d69288fbee4904 diff --no-color "+args+" "+base+" "+tree+" --")
	}
	changes := 0
	for _, form := range [][2]string{
		{"--name-status -z", "-M --name-status -z"}, {"--stat", "-M --stat"}, {"", "-M --binary --full-index"},
	} {
		got, want := w.slow(append(append([]string{"diff"}, strings.Fields(form[0])...), id)...), plain(form[1])
		if got != want {
			t.Errorf("caisson diff %s and git diff %s differ %s", form[0], form[1], first(got, want))
		}
		if strings.HasSuffix(form[0], "-z") {
			changes = strings.Count(want, "\x00")
		}
	}
	v := harness.Decode[struct{ Changes []struct{ Path string } }](t, w.slow("diff", "--json", id))
	if n := strings.Count(plain("-M --raw"), "\n"); len(v.Changes) != n {
		t.Errorf("diff --json lists %d files where git has %d", len(v.Changes), n)
	}

	w.slow("branch", id, "result/of")
	if got := w.git("rev-parse", "result/of^{tree}"); got != tree {
		t.Errorf("the branch has the tree %s, plain git made %s: %s", got, tree, w.git("diff", "--stat", tree0(w, tree), got))
	}
	patch, bundle, dir := w.Dir+"/p", w.Dir+"/b", w.Dir+"/d"
	w.slow("export", "--patch", "-o", patch, id)
	if got, want := read(t, patch), plain("--no-renames --binary --full-index"); got != want {
		t.Errorf("export --patch and git diff differ %s", first(got, want))
	}
	w.slow("export", "--bundle", "-o", bundle, id)
	w.clone(w.Dir+"/fetched", "")
	w.sh(w.Dir+"/fetched", "git fetch -q '"+bundle+"' HEAD")
	if got := strings.TrimSpace(w.sh(w.Dir+"/fetched", "git rev-parse FETCH_HEAD^{tree}")); got != tree {
		t.Errorf("the bundle has the tree %s, plain git made %s", got, tree)
	}
	// A folder is what a checkout of the result is.
	w.slow("export", "--dir", dir, id)
	w.sh(w.Dir+"/fetched", "git branch checked FETCH_HEAD; git clone -q -b checked . '"+w.Dir+"/checked'")
	harness.Same(t, "export --dir against git checkout", harness.Files(t, dir), harness.Files(t, w.Dir+"/checked"))

	w.git("branch", "-qD", "result/of")
	w.git("fsck", "--strict", "--no-dangling")
	for _, p := range []string{patch, bundle, dir, w.Dir + "/fetched", w.Dir + "/checked", index} {
		if err := os.RemoveAll(p); err != nil {
			t.Fatal(err)
		}
	}
	return changes
}

// applies compares what apply makes of the checkout, which is clean and at base,
// with what git makes of a clone.
func (w *world) applies(id, base string) {
	t := w.t
	t.Helper()
	beside := w.Dir + "/beside"
	w.clone(beside, base)
	w.slow("export", "--patch", "--force", "-o", w.Dir+"/p", id)
	w.sh(beside, "git apply --allow-empty --binary --whitespace=nowarn ../p")
	w.slow("apply", "--yes", "--allow-risky", id)
	harness.Same(t, "apply against git apply", harness.Files(t, w.repo), harness.Files(t, beside))
	if err := errors.Join(os.RemoveAll(beside), os.Remove(w.Dir+"/p")); err != nil {
		t.Fatal(err)
	}
}

// allOrNothing applies to a checkout that may be in the way: refused, and
// nothing changed, or done, and then there is nothing left to do.
func (w *world) allOrNothing(id string) {
	w.t.Helper()
	before := harness.TakePicture(w.t, w.repo)
	r := w.do("apply", "--yes", "--allow-risky", id)
	if r.Exit != 0 {
		w.refused(r, "conflict")
		for _, d := range before.Changed(harness.TakePicture(w.t, w.repo)) {
			w.t.Error("refused, and changed: " + d)
		}
		return
	}
	v := harness.Decode[struct{ Changes []any }](w.t, w.ok("apply", "--yes", "--allow-risky", "--json", id))
	if len(v.Changes) > 0 {
		w.t.Errorf("%d changes are left after apply", len(v.Changes))
	}
}

// tree0 makes a tree of the plain clone known to the repository and returns it.
func tree0(w *world, tree string) string {
	w.t.Helper()
	w.sh(w.plain, "git push -q '"+w.repo+"' $(git commit-tree -m x "+tree+"):refs/heads/plain-tree")
	return tree
}
