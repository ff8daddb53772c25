package boundary

import (
	"context"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/task"
)

// inside is the task whose boundary this process itself stands in; empty: none
// that we know of. It only chooses words: what cannot be done inside is refused
// by the layers themselves, whatever this says.
func (m *Manager) inside() task.ID {
	id, ok := task.ParseID(valueOf(m.cfg.Environ, "CAISSON_TASK"))
	if !ok || !exists(backend.OutDir) {
		return ""
	}
	return id
}

// noneInside says, in a boundary, why no other can be opened from there.
func (m *Manager) noneInside() error {
	id := m.inside()
	if id == "" {
		return nil
	}
	return task.Errorf(task.CodeDenied, "open", "this is the inside of task %s, and a task opens no boundary: its system call filter (layer KRN) refuses new namespaces, and no host authority is here to use (layer CPL)", id).
		WithHint("on the host, `caisson open --parent %s` opens a child of it; a task that is opened with --grant userns may open tasks of its own inside", id)
}

// find is the one way to a task that somebody named.
func (m *Manager) find(ctx context.Context, ref string) (inventory.Task, error) {
	t, err := m.cfg.DB.Find(ctx, ref)
	if id := m.inside(); id != "" && task.CodeOf(err) == task.CodeNotFound {
		return t, task.Errorf(task.CodeDenied, "find", "this is the inside of task %s: the host's tasks, their state and their control sockets cannot be reached from here (layer CPL), and %q is no task of this side", id, short(ref, 100)).
			WithHint("ask on the host; inside, a command of the task simply runs")
	}
	return t, err
}
