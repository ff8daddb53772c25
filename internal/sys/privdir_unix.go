//go:build unix

package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// checkPrivate looks through a descriptor, so that what is judged is what is
// tightened.
func checkPrivate(path string) error {
	f, err := os.OpenFile(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%s: %w: it is a link or a file", path, ErrNotPrivate)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	mode := uint32(st.Mode)
	switch {
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s: %w: it belongs to user %d", path, ErrNotPrivate, st.Uid)
	case mode&0o022 != 0:
		return fmt.Errorf("%s: %w: others may write to it (mode %04o)", path, ErrNotPrivate, mode&0o7777)
	case mode&0o077 != 0:
		return f.Chmod(os.FileMode(mode & 0o700))
	}
	return nil
}

func ownedByUs(path string) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid()
}

// Writable returns nil when the calling user may create entries in the folder
// (or write to the file) at path.
func Writable(path string) error {
	if err := unix.Access(path, unix.W_OK); err != nil {
		return &os.PathError{Op: "write to", Path: path, Err: err}
	}
	return nil
}

// OwnerUmask takes from this process's umask what would keep its own user from
// the files that it makes. What it keeps from others stays.
func OwnerUmask() {
	unix.Umask(unix.Umask(0o077) &^ 0o700)
}
