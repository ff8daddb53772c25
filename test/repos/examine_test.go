//go:build linux

package repos

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// kind is one kind of repository: a line of docs/repositories.md, and how the
// tests make it and what must come of it.
type kind struct {
	name string // what it is
	does string // what happens, as the document says it
	make string // shell script that makes it
	dir  string // where the user stands; "" is repo
	top  string // of the checkout, when it is another folder
	// refuse has words of the refusal of a plain task; empty: it works.
	refuse []string
	// other has words of the refusal with flags: "--source worktree", "--dirty",
	// "--history base" …
	other map[string][]string
	notes []string // words that `show` has
	flags []string // of a plain task
	unfit func(p *place) string
	as    string                    // the identity it takes: "root", "user"; else any
	more  func(p *place, id string) // in the open task
	after func(p *place, id string) // when it has ended
	// skip names ways that are not tried, since the user's own git cannot make
	// or show what they need, or the case is in other hands: "edit" (the change
	// set is more's), "dirty", "worktree", "home" (more or after).
	skip string
}

// edit is the standard change, and wanted its change set.
const edit = `git log --oneline >/dev/null; test -z "$(git status --porcelain)"; git rev-parse HEAD >/dev/null
echo task >>a.txt; git rm -q d/c.txt; echo new >new.txt; git add -A; git commit -qm inside; echo more >>b.txt; printf u >unt.txt`

var wanted = []string{"A new.txt", "A unt.txt", "D d/c.txt", "M a.txt", "M b.txt"}

// TestKinds examines every kind. The identities of a run started by root share
// them out.
func TestKinds(t *testing.T) {
	t.Parallel()
	for i, k := range kinds() {
		t.Run(strings.NewReplacer(" ", "_", "/", "_").Replace(k.name), func(t *testing.T) {
			t.Parallel()
			switch {
			case k.as == "root" && os.Getuid() != 0:
				t.Skip("giving a folder to another user needs root")
			case k.as == "root":
				examine(t, harness.NewIdentity(t, "root", 0), i, k)
				return
			case k.as == "user":
				examine(t, harness.NewIdentity(t, "user", harness.UserOf()), i, k)
				return
			case long:
				harness.Each(t, func(t *testing.T, id *harness.Identity) { examine(t, id, i, k) })
				return
			}
			if os.Getuid() == 0 && i%2 == 0 {
				examine(t, harness.NewIdentity(t, "root", 0), i, k)
				return
			}
			examine(t, harness.NewIdentity(t, "user", harness.UserOf()), i, k)
		})
	}
}

func (k kind) skips(way string) bool { return strings.Contains(k.skip, way) }

func examine(t *testing.T, id *harness.Identity, i int, k kind) {
	dir := k.dir
	if dir == "" {
		dir = "repo"
	}
	top := k.top
	if top == "" {
		top = dir
	}
	p := newPlace(t, id, dir, top)
	if k.unfit != nil {
		if why := k.unfit(p); why != "" {
			t.Skip(why)
		}
	}
	p.sh(p.work, k.make)
	p.remember()
	for flags, words := range k.other {
		p.refused("open "+flags, p.do(append([]string{"open"}, strings.Fields(flags)...)...), words...)
		p.untouched("open " + flags)
	}
	if len(k.refuse) > 0 {
		p.refused("open", p.do("open"), k.refuse...)
		p.untouched("open")
		p.refused("run", p.do("run", "--", "true"), k.refuse...)
		p.untouched("run")
		p.nothing()
		return
	}
	o := p.clone(k)
	// Both in a long run; else they are shared out, like the identities.
	dirty := k.other["--dirty"] == nil && !k.skips("dirty")
	worktree := k.other["--source worktree"] == nil && !k.skips("worktree")
	if dirty && (long || !worktree || i/2%2 == 0) {
		p.dirty()
	}
	if worktree && (long || !dirty || i/2%2 == 1) {
		p.worktree()
	}
	if !k.skips("edit") && !k.skips("home") {
		p.home(o)
	}
	p.OK(t, p.Dir, "reap")
	if k.after != nil {
		k.after(p, o)
	}
}

// nothing checks that no task is left of what was refused.
func (p *place) nothing() {
	p.t.Helper()
	if out := p.OK(p.t, p.Dir, "ls", "--json"); strings.Contains(out, `"state"`) {
		p.t.Errorf("a refused task is there: %s", out)
	}
}

// clone works in a private clone and ends it.
func (p *place) clone(k kind) string {
	p.t.Helper()
	o := p.open(k.flags...)
	for _, w := range k.notes {
		if !strings.Contains(o.text, w) {
			p.t.Errorf("show does not say %q: %s", w, o.text)
		}
	}
	p.untouched("open")
	if k.more != nil {
		k.more(p, o.ID)
	}
	if !k.skips("edit") {
		p.in(o.ID, edit)
		if got := p.changes(o.ID); !slices.Equal(got, wanted) {
			p.t.Errorf("the change set is %q", got)
		}
	}
	p.ok("export", "--dir", p.Dir+"/out", o.ID)
	if b, err := os.ReadFile(p.Dir + "/out/unt.txt"); !k.skips("edit") && (err != nil || string(b) != "u") {
		p.t.Errorf("export: %q, %v", b, err)
	}
	if r := p.do("close", o.ID); r.Exit != 0 && r.Exit != 7 {
		p.t.Error(r)
	}
	p.untouched("close")
	return o.ID
}

// dirty takes uncommitted state along.
func (p *place) dirty() {
	p.t.Helper()
	p.sh(p.top, `[ ! -e b.txt ] || echo mine >>b.txt; echo mine >mine.txt; git add mine.txt; echo mine >mine.unt`)
	status := `git -c core.fsmonitor=false status --porcelain`
	outside := p.sh(p.top, status)
	p.remember()
	o := p.open("--dirty")
	if got := p.in(o.ID, status); got != outside {
		p.t.Errorf("--dirty: git status inside is\n%s\noutside it is\n%s", got, outside)
	}
	if out := p.ok("diff", "--name-status", o.ID); out != "" {
		p.t.Errorf("--dirty: nothing was done, and the change set is %s", out)
	}
	p.in(o.ID, "echo task >>mine.unt")
	if got := p.changes(o.ID); !slices.Equal(got, []string{"M mine.unt"}) {
		p.t.Errorf("--dirty: the change set is %q", got)
	}
	p.ok("close", "--discard", o.ID)
	p.untouched("close --discard a task with --dirty")
	p.sh(p.top, `git rm -qf --cached mine.txt; rm mine.txt mine.unt; [ ! -e b.txt ] || sed -i '$d' b.txt; git status >/dev/null`)
	p.remember()
}

// worktree works in a linked worktree, and ends it.
func (p *place) worktree() {
	p.t.Helper()
	o := p.open("--source", "worktree")
	p.in(o.ID, "echo task >>a.txt; rm d/c.txt; echo new >new.txt")
	if got := p.changes(o.ID); !slices.Equal(got, []string{"A new.txt", "D d/c.txt", "M a.txt"}) {
		p.t.Errorf("--source worktree: the change set is %q", got)
	}
	if r := p.Caisson(p.t, p.Dir, "exec", o.ID, "--", "git", "status"); r.Exit == 0 {
		p.t.Errorf("--source worktree: git inside: %v", r)
	}
	if r := p.do("close", o.ID); r.Exit != 0 && r.Exit != 7 {
		p.t.Error(r)
	}
	p.untouched("close a worktree", `.*/worktrees`, `.*/refs/heads/caisson`)
}

// home brings the result of an ended task back in the ways that change a
// repository: as a branch, and into the checkout.
func (p *place) home(id string) {
	p.t.Helper()
	p.ok("branch", id, "back")
	if out := p.sh(p.top, "git diff --no-renames --name-status HEAD...back; git branch -qD back"); strings.Join(strings.Fields(out), " ") != "M a.txt M b.txt D d/c.txt A new.txt A unt.txt" {
		p.t.Errorf("branch: %q", out)
	}
	p.ok("apply", "--yes", id)
	if out := p.sh(p.top, "git status --porcelain; tail -n 1 a.txt; tail -n 1 b.txt; cat new.txt unt.txt"); out != " M a.txt\n M b.txt\n D d/c.txt\n?? new.txt\n?? unt.txt\ntask\nmore\nnew\nu" {
		p.t.Errorf("apply: %q", out)
	}
}
