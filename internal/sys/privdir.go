package sys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNotPrivate says that a folder is not ours alone: a link, another owner,
// writable by others.
var ErrNotPrivate = errors.New("not a private folder")

// PrivateDir makes sure that path is a folder of the calling user alone (mode 0700
// or less), creating it and missing parents (0700). A symbolic link,
// another owner and a folder that others could write to are refused with an
// error that matches ErrNotPrivate; one that others could only read is
// tightened. A folder that its owner made read-only stays so: see Writable.
func PrivateDir(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%q is not an absolute path", path)
	}
	path = filepath.Clean(path)
	if err := checkPrivate(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return checkPrivate(path)
}
