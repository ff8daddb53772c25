package source

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// Fetch brings the commits made inside a task into its shadow repository, by
// the bundle that BundleCommand wrote. It verifies them as Import does, and
// publishes nothing: no ref changes anywhere. It can be repeated.
func Fetch(ctx context.Context, ws Workspace, r io.Reader, max int64) error {
	_, _, err := ws.take(ctx, r, max)
	return err
}

// NeedsFetch reports whether the task has a commit that the shadow repository
// lacks: only then a bundle has to be made before Look.
func NeedsFetch(ctx context.Context, ws Workspace) (bool, error) {
	s, err := ws.loadState()
	if err != nil {
		return false, err
	}
	c, err := ws.changedRefs(ctx, s)
	if err != nil || !c.any() {
		return false, err
	}
	if c.unknown != "" {
		return true, nil
	}
	g, err := findGit(ctx)
	if err != nil {
		return false, err
	}
	// Whatever came in was verified with all it leads to.
	var in strings.Builder
	for _, r := range append(c.changed, c.extra...) {
		in.WriteString(r.Object + "\n")
	}
	cmd := ws.shadowCmd("cat-file", "--batch-check=%(objecttype)")
	cmd.Stdin = strings.NewReader(in.String())
	out, err := g.Run(ctx, cmd)
	if err != nil {
		return false, task.Errorf(task.CodeSource, "source.fetch", "the task's commits cannot be looked for: %v", err)
	}
	return strings.Contains(string(out), " missing"), nil
}

// maxSymrefs is how many symbolic refs git follows after one another.
const maxSymrefs = 5

// headOf resolves the HEAD of a task's private clone without git. Empty: there
// is no commit on it, or no repository inside that is the task's own.
func (ws Workspace) headOf(ctx context.Context) (oid string, err error) {
	s, err := ws.loadState()
	if err != nil {
		return "", err
	}
	switch s.Strategy {
	case "", task.StrategyClone:
	case task.StrategyWorktree:
		return ws.worktreeHead(ctx, s)
	default:
		return "", nil // what git directory there is, is not the task's
	}
	root, err := tree.OpenRoot(ws.source())
	if err != nil {
		return "", task.Errorf(task.CodeSource, "source.head", "the task's files cannot be opened: %v", err)
	}
	defer root.Close()
	if _, err := root.Stat(".git"); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	dir, err := root.OpenDir(".git")
	if err != nil {
		return "", badHead("its .git is not a folder")
	}
	defer dir.Close()
	return resolveHead(dir)
}

// worktreeHead resolves the HEAD of a task's worktree, which the user may have
// committed to. Its git directory is out of the boundary's reach.
func (ws Workspace) worktreeHead(ctx context.Context, s *state) (string, error) {
	b, err := readSmall(filepath.Join(adminOf(s.CommonDir, ws.Task), "HEAD"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // the user removed the worktree; its files may still be there
	}
	if err != nil {
		return "", badHead("%v", err)
	}
	sym, oid, ok := parseRefFile(b)
	if !ok || sym == "" {
		return oid, nil
	}
	g, err := findGit(ctx)
	if err != nil {
		return "", err
	}
	refs, err := listRefs(ctx, g, s.CommonDir, sym)
	if err != nil {
		return "", badHead("%v", err)
	}
	for _, r := range refs {
		if r.Name == sym {
			return r.Object, nil
		}
	}
	return "", nil
}

// badHead refuses a HEAD that names no commit one could rely on.
func badHead(format string, args ...any) error {
	return badResult("the task's HEAD cannot be used: "+format, args...).
		WithHint("the files do not depend on it: use `caisson apply`, or `caisson export` with --patch or --dir; inside, `git status` shows what is wrong")
}

// resolveHead follows HEAD through the refs of a git directory.
func resolveHead(dir *tree.Root) (string, error) {
	b, err := dir.ReadFile("HEAD", maxRefFile)
	if err != nil {
		return "", badHead("%v", err)
	}
	var packed map[string]string
	name := "HEAD"
	for range maxSymrefs + 1 {
		sym, oid, ok := parseRefFile(b)
		switch {
		case !ok:
			return "", badHead("%s is not a ref", quote(name))
		case sym == "":
			return oid, nil
		case !git.ValidRef(sym):
			return "", badHead("%s names the invalid ref %s", quote(name), quote(sym))
		}
		name = sym
		if b, err = looseRef(dir, name); err != nil {
			return "", badHead("%v", err)
		}
		if b != nil {
			continue
		}
		if packed == nil {
			p, err := dir.ReadFile("packed-refs", maxPacked)
			if err == nil {
				packed, err = parsePackedRefs(p)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", badHead("%v", err)
			}
		}
		return packed[name], nil // none: a branch without a commit
	}
	return "", badHead("symbolic refs lead to one another")
}

// looseRef reads a ref's own file; nil: there is none.
func looseRef(dir *tree.Root, name string) ([]byte, error) {
	i, err := dir.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, err
	case i.Kind == tree.Dir:
		return nil, nil // left empty when the ref was packed
	}
	b, err := dir.ReadFile(name, maxRefFile)
	if b == nil && err == nil {
		b = []byte{}
	}
	return b, err
}
