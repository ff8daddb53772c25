//go:build !linux

package sys

import (
	"errors"
	"os"
)

// Unnamed makes a file in dir that has no name there; only Linux has such files.
func Unnamed(string) (*os.File, error) { return nil, errors.ErrUnsupported }
