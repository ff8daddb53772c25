package boundary

import (
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/task"
)

// withoutRepository reports whether the task has copies of files and no
// repository can take what it made of them.
func withoutRepository(t inventory.Task) bool { return t.View.Source.Strategy == task.StrategyCopy }

// wholeKept decides whether the files of a task that changed something and has
// no repository to put it into stay as they are. Closed or expired once they
// were kept, or where nobody wants files kept, a bundle saves the changes.
func wholeKept(t inventory.Task, w *task.Work, o endOptions) *task.Retention {
	was := t.View.State == task.Kept || t.View.State == task.Closing && t.View.Retention != nil
	if !withoutRepository(t) || w.Empty() || o.expired || was {
		return nil
	}
	mode := o.keep
	if mode == "" {
		mode = t.View.Keep
	}
	if mode == task.KeepNever || mode == task.KeepOnFailure && !o.failed && !o.lost {
		return nil
	}
	return retention(t, "it changed files, and there is no repository to bring them into")
}

// checkCopied refuses a folder that would bring what must stay apart into a
// task by being copied: caisson's own and other tasks' files, a system folder,
// HOME, the kernel's views.
func (m *Manager) checkCopied(s backend.Spec, d *decided) error {
	if d.req.Strategy != task.StrategyCopy || d.repo.Archive() {
		return nil
	}
	folder := d.repo.Ref.Repo
	err := m.cfg.CheckPaths(backend.Spec{
		Identity: s.Identity, Home: s.Home, Absent: s.Absent,
		// As strict as if it were shown itself: what it may not contain as a
		// writable folder, and what it may not lie in as a granted one.
		Source: backend.Mount{Source: folder, Target: d.repo.Ref.Target, Writable: true},
		RO:     []backend.Mount{{Source: folder, Target: filepath.Join(d.repo.Ref.Target, "copied")}},
	})
	if err == nil {
		return nil
	}
	return task.Errorf(task.CodeOf(err), "plan", "%s cannot be copied into a task: %w", folder, err).
		WithHint("name another folder with --repo; by default it is the working directory")
}
