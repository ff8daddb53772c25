package cli

import (
	"context"

	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) askSystem(context.Context) error {
	return task.Errorf(task.CodeUnsupported, "cli", "--sudo is not for this system").WithHint("accept at a terminal")
}

func (a *app) signWith(context.Context, string, *task.AcceptRequest) (string, string, error) {
	return "", "", task.Errorf(task.CodeUnsupported, "cli", "--key is not for this system").WithHint("accept at a terminal")
}
