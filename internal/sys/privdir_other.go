//go:build !unix

package sys

import (
	"fmt"
	"os"
)

// checkPrivate cannot judge owners here: the profile folder's access list is
// what protects it.
func checkPrivate(path string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%s: %w: it is a link or a file", path, ErrNotPrivate)
	}
	return nil
}

func ownedByUs(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

// Writable cannot be told on this platform without writing; it returns nil.
func Writable(path string) error { return nil }

// OwnerUmask has nothing to do where there is no umask.
func OwnerUmask() {}
