//go:build !linux

package wire

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/boundary"
	"github.com/caisson-dev/caisson/internal/task"
)

// linuxParts stands in where there is no linux backend; plans end with
// boundary_missing before any of it matters.
func linuxParts(cfg *boundary.Config) {
	cfg.Defaults = func(l task.Limits) task.Limits { return l }
	cfg.CheckPaths = func(backend.Spec) error { return nil }
	cfg.Toolchains = func(context.Context, string, string) ([]backend.Mount, []task.Tool, []task.Finding, error) {
		return nil, nil, nil, nil
	}
	cfg.Screen = func(_ context.Context, ms []backend.Mount) ([]backend.Mount, []task.Finding, error) {
		return ms, nil, nil
	}
}

func newSession() *syscall.SysProcAttr { return nil }

func endSession(p *os.Process) error { return p.Kill() }

func sealDescriptors() error { return nil }

func dup(*os.File, int) {}

func kernel() string { return "" }

func nameless() (*os.File, error) { return nil, errors.ErrUnsupported }

func named(string) {}
