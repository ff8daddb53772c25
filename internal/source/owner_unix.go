//go:build unix

package source

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// deviceOf returns the file system that p is on.
func deviceOf(p string) uint64 {
	st, err := os.Stat(p)
	if err != nil {
		return 0
	}
	return uint64(st.Sys().(*syscall.Stat_t).Dev)
}

// ownerOf returns the user that p belongs to, or -1.
func ownerOf(p string) int {
	st, err := os.Lstat(p)
	if err != nil {
		return -1
	}
	return int(st.Sys().(*syscall.Stat_t).Uid)
}

// mayWrite reports whether this process can make entries in p.
func mayWrite(p string) bool { return unix.Access(p, unix.W_OK|unix.X_OK) == nil }

// noWait opens a pipe that took the place of a file without waiting for its
// other end.
const noWait = syscall.O_NONBLOCK | syscall.O_NOFOLLOW

// Inode returns the number of what p is on its file system; 0 when it cannot be
// told.
func Inode(p string) uint64 {
	st, err := os.Stat(p)
	if err != nil {
		return 0
	}
	return st.Sys().(*syscall.Stat_t).Ino
}
