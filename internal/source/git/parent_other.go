//go:build unix && !linux

package git

import "syscall"

// endWithParent has no counterpart here.
func endWithParent(*syscall.SysProcAttr) {}
