//go:build !unix && !windows

package sys

import (
	"fmt"
	"os"
)

func openLockFile(path string) (*os.File, error) {
	return nil, fmt.Errorf("lock %s: %w", path, ErrUnsupported)
}

func lockFile(*os.File) error { return ErrUnsupported }

// unlinked cannot be told here: an open file cannot be deleted, or it does not show.
func unlinked(os.FileInfo) bool { return false }

func adoptFile(*os.File) error { return ErrUnsupported }
