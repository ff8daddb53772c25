//go:build !linux

package oci

import (
	"context"
	"runtime"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// New returns a driver that cannot be used here yet.
func New(name string, _ Config) backend.Driver { return absent{name} }

type absent struct{ name string }

func (a absent) Name() string { return a.name }

func (a absent) Probe(context.Context) (backend.Capabilities, error) {
	return backend.Capabilities{
		Why: "on " + runtime.GOOS + " this program does not use " + a.name + ": it makes Linux containers",
		Fix: "run caisson inside a Linux VM",
	}, nil
}

func (absent) Resources(backend.Spec) []backend.Resource { return nil }

func (a absent) Create(context.Context, backend.Spec) (backend.Instance, error) {
	c, _ := a.Probe(context.Background())
	return nil, task.Errorf(task.CodeUnavailable, a.name+".create", "%s", c.Why).WithHint("%s", c.Fix)
}

func (a absent) Attach(context.Context, []backend.Resource) (backend.Instance, error) {
	return nil, task.Errorf(task.CodeUnavailable, a.name+".attach", "what was made on Linux cannot be seen from %s", runtime.GOOS)
}

func (absent) List(context.Context, string) ([]backend.Resource, error) { return nil, nil }
