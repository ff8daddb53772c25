//go:build !linux

package sys

import "errors"

// Space cannot tell on this platform.
func Space(path string) (bytes, inodes int64, err error) { return 0, 0, errors.ErrUnsupported }
