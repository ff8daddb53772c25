//go:build linux

package boundary

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/task"
)

// pointLab is an inventory and a folder of the user's that tasks work in.
type pointLab struct {
	t     *testing.T
	m     *Manager
	files string
	seed  string
}

func newPointLab(t *testing.T) *pointLab {
	t.Helper()
	dir := t.TempDir()
	db, err := inventory.Open(t.Context(), filepath.Join(dir, "state", "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p := &pointLab{t: t, m: New(Config{StateDir: filepath.Join(dir, "state"), DB: db}), files: filepath.Join(dir, "files"), seed: filepath.Join(dir, "seed")}
	for _, d := range []string{p.files, p.seed} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// enter makes a task of the checkout on record; it mounts a file and a folder
// where nothing is, and covers a .git that is not there.
func (p *pointLab) enter() *live {
	p.t.Helper()
	l := &live{id: task.NewID(), token: task.NewToken(), dir: p.t.TempDir()}
	l.ws = source.Workspace{Task: l.id, Dir: l.dir, Files: p.files}
	file := filepath.Join(p.seed, "file")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		p.t.Fatal(err)
	}
	l.spec = backend.Spec{Task: l.id, Token: l.token,
		Source: backend.Mount{Source: p.files, Target: "/inside", Writable: true, Cover: []string{".git"}},
		RO:     []backend.Mount{{Source: p.seed, Target: "/inside/deep/dir"}, {Source: file, Target: "/inside/deep/file"}, {Source: file, Target: "/inside/deep/dir/in"}}}
	err := p.m.cfg.DB.Tx(p.t.Context(), func(tx *inventory.Tx) error {
		return errors.Join(tx.CreateTask(inventory.Task{View: task.View{Schema: "caisson.task/1", ID: l.id, Backend: "linux"}, Repo: p.files, OwnerUID: os.Getuid()}),
			tx.SetState(l.id, task.Creating, nil))
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

func (p *pointLab) mount(l *live) {
	p.t.Helper()
	if err := p.m.points(p.t.Context(), l, task.SourceRef{Strategy: task.StrategyCheckout}); err != nil {
		p.t.Fatal(err)
	}
}

// leave is what the end of a task does, twice.
func (p *pointLab) leave(l *live) {
	p.t.Helper()
	for range 2 {
		if err := p.m.unpoint(p.t.Context(), l); err != nil {
			p.t.Fatal(err)
		}
	}
	rs, err := p.m.cfg.DB.Resources(p.t.Context(), l.id)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, r := range rs {
		if r.State != task.Gone {
			p.t.Errorf("%s is still %s", r.Name, r.State)
		}
	}
}

// has fails unless exactly these names are in the folder.
func (p *pointLab) has(what string, want ...string) {
	p.t.Helper()
	var got []string
	_ = filepath.WalkDir(p.files, func(path string, _ os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(p.files, path); err == nil && rel != "." {
			got = append(got, rel)
		}
		return nil
	})
	if strings.Join(got, " ") != strings.Join(want, " ") {
		p.t.Errorf("%s: the folder has %q, not %q", what, got, want)
	}
}

func (p *pointLab) path(name string) string { return filepath.Join(p.files, name) }

var allPoints = []string{".git", "deep", "deep/dir", "deep/file"}

// TestPointsLastUser: two tasks use the same mount points; the one that goes
// last removes them, whichever made them, and whether it crashed meanwhile.
func TestPointsLastUser(t *testing.T) {
	for _, first := range []bool{true, false} {
		p := newPointLab(t)
		a, b := p.enter(), p.enter()
		p.mount(a)
		p.has("made", allPoints...)
		p.mount(b)
		if !first {
			a, b = b, a
		}
		p.leave(a)
		p.has("one is left", allPoints...)
		p.leave(b)
		p.has("both are gone")
	}
	// What was there before is nobody's to remove.
	p := newPointLab(t)
	if err := os.MkdirAll(p.path("deep/dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	a := p.enter()
	p.mount(a)
	p.leave(a)
	p.has("the user's own", "deep", "deep/dir")
}

// TestPointsKept: what was filled or replaced meanwhile is not removed.
func TestPointsKept(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(p *pointLab)
		want []string
	}{
		"a folder got content": {func(p *pointLab) { mustDo(p.t, os.WriteFile(p.path(".git/HEAD"), nil, 0o644)) }, []string{".git", ".git/HEAD"}},
		"a file got content":   {func(p *pointLab) { mustDo(p.t, os.WriteFile(p.path("deep/file"), []byte("mine"), 0o644)) }, []string{"deep", "deep/file"}},
		"an empty folder of somebody else": {func(p *pointLab) {
			mustDo(p.t, os.Rename(p.path(".git"), p.path(".git.ours")))
			mustDo(p.t, os.Mkdir(p.path(".git"), 0o755))
			mustDo(p.t, os.Remove(p.path(".git.ours")))
		}, []string{".git"}},
		"an empty file of somebody else": {func(p *pointLab) {
			mustDo(p.t, os.Rename(p.path("deep/file"), p.path("deep/ours")))
			mustDo(p.t, os.WriteFile(p.path("deep/file"), nil, 0o644))
			mustDo(p.t, os.Remove(p.path("deep/ours")))
		}, []string{"deep", "deep/file"}},
		"a link": {func(p *pointLab) {
			mustDo(p.t, os.Remove(p.path(".git")))
			mustDo(p.t, os.Symlink(p.seed, p.path(".git")))
		}, []string{".git"}},
		"a link above": {func(p *pointLab) {
			mustDo(p.t, os.RemoveAll(p.path("deep")))
			mustDo(p.t, os.Symlink(p.seed, p.path("deep")))
			mustDo(p.t, os.Mkdir(filepath.Join(p.seed, "dir"), 0o755))
		}, []string{"deep"}},
		"all gone": {func(p *pointLab) {
			mustDo(p.t, os.RemoveAll(p.path("deep")))
			mustDo(p.t, os.Remove(p.path(".git")))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPointLab(t)
			a := p.enter()
			p.mount(a)
			c.do(p)
			p.leave(a)
			p.has(name, c.want...)
			if name == "a link above" {
				if _, err := os.Lstat(filepath.Join(p.seed, "dir")); err != nil {
					t.Error("a folder behind the link was removed")
				}
			}
		})
	}
}

// TestPointsCrash dies between the record and each step of the making.
func TestPointsCrash(t *testing.T) {
	for _, at := range []string{"intended", "made, not recorded", "recorded, not named"} {
		p := newPointLab(t)
		a := p.enter()
		path := p.path(".git")
		r := inventory.Resource{Resource: task.Resource{Kind: kindPoint, Name: pointName(a.id, path), Token: a.token}, Provider: "source", Durable: true}
		mustDo(t, p.m.cfg.DB.Tx(t.Context(), func(tx *inventory.Tx) error { return tx.Intend(a.id, []inventory.Resource{r}) }))
		temp := ".caisson-" + a.token[:12]
		if at != "intended" {
			mustDo(t, os.Mkdir(p.path(temp), 0o755))
			p.has(at, temp)
		}
		if at == "recorded, not named" {
			ident, err := source.PointIdent(a.ws, temp)
			mustDo(t, err)
			mustDo(t, p.m.mark(t.Context(), a.id, []inventory.ResourceChange{{Kind: kindPoint, Name: r.Name, State: task.Present, External: ident}}))
		}
		// Meanwhile somebody makes the folder that was about to be made.
		mustDo(t, os.Mkdir(path, 0o755))
		p.leave(a)
		p.has(at, ".git")
	}
	// Out of its name at the removal, when the process died.
	p := newPointLab(t)
	a := p.enter()
	p.mount(a)
	mustDo(t, os.Rename(p.path(".git"), p.path(".caisson-"+a.token[:12])))
	p.leave(a)
	p.has("died while removing")
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestCheckoutHistory: what narrows a clone cannot narrow the checkout itself.
func TestCheckoutHistory(t *testing.T) {
	p := newPointLab(t)
	for _, h := range []task.History{task.HistoryBase, task.HistoryNone} {
		err := p.m.accepts(&task.Request{Strategy: task.StrategyCheckout, History: h})
		if task.CodeOf(err) != task.CodeUsage || task.HintOf(err) == "" {
			t.Errorf("%s: %v", h, err)
		}
	}
	if err := p.m.accepts(&task.Request{Strategy: task.StrategyCheckout, History: task.HistoryFull}); err != nil {
		t.Error(err)
	}
}
