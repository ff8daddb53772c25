//go:build !linux

package linux

import (
	"context"
	"runtime"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// New returns a driver that cannot be used here.
func New(Config) backend.Driver { return absent{} }

type absent struct{}

func (absent) Name() string { return Name }

func (absent) Probe(context.Context) (backend.Capabilities, error) {
	return backend.Capabilities{
		Why: "the linux backend needs a Linux kernel; this is " + runtime.GOOS,
		Fix: "use Docker, Podman, a VM or Kubernetes as backend, or run caisson inside a Linux VM",
	}, nil
}

func (absent) Resources(backend.Spec) []backend.Resource { return nil }

func (a absent) Create(context.Context, backend.Spec) (backend.Instance, error) {
	c, _ := a.Probe(context.Background())
	return nil, task.Errorf(task.CodeUnavailable, "linux.create", "%s", c.Why).WithHint("%s", c.Fix)
}

// Attach cannot be certain that something made under a Linux kernel is gone.
func (a absent) Attach(context.Context, []backend.Resource) (backend.Instance, error) {
	return nil, task.Errorf(task.CodeUnavailable, "linux.attach", "what a Linux kernel made cannot be seen from %s", runtime.GOOS)
}

func (absent) List(context.Context, string) ([]backend.Resource, error) { return nil, nil }
