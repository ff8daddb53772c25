package source

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// KeepIgnored moves what no commit can hold out of the task's files into
// ws.Dir/kept/files, by rename: ignored files and folders, the .git of
// repositories inside the tree, and files with names that git reserves.
// FIFOs, sockets and devices hold nothing and are left.
func KeepIgnored(ctx context.Context, ws Workspace) ([]task.ResultRef, error) {
	if ws.Files != "" {
		return nil, task.Errorf(task.CodeInternal, "source.keep", "the files in %s are the user's own", quote(ws.Files))
	}
	v, err := ws.look(ctx)
	if err != nil {
		return nil, err
	}
	paths := append(append(append([]string(nil), v.found.ignored...), v.found.nested...), v.found.special...)
	if len(paths) == 0 {
		return nil, nil
	}
	dst := filepath.Join(ws.kept(), "files")
	root, err := tree.OpenRoot(ws.source())
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.keep", "the task's files cannot be opened: %v", err)
	}
	defer root.Close()
	n := 0
	for _, p := range paths {
		i, err := root.Stat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && i.Kind == tree.Special {
			continue
		}
		if err == nil && n == 0 {
			if err := os.MkdirAll(dst, 0o700); err != nil {
				return nil, task.Errorf(task.CodeStateStore, "source.keep", "the folder for kept files cannot be made: %v", err)
			}
		}
		if err == nil {
			err = root.Move(p, dst)
		}
		if err != nil {
			return nil, task.Errorf(task.CodeStuck, "source.keep", "%s cannot be kept: %v", quote(p), err).
				WithHint("the task's files are still there; move it yourself, or close with --discard")
		}
		n++
	}
	if n == 0 {
		return nil, nil
	}
	return []task.ResultRef{{Kind: "ignored", Name: dst, Count: n}}, nil
}

// RemoveTree deletes a folder that a boundary wrote to, whatever it left there,
// without following links and without more rights than the owner has. The
// folder that dir is in must be caisson's own. A missing one is no error; after
// a crash it can be called again.
func RemoveTree(ctx context.Context, dir string) error {
	_, err := RemoveSome(ctx, dir, nil)
	return err
}

// RemoveSome is RemoveTree that removes at most *left entries and counts *left
// down; nil is without a limit. more says that the limit was reached: the folder
// has lost its name, and a later RemoveTree of it removes the rest.
func RemoveSome(ctx context.Context, dir string, left *int) (more bool, err error) {
	err = tree.RemoveSome(ctx, dir, "."+filepath.Base(dir)+".trash", left)
	if left != nil && errors.Is(err, tree.ErrLimit) {
		return true, nil
	}
	if err != nil {
		return false, task.Errorf(task.CodeStuck, "source.remove", "%s cannot be removed: %v", quote(dir), err)
	}
	return false, nil
}
