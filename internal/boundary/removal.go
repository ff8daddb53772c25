package boundary

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("removal.handing", "removal.handed", "removal.owned", "removal.told")

// removedNow is how many files of a task are removed while whoever closes it
// waits: a few hundredths of a second. The rest is left to a process of its own,
// as nothing but time depends on it.
const removedNow = 2000

// errMore says that files of a closing task are left, and nothing else.
var errMore = errors.New("files are left")

// RemoveOrder is what the process that removes the rest of a task's files must
// know of the end that it finishes.
type RemoveOrder struct {
	Discard bool `json:"discard"`
	Expired bool `json:"expired"`
}

// handOver leaves a task that is closed but for its files to another process.
// Its lock is held by one of the two at every moment, and it stays closing on
// record with its files as removing: whoever dies, a reap goes on.
func (m *Manager) handOver(ctx context.Context, l *live, o endOptions) error {
	if m.cfg.Remove == nil {
		return task.Errorf(task.CodeUnsupported, "close", "no process can be started for it")
	}
	if err := m.mark(ctx, l.id, l.observed); err != nil {
		return err
	}
	l.observed = nil
	if l.log != nil {
		// Only one process writes it at a time.
		if err := l.log.Close(); err != nil {
			return err
		}
	}
	if err := sys.Fault("removal.handing"); err != nil {
		return err
	}
	if err := m.cfg.Remove(ctx, l.id, l.lock.File(), RemoveOrder{Discard: o.discard, Expired: o.expired}); err != nil {
		return err
	}
	_ = sys.Fault("removal.handed") // from here it is the other's
	return nil
}

// resumeHere makes this process the one that goes on with a task again that it
// could not hand over.
func (m *Manager) resumeHere(ctx context.Context, l *live) error {
	sup, err := m.supervisor(l.dir)
	if err != nil {
		return err
	}
	if err := m.cfg.DB.SetSupervisor(ctx, l.id, sup); err != nil {
		return err
	}
	if l.log == nil {
		return nil
	}
	log, err := evidence.Open(filepath.Join(l.dir, "evidence"), l.id, nil)
	if err != nil {
		l.log = nil
		return err
	}
	l.log = log
	return nil
}

// RemoveRest removes the files of a task that was closed but for them. lock is
// the task's, as the process that closed it handed it over. owned is called once
// the task is this process's; an error before that leaves it to the other.
func (m *Manager) RemoveRest(ctx context.Context, id task.ID, lock *sys.FileLock, o RemoveOrder, owned func() error) error {
	l, t, err := m.seize(ctx, id, seizing{lock: lock})
	if err != nil {
		return err
	}
	defer l.release()
	if t.View.State != task.Closing {
		return task.Errorf(task.CodeState, "close", "task %s is %s: nothing is left to be removed", id, t.View.State)
	}
	err = m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		return tx.Update(id, func(v *task.View) { v.Removing = true })
	})
	if err == nil {
		err = sys.Fault("removal.owned")
	}
	if err == nil {
		err = owned()
	}
	if err != nil {
		return err
	}
	if err := sys.Fault("removal.told"); err != nil {
		return err
	}
	dctx, done := sys.Detach(ctx, cleanupTime)
	defer done()
	_, err = m.finish(dctx, l, endOptions{discard: o.Discard, expired: o.Expired})
	return err
}
