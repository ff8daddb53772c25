//go:build !unix

package source

import (
	"os"

	"github.com/caisson-dev/caisson/internal/task"
)

// LockCheckout refuses: nothing changes a checkout on this platform.
func LockCheckout(dir string) (release func(), err error) {
	_, err = lockFolder(dir)
	return nil, err
}

func lockFolder(string) (*os.File, error) {
	return nil, task.Errorf(task.CodeUnsupported, "source.lock", "a checkout cannot be locked on this platform").
		WithHint("take the result with `caisson branch` or `caisson export --patch`")
}
