package boundary

import (
	"context"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// Tools implements door.Engine.
func (m *Manager) Tools(context.Context) ([]task.ToolInfo, error) {
	return nil, task.Errorf(task.CodeUnsupported, "tools", "no tool is served yet")
}

// Tool implements door.Engine.
func (m *Manager) Tool(_ context.Context, _ string, c task.ToolCall, _ door.ToolOptions) (*task.ToolResult, error) {
	return nil, task.Errorf(task.CodeUnsupported, "tool", "the tool %q is not served yet", c.Tool)
}

// Questions implements door.Engine.
func (m *Manager) Questions(context.Context, string) ([]task.Question, error) { return nil, nil }

// Answer implements door.Engine.
func (m *Manager) Answer(_ context.Context, _ door.Actor, a task.Answer) (*task.Question, error) {
	return nil, task.Errorf(task.CodeNotFound, "answer", "no question %q waits", a.ID)
}
