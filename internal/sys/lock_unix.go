//go:build unix

package sys

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func openLockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
}

func unlinked(fi os.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 0
}

func lockFile(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch err {
		case unix.EINTR:
			continue
		case unix.EWOULDBLOCK:
			return ErrLocked
		}
		return err
	}
}

// adoptFile locks what is the same open file as its holder's: which is locked
// already, so that nothing changes, or not, so that it is now.
func adoptFile(f *os.File) error {
	unix.CloseOnExec(int(f.Fd()))
	return lockFile(f)
}
