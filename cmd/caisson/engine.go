package main

import (
	"context"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/wire"
)

// engineFunc opens the engine; see cli.Config.
type engineFunc func(ctx context.Context, quick bool, note func(string)) (door.Engine, func(), error)

func openEngine(ctx context.Context, quick bool, note func(string)) (door.Engine, func(), error) {
	return wire.Engine(ctx, quick, note)
}
