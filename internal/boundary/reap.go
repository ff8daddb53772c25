package boundary

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/probe"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("reap.locked", "reap.adopted", "reap.noted")

// Reap implements door.Engine: it finishes what dead supervisors, ended
// retentions and failed cleanups left, and reports what looks like ours but
// cannot be proven to be.
func (m *Manager) Reap(ctx context.Context, dryRun bool) (*task.ReapReport, error) {
	rep := &task.ReapReport{Schema: "caisson.reap/1", DryRun: dryRun, Actions: []task.ReapAction{}, Orphans: []task.Resource{}}
	failed, err := m.reap(ctx, dryRun, true, rep)
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
	if err == nil {
		err = failed
	}
	return rep, err
}

// ReapDue is what every start runs first: only what is due, errors logged.
func (m *Manager) ReapDue(ctx context.Context) {
	m.looked()
	if err := m.cfg.DB.Forget(ctx); err != nil {
		m.cfg.Log("reap: " + err.Error())
	}
	rep := &task.ReapReport{}
	if _, err := m.reap(ctx, false, false, rep); err != nil {
		m.cfg.Log("reap: " + err.Error())
	}
	for _, a := range rep.Actions {
		if a.Result == string(task.Closed) || a.Result == string(task.Kept) {
			continue
		}
		m.cfg.Log("reap: task " + string(a.Task) + " (" + a.Action + "): " + a.Result)
	}
}

// reap works through what is due. all also retries what is stuck before its time.
// failed is the first task's error that is not the end of that task's road: it
// could not be begun with, or not be recorded.
func (m *Manager) reap(ctx context.Context, dryRun, all bool, rep *task.ReapReport) (failed, err error) {
	now := time.Now()
	if all {
		now = now.Add(10 * 365 * 24 * time.Hour)
	}
	due, err := m.cfg.DB.Due(ctx, now)
	if err != nil {
		return nil, err
	}
	for _, d := range due {
		v := d.Task.View
		if d.Why == inventory.Expired && v.Retention != nil && v.Retention.Until.After(time.Now()) {
			continue // only `all` looked into the future
		}
		if d.Why != inventory.Expired && (m.lookup(v.ID) != nil || d.Task.Supervisor != nil && sys.Alive(identOf(d.Task.Supervisor.Process))) {
			continue
		}
		act := task.ReapAction{Task: v.ID, Action: string(d.Why)}
		if dryRun {
			act.Result = "would be finished"
			rep.Actions = append(rep.Actions, act)
			continue
		}
		r, err := m.reapOne(ctx, d)
		for end := time.Now().Add(dyingTime); all && errors.Is(err, errBusy) && m.dying(ctx, v.ID) && time.Now().Before(end); {
			select {
			case <-ctx.Done():
			case <-time.After(25 * time.Millisecond):
			}
			r, err = m.reapOne(ctx, d)
		}
		switch {
		case errors.Is(err, errBusy):
			continue
		case err != nil:
			act.Result = err.Error()
			if failed == nil {
				failed = err
			}
		default:
			act.Result = string(r.State)
		}
		rep.Actions = append(rep.Actions, act)
	}
	return failed, nil
}

var errBusy = errors.New("another process is at it")

// dyingTime bounds the wait for what a dead supervisor had just started: until
// it is gone too, or another program, it has a copy of the task's lock.
const dyingTime = 5 * time.Second

// dying reports whether whoever has the lock of an interrupted task is not the
// task's supervisor: that one is dead.
func (m *Manager) dying(ctx context.Context, id task.ID) bool {
	t, err := m.cfg.DB.Task(ctx, id)
	return err == nil && ctx.Err() == nil && t.Supervisor != nil && t.View.State.Live() && !sys.Alive(identOf(t.Supervisor.Process))
}

func (m *Manager) reapOne(ctx context.Context, d inventory.DueTask) (*task.CloseReport, error) {
	if d.Why == inventory.Interrupted {
		return m.reapInterrupted(ctx, d.Task.ID())
	}
	l, t, err := m.seize(ctx, d.Task.ID(), seizing{})
	if err != nil {
		return nil, err
	}
	v := t.View
	if !stillDue(d.Why, &v) {
		// Finished, kept on or opened again since it was listed: what it is now
		// is none of our business.
		return nil, errors.Join(task.Errorf(task.CodeState, "reap", "task %s: %w", v.ID, errBusy), m.letGo(l))
	}
	defer l.release()
	if d.Why == inventory.Abandoned && l.log != nil {
		if _, err := l.log.Append(ctx, evidence.SupervisorLost, self, map[string]any{"state": v.State}); err != nil {
			return nil, err
		}
	}
	if err := sys.Fault("reap.noted"); err != nil {
		return nil, err
	}
	dctx, done := sys.Detach(ctx, cleanupTime)
	defer done()
	if resuming(&v) {
		// Its files are as they were before: back to where they were kept.
		return m.unresume(dctx, l, task.Errorf(task.CodeState, "reap", "the process that resumed it died"))
	}
	o := endOptions{lost: d.Why == inventory.Abandoned && v.State != task.Closing, expired: d.Why == inventory.Expired}
	if len(v.Command) > 0 && !o.expired {
		// What `run` itself would have done.
		o.ofRun, o.failed = true, v.Exit == nil || *v.Exit != 0
	}
	return m.finish(dctx, l, o)
}

// stillDue reports whether a task whose lock we hold still is what it was
// listed for. Between the list and the lock its own process may have kept it,
// or its owner may have given it more time.
func stillDue(why inventory.Why, v *task.View) bool {
	switch why {
	case inventory.Abandoned:
		return v.State != task.Kept && v.State != task.Stuck && v.State != task.Closed
	case inventory.Expired:
		return v.State == task.Kept && v.Retention != nil && !v.Retention.Until.After(time.Now())
	case inventory.Retry:
		return v.State == task.Stuck
	}
	return false
}

// owned reports whether a living process other than this one has the task.
func (m *Manager) owned(t inventory.Task) bool {
	return t.Supervisor != nil && t.Supervisor.Process.PID != os.Getpid() && sys.Alive(identOf(t.Supervisor.Process))
}

// adopt takes over a task that no living process owns and that is not closed.
// The caller releases it. Another process that is at it, or a supervisor that
// lives after all, is errBusy.
func (m *Manager) adopt(ctx context.Context, id task.ID) (*live, error) {
	l, _, err := m.seize(ctx, id, seizing{})
	return l, err
}

// seizing says how a task is taken over.
type seizing struct {
	closed bool               // closed ones too
	lock   *sys.FileLock      // handed over by its supervisor; nil: it is taken
	hide   *evidence.Redactor // what the record must not show; may be nil
}

// seize takes a task's lock and record and becomes its supervisor.
func (m *Manager) seize(ctx context.Context, id task.ID, s seizing) (*live, inventory.Task, error) {
	busy := func() error {
		return task.Errorf(task.CodeState, "reap", "task %s: %w", id, errBusy).WithHint("try again in a moment")
	}
	// Before anything is touched: a supervisor that lives may be about to make
	// the folder.
	t, err := m.cfg.DB.Task(ctx, id)
	if err != nil {
		return nil, t, err
	}
	if m.owned(t) && s.lock == nil {
		return nil, t, busy()
	}
	l := &live{id: id, dir: m.taskDir(id)}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.ws = m.workspace(&t, nil)
	if err := sys.PrivateDir(l.dir); err != nil {
		return nil, t, task.Errorf(task.CodeStateStore, "reap", "the folder of task %s cannot be used: %w", id, err)
	}
	lock := s.lock
	if lock == nil {
		lock, err = sys.TryLock(filepath.Join(l.dir, "lock"))
	}
	if errors.Is(err, sys.ErrLocked) {
		return nil, t, busy()
	}
	if err != nil {
		return nil, t, task.Errorf(task.CodeStateStore, "reap", "the folder of task %s cannot be locked: %w", id, err)
	}
	l.lock = lock
	if err := sys.Fault("reap.locked"); err != nil {
		_ = lock.Unlock()
		return nil, t, err
	}
	// Under the lock look again: it may have been finished, or begun, meanwhile.
	if t, err = m.cfg.DB.Task(ctx, id); err == nil && (m.owned(t) && s.lock == nil || t.View.State == task.Closed && !s.closed) {
		err = busy()
	}
	if err != nil {
		_ = lock.Unlock()
		return nil, t, err
	}
	for _, r := range t.View.Resources {
		if r.Kind == kindFiles {
			l.token, l.ws.Token = r.Token, r.Token
		}
	}
	l.name, l.keep = t.View.Name, t.View.Keep
	sup, err := m.supervisor(l.dir)
	if err == nil {
		err = m.cfg.DB.SetSupervisor(ctx, id, sup)
	}
	if err == nil {
		if l.log, err = evidence.Open(filepath.Join(l.dir, "evidence"), id, s.hide); err != nil && !t.View.State.Live() {
			_ = m.cfg.DB.ClearSupervisor(ctx, id) // nothing was begun
		}
	}
	if err != nil {
		_ = lock.Unlock()
		return nil, t, err
	}
	if err := sys.Fault("reap.adopted"); err != nil {
		l.release()
		return nil, t, err
	}
	return l, t, nil
}

// orphans reports what carries our marks but is not on record. What is not
// there on a second look belonged to a task that began or ended meanwhile.
func (m *Manager) orphans(ctx context.Context, rep *task.ReapReport) error {
	first, err := m.strangers(ctx)
	if err != nil || len(first) == 0 {
		return err
	}
	second, err := m.strangers(ctx)
	if err != nil {
		return err
	}
	again := map[string]bool{}
	for _, r := range second {
		again[r.Kind+"\x00"+r.Name] = true
	}
	for _, r := range first {
		if again[r.Kind+"\x00"+r.Name] {
			rep.Orphans = append(rep.Orphans, r)
		}
	}
	return nil
}

// strangers looks once.
func (m *Manager) strangers(ctx context.Context) ([]task.Resource, error) {
	var found []task.Resource // by a backend, which alone knows names
	for _, d := range m.cfg.Drivers {
		rs, err := d.List(ctx, m.cfg.DB.Instance())
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			found = append(found, task.Resource{Kind: r.Kind, Name: r.Name, External: r.External})
		}
	}
	folders, err := os.ReadDir(filepath.Join(m.cfg.StateDir, "tasks"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, task.Errorf(task.CodeStateStore, "reap", "the tasks' folder cannot be read: %w", err)
	}
	sockets, err := os.ReadDir(m.cfg.RuntimeDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, task.Errorf(task.CodeStateStore, "reap", "the runtime folder cannot be read: %w", err)
	}
	// The record last: what was made meanwhile is on it.
	rs, err := m.cfg.DB.AllResources(ctx)
	if err != nil {
		return nil, err
	}
	known, planted := map[string]bool{}, map[string]bool{}
	for _, r := range rs {
		planted[plantToken(r.Token)] = true
		known[r.Kind+"\x00"+r.Name] = true
	}
	ts, err := m.cfg.DB.List(ctx, true)
	if err != nil {
		return nil, err
	}
	tasks, repos := map[task.ID]bool{}, map[string]bool{}
	for _, t := range ts {
		tasks[t.ID()] = true
		if c := t.View.Source.CommonDir; c != "" {
			repos[c] = true
		}
	}
	var out []task.Resource
	for _, r := range found {
		if !known[r.Kind+"\x00"+r.Name] {
			out = append(out, r)
		}
	}
	for _, e := range folders {
		if id, ok := task.ParseID(e.Name()); !ok || !tasks[id] {
			out = append(out, task.Resource{Kind: "folder", Name: filepath.Join(m.cfg.StateDir, "tasks", e.Name())})
		}
	}
	for _, e := range sockets {
		if token, ok := probe.PlantToken(e.Name()); ok {
			if !planted[token] {
				out = append(out, task.Resource{Kind: "sentinel", Name: filepath.Join(m.cfg.RuntimeDir, e.Name())})
			}
		} else if to, err := os.Readlink(filepath.Join(m.cfg.RuntimeDir, e.Name())); err == nil && strings.HasSuffix(to, ".sock") {
			if !known[kindSocket+"\x00"+to] {
				out = append(out, task.Resource{Kind: kindSocket, Name: filepath.Join(m.cfg.RuntimeDir, e.Name()), External: to})
			}
		} else if strings.HasSuffix(e.Name(), ".sock") && !known[kindSocket+"\x00"+e.Name()] {
			out = append(out, task.Resource{Kind: kindSocket, Name: filepath.Join(m.cfg.RuntimeDir, e.Name())})
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(repos)) {
		names, err := source.Namespaces(ctx, dir)
		if err != nil {
			m.cfg.Log("reap: " + err.Error())
			continue
		}
		for _, n := range names {
			if id, ok := task.ParseID(n); !ok || !tasks[id] {
				out = append(out, task.Resource{Kind: "refs", Name: "refs/caisson/" + n, External: dir})
			}
		}
	}
	return out, nil
}

func identOf(p task.ProcessRef) sys.Ident {
	return sys.Ident{BootID: p.BootID, PID: p.PID, Start: p.Start, PIDNS: p.PIDNS}
}
