//go:build !linux

package oci

import (
	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
)

// New returns a driver that cannot be used here yet.
func New(name string, _ Config) backend.Driver {
	return foreign.Absent{Backend: name, Why: ": it makes Linux containers"}
}
