package boundary

import (
	"context"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract/schema"
)

// Questions implements door.Engine.
func (m *Manager) Questions(context.Context, string) ([]task.Question, error) { return nil, nil }

// Answer implements door.Engine.
func (m *Manager) Answer(_ context.Context, _ door.Actor, a task.Answer) (*task.Question, error) {
	return nil, task.Errorf(task.CodeNotFound, "answer", "no question %q waits", a.ID)
}

// Tools implements door.Engine.
func (m *Manager) Tools(context.Context) ([]task.ToolInfo, error) { return schema.Tools(), nil }
