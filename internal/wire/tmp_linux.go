package wire

import (
	"context"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/boundary"
	"github.com/caisson-dev/caisson/internal/task"
)

func tmpParts(cfg *boundary.Config) {
	cfg.Toolchains = func(context.Context, string, string) ([]backend.Mount, []task.Tool, []task.Finding, error) {
		return nil, nil, nil, nil
	}
	cfg.Screen = func(_ context.Context, ms []backend.Mount) ([]backend.Mount, []task.Finding, error) { return ms, nil, nil }
}
