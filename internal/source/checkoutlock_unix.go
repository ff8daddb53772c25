//go:build unix

package source

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// LockCheckout takes the one lock of a checkout, for whoever changes its files:
// an apply while it runs, a task with the strategy checkout while it is open.
// The lock is on the folder itself; no file is written, and it ends with the
// process that holds it.
func LockCheckout(dir string) (release func(), err error) {
	f, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// lockFolder is LockCheckout with the descriptor that holds the lock.
func lockFolder(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.lock", "the checkout %s cannot be opened: %v", quote(dir), err).
			WithHint("check that the folder is still there and that you may read it")
	}
	for {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil {
		return os.NewFile(uintptr(fd), dir), nil
	}
	unix.Close(fd)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, task.Errorf(task.CodeConflict, "source.lock", "the checkout %s is in use: an apply runs, or a task works in it directly", quote(dir)).
			WithHint("wait until that has ended, or close the task that `caisson ls` shows for this checkout")
	}
	return nil, task.Errorf(task.CodeUnsupported, "source.lock", "the checkout %s cannot be locked: %v", quote(dir), err).
		WithHint("use a checkout on a file system that has locks")
}
