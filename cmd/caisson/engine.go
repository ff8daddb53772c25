package main

import (
	"context"
	"os"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/door/cli"
	"github.com/caisson-dev/caisson/internal/door/mcp"
	"github.com/caisson-dev/caisson/internal/version"
	"github.com/caisson-dev/caisson/internal/wire"
)

// engineFunc opens the engine; see cli.Config.
type engineFunc func(ctx context.Context, quick bool, note func(string)) (door.Engine, func(), error)

func openEngine(ctx context.Context, quick bool, note func(string)) (door.Engine, func(), error) {
	return wire.Engine(ctx, quick, note)
}

// serveMCP joins the command line with the door of the Model Context Protocol.
func serveMCP(ctx context.Context, o cli.MCPOptions) error {
	s, err := mcp.New(ctx, mcp.Config{Engine: o.Engine, Task: o.Task, Version: version.Version(), Note: o.Note})
	if err != nil {
		return err
	}
	defer s.Close()
	if o.Listen != "" {
		return s.Listen(ctx, o.Listen, o.Ready)
	}
	return s.Stdio(ctx, o.Stdin, keep{o.Stdout})
}

// keep is standard output for a server that closes what it writes to.
type keep struct{ *os.File }

func (keep) Close() error { return nil }
