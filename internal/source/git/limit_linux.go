package git

import (
	"errors"

	"golang.org/x/sys/unix"
)

// limitMemory bounds a child that has not been waited for, so its pid is its
// own. One that has already ended needs no bound.
func limitMemory(pid int, max uint64) error {
	err := unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: max, Max: max}, nil)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
