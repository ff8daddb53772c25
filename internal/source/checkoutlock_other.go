//go:build !unix

package source

import "github.com/caisson-dev/caisson/internal/task"

// LockCheckout refuses: nothing changes a checkout on this platform.
func LockCheckout(dir string) (release func(), err error) {
	return nil, task.Errorf(task.CodeUnsupported, "source.lock", "a checkout cannot be locked on this platform")
}
