package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Refuses returns why the file system at path takes nothing new: ENOSPC when no
// block or no inode is left to this user, EROFS or EIO when it is read-only or
// has failed; 0 when it would, or when it cannot be asked.
func Refuses(path string) syscall.Errno {
	var st unix.Statfs_t
	switch err := unix.Statfs(path, &st); {
	case err != nil:
		return 0
	case st.Flags&unix.ST_RDONLY != 0:
		return syscall.EROFS
	case st.Blocks > 0 && st.Bavail == 0, st.Files > 0 && st.Ffree == 0:
		return syscall.ENOSPC
	}
	// One that has failed says nothing of it until something is made.
	fd, err := unix.Open(path, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	switch err {
	case nil:
		_ = unix.Close(fd)
	case unix.EROFS, unix.EIO:
		return err.(syscall.Errno)
	}
	return 0
}
