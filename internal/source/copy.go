package source

import (
	"context"

	"github.com/caisson-dev/caisson/internal/task"
)

func inspectCopy(context.Context, Options) (*Repo, error) { return nil, notYet(task.StrategyCopy) }

func prepareCopy(context.Context, *Repo, Workspace, Inside) (*Prepared, error) {
	return nil, notYet(task.StrategyCopy)
}
