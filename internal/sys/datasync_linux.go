package sys

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Datasync makes f's data and size durable; times may lag behind.
func Datasync(f *os.File) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	if err := rc.Control(func(fd uintptr) {
		for serr = unix.EINTR; serr == unix.EINTR; {
			serr = unix.Fdatasync(int(fd))
		}
	}); err != nil {
		return err
	}
	if serr != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), serr)
	}
	return nil
}
