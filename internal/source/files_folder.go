package source

import (
	"context"
	"errors"
	"io"

	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// notEntered are folders that are not listed: git's own, and code of others
// that is as large as everything else together.
var notEntered = map[string]bool{".git": true, "node_modules": true}

// eachInFolder lists the files of a folder that is no repository.
func (b *Files) eachInFolder(ctx context.Context, f func(path string, mode uint32) bool) error {
	top, err := tree.OpenUser(b.folder)
	if err != nil {
		return unreadable(".", err)
	}
	defer top.Close()
	err = top.Walk(ctx, func(_ string, entries []*tree.Entry) error {
		for _, e := range entries {
			mode := uint32(0o100644)
			switch {
			case e.Info.OtherDevice || e.Info.Kind == tree.Special:
				continue
			case e.Info.Kind == tree.Dir:
				e.Descend = !notEntered[e.Name]
				continue
			case e.Info.Kind == tree.Link:
				mode = modeLink
			case e.Info.Mode&0o111 != 0:
				mode = 0o100755
			}
			if !f(e.Path, mode) {
				return errStopped
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errStopped):
		return nil
	case ctx.Err() != nil:
		return task.Errorf(task.CodeCanceled, "source.files", "the look at the files was cancelled: %w", context.Cause(ctx))
	case errors.Is(err, tree.ErrLimit):
		return task.Errorf(task.CodeLimit, "source.files", "the folder has too many files or is too deep: %v", err).WithHint("name a smaller folder with --repo")
	case err != nil:
		return unreadable("", err)
	}
	return nil
}

// readInFolder reads files of it. What is gone by now, or no regular file any
// more, is left out.
func (b *Files) readInFolder(ctx context.Context, paths []string, limit int64, f func(path string, size int64, content []byte)) error {
	top, err := tree.OpenUser(b.folder)
	if err != nil {
		return unreadable(".", err)
	}
	defer top.Close()
	for _, p := range paths {
		if ctx.Err() != nil {
			return task.Errorf(task.CodeCanceled, "source.files", "the look at the files was cancelled: %w", context.Cause(ctx))
		}
		src, info, err := top.Open(p)
		if err != nil {
			continue
		}
		if info.Size > limit {
			src.Close()
			f(p, info.Size, nil)
			continue
		}
		c, err := io.ReadAll(io.LimitReader(src, limit+1))
		src.Close()
		switch {
		case err != nil:
		case int64(len(c)) > limit:
			f(p, int64(len(c)), nil)
		default:
			f(p, int64(len(c)), c)
		}
	}
	return nil
}
