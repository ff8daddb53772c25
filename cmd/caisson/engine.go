package main

import (
	"context"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// engineFunc opens the engine; quick leaves start-up reconciliation out.
type engineFunc func(ctx context.Context, quick bool) (door.Engine, func(), error)

// openEngine refuses: a program without wiring has no engine.
func openEngine(context.Context, bool) (door.Engine, func(), error) {
	return nil, nil, task.Errorf(task.CodeUnavailable, "caisson", "this build has no engine")
}
