//go:build !linux

package docker

import (
	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
)

// New returns a driver that cannot be used here yet.
func New(name string, _ Config) backend.Driver {
	return foreign.Absent{Backend: name, Why: " yet: its channel was tried on Linux alone"}
}
