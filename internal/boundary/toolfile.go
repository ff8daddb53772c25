package boundary

import (
	"context"
	"encoding/json"

	"github.com/caisson-dev/caisson/internal/task"
)

// fileTool has a file tool done by the worker. What it answers is a claim.
func (m *Manager) fileTool(_ context.Context, _ *live, k *toolCall, _ *task.ToolResult) error {
	_ = json.RawMessage(nil)
	return task.Errorf(task.CodeUnsupported, "tool", "the tool %q is not served yet", k.tool)
}
