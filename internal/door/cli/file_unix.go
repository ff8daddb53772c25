//go:build unix

package cli

import (
	"os"
	"syscall"
)

// openNoWait opens a file that may have become a pipe since it was looked at.
func openNoWait(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
}
