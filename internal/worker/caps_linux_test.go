package worker_test

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capZero empties all capability sets of all threads.
func capZero() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0)
	if e != 0 {
		return e
	}
	return nil
}
