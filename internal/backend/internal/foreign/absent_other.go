//go:build !linux

package foreign

import (
	"context"
	"runtime"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// Absent is a backend that cannot be used on this system, and Why.
type Absent struct{ Backend, Why string }

// Name implements backend.Driver.
func (a Absent) Name() string { return a.Backend }

// Probe implements backend.Driver.
func (a Absent) Probe(context.Context) (backend.Capabilities, error) {
	return backend.Capabilities{
		Why: "on " + runtime.GOOS + " this program does not use " + a.Backend + a.Why,
		Fix: "run caisson inside a Linux VM",
	}, nil
}

// Resources implements backend.Driver.
func (Absent) Resources(backend.Spec) []backend.Resource { return nil }

// Create implements backend.Driver.
func (a Absent) Create(context.Context, backend.Spec) (backend.Instance, error) {
	c, _ := a.Probe(context.Background())
	return nil, task.Errorf(task.CodeUnavailable, a.Backend+".create", "%s", c.Why).WithHint("%s", c.Fix)
}

// Attach implements backend.Driver. It cannot be certain that something is gone.
func (a Absent) Attach(context.Context, []backend.Resource) (backend.Instance, error) {
	return nil, task.Errorf(task.CodeUnavailable, a.Backend+".attach", "what was made on Linux cannot be seen from %s", runtime.GOOS)
}

// List implements backend.Driver.
func (Absent) List(context.Context, string) ([]backend.Resource, error) { return nil, nil }
