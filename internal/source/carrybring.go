package source

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// firstIndex is the index with which a worktree begins that carries uncommitted
// state: what the user has staged, where base.index is what the files are.
const firstIndex = "first.index"

// indexName is the file in the shadow repository that a worktree begins with.
func (p *preparation) indexName() string {
	if p.carried != nil {
		return firstIndex
	}
	return baseIndex
}

// bring makes the task's files, checked out as the user's index is, what they
// are in the user's checkout, and records that as what the task began with.
func (p *preparation) bring(ctx context.Context) error {
	c := p.carried
	p.ws.say("carrying uncommitted files over")
	b, err := newBringer(p)
	if err != nil {
		return p.fail("the uncommitted files cannot be copied", err)
	}
	defer b.close()
	if err := b.all(ctx); err != nil {
		if ctx.Err() != nil {
			return task.Errorf(task.CodeCanceled, "source.carry", "copying was cancelled: %w", context.Cause(ctx))
		}
		return p.fail("the uncommitted files cannot be copied", err)
	}
	if err := p.begin(ctx); err != nil {
		return err
	}
	if b.last.CtimeS != 0 {
		p.last = b.last
	}
	p.carryNotes(b)
	if p.r.Ref.Strategy == task.StrategyClone && c.pack != "" {
		for _, ext := range packParts {
			from := p.ws.shadow() + "/objects/pack/" + c.pack + ext
			if ext == ".rev" && !exists(from) {
				continue
			}
			if err := copyFile(from, p.ws.source()+"/.git/objects/pack/"+c.pack+ext, 0o444); err != nil {
				return p.fail("what is staged cannot be copied", err)
			}
		}
	}
	return nil
}

// begin records what the task begins with: the index inside, a tree of the
// files with their stat cache, and a commit on the base.
func (p *preparation) begin(ctx context.Context) error {
	c := p.carried
	stat := p.ws.shadow() + "/" + baseIndex
	inside := p.ws.shadow() + "/" + firstIndex
	if p.r.Ref.Strategy == task.StrategyClone {
		inside = p.ws.source() + "/.git/index"
		if err := copyOwnIndex(inside, stat); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p.fail("the index cannot be copied", err)
		}
	}
	first, err := p.indexInside(ctx, stat)
	if err != nil {
		return p.fail("the index cannot be made", err)
	}
	if first != nil {
		if err := os.WriteFile(inside, first, 0o644); err != nil { //nolint:gosec // the task's own, or private
			return p.fail("the index cannot be written", err)
		}
	}
	top, err := p.ws.record(ctx, p.r.git, p.ws.source(), stat, c)
	if err != nil {
		return err
	}
	base := (&state{Format: p.r.format}).emptyTree()
	if p.r.Ref.Base != "" {
		if base, err = oneLine(ctx, p.r.git, p.ws.shadowCmd("rev-parse", "--verify", "--end-of-options", p.r.Ref.Base+"^{tree}")); err != nil {
			return p.fail("the tree of the base cannot be found", err)
		}
	}
	if top == base {
		return nil
	}
	p.startTree = top
	p.r.Ref.Start, err = commitTree(ctx, p.r.git, commitSpec{
		dir: p.ws.shadow(), tree: top, parent: p.r.Ref.Base, who: p.r.Identity, when: time.Now().Unix(),
		message: "uncommitted files of the checkout that caisson task " + string(p.ws.Task) + " began with\n",
	})
	return err
}

// record adds the carried files in work to the index at path, which has those of
// the user's index, and returns the tree of all of them.
func (ws Workspace) record(ctx context.Context, g *git.Git, work, index string, c *carried) (string, error) {
	var st *stage
	defer func() {
		if st != nil {
			st.remove(ctx)
		}
	}()
	return ws.recordFiles(ctx, g, recording{
		work: work, index: index, deleted: c.deleted, paths: append(append([]string(nil), c.changed...), c.untracked...),
		add: []string{"--add", "--remove", "--replace"}, config: []string{"core.looseCompression=1"},
		raw: func() (_ string, err error) {
			if st, err = ws.newStage(); err != nil {
				return "", err
			}
			return ws.rawGitDir(st)
		},
		fail: func(_ string, err error) error {
			if task.CodeOf(err) == task.CodeStateStore {
				return err
			}
			return task.Errorf(task.CodeSource, "source.carry", "the uncommitted files cannot be recorded: %v", err)
		},
	})
}

// indexInside renders the index that the task begins with: the user's, with the
// user's flags, and with the stat cache of the task's files where those are as
// it says. nil: it is empty.
func (p *preparation) indexInside(ctx context.Context, stat string) ([]byte, error) {
	c := p.carried
	var entries []indexEntry
	raw, err := os.ReadFile(stat)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		if entries, err = parseIndex(raw, p.r.format); err != nil {
			return nil, err
		}
	}
	user := make(map[string]*indexEntry, 16)
	for i := range c.entries {
		e := &c.entries[i]
		switch {
		case e.more&intentToAdd != 0:
			entries = append(entries, indexEntry{path: e.path, oid: e.oid, mode: e.mode, flags: e.flags & assumedValid, more: intentToAdd})
			if err := p.emptyBlob(ctx); err != nil {
				return nil, err
			}
		case e.flags&assumedValid != 0 || e.more&skipWorktree != 0 && !p.r.sparse:
			user[e.path] = e
		}
	}
	slices.SortStableFunc(entries, func(a, b indexEntry) int { return strings.Compare(a.path, b.path) })
	other := make(map[string]bool, len(c.changed))
	for _, n := range c.changed {
		other[n] = true
	}
	for i := range entries {
		e := &entries[i]
		if u := user[e.path]; u != nil {
			e.flags |= u.flags & assumedValid
			// One that is not there in the checkout is there in the task.
			if other[e.path] {
				e.more |= u.more & skipWorktree
			}
		}
		if other[e.path] {
			// Another file stands there now: git must not take it for this one.
			*e = indexEntry{path: e.path, oid: e.oid, mode: e.mode, flags: e.flags, more: e.more}
		}
	}
	if raw == nil && len(entries) == 0 {
		return nil, nil
	}
	return writeIndex(entries, p.r.format), nil
}

// emptyBlob makes sure that what an entry without content names is there.
func (p *preparation) emptyBlob(ctx context.Context) error {
	dir := p.ws.shadow()
	if p.r.Ref.Strategy == task.StrategyClone {
		dir = p.ws.source() + "/.git"
	}
	_, err := p.r.git.Run(ctx, git.Cmd{GitDir: dir, Args: []string{"hash-object", "-w", "--stdin"}, Stdin: strings.NewReader("")})
	return err
}

// carryNotes says what was carried and what was not.
func (p *preparation) carryNotes(b *bringer) {
	c := p.carried
	var parts []string
	for _, n := range []struct {
		n    int
		what string
	}{{c.staged, "staged"}, {len(c.changed), "changed"}, {len(c.deleted), "deleted"}, {len(c.untracked), "untracked"}, {b.ignored, "ignored"}} {
		if n.n > 0 {
			parts = append(parts, itoa(n.n)+" "+n.what)
		}
	}
	if len(parts) == 0 {
		p.notes = append(p.notes, "your checkout has nothing uncommitted that could be carried over")
	} else {
		p.notes = append(p.notes, "carried over from your checkout: "+strings.Join(parts, ", "))
	}
	if n := len(c.nested); n > 0 {
		p.notes = append(p.notes, withNames("not carried over, repositories inside your checkout", n, quoted(c.nested)))
	}
	if c.links > 0 {
		p.notes = append(p.notes, "what you changed in submodules is not carried over")
	}
	p.notes = append(p.notes, b.notes()...)
}

func quoted(names []string) []string {
	var out []string
	for i, n := range names {
		if i == maxNamed {
			break
		}
		out = append(out, quote(n))
	}
	return out
}
