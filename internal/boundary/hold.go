package boundary

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("hold.taken", "hold.settled", "hold.recorded")

// applyDir is the journal of an apply in a task's folder; see source.RecoverApply.
const applyDir = "apply"

// doing is one operation on a task, for each place where it can be done. A nil
// func is refused there.
type doing struct {
	op       string // for errors: "apply", …
	progress func(string)
	// live does it in the process that holds the task's boundary.
	live func(l *live, t inventory.Task) error
	// remote asks the supervisor to.
	remote func(r Remote) error
	// ended does it for a kept, stuck or closed task, which is locked meanwhile.
	ended func(l *live, t inventory.Task) error
}

// act does something to a task wherever it can be done, and waits for a process
// that is creating or ending it just now, or is at it with another operation.
func (m *Manager) act(ctx context.Context, ref string, d doing) error {
	t, err := m.find(ctx, ref)
	if err != nil {
		return err
	}
	id := t.ID()
	wctx, done := context.WithTimeoutCause(ctx, cleanupTime, sys.ErrDeadline)
	defer done()
	var refused time.Time // since when its supervisor does not answer
	for told := false; ; {
		if l := m.lookup(id); l != nil {
			return m.inLive(l, t, d)
		}
		var err error
		switch s := t.View.State; {
		case s == task.Ready || s == task.Paused:
			if err = m.answerable(wctx, t); err == nil {
				err = d.remote(m.cfg.Remote(id))
			}
			if !unanswered(err) {
				return err
			}
			if refused.IsZero() {
				refused = time.Now()
			}
			if time.Since(refused) > unansweredTime {
				return err
			}
		case s.Live():
			refused = time.Time{}
			if t.Supervisor == nil || !sys.Alive(identOf(t.Supervisor.Process)) {
				if _, err := m.reapOne(wctx, inventory.DueTask{Task: t, Why: inventory.Abandoned}); err != nil && !errors.Is(err, errBusy) {
					return err
				}
			}
		case s == task.Kept || s == task.Stuck || s == task.Closed:
			if err = m.onEnded(ctx, id, d); !errors.Is(err, errBusy) {
				return err
			}
		default:
			return task.Errorf(task.CodeState, d.op, "task %s is %s: nothing ever ran in it", id, s).WithHint("`caisson show %s` says why", id)
		}
		if !told && time.Since(refused) > time.Second {
			tell(d.progress, "waiting for another process that is at the task")
			told = true
		}
		select {
		case <-wctx.Done():
			return task.Errorf(task.CodeState, d.op, "task %s is %s, and another process is at it: %w", id, t.View.State, context.Cause(wctx)).
				WithHint("`caisson show %s` says how far it is", id)
		case <-time.After(25 * time.Millisecond):
		}
		if t, err = m.cfg.DB.Task(ctx, id); err != nil {
			return err
		}
	}
}

// unanswered reports whether a supervisor could not be asked at all: it is at
// its end, or ends the task.
func unanswered(err error) bool {
	var e *task.Error
	return errors.As(err, &e) && e.Code == task.CodeState && (e.Op == "control" || e.Op == "call")
}

// inLive does it in this process, which holds the boundary.
func (m *Manager) inLive(l *live, t inventory.Task, d doing) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.calls.Done()
	// One at a time: each begins with what the one before may have left.
	l.results.Lock()
	defer l.results.Unlock()
	err := d.live(l, t)
	if cause := context.Cause(l.ctx); errors.Is(err, context.Canceled) && cause != nil && task.CodeOf(err) == task.CodeInternal {
		// It gave way to the end of the task: that is what a caller should hear.
		return task.Errorf(task.CodeState, d.op, "task %s is ending, and this gave way to it: %w", l.id, cause).
			WithHint("ask again when it has ended: `caisson show %s`", l.id)
	}
	return err
}

// onEnded locks an ended task for one operation.
func (m *Manager) onEnded(ctx context.Context, id task.ID, d doing) error {
	l, t, err := m.hold(ctx, id, nil)
	if err != nil {
		return err
	}
	err = d.ended(l, t)
	return errors.Join(err, m.letGo(l))
}

// hold takes an ended task: its lock, its record, and whatever another process
// left unfinished in it is finished first. The caller lets go of it.
func (m *Manager) hold(ctx context.Context, id task.ID, hide *evidence.Redactor) (*live, inventory.Task, error) {
	l, t, err := m.seize(ctx, id, seizing{closed: true, hide: hide})
	if err != nil {
		return nil, t, err
	}
	switch t.View.State {
	case task.Kept, task.Stuck, task.Closed:
	default: // begun, or abandoned, since it was looked at
		l.release()
		return nil, t, task.Errorf(task.CodeState, "hold", "task %s is %s: %w", id, t.View.State, errBusy)
	}
	if err = sys.Fault("hold.taken"); err == nil {
		err = m.continues(ctx, l)
	}
	if err != nil {
		return nil, t, errors.Join(err, m.letGo(l))
	}
	if err = m.settle(ctx, l, t); err == nil {
		err = sys.Fault("hold.settled")
	}
	if err != nil {
		l.release() // and on record as ours, so that every reap tries again
		return nil, t, err
	}
	return l, t, nil
}

// continues refuses to go on with a record that is not the one that was sealed:
// new lines would move the recorded head past what was taken out of it.
func (m *Manager) continues(ctx context.Context, l *live) error {
	seq, hash, err := m.cfg.DB.Head(ctx, l.id)
	if err != nil || seq == 0 {
		return err
	}
	if _, err := evidence.Verify(filepath.Join(l.dir, "evidence"), evidence.Head{Seq: seq, Hash: hash}); err != nil {
		l.tampered = true
		return task.Errorf(task.CodeEvidence, "hold", "the evidence of task %s is not the one that was sealed, so it is not continued: %w", l.id, err).
			WithHint("somebody changed %s; `caisson show %s` lists its results, which git can read without caisson", filepath.Join(l.dir, "evidence", evidence.FileName), l.id)
	}
	return nil
}

// settle finishes what a process left that died while it worked on an ended
// task: a throwaway boundary, an apply that was cut short.
func (m *Manager) settle(ctx context.Context, l *live, t inventory.Task) error {
	dctx, done := sys.Detach(ctx, cleanupTime)
	defer done()
	if err := m.recoverApply(dctx, l, false); err != nil {
		return err
	}
	if t.View.State != task.Kept {
		return nil // of a stuck one the next attempt removes it; a closed one has none
	}
	stays := []string{kindFiles, kindPins, kindWorktree, kindBranch} // of a kept task
	for _, r := range t.View.Resources {
		if r.State != task.Gone && !slices.Contains(stays, r.Kind) {
			if err := m.endProcesses(dctx, l, t); err != nil {
				return err
			}
			err := m.mark(dctx, l.id, l.observed)
			l.observed = nil
			return err
		}
	}
	return nil
}

// recoverApply takes an apply back that was cut short, in the user's checkout.
// The journal of one that cannot be taken back stays, unless it is given up.
func (m *Manager) recoverApply(ctx context.Context, l *live, giveUp bool) error {
	dir := filepath.Join(l.dir, applyDir)
	if !exists(dir) {
		return nil
	}
	did, err := source.RecoverApply(ctx, dir)
	if err != nil && giveUp {
		m.cfg.Log("task " + string(l.id) + ": an apply that was cut short could not be taken back: " + err.Error())
		return source.RemoveTree(ctx, dir)
	}
	if err != nil {
		return task.Errorf(task.CodeStuck, "apply", "an earlier `caisson apply` was cut short and cannot be taken back: %w", err).
			WithHint("what it needs is in %s; `caisson close --discard %s` gives that up", dir, l.id)
	}
	if did {
		m.cfg.Log("task " + string(l.id) + ": an apply that was cut short was taken back; the checkout is as it was before")
		if l.log != nil {
			if _, err := l.log.Append(ctx, evidence.ApplyRecovered, self, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// letGo ends what hold began.
func (m *Manager) letGo(l *live) error {
	ctx, done := sys.Detach(context.Background(), time.Minute)
	defer done()
	defer l.release()
	err := l.log.Flush()
	if err == nil {
		err = sys.Fault("hold.recorded")
	}
	if err != nil {
		return err
	}
	return m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		if h := l.log.Head(); h.Seq > 0 && !l.tampered {
			if err := tx.SetHead(l.id, h.Seq, h.Hash); err != nil {
				return err
			}
		}
		return tx.ClearSupervisor(l.id)
	})
}

// reapInterrupted finishes what a process left that died while it held an
// ended task.
func (m *Manager) reapInterrupted(ctx context.Context, id task.ID) (*task.CloseReport, error) {
	l, t, err := m.hold(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	rep := &task.CloseReport{Schema: closeSchema, ID: id, Bare: t.View.Source.Bare, State: t.View.State, Rescued: t.View.Results, Retention: t.View.Retention}
	if r := t.View.Retention; t.View.State == task.Kept && r != nil && !r.Until.After(time.Now()) {
		defer l.release()
		dctx, done := sys.Detach(ctx, cleanupTime)
		defer done()
		return m.finish(dctx, l, endOptions{expired: true})
	}
	return rep, m.letGo(l)
}

// hasFiles reports whether the files that a task worked on are still there.
func (m *Manager) hasFiles(l *live) bool {
	i, err := os.Lstat(filepath.Join(l.dir, "source"))
	return err == nil && i.IsDir() && exists(filepath.Join(l.dir, "shadow.git"))
}
