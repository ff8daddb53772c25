package boundary

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Reap implements door.Engine: it finishes what dead supervisors, ended
// retentions and failed cleanups left, and reports what looks like ours but
// cannot be proven to be.
func (m *Manager) Reap(ctx context.Context, dryRun bool) (*task.ReapReport, error) {
	rep := &task.ReapReport{Schema: "caisson.reap/1", DryRun: dryRun, Actions: []task.ReapAction{}, Orphans: []task.Resource{}}
	err := m.reap(ctx, dryRun, true, rep)
	if err != nil {
		return rep, err
	}
	if err := m.orphans(ctx, rep); err != nil {
		return rep, err
	}
	ts, err := m.cfg.DB.List(ctx, false)
	for _, t := range ts {
		if t.View.State == task.Stuck {
			rep.StillHeld++
		}
	}
	if err == nil && rep.StillHeld > 0 && !dryRun {
		err = task.Errorf(task.CodeStuck, "reap", "%d task(s) are still stuck", rep.StillHeld).WithHint("`caisson ls` names them, `caisson show TASK` says why")
	}
	return rep, err
}

// ReapDue is what every start runs first: only what is due, errors logged.
func (m *Manager) ReapDue(ctx context.Context) {
	rep := &task.ReapReport{}
	if err := m.reap(ctx, false, false, rep); err != nil {
		m.cfg.Log("reap: " + err.Error())
	}
}

// reap works through what is due. all also retries what is stuck before its time.
func (m *Manager) reap(ctx context.Context, dryRun, all bool, rep *task.ReapReport) error {
	now := time.Now()
	if all {
		now = now.Add(10 * 365 * 24 * time.Hour)
	}
	due, err := m.cfg.DB.Due(ctx, now)
	if err != nil {
		return err
	}
	for _, d := range due {
		v := d.Task.View
		if d.Why == inventory.Expired && v.Retention != nil && v.Retention.Until.After(time.Now()) {
			continue // only `all` looked into the future
		}
		if d.Why == inventory.Abandoned && (m.lookup(v.ID) != nil || d.Task.Supervisor != nil && sys.Alive(identOf(d.Task.Supervisor.Process))) {
			continue
		}
		act := task.ReapAction{Task: v.ID, Action: string(d.Why)}
		if dryRun {
			act.Result = "would be finished"
			rep.Actions = append(rep.Actions, act)
			continue
		}
		r, err := m.reapOne(ctx, d)
		switch {
		case errors.Is(err, errBusy):
			continue
		case err != nil:
			act.Result = err.Error()
		default:
			act.Result = string(r.State)
		}
		rep.Actions = append(rep.Actions, act)
	}
	return nil
}

var errBusy = errors.New("another process is at it")

func (m *Manager) reapOne(ctx context.Context, d inventory.DueTask) (*task.CloseReport, error) {
	l, err := m.adopt(ctx, d.Task.ID())
	if err != nil {
		return nil, err
	}
	defer l.release()
	if d.Why == inventory.Abandoned && l.log != nil {
		if _, err := l.log.Append(ctx, evidence.SupervisorLost, self, map[string]any{"state": d.Task.View.State}); err != nil {
			return nil, err
		}
	}
	dctx, done := sys.Detach(ctx, cleanupTime)
	defer done()
	return m.finish(dctx, l, endOptions{lost: d.Why == inventory.Abandoned && d.Task.View.State != task.Closing, expired: d.Why == inventory.Expired})
}

// adopt takes over a task that no living process owns. The caller releases it.
// Another process that is at it, or a supervisor that lives after all, is errBusy.
func (m *Manager) adopt(ctx context.Context, id task.ID) (*live, error) {
	l := &live{id: id, dir: m.taskDir(id)}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.ws = source.Workspace{Task: id, Dir: l.dir}
	if err := sys.PrivateDir(l.dir); err != nil {
		return nil, task.Errorf(task.CodeStateStore, "reap", "the folder of task %s cannot be used: %w", id, err)
	}
	lock, err := sys.TryLock(filepath.Join(l.dir, "lock"))
	if errors.Is(err, sys.ErrLocked) {
		return nil, task.Errorf(task.CodeState, "reap", "task %s: %w", id, errBusy).WithHint("try again in a moment")
	}
	if err != nil {
		return nil, task.Errorf(task.CodeStateStore, "reap", "the folder of task %s cannot be locked: %w", id, err)
	}
	l.lock = lock
	// Under the lock look again: it may have been finished, or begun, meanwhile.
	t, err := m.cfg.DB.Task(ctx, id)
	if err == nil && t.Supervisor != nil && sys.Alive(identOf(t.Supervisor.Process)) && t.Supervisor.Process.PID != os.Getpid() {
		err = task.Errorf(task.CodeState, "reap", "task %s: %w", id, errBusy).WithHint("try again in a moment")
	}
	if err == nil && t.View.State == task.Closed {
		err = task.Errorf(task.CodeState, "reap", "task %s: %w", id, errBusy)
	}
	if err != nil {
		_ = lock.Unlock()
		return nil, err
	}
	for _, r := range t.View.Resources {
		if r.Kind == kindFiles {
			l.token, l.ws.Token = r.Token, r.Token
		}
	}
	l.keep = t.View.Keep
	sup, err := m.supervisor(l.dir)
	if err == nil {
		err = m.cfg.DB.SetSupervisor(ctx, id, sup)
	}
	if err == nil {
		l.log, err = evidence.Open(filepath.Join(l.dir, "evidence"), id, nil)
	}
	if err != nil {
		_ = lock.Unlock()
		return nil, err
	}
	return l, nil
}

// orphans reports what carries our marks but is not on record.
func (m *Manager) orphans(ctx context.Context, rep *task.ReapReport) error {
	known := map[string]bool{}
	rs, err := m.cfg.DB.AllResources(ctx)
	if err != nil {
		return err
	}
	for _, r := range rs {
		known[r.Kind+"\x00"+r.Name] = true
	}
	for _, d := range m.cfg.Drivers {
		found, err := d.List(ctx, m.cfg.DB.Instance())
		if err != nil {
			return err
		}
		for _, r := range found {
			if !known[r.Kind+"\x00"+r.Name] {
				rep.Orphans = append(rep.Orphans, task.Resource{Kind: r.Kind, Name: r.Name, External: r.External})
			}
		}
	}
	dirs, err := os.ReadDir(filepath.Join(m.cfg.StateDir, "tasks"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return task.Errorf(task.CodeStateStore, "reap", "the tasks' folder cannot be read: %w", err)
	}
	for _, e := range dirs {
		id, ok := task.ParseID(e.Name())
		if ok {
			if _, err := m.cfg.DB.Task(ctx, id); err == nil {
				continue
			}
		}
		rep.Orphans = append(rep.Orphans, task.Resource{Kind: "folder", Name: filepath.Join(m.cfg.StateDir, "tasks", e.Name())})
	}
	return nil
}

func identOf(p task.ProcessRef) sys.Ident {
	return sys.Ident{BootID: p.BootID, PID: p.PID, Start: p.Start, PIDNS: p.PIDNS}
}
