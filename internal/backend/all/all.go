// Package all lists the backends of this program.
//
// Its limit: it is a list; which one a task gets is decided elsewhere.
package all

import (
	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/linux"
)

// Config is what the backends need to know of this installation.
type Config struct {
	WorkerPath string // the worker program, mode 0555; used for trials
}

// Drivers returns every backend, the preferred one first.
func Drivers(c Config) []backend.Driver {
	return []backend.Driver{
		linux.New(linux.Config{WorkerPath: c.WorkerPath}),
	}
}
