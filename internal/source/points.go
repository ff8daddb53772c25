package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("source.pointmade", "source.pointnamed")

// Point is a place below a task's files on which something is mounted inside.
type Point struct {
	Path  string // relative to the files
	Dir   bool   // a folder, else a file
	There bool   // something is there
}

// Points lists the wanted points and the folders above them, outer ones first.
// One on which nothing can be mounted is an error.
func Points(ws Workspace, wanted []Point) ([]Point, error) {
	root, err := tree.OpenRoot(ws.source())
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.points", "the task's files cannot be opened: %v", err)
	}
	defer root.Close()
	var out []Point
	for _, w := range wanted {
		parts := strings.Split(w.Path, "/")
		for i := range parts {
			p := Point{Path: strings.Join(parts[:i+1], "/"), Dir: w.Dir || i < len(parts)-1}
			if slices.ContainsFunc(out, func(o Point) bool { return o.Path == p.Path }) {
				continue
			}
			st, err := root.Stat(p.Path)
			switch {
			case errors.Is(err, os.ErrNotExist):
			case err != nil:
				return nil, pointError(p, err)
			case p.Path == ".git" && (st.Kind == tree.File || st.Kind == tree.Dir):
				p.There = true // either can be covered
			case p.Dir != (st.Kind == tree.Dir) || st.Kind == tree.Link || st.Kind == tree.Special:
				return nil, pointError(p, errors.New("something of another kind is in its place"))
			default:
				p.There = true
			}
			out = append(out, p)
		}
	}
	return out, nil
}

func pointError(p Point, err error) error {
	return task.Errorf(task.CodeSource, "source.points", "nothing can be mounted at %s in the task's files: %v", quote(p.Path), err).
		WithHint("choose another place for what is to appear there")
}

// pointTemp is the name under which a point is made.
func pointTemp(token string) string { return ".caisson-" + token[:12] }

// MakePoint makes a point; record is called with its identity before it gets
// its name. made is false when something is there, whosever it is.
func MakePoint(ws Workspace, p Point, token string, record func(ident string) error) (made bool, err error) {
	root, err := tree.OpenRoot(ws.source())
	if err != nil {
		return false, pointError(p, err)
	}
	defer root.Close()
	err = root.MakePoint(p.Path, pointTemp(token), p.Dir, func(ident string) error {
		if err := sys.Fault("source.pointmade"); err != nil {
			return err
		}
		return record(ident)
	})
	if errors.Is(err, tree.ErrExists) {
		return false, nil
	}
	if err != nil {
		return false, pointError(p, err)
	}
	return true, sys.Fault("source.pointnamed")
}

// PointIdent is the identity of what is at a point; empty: nothing.
func PointIdent(ws Workspace, path string) (string, error) {
	root, err := tree.OpenRoot(ws.source())
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", pointError(Point{Path: path}, err)
	}
	defer root.Close()
	return root.Ident(path)
}

// RemovePoint removes a point that was made as token and recorded as ident, if
// it is still that one and empty. why says why something stays.
func RemovePoint(ws Workspace, path, token, ident string) (why string, err error) {
	root, err := tree.OpenRoot(ws.source())
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err == nil {
		defer root.Close()
		why, err = root.RemovePoint(path, pointTemp(token), ident)
	}
	if err != nil {
		return "", task.Errorf(task.CodeStuck, "source.points", "the mount point %s cannot be removed: %v", quote(filepath.Join(ws.source(), path)), err)
	}
	return why, nil
}

// Relink writes the pointer .git of a worktree task again where it is missing
// and the repository still has the worktree.
func Relink(ctx context.Context, ws Workspace, ref task.SourceRef) error {
	if ref.Strategy != task.StrategyWorktree || exists(filepath.Join(ws.source(), ".git")) {
		return nil
	}
	g, err := findGit(ctx)
	if err != nil {
		return err
	}
	reg, err := registered(ctx, g, ref.CommonDir, ws.Task, ws.Dir)
	if err != nil || !reg.there || !reg.ours {
		return err
	}
	if err := writeFile(filepath.Join(ws.source(), ".git"), []byte(pointerText(ref.CommonDir, ws.Task)), 0o644); err != nil {
		return task.Errorf(task.CodeSource, "source.worktree", "the worktree cannot be linked: %v", err)
	}
	return nil
}
