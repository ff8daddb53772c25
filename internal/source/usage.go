package source

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/source/tree"
)

// blockSize is the unit in which space is taken on ordinary file systems; the
// exact figure of the kernel's st_blocks is not worth another field.
const blockSize = 4096

// maxUsage is what Usage says of anything larger.
const maxUsage = math.MaxInt64 / 2

// Usage estimates the bytes that source and output store of a task's folder
// take on disk, from sizes rounded up to blocks, at least one block for each
// entry. A sparse file counts as if it
// were full: what it may become is what a limit is about.
func Usage(ctx context.Context, taskDir string) (int64, error) {
	var sum int64
	for _, sub := range []string{"source", "out", "deps"} {
		root, err := tree.OpenRoot(filepath.Join(taskDir, sub))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		err = root.Walk(ctx, func(_ string, entries []*tree.Entry) error {
			for _, e := range entries {
				// The sizes are chosen inside: two of them can be more than a sum holds.
				// An empty file counts too: a file system has only so many.
				blocks := max(1, min((e.Info.Size+blockSize-1)/blockSize, maxUsage/blockSize))
				if e.Info.Size > maxUsage {
					blocks = maxUsage / blockSize
				}
				sum = min(sum+blocks*blockSize, maxUsage)
				e.Descend = e.Info.Kind == tree.Dir && !e.Info.OtherDevice
			}
			return nil
		})
		root.Close()
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// GitVersion returns the version of the git that is used on the host, or why
// there is none that can be.
func GitVersion(ctx context.Context) (string, error) {
	g, err := findGit(ctx)
	if err != nil {
		return "", err
	}
	return g.Version(), nil
}
