package boundary

import (
	"context"
	"io"
	"os"
	"syscall"

	"github.com/caisson-dev/caisson/internal/task"
)

// OpenOutput opens what a call left beside its result: a published artifact of a
// task by its name, or of an open one the file with all of an output that was cut,
// as the process that holds the task knows it. The latter lies where the task may write: only the file
// that caisson itself made there is opened, whatever has its name now. The caller
// closes it.
func (m *Manager) OpenOutput(ctx context.Context, ref, name string) (io.ReadCloser, error) {
	none := task.Errorf(task.CodeNotFound, "output", "the task has no output %q", short(name, 100))
	t, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	for _, a := range t.View.Artifacts {
		if a.Name == name {
			f, err := os.Open(a.Path)
			if err != nil {
				return nil, task.Errorf(task.CodeNotFound, "output", "the artifact %s is gone: %w", a.Name, err)
			}
			return f, nil
		}
	}
	l := m.lookup(t.ID())
	if l == nil && t.View.State == task.Ready {
		if err := m.answerable(ctx, t); err != nil {
			return nil, err
		}
		return m.cfg.Remote(t.ID()).OpenOutput(ctx, name)
	}
	if l == nil {
		return nil, none
	}
	l.tools.mu.Lock()
	was := l.tools.spills[name]
	l.tools.mu.Unlock()
	if was == nil {
		return nil, none
	}
	root, err := os.OpenRoot(l.spec.Out.Source)
	if err != nil {
		return nil, task.Errorf(task.CodeStateStore, "output", "the output store cannot be opened: %w", err)
	}
	defer root.Close()
	// A pipe in its place must not hold us up.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, none
	}
	if i, err := f.Stat(); err != nil || !i.Mode().IsRegular() || !os.SameFile(i, was) {
		_ = f.Close()
		return nil, none
	}
	return f, nil
}
