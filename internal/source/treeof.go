package source

import (
	"context"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// TreeNow returns the name of the tree that a task's files are now, without the
// ignored ones. It has no lasting effect.
func TreeNow(ctx context.Context, ws Workspace) (string, error) {
	_, _, tree, err := ws.lookAt(ctx)
	return tree, err
}

// Measured is what a task's files are at one moment.
type Measured struct {
	Tree    string // the name of their tree, as Result has it
	Ignored int    // top-most ignored entries beside it
	Unfit   int    // what no tree can hold
}

// Measure reads a task's files as Look does, and makes no change set. It has no
// lasting effect.
func Measure(ctx context.Context, ws Workspace) (Measured, error) {
	_, f, tree, err := ws.lookAt(ctx)
	if err != nil {
		return Measured{}, err
	}
	m := Measured{Tree: tree, Ignored: len(f.ignored), Unfit: len(f.special) + len(f.nested)}
	if git.IsOID(tree) {
		return m, nil
	}
	g, err := findGit(ctx)
	if err != nil {
		return m, err
	}
	m.Tree, err = (&Result{g: g, dir: ws.shadow()}).treeName(ctx, tree)
	return m, err
}

// Differing names at most limit files in which two trees of a task's files
// differ, which Measure returned; each quoted where it is not plain text.
func Differing(ctx context.Context, ws Workspace, before, after string, limit int) ([]string, error) {
	if !git.IsOID(before) || !git.IsOID(after) {
		return nil, task.Errorf(task.CodeInternal, "source.differing", "%q or %q is no tree", before, after)
	}
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	out, err := g.Run(ctx, ws.shadowCmd("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none", before, after, "--"))
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.differing", "two trees cannot be compared: %v", err)
	}
	names, ok := git.SplitZ(out)
	if !ok {
		return nil, task.Errorf(task.CodeInternal, "source.differing", "git's list of files cannot be read")
	}
	names = names[:min(len(names), limit)]
	for i := range names {
		names[i] = quote(names[i])
	}
	return names, nil
}
