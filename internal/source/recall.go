package source

import (
	"context"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// maxKept bounds a kept bundle that is read back, in bytes. Whoever wrote it had
// its own, smaller bound.
const maxKept = 64 << 30

// Recall makes the result of an ended task whose files are gone, from what was
// rescued when it ended: the snapshot of its files, else the commits of its
// branch, in the user's repository or in a kept bundle. Nothing is changed. The
// user's objects are read through a git directory of caisson's own, which Close
// removes.
//
// A ref that does not name any more what was recorded is refused: somebody
// moved it, and it is not the task's result.
func Recall(ctx context.Context, ws Workspace, ref task.SourceRef, rs []task.ResultRef) (_ *Result, err error) {
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	c := &recalling{ws: ws, ref: ref, g: g}
	if ref.Strategy == task.StrategyCheckout {
		return nil, task.Errorf(task.CodeState, "source.recall", "task %s worked in the checkout itself and has ended: what it changed is there, and can no longer be told from your own changes", ws.Task).
			WithHint("look at it with your own git: `git status`, `git diff`")
	}
	if c.pick(rs); c.bundle == "" && len(c.want) == 0 {
		return nil, task.Errorf(task.CodeState, "source.recall", "nothing is left of the task's result: it changed no file, or its work was discarded").
			WithHint("`caisson show %s` lists what it left", ws.Task)
	}
	sc, err := newScratch(ctx, ws.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			sc.remove()
		}
	}()
	if err := c.open(sc); err != nil {
		return nil, err
	}
	if c.bundle != "" {
		err = c.unbundle(ctx, sc)
	} else {
		err = c.check(ctx)
	}
	if err != nil {
		return nil, err
	}
	one, err := c.choose()
	if err != nil {
		return nil, err
	}
	r := &Result{
		Task: ws.Task, From: FromRefs, Base: ref.Base, g: g, dir: c.dir, format: c.format, close: sc.remove,
		rescued: one.Object, strategy: ref.Strategy, head: c.head(one), ws: ws,
	}
	if err := c.trees(ctx, r, one); err != nil {
		return nil, err
	}
	if r.raw, err = diffTrees(ctx, g, c.dir, r.Start, r.Tree); err != nil {
		return nil, err
	}
	r.Changes = plainChanges(r.raw)
	return r, nil
}

// recalling is one recall under way.
type recalling struct {
	ws     Workspace
	ref    task.SourceRef
	g      *git.Git
	dir    string // git directory of ours
	format string
	bundle string           // kept file, where the repository could not take the result
	want   []task.ResultRef // refs that hold files or commits
}

// pick takes what can be a result from the record.
func (c *recalling) pick(rs []task.ResultRef) {
	for _, r := range rs {
		switch r.Kind {
		case "worktree", "branch", "head":
			if strings.HasPrefix(r.Name, refPrefix(c.ws.Task)) {
				c.want = append(c.want, r)
			}
		case "bundle":
			if r.Name == filepath.Join(c.ws.kept(), "work.bundle") || r.Name == filepath.Join(c.ws.Dir, "work.bundle") {
				c.bundle = r.Name
			}
		}
	}
	for _, w := range c.want {
		if w.Kind == "worktree" {
			c.bundle = "" // the files themselves are the better answer
			return
		}
	}
}

// open makes the git directory, which reads the user's objects where there are
// any.
func (c *recalling) open(sc *scratch) error {
	spec := gitSpec{format: "sha1"}
	if c.ref.CommonDir != "" {
		objects, err := filepath.EvalSymlinks(filepath.Join(c.ref.CommonDir, "objects"))
		switch {
		case err == nil:
			spec.stores = stores(objects)
		case c.bundle == "":
			return task.Errorf(task.CodeSource, "source.recall", "the repository %s, which holds the task's result, is gone", quote(c.ref.CommonDir)).
				WithHint("bring it back to its place, then try again")
		}
	}
	for _, oid := range []string{c.ref.Base, c.ref.Start} {
		if len(oid) == 64 {
			spec.format = "sha256"
		}
	}
	for _, w := range c.want {
		if len(w.Object) == 64 {
			spec.format = "sha256"
		}
	}
	if c.bundle != "" {
		if f, err := bundleFormat(c.bundle); err == nil {
			spec.format = f
		}
	}
	var err error
	// The name is that of every task's own repository, so that a bundle is
	// taken in by the very code that took it in from the task.
	c.format = spec.format
	if c.dir, err = sc.makeGit("shadow.git", spec); err != nil || c.ref.CommonDir == "" {
		return err
	}
	// Where the user's history ends, a walk must end too, not fail.
	if b, rerr := readWithin(c.ref.CommonDir, "shallow", 16<<20); rerr == nil && len(b) > 0 {
		err = os.WriteFile(filepath.Join(c.dir, "shallow"), b, 0o600)
	}
	return err
}

// check compares the refs of the user's repository with the record.
func (c *recalling) check(ctx context.Context) error {
	refs, err := listRefs(ctx, c.g, c.ref.CommonDir, refPrefix(c.ws.Task))
	if err != nil {
		return task.Errorf(task.CodeSource, "source.recall", "the refs of %s cannot be read: %v", quote(c.ref.CommonDir), err)
	}
	now := map[string]Ref{}
	for _, r := range refs {
		now[r.Name] = r
	}
	for _, w := range c.want {
		r, ok := now[w.Name]
		switch {
		case !ok:
			return task.Errorf(task.CodeState, "source.recall", "the ref %s, which held the task's result, was deleted", quote(w.Name)).
				WithHint("its object was %s: if git still has it, `git update-ref %s %s` brings it back", w.Object, w.Name, w.Object)
		case r.Symref != "" || w.Object == "" || r.Object != w.Object:
			return task.Errorf(task.CodeConflict, "source.recall", "somebody moved the ref %s: it names %s, the task left %s", quote(w.Name), r.Object, w.Object).
				WithHint("if git still has it, `git update-ref --no-deref %s %s` brings it back", w.Name, w.Object)
		}
	}
	return nil
}

// unbundle verifies a kept bundle exactly as one that comes out of a boundary.
func (c *recalling) unbundle(ctx context.Context, sc *scratch) error {
	f, err := os.Open(c.bundle)
	if err != nil {
		return task.Errorf(task.CodeState, "source.recall", "the kept bundle cannot be read: %v", err)
	}
	defer f.Close()
	q := filepath.Join(sc.dir, "import")
	for _, d := range []string{q, c.dir + "/objects/pack"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return task.Errorf(task.CodeStateStore, "source.recall", "a working folder cannot be made: %v", err)
		}
	}
	im := &importing{ws: Workspace{Task: c.ws.Task, Dir: sc.dir}, s: &state{Format: c.format}, g: c.g, q: q, objects: q + "/objects"}
	h, err := im.receive(ctx, f, maxKept)
	if err != nil {
		return err
	}
	if h == nil {
		return task.Errorf(task.CodeState, "source.recall", "the kept bundle %s is empty", quote(c.bundle))
	}
	if err := im.verify(ctx, h.refs); err != nil {
		return err
	}
	if err := im.release(); err != nil {
		return err
	}
	c.want = nil
	for _, r := range h.refs {
		name, ok := strings.CutPrefix(r.Name, refPrefix(c.ws.Task))
		switch {
		case !ok:
		case name == "worktree":
			c.want = append(c.want, task.ResultRef{Kind: "worktree", Name: r.Name, Object: r.Object})
		case name == "HEAD":
			c.want = append(c.want, task.ResultRef{Kind: "head", Name: r.Name, Object: r.Object})
		case strings.HasPrefix(name, "heads/"):
			c.want = append(c.want, task.ResultRef{Kind: "branch", Name: r.Name, Object: r.Object})
		}
	}
	if len(c.want) == 0 {
		return task.Errorf(task.CodeState, "source.recall", "the kept bundle %s holds no files and no branch", quote(c.bundle)).
			WithHint("look into it with `git bundle list-heads`")
	}
	return nil
}

// choose picks the one ref that stands for the task's files.
func (c *recalling) choose() (task.ResultRef, error) {
	own := refPrefix(c.ws.Task) + "heads/" + c.ref.Branch
	for _, w := range c.want {
		if w.Kind == "worktree" {
			return w, nil
		}
	}
	var names []string
	for _, w := range c.want {
		if c.ref.Branch != "" && w.Name == own {
			return w, nil
		}
		names = append(names, quote(w.Name))
	}
	if len(c.want) == 1 {
		return c.want[0], nil
	}
	sort.Strings(names)
	return task.ResultRef{}, task.Errorf(task.CodeConflict, "source.recall", "the task left commits on more than one branch, and none is the one it began on: %s", strings.Join(names, ", ")).
		WithHint("use the one you want with git itself, for example `git merge %s`", names[0])
}

// head is the commit that HEAD named inside when the task ended, as far as the
// refs tell; empty: none that is new.
func (c *recalling) head(one task.ResultRef) string {
	if one.Kind != "worktree" {
		return one.Object
	}
	head := ""
	for _, w := range c.want {
		switch {
		case w.Kind == "head":
			return w.Object // it was detached
		case w.Kind == "branch" && w.Name == refPrefix(c.ws.Task)+"heads/"+c.ref.Branch:
			head = w.Object
		}
	}
	return head
}

// trees fills in what the task began with and what it made.
func (c *recalling) trees(ctx context.Context, r *Result, one task.ResultRef) error {
	cmd := r.cmd("cat-file", "--batch-check=%(objectname) %(objecttype)")
	cmd.Stdin = strings.NewReader(one.Object + "\n")
	out, err := c.g.Run(ctx, cmd)
	if err != nil || strings.TrimSpace(string(out)) != one.Object+" commit" {
		return task.Errorf(task.CodeBadResult, "source.recall", "the ref %s does not name a commit that is there", quote(one.Name)).
			WithHint("run `git fsck` in the repository")
	}
	if r.Tree, err = r.treeName(ctx, one.Object+"^{tree}"); err != nil {
		return err
	}
	start := c.ref.Start
	if start == "" {
		start = c.ref.Base
	}
	if one.Kind == "worktree" {
		// The parent of the snapshot is what the task's files began as.
		out, err := c.g.Run(ctx, r.cmd("rev-list", "--parents", "--max-count=1", one.Object, "--"))
		f := strings.Fields(string(out))
		if err != nil || len(f) == 0 || len(f) > 2 {
			return task.Errorf(task.CodeBadResult, "source.recall", "the snapshot %s cannot be read", one.Object)
		}
		parent := ""
		if len(f) == 2 {
			parent = f[1]
		}
		if start != "" && parent != start {
			return task.Errorf(task.CodeBadResult, "source.recall", "the snapshot %s was not made on what the task began with, %s", one.Object, start)
		}
		start = parent
	}
	if start == "" {
		r.Start = (&state{Format: c.format}).emptyTree()
		return nil
	}
	r.Start, err = r.treeName(ctx, start+"^{tree}")
	return err
}

// bundleFormat reads the object format from a bundle's first lines.
func bundleFormat(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, 4096)
	n, err := f.Read(b)
	if err != nil {
		return "", err
	}
	for _, l := range strings.Split(string(b[:n]), "\n") {
		if v, ok := strings.CutPrefix(l, "@object-format="); ok {
			return v, nil
		}
		if l != "" && l[0] != '#' && l[0] != '@' {
			break
		}
	}
	return "sha1", nil
}
