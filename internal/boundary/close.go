package boundary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/probe"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("close.begun", "close.dead", "close.rescued", "close.removing", "close.files", "close.pins", "close.sealed", "close.recorded",
	"close.kept", "close.stuck")

// keepTime is how long files of a changed or failed task stay by default.
const keepTime = 24 * time.Hour

// endOptions says how finish decides between releasing and keeping.
type endOptions struct {
	discard bool      // the owner gave up whatever is in the files
	keep    task.Keep // empty: the task's own mode
	ofRun   bool      // the command of `run` is over: auto keeps changed work
	failed  bool      // it ended with another status than 0
	exit    *int      // its status; nil: it did not run
	lost    bool      // the supervisor died: a person should see the files
	expired bool      // the retention is over
	// mayLeave: who asked for the end need not wait until many files are removed.
	mayLeave bool
	tell     func(string)
}

// Close implements door.Engine.
func (m *Manager) Close(ctx context.Context, ref string, o door.CloseOptions) (*task.CloseReport, error) {
	t, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if o.DryRun {
		return m.closePreview(ctx, t, o)
	}
	if l := m.lookup(t.ID()); l != nil {
		return m.end(l, task.Errorf(task.CodeCanceled, "close", "the task is being closed"), endOptions{discard: o.Discard, keep: o.Keep, mayLeave: true, tell: o.Progress})
	}
	if t.View.State == task.Closed {
		rep := closedReport(t)
		rep.Notes = append(rep.Notes, "it was closed before; nothing was changed")
		return rep, nil
	}
	l, rep, err := m.takeOver(ctx, t, o)
	if l == nil {
		return rep, err
	}
	defer l.release()
	dctx, done := sys.Detach(ctx, cleanupTime)
	defer done()
	return m.finish(dctx, l, endOptions{discard: o.Discard, keep: o.Keep, mayLeave: true, tell: o.Progress})
}

// unansweredTime is how long a supervisor that lives may leave its socket
// unserved: between the last moment of its task and its own end.
const unansweredTime = 5 * time.Second

// takeOver returns the task adopted, or has its supervisor end it and returns
// that report. It waits for a process that is creating or ending it just now.
func (m *Manager) takeOver(ctx context.Context, t inventory.Task, o door.CloseOptions) (*live, *task.CloseReport, error) {
	ctx, done := context.WithTimeoutCause(ctx, cleanupTime, sys.ErrDeadline)
	defer done()
	var refused time.Time // since when its supervisor does not answer
	for told := false; ; {
		l, err := m.adopt(ctx, t.ID())
		if !errors.Is(err, errBusy) {
			return l, nil, err
		}
		if t, err = m.cfg.DB.Task(ctx, t.ID()); err != nil {
			return nil, nil, err
		}
		switch s := t.View.State; {
		case s == task.Closed:
			return nil, closedReport(t), nil
		case s == task.Ready || s == task.Paused:
			if err := m.answerable(ctx, t); err != nil {
				return nil, nil, err
			}
			rep, err := m.cfg.Remote(t.ID()).Close(ctx, o)
			// No answer, or none any more: it is at its end. Closing again is
			// no repetition.
			if c := task.CodeOf(err); c != task.CodeState && c != task.CodeOutcomeUnknown {
				return nil, rep, err
			}
			if ctx.Err() != nil {
				return nil, nil, err
			}
			if refused.IsZero() {
				refused = time.Now()
			}
			if time.Since(refused) > unansweredTime {
				return nil, nil, err
			}
		default:
			refused = time.Time{}
		}
		if !told {
			tell(o.Progress, "waiting for another process that is at the task")
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, nil, task.Errorf(task.CodeState, "close", "task %s is %s in another process: %w", t.ID(), t.View.State, context.Cause(ctx)).
				WithHint("`caisson show %s` says how far it is", t.ID())
		case <-time.After(25 * time.Millisecond):
		}
	}
}

const closeSchema = "caisson.close/1"

func closedReport(t inventory.Task) *task.CloseReport {
	return &task.CloseReport{Schema: closeSchema, ID: t.ID(), Bare: t.View.Source.Bare, State: task.Closed, Rescued: t.View.Results}
}

// closePreview says what a close would find and rescue.
func (m *Manager) closePreview(ctx context.Context, t inventory.Task, o door.CloseOptions) (*task.CloseReport, error) {
	rep := &task.CloseReport{Schema: closeSchema, ID: t.ID(), Bare: t.View.Source.Bare, DryRun: true, State: t.View.State, Discarded: o.Discard, Retention: t.View.Retention, Rescued: t.View.Results}
	children, err := m.children(ctx, t.ID())
	if err != nil {
		return nil, err
	}
	for _, c := range children {
		if c.live() {
			rep.Notes = append(rep.Notes, fmt.Sprintf("its child %s, which is %s, would be closed with it", taskName(&c.View), c.View.State))
		}
	}
	ws := m.workspace(&t, nil)
	if !t.View.Ran || !exists(filepath.Join(ws.Dir, "source")) {
		return rep, nil
	}
	w, err := source.Work(ctx, ws)
	if err != nil {
		return nil, err
	}
	rep.Work = *w
	return rep, nil
}

// end ends a task whose boundary this process holds; every caller gets the one
// report.
func (m *Manager) end(l *live, cause error, o endOptions) (*task.CloseReport, error) {
	l.ending.Do(func() {
		l.shut()
		l.cancel(cause)
		l.calls.Wait()
		l.hooks.Wait()
		ctx, done := sys.Detach(context.Background(), cleanupTime)
		defer done()
		l.report, l.endErr = m.finish(ctx, l, o)
		m.mu.Lock()
		delete(m.live, l.id)
		m.mu.Unlock()
	})
	return l.report, l.endErr
}

// release lets go of the task's lock and log, once.
func (l *live) release() {
	l.released.Do(func() {
		l.cancel(nil)
		if l.log != nil {
			_ = l.log.Close()
		}
		_ = l.lock.Unlock()
		l.unlockCheckout()
	})
}

// finish takes a task from wherever it stands to closed, kept or stuck. It can
// be repeated after a crash at any of its steps.
func (m *Manager) finish(ctx context.Context, l *live, o endOptions) (*task.CloseReport, error) {
	rep := &task.CloseReport{Schema: closeSchema, ID: l.id, Discarded: o.discard}
	defer l.release()
	t, err := m.begin(ctx, l, o.exit)
	rep.Bare = t.View.Source.Bare
	if err != nil {
		// Nothing can be recorded (a full disk, say). No process stays for that.
		text := "its processes were ended and nothing else was touched"
		kerr := m.kill(ctx, l)
		if l.lock != nil && l.lock.Deleted()() {
			kerr = errors.Join(kerr, m.removeSocket(l)) // no record is left that would lead to it
		}
		if kerr != nil {
			text = "nothing else was touched"
		}
		return nil, errors.Join(task.Errorf(task.CodeOf(err), "close", "the end of task %s cannot be recorded, so %s: %w", l.id, text, err).
			WithHint("then `caisson reap` brings its work out and ends it"), kerr)
	}
	if err := m.closeChildren(ctx, l, rep, o); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	tell(o.tell, "ending processes")
	if err := m.endProcesses(ctx, l, t); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	rep.Refused = l.refused.Load()
	if err := sys.Fault("close.dead"); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	if err := m.recoverApply(ctx, l, o.discard); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	if err := m.compareCheckout(ctx, l, t, rep); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	keep, rescueErr := m.rescue(ctx, l, t, o, rep)
	if err := sys.Fault("close.rescued"); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	if keep != nil {
		return m.retain(ctx, l, rep, keep, rescueErr)
	}
	tell(o.tell, "removing the task's files")
	left, err := m.remove(ctx, l, t, o, rep)
	if errors.Is(err, errMore) {
		if err = m.handOver(ctx, l, o); err == nil {
			rep.State, rep.Removing = task.Closing, true
			return rep, nil
		}
		m.cfg.Log("task " + string(l.id) + ": its files are removed here, not by a process of their own: " + err.Error())
		o.mayLeave = false
		if err = m.resumeHere(ctx, l); err == nil {
			left, err = m.remove(ctx, l, t, o, rep)
		}
	}
	if err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	if left {
		until := time.Now().Add(keepsFor(t))
		if t.View.Retention != nil {
			until = t.View.Retention.Until
		}
		return m.retain(ctx, l, rep, &task.Retention{Owner: t.View.Owner, Until: until.UTC(), Why: "files that no commit can hold (ignored files, the output store)"}, nil)
	}
	if k := t.View.Retention; k != nil && k.Until.After(time.Now()) && !o.discard && !o.expired {
		rep.Notes = append(rep.Notes, "its files, which were kept until "+k.Until.Local().Format(time.DateTime)+" for "+k.Owner+" ("+k.Why+"), are gone")
	}
	return m.closed(ctx, l, rep)
}

// begin records that the task is being ended, and how its command did.
func (m *Manager) begin(ctx context.Context, l *live, exit *int) (inventory.Task, error) {
	l.hush()
	var t inventory.Task
	err := m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) (err error) {
		if t, err = tx.Task(l.id); err != nil || t.View.State == task.Closing {
			return err
		}
		return tx.SetState(l.id, task.Closing, func(v *task.View) {
			// From here on it is being ended: what was kept before, or was to
			// be kept by a resume, says nothing about what is kept then.
			v.Retention, v.Ports = nil, nil
			if exit != nil {
				v.Exit = exit
			}
		})
	})
	if err != nil {
		return t, err
	}
	if l.log != nil {
		if _, err := l.log.Append(ctx, evidence.CleanupIntent, self, map[string]any{"from": t.View.State}); err != nil {
			return t, err
		}
	}
	return t, sys.Fault("close.begun")
}

// endProcesses kills everything inside and proves it.
func (m *Manager) endProcesses(ctx context.Context, l *live, t inventory.Task) error {
	inst, wk := l.standing()
	if wk != nil {
		_ = wk.Close()
	}
	l.watch.Wait()
	d, err := m.driver(t.View.Backend)
	if err != nil {
		return err
	}
	rs, err := m.cfg.DB.Resources(ctx, l.id)
	if err != nil {
		return err
	}
	var mine []backend.Resource
	tokens := map[string]bool{}
	for _, r := range rs {
		if r.Provider == d.Name() && r.State != task.Gone {
			tokens[r.Token] = true
			mine = append(mine, backend.Resource{Kind: r.Kind, Name: r.Name, Token: r.Token, External: r.External})
		}
	}
	insts, err := attachAll(ctx, d, inst, mine)
	if err != nil {
		return err
	}
	var cause error
	for _, i := range insts {
		cause = errors.Join(cause, i.Destroy(ctx))
	}
	l.closeWay()
	if cause == nil {
		cause = m.loansGone(ctx, l)
	}
	m.closePorts(l, true)
	for token := range tokens {
		cause = errors.Join(cause, probe.Unplant(m.cfg.RuntimeDir, plantToken(token)))
	}
	state := task.Gone
	if cause != nil {
		state = task.RStuck
	}
	var cs []inventory.ResourceChange
	for _, r := range mine {
		cs = append(cs, inventory.ResourceChange{Kind: r.Kind, Name: r.Name, State: state, Err: cause})
	}
	if cause == nil {
		cause = m.removeSocket(l)
	}
	if cause == nil {
		cause = m.unpoint(ctx, l)
	}
	if cause != nil {
		return errors.Join(cause, m.mark(ctx, l.id, cs))
	}
	// On record with the next step: until then they are looked for again.
	l.observed = append(cs, inventory.ResourceChange{Kind: kindSocket, Name: string(l.id) + ".sock", State: task.Gone})
	if l.log != nil && len(insts) > 0 {
		if _, err := l.log.AppendBulk(ctx, evidence.BoundaryEnded, self, map[string]any{"confirmed": true}); err != nil {
			return err
		}
	}
	return nil
}

// attachAll finds every boundary that is on record with rs: the one of the task, which
// its own process holds as inst, and those that stood for one piece of work (an
// installation, results that were brought out) when their process died. Each has a
// token of its own.
func attachAll(ctx context.Context, d backend.Driver, inst backend.Instance, rs []backend.Resource) ([]backend.Instance, error) {
	var found []backend.Instance
	held := map[string]bool{}
	if inst != nil {
		found = append(found, inst)
		for _, r := range inst.Resources() {
			held[r.Token] = true
		}
	}
	groups := map[string][]backend.Resource{}
	var order []string
	for _, r := range rs {
		if held[r.Token] {
			continue
		}
		if groups[r.Token] == nil {
			order = append(order, r.Token)
		}
		groups[r.Token] = append(groups[r.Token], r)
	}
	for _, token := range order {
		i, err := d.Attach(ctx, groups[token])
		if errors.Is(err, backend.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, i)
	}
	return found, nil
}

// mark records changes of resources that are on record.
func (m *Manager) mark(ctx context.Context, id task.ID, cs []inventory.ResourceChange) error {
	return m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error { return markIn(tx, id, cs) })
}

// markIn is mark as a part of a larger step.
func markIn(tx *inventory.Tx, id task.ID, cs []inventory.ResourceChange) error {
	rs, err := tx.Resources(id)
	if err != nil {
		return err
	}
	state := map[string]task.ResourceState{}
	for _, r := range rs {
		state[r.Kind+"\x00"+r.Name] = r.State
	}
	var known []inventory.ResourceChange
	for _, c := range cs {
		// What is gone stays so, also when a process was killed right after it
		// had recorded it.
		if s, ok := state[c.Kind+"\x00"+c.Name]; ok && s != c.State && s != task.Gone {
			known = append(known, c)
		}
	}
	return tx.SetResources(id, known)
}

// removeSocket takes the control socket away if it is one, and what leads to it.
func (m *Manager) removeSocket(l *live) error {
	if m.cfg.Unname != nil && l.name != "" {
		m.cfg.Unname(l.id, l.name)
	}
	path := m.socketPath(l.id)
	i, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return task.Errorf(task.CodeStuck, "close", "the control socket cannot be looked at: %w", err)
	}
	if i.Mode()&os.ModeSocket == 0 {
		return nil // somebody else's file with our name: leave it
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return task.Errorf(task.CodeStuck, "close", "the control socket cannot be removed: %w", err)
	}
	return nil
}

// retain keeps the files for a while. cause is why work could not be brought
// out, when that is the reason.
func (m *Manager) retain(ctx context.Context, l *live, rep *task.CloseReport, r *task.Retention, cause error) (*task.CloseReport, error) {
	rep.State, rep.Retention = task.Kept, r
	if err := sys.Fault("close.kept"); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	if l.log != nil {
		body := map[string]any{"until": r.Until, "why": r.Why}
		if cause != nil {
			body["error"] = cause.Error()
		}
		if _, err := l.log.Append(ctx, evidence.TaskKept, self, body); err != nil {
			return rep, errors.Join(cause, err)
		}
	}
	err := m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		if l.log != nil {
			h := l.log.Head()
			if err := tx.SetHead(l.id, h.Seq, h.Hash); err != nil {
				return err
			}
		}
		if err := markIn(tx, l.id, l.observed); err != nil {
			return err
		}
		if err := tx.SetState(l.id, task.Kept, func(v *task.View) {
			v.Retention, v.Asked, v.Results = r, nil, rep.Rescued
			if cause != nil {
				v.Problem = cause.Error()
			}
		}); err != nil {
			return err
		}
		return tx.ClearSupervisor(l.id)
	})
	return rep, errors.Join(cause, err)
}

// closed seals the record once everything is confirmed gone.
func (m *Manager) closed(ctx context.Context, l *live, rep *task.CloseReport) (*task.CloseReport, error) {
	rep.State = task.Closed
	if l.log != nil {
		if _, err := l.log.AppendBulk(ctx, evidence.TaskSealed, self, map[string]any{"results": rep.Rescued, "discarded": rep.Discarded}); err != nil {
			return m.stuck(ctx, l, rep, err)
		}
		if _, err := l.log.Append(ctx, evidence.TaskClosed, self, nil); err != nil {
			return m.stuck(ctx, l, rep, err)
		}
	}
	if err := sys.Fault("close.sealed"); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	err := m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		if l.log != nil {
			h := l.log.Head()
			if err := tx.SetHead(l.id, h.Seq, h.Hash); err != nil {
				return err
			}
		}
		if err := markIn(tx, l.id, l.observed); err != nil {
			return err
		}
		if err := tx.SetState(l.id, task.Closed, func(v *task.View) {
			v.Retention, v.Asked, v.Results, v.Removing = nil, nil, rep.Rescued, false
		}); err != nil {
			return err
		}
		return tx.ClearSupervisor(l.id)
	})
	if err == nil {
		err = sys.Fault("close.recorded")
	}
	return rep, err
}

// stuck keeps the ownership of what could not be removed.
func (m *Manager) stuck(ctx context.Context, l *live, rep *task.CloseReport, cause error) (*task.CloseReport, error) {
	rep.State = task.Stuck
	_ = sys.Fault("close.stuck")
	err := task.Errorf(task.CodeStuck, "close", "task %s could not be ended completely: %w", l.id, cause).
		WithHint("nothing is lost and it stays on record; `caisson reap` retries, `caisson show %s` lists what is left", l.id)
	if l.log != nil {
		_, _ = l.log.Append(ctx, evidence.TaskStuck, self, map[string]any{"error": cause.Error()})
	}
	serr := m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		if err := markIn(tx, l.id, l.observed); err != nil {
			return err
		}
		if err := tx.SetState(l.id, task.Stuck, func(v *task.View) {
			v.Problem, v.Removing = cause.Error(), false
			if len(rep.Rescued) > 0 {
				v.Results = rep.Rescued
			}
		}); err != nil {
			return err
		}
		return tx.ClearSupervisor(l.id)
	})
	if rs, rerr := m.cfg.DB.Resources(ctx, l.id); rerr == nil {
		for _, r := range rs {
			if r.State != task.Gone {
				rep.Stuck = append(rep.Stuck, r.Resource)
			}
		}
	}
	return rep, errors.Join(err, serr)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
