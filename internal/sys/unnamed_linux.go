package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// Unnamed makes a file in dir that has no name there and ends with its last
// descriptor, whatever happens to this process. The caller closes it.
func Unnamed(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "make a file without a name in", Path: dir, Err: err}
	}
	return os.NewFile(uintptr(fd), dir+"/(unnamed)"), nil
}
