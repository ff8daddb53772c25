package source

import (
	"context"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/task"
)

// Inspect finds the source at o.Dir and decides what a task gets of it. It has
// no effect. What cannot be used is refused here, with a hint.
func Inspect(ctx context.Context, o Options) (*Repo, error) {
	switch o.Strategy {
	case "":
		o.Strategy = task.StrategyClone
		return inspectRepo(ctx, o)
	case task.StrategyClone:
		return inspectRepo(ctx, o)
	case task.StrategyWorktree:
		return inspectWorktree(ctx, o)
	case task.StrategyCheckout:
		return inspectCheckout(ctx, o)
	case task.StrategyCopy:
		return inspectCopy(ctx, o)
	}
	return nil, task.Errorf(task.CodeUsage, "source.inspect", "unknown source strategy %q", o.Strategy).
		WithHint("use clone, worktree, checkout or copy")
}

// Prepare makes the task's files and, in ws.Dir/shadow.git, the host's own view
// of them. In the user's repository only what the strategy names is written,
// before anything relies on it. On error the caller removes all of it: both
// folders with RemoveTree and the pins with Unpin.
func Prepare(ctx context.Context, r *Repo, ws Workspace, in Inside) (*Prepared, error) {
	if in.ObjectsDir == "" || in.UID == 0 {
		return nil, task.Errorf(task.CodeInternal, "source.prepare", "where objects appear and who owns files inside is not set")
	}
	switch r.Ref.Strategy {
	case task.StrategyClone:
		return prepareClone(ctx, r, ws, in)
	case task.StrategyWorktree:
		return prepareWorktree(ctx, r, ws, in)
	case task.StrategyCheckout:
		return prepareCheckout(ctx, r, ws, in)
	case task.StrategyCopy:
		return prepareCopy(ctx, r, ws, in)
	}
	return nil, task.Errorf(task.CodeInternal, "source.prepare", "unknown source strategy %q", r.Ref.Strategy)
}

// cleanTarget refuses a place inside that could not be mounted on as it is named.
func cleanTarget(at string) error {
	if filepath.IsAbs(at) && filepath.Clean(at) == at {
		return nil
	}
	return task.Errorf(task.CodeUsage, "source.inspect", "the path inside must be absolute and clean: %s", quote(at)).
		WithHint("write --at /some/folder")
}
