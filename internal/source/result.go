package source

import (
	"context"
	"io"
	"strconv"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// Where a Result was read from.
const (
	FromFiles = "files" // the task's files as they are now
	FromRefs  = "refs"  // what was rescued into the user's repository when the task ended
)

// Result is what a task made of its source, as objects in a git directory of
// the host's own, with no configuration but caisson's. Close it.
type Result struct {
	Task task.ID
	From string // FromFiles or FromRefs
	Base string // the commit the task began at; empty: none
	// Start and Tree name the trees that the task began with and that it has
	// now; Changes is all that differs, sorted by path, without renames.
	Start, Tree string
	Changes     []task.Change
	// Unfit are paths that no tree can hold: FIFOs, sockets, names that git
	// reserves, repositories inside the tree. Ignored files are not in it.
	Unfit []string

	g      *git.Git
	dir    string // the git directory
	format string // "sha1" or "sha256"
	close  func()

	// Of a result from files: where they are, how they began, what is ignored.
	ws      Workspace
	s       *state
	ignored []string
	// head is the commit that HEAD named inside, when the files were read or
	// when the task ended; empty: none that is new.
	head    string
	headErr error
	raw     []rawChange // Changes, with the names of the objects
	// Of a result from refs: the rescued commit whose tree is Tree.
	rescued string
	// strategy is how the task got its source; empty where it does not matter.
	strategy task.Strategy
	made     *tip // see Tip
}

// Look makes the result of a task's files as they are now. It reads them
// through the safe resolver; nothing of them is executed.
func Look(ctx context.Context, ws Workspace) (*Result, error) {
	// HEAD first: files that are committed while they are read are then on top
	// of an older commit, never taken back by a newer one.
	head, headErr := ws.headOf(ctx)
	v, err := ws.look(ctx)
	if err != nil {
		return nil, err
	}
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	r := &Result{
		Task: ws.Task, From: FromFiles, Base: v.s.Base, Start: v.s.baseTree(), Tree: v.tree, Changes: plainChanges(v.changes), raw: v.changes,
		Unfit: append(append([]string(nil), v.found.special...), v.found.nested...),
		g:     g, dir: ws.shadow(), format: v.s.Format,
		ws: ws, s: v.s, strategy: v.s.Strategy, head: head, headErr: headErr, ignored: v.found.ignored,
	}
	// Names, not expressions: what is agreed to is bound to them.
	if r.Start, err = r.treeName(ctx, r.Start); err != nil {
		return nil, err
	}
	if v.tree == v.s.baseTree() {
		r.Tree = r.Start
	} else if r.Tree, err = r.treeName(ctx, r.Tree); err != nil {
		return nil, err
	}
	return r, nil
}

// Close gives back what the result holds. The zero value can be closed.
func (r *Result) Close() {
	if r.close != nil {
		r.close()
		r.close = nil
	}
}

// cmd is a call on the result's git directory.
func (r *Result) cmd(args ...string) git.Cmd { return git.Cmd{GitDir: r.dir, Args: args} }

// treeName resolves an expression that names a tree.
func (r *Result) treeName(ctx context.Context, expr string) (string, error) {
	if git.IsOID(expr) {
		return expr, nil
	}
	oid, err := oneLine(ctx, r.g, r.cmd("rev-parse", "--verify", "--end-of-options", expr))
	if err != nil {
		return "", task.Errorf(task.CodeSource, "source.result", "the tree %s cannot be found: %v", expr, err)
	}
	return oid, nil
}

// Diff writes the changes to w. Without options it is a patch that `git apply`
// takes, binary files included unless one is above maxPatchBlob: then git says
// of binary files only that they differ.
func (r *Result) Diff(ctx context.Context, w io.Writer, o DiffOptions) error {
	cost, err := r.weigh(ctx)
	if err != nil {
		return err
	}
	cmd := r.cmd(append(append(diffArgs(o, cost), r.Start, r.Tree, "--"), o.Paths...)...)
	cmd.Stdout = w
	// A path is a name, never a pattern.
	cmd.Env = []string{"GIT_LITERAL_PATHSPECS=1"}
	// Names go to a person's terminal here, so unusual ones are quoted.
	cmd.Config = []string{"core.quotePath=true", diffBigFile}
	_, err = r.g.Run(ctx, cmd)
	return err
}

// diffArgs renders options as git's.
func diffArgs(o DiffOptions, cost weight) []string {
	renames := "-M"
	if !cost.renames {
		renames = "-M100%" // only what was moved unchanged, by name of the object
	}
	args := []string{"diff", "--no-ext-diff", "--no-textconv", renames, "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=none"}
	switch {
	case o.NameStatus:
		args = append(args, "--name-status")
	case o.Stat:
		stat := "--stat"
		if o.Width > 0 {
			stat += "=" + strconv.Itoa(min(o.Width, 1000)) // git pads lines to it
		}
		args = append(args, stat)
	default:
		args = append(args, "--patch", "--full-index")
		if cost.largest <= maxPatchBlob {
			args = append(args, "--binary")
		}
	}
	if o.NUL {
		args = append(args, "-z")
	}
	if o.Color {
		return append(args, "--color=always")
	}
	return append(args, "--no-color")
}
