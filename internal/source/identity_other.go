//go:build !unix

package source

import (
	"os"

	"github.com/caisson-dev/caisson/internal/task"
)

// identity refuses: nothing here names a folder beyond doubt.
func identity(*os.File) (dev, ino uint64, err error) {
	return 0, 0, task.Errorf(task.CodeUnsupported, "source.apply", "a checkout cannot be changed on this platform").
		WithHint("take the result with `caisson branch` or `caisson export --patch`")
}
