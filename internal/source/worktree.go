package source

import (
	"context"

	"github.com/caisson-dev/caisson/internal/task"
)

func inspectWorktree(context.Context, Options) (*Repo, error) {
	return nil, notYet(task.StrategyWorktree)
}

func prepareWorktree(context.Context, *Repo, Workspace, Inside) (*Prepared, error) {
	return nil, notYet(task.StrategyWorktree)
}
