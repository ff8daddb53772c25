//go:build !linux

package linux

import (
	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// CheckPaths refuses everything: this backend makes nothing here.
func CheckPaths(backend.Spec) error {
	return task.Errorf(task.CodeUnavailable, "linux.paths", "the linux backend needs a Linux kernel")
}
