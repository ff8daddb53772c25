package boundary

import (
	"context"
	"time"

	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// answerable gives a supervisor that lives the time to make a control socket
// again that was taken from it, and refuses one that is stopped: the kernel
// would take the connection for it, and nobody would ever answer.
func (m *Manager) answerable(ctx context.Context, t inventory.Task) error {
	if t.Supervisor == nil {
		return nil
	}
	p := identOf(t.Supervisor.Process)
	if sys.Stopped(p) {
		return task.Errorf(task.CodeUnavailable, "boundary.supervisor", "the supervisor of task %s (process %d) is stopped, so nobody answers for the task", t.ID(), p.PID).
			WithHint("`kill -CONT %d` lets it go on; `kill -KILL %d`, then `caisson reap`, ends the task and keeps its files", p.PID, p.PID)
	}
	for end := time.Now().Add(unansweredTime); !exists(m.socketPath(t.ID())) && sys.Alive(p) && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// folderInterval is how often a supervisor looks whether its task is still on disk.
const folderInterval = 2 * time.Second

// watchFolder ends a boundary whose task was deleted from the disk, record, lock
// and files: no command can reach it any more, and nothing it did could be kept.
func (m *Manager) watchFolder(l *live, deleted func() bool) {
	t := time.NewTicker(folderInterval)
	defer t.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-t.C:
		}
		if deleted() {
			m.cfg.Log("task " + string(l.id) + ": its folder was deleted; its processes are ended")
			l.cancel(task.Errorf(task.CodeStateStore, "boundary.folder", "the folder %s was deleted while the task was open", l.dir))
			return
		}
	}
}
