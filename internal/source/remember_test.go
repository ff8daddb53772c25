//go:build linux

package source

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/source/git"
)

// What Named remembers holds for exactly this commit of this repository and these
// names; whatever else is asked for, git is.
func TestNamedIsRemembered(t *testing.T) {
	ctx := context.Background()
	l := newLab(t)
	l.plain(l.repo, "init", "-q")
	l.write(".caisson.yaml", "version: 1\n")
	l.write(".claude/agents/empty.md", "")
	l.plain(l.repo, "add", "-A")
	l.plain(l.repo, "commit", "-qm", "one")
	state := t.TempDir()
	if err := os.Chmod(state, 0o700); err != nil {
		t.Fatal(err)
	}
	rememberNamedIn(state)
	t.Cleanup(func() { rememberNamedIn("") })
	inspect := func(dir string) *Repo {
		t.Helper()
		r, err := Inspect(ctx, Options{Dir: dir, Env: l.env})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	names := []string{".caisson.yaml", ".claude/agents"}
	// ask returns the policy file, and whether git was started for it.
	ask := func(r *Repo, limit int64, names ...string) (string, bool) {
		t.Helper()
		before := git.Spawns.Load()
		files, err := r.Named(ctx, limit, names...)
		if err != nil {
			t.Fatal(err)
		}
		asked := git.Spawns.Load() > before+int64(min(1, len(files))) // one for the content, which is not kept
		dir := namedDir.Load()
		rememberNamedIn("")
		plain, err := r.Named(ctx, limit, names...)
		namedDir.Store(dir)
		if err != nil || !maps.EqualFunc(files, plain, slices.Equal[[]byte]) {
			t.Errorf("remembered %q, git says %q (%v)", files, plain, err)
		}
		for p, b := range files {
			if b == nil {
				t.Errorf("%s is nil", p)
			}
		}
		return string(files[".caisson.yaml"]), asked
	}
	expect := func(what string, r *Repo, wantAsked bool, limit int64, names ...string) {
		t.Helper()
		if _, asked := ask(r, limit, names...); asked != wantAsked {
			t.Errorf("%s: git was asked: %v", what, asked)
		}
	}
	one := inspect(l.repo)
	expect("first", one, true, 100, names...)
	expect("again", one, false, 100, names...)
	expect("another process", inspect(l.repo), false, 100, names...)
	expect("another limit", one, false, 5, names...)
	expect("other names", one, true, 100, names[0])
	expect("two names in one", one, true, 100, names[0]+`" "`+names[1])

	l.write(".caisson.yaml", "version: 1\nrequire: {}\n")
	l.plain(l.repo, "commit", "-qam", "two")
	two := inspect(l.repo)
	if text, asked := ask(two, 100, names...); !asked || !strings.Contains(text, "require") {
		t.Errorf("another commit has the old policy: %q", text)
	}

	// The attack: a repository in whose objects the commit of another one is
	// something else. What is learnt there says nothing of the other.
	forged := l.top + "/forged"
	l.plain(l.top, "clone", "-q", "--no-hardlinks", l.repo, forged)
	where := func(dir, rev string) string {
		oid := strings.TrimSpace(l.plain(dir, "rev-parse", rev))
		return filepath.Join(dir, ".git/objects", oid[:2], oid[2:])
	}
	l.plain(forged, "commit", "-q", "--allow-empty", "-m", "unlike")
	blob := strings.TrimSpace(l.plain(forged, "hash-object", "-w", "--stdin"))
	lax := filepath.Join(forged, ".git/objects", blob[:2], blob[2:])
	content, err := os.ReadFile(lax)
	if err != nil {
		t.Fatal(err)
	}
	victim := where(forged, "HEAD:.caisson.yaml")
	_ = os.Remove(victim)
	if err := os.WriteFile(victim, content, 0o444); err != nil {
		t.Fatal(err)
	}
	l.plain(forged, "update-ref", "refs/heads/main", two.Ref.Base)
	bad := inspect(forged)
	if bad.Ref.Base != two.Ref.Base {
		t.Fatalf("the control: %s, not %s", bad.Ref.Base, two.Ref.Base)
	}
	rememberNamedIn(t.TempDir()) // as if the forged one came first
	if text, _ := ask(bad, 100, names...); text != "" {
		t.Fatalf("the control: the forgery has %q", text)
	}
	if text, asked := ask(two, 100, names...); !asked || !strings.Contains(text, "require") {
		t.Errorf("the policy of a forged repository counts in another one: %q", text)
	}
	// So does a repository that came to the place of another.
	if err := os.Rename(l.repo, l.top+"/aside"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(forged, l.repo); err != nil {
		t.Fatal(err)
	}
	if text, asked := ask(inspect(l.repo), 100, names...); !asked || text != "" {
		t.Errorf("another repository at its place has what it had: %q", text)
	}

	// What is not whole, or answers something else, is no answer.
	rememberNamedIn(state)
	if err := os.Rename(l.repo, forged); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(l.top+"/aside", l.repo); err != nil {
		t.Fatal(err)
	}
	dir, name := answerAt(two.namedKey(names))
	file := filepath.Join(dir, name)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, older := answerAt(one.namedKey(names))
	other, err := os.ReadFile(filepath.Join(dir, older))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(whole), "require") {
		t.Errorf("the content is kept: %q", whole)
	}
	flipped := slices.Clone(whole)
	flipped[len(flipped)-10] ^= 1
	for what, data := range map[string][]byte{"cut": whole[:len(whole)-3], "changed": flipped, "empty": {}, "another's": other} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		expect(what, two, true, 100, names...)
		expect(what+", again", two, false, 100, names...)
	}
}
