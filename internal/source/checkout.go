package source

import (
	"context"

	"github.com/caisson-dev/caisson/internal/task"
)

func inspectCheckout(context.Context, Options) (*Repo, error) {
	return nil, notYet(task.StrategyCheckout)
}

func prepareCheckout(context.Context, *Repo, Workspace, Inside) (*Prepared, error) {
	return nil, notYet(task.StrategyCheckout)
}
