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
