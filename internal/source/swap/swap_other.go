//go:build !linux

package swap

import (
	"context"
	"os"
	"path/filepath"
)

// Run reports ErrUnsupported: nothing here exchanges two files in one step
// without following links.
func Run(context.Context, Job, []Step) error { return ErrUnsupported }

// Recover reports ErrUnsupported where there is a journal, which another
// platform wrote.
func Recover(journalDir string, lock func(string) (*os.File, error)) (bool, []Left, error) {
	if _, err := os.Lstat(filepath.Join(journalDir, journalFile)); err == nil {
		return false, nil, ErrUnsupported
	}
	return false, nil, nil
}

// Look reports ErrUnsupported.
func Look(*os.File, string, bool) (*Seen, error) { return nil, ErrUnsupported }

// Open reports ErrUnsupported.
func Open(*os.File, string) (*os.File, error) { return nil, ErrUnsupported }

// Readlink reports ErrUnsupported.
func Readlink(*os.File, string) (string, error) { return "", ErrUnsupported }

// Names reports ErrUnsupported.
func Names(*os.File, string) ([]string, error) { return nil, ErrUnsupported }
