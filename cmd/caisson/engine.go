package main

import (
	"context"
	"os"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/door/cli"
	"github.com/caisson-dev/caisson/internal/door/mcp"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify"
	"github.com/caisson-dev/caisson/internal/version"
	"github.com/caisson-dev/caisson/internal/wire"
	"github.com/caisson-dev/caisson/internal/workerprog"
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

// attackBoundary joins the command line with the attacks: this program, started
// again, is every part of them.
func attackBoundary(ctx context.Context, o cli.VerifyOptions) (*task.VerifyReport, error) {
	if !workerprog.Able {
		return nil, task.Errorf(task.CodeUnavailable, "verify", "this program is linked with C and cannot be put into a boundary").
			WithHint("build it with `make build`, or with CGO_ENABLED=0")
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, task.Errorf(task.CodeInternal, "verify", "the own program cannot be found: %w", err)
	}
	return verify.Run(ctx, verify.Config{
		Program: exe, Version: version.String(), Platform: o.Platform, Environ: o.Environ, Progress: o.Progress,
		Backend: o.Backend, BackendVersion: o.Version, Lacks: o.Lacks, Flags: o.Flags, Container: o.Container, Command: o.Command,
	})
}

// keep is standard output for a server that closes what it writes to.
type keep struct{ *os.File }

func (keep) Close() error { return nil }
