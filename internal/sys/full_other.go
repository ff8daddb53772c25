//go:build !linux

package sys

import "syscall"

// Refuses cannot tell on this platform; it returns 0.
func Refuses(path string) syscall.Errno { return 0 }
