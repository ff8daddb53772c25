package linux

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// realDir resolves every link of a folder's path.
func realDir(p string) (string, error) {
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(real)
	if err == nil && !st.IsDir() {
		err = errors.New("not a folder")
	}
	return real, err
}

// hasPrefixDir reports whether path is dir or lies below it.
func hasPrefixDir(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
