package boundary

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("resume.held", "resume.intended", "resume.recorded", "resume.boundary", "resume.present", "resume.failed")

// Resume implements door.Engine: it has a supervisor process make a boundary
// around the files of a task that were kept.
func (m *Manager) Resume(ctx context.Context, ref string, o door.ResumeOptions) (*task.View, error) {
	t, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := m.mayResume(t); err != nil {
		return nil, err
	}
	id, err := m.cfg.Spawn(ctx, Order{Resume: t.ID(), Request: task.Request{Env: o.Env}}, o.Progress)
	if err != nil {
		return nil, err
	}
	if names := missingEnv(&t.View, o.Env); len(names) > 0 {
		m.cfg.Log("the task had variables whose values are never recorded, and has none of them now: " + strings.Join(names, ", ") + "; give them with --env")
	}
	// Canceled at the last moment it is resumed all the same: it holds work, and
	// whoever asked knows its name.
	return m.Show(context.WithoutCancel(ctx), string(id))
}

// missingEnv names the variables that a task had by --env and that env does
// not give again.
func missingEnv(v *task.View, env []string) []string {
	var out []string
	for _, g := range v.Grants {
		given := func(kv string) bool { k, _, _ := strings.Cut(kv, "="); return k == g.Value }
		if g.Kind == "env" && !slices.ContainsFunc(env, given) && !slices.Contains(out, g.Value) {
			out = append(out, g.Value)
		}
	}
	return out
}

// resuming reports whether a task is between kept and ready.
func resuming(v *task.View) bool {
	return v.Retention != nil && (v.State == task.Creating || v.State == task.Probing || v.State == task.Stuck)
}

// mayResume refuses a task that cannot be resumed, and says what serves instead.
func (m *Manager) mayResume(t inventory.Task) error {
	v := &t.View
	no := func(format string, args ...any) *task.Error {
		return task.Errorf(task.CodeState, "resume", format, args...)
	}
	switch v.State {
	case task.Kept, task.Stuck:
	case task.Ready, task.Paused:
		return no("task %s is open already", v.ID).WithHint("`caisson exec %s -- CMD…` and `caisson shell %s` work in it", v.ID, v.ID)
	case task.Closed:
		return left(no("task %s is closed, its files are gone", v.ID), v)
	case task.Planned, task.Blocked:
		return no("task %s is %s: nothing ever ran in it", v.ID, v.State).WithHint("`caisson open` starts a new task")
	default:
		return no("task %s is %s: another process is at it", v.ID, v.State).WithHint("`caisson show %s` says how far it is", v.ID)
	}
	if v.Parent != "" {
		return left(no("task %s was a child of %s, whose authority ended with it", v.ID, v.Parent), v)
	}
	intact := v.Ran && m.hasFiles(&live{id: v.ID, dir: m.taskDir(v.ID)}) && !exists(filepath.Join(m.taskDir(v.ID), "kept"))
	for _, r := range v.Resources {
		if r.Kind == kindFiles && r.State != task.Present && r.State != task.Gone {
			intact = false // its removal has begun
		}
	}
	if !intact {
		return left(no("the files that task %s worked on are gone", v.ID), v)
	}
	return nil
}

// left adds to an error where the results of a task are.
func left(err *task.Error, v *task.View) error {
	for _, r := range v.Results {
		if r.Kind == "worktree" {
			if v.Source.Bare {
				return err.WithHint("its results are in the repository: `caisson diff %s`, `caisson branch %s`, `caisson export %s`; `caisson open --base %s` starts a new task from them", v.ID, v.ID, v.ID, r.Name)
			}
			return err.WithHint("its results are in the repository: `caisson diff %s`, `caisson apply %s`, `caisson branch %s`; `caisson open --base %s` starts a new task from them", v.ID, v.ID, v.ID, r.Name)
		}
	}
	return err.WithHint("`caisson show %s` lists what it left; `caisson open` starts a new task", v.ID)
}

// ResumeHere makes a boundary, held by this process, around the files of a kept
// task, and returns once it is ready. Whatever fails leaves the task kept as it
// was. The caller ends it with End.
func (m *Manager) ResumeHere(ctx context.Context, id task.ID, env []string, progress func(string)) error {
	var secrets []string
	for _, kv := range env {
		if k, _, ok := strings.Cut(kv, "="); !ok {
			kv = k + "=" + valueOf(m.cfg.Environ, k)
		}
		secrets = append(secrets, kv)
	}
	l, t, err := m.holdToResume(ctx, id, hiding(secrets))
	if err != nil {
		return err
	}
	var d *decided
	if err = m.mayResume(t); err == nil {
		if d, err = m.redecide(ctx, l, &t.View, env); err != nil {
			err = m.ruledOut(ctx, d, nil, err)
		} else {
			if err = d.plan.Blocked(); err == nil {
				err = m.mayOpen(ctx, d, id, nil, nil)
			}
		}
	}
	if err == nil {
		err = sys.Fault("resume.held")
	}
	if err == nil && t.View.State == task.Stuck {
		t.View.Retention = cmp.Or(t.View.Retention, retention(t, "its cleanup failed, and it was resumed"))
		if err := m.unstick(ctx, l, t); err != nil {
			return err
		}
	}
	if err != nil {
		return errors.Join(err, m.letGo(l)) // nothing was made, and nothing changed
	}
	l.resumed = t.View.Retention
	if err := m.remake(ctx, l, t, d, progress); err != nil {
		return m.failResume(ctx, l, err)
	}
	return nil
}

// holdToResume takes a kept task. A process that only looks after it, as a reap
// does, is waited for; one that made something else of it has won.
func (m *Manager) holdToResume(ctx context.Context, id task.ID, hide *evidence.Redactor) (*live, inventory.Task, error) {
	wctx, done := context.WithTimeoutCause(ctx, cleanupTime, sys.ErrDeadline)
	defer done()
	for {
		l, t, err := m.hold(ctx, id, hide)
		if !errors.Is(err, errBusy) {
			return l, t, err
		}
		err = m.otherWon(ctx, id, err)
		if !errors.Is(err, errBusy) {
			return nil, t, err
		}
		select {
		case <-wctx.Done():
			return nil, t, err
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// otherWon says what another process made of the task meanwhile.
func (m *Manager) otherWon(ctx context.Context, id task.ID, busy error) error {
	t, err := m.cfg.DB.Task(ctx, id)
	if err != nil {
		return err
	}
	if err := m.mayResume(t); err != nil {
		return err
	}
	return task.Errorf(task.CodeState, "resume", "another process is at task %s just now: %w", id, busy).WithHint("`caisson show %s` says how far it is", id)
}

// redecide plans a boundary for what is on record about a task, on the machine
// as it is today.
func (m *Manager) redecide(ctx context.Context, l *live, v *task.View, env []string) (*decided, error) {
	d, err := m.asDecided(v, env)
	if err != nil {
		return d, err
	}
	attend(l.dir) // somebody resumes it
	d.since = time.Now()
	if d.repo, err = source.Reopen(l.ws, v.Source, v.Objects); err != nil {
		return d, err
	}
	return d, m.weigh(ctx, d, l.id, v.Command)
}

// again decides for a task that is on record what would be decided today.
// Nothing of it changes.
func (m *Manager) again(ctx context.Context, v *task.View) (*decided, error) {
	d, err := m.asDecided(v, nil)
	if err != nil {
		return nil, err
	}
	// What a person passed in is inside: by its name it is held against the rules of
	// today, as all that was granted is. Its value is on no record.
	d.widened = v.Widened
	for _, g := range v.Grants {
		if g.Kind == "env" {
			d.inside = append(d.inside, g.Value)
		}
	}
	if d.repo, err = source.Reopen(m.workspaceOf(v.ID, v.Source), v.Source, v.Objects); err != nil {
		return nil, err
	}
	return d, m.weigh(ctx, d, v.ID, v.Command)
}

// asDecided is the request that a task was opened with, as far as it is on record.
func (m *Manager) asDecided(v *task.View, env []string) (*decided, error) {
	s := v.Source
	d := &decided{before: v.Facts, req: task.Request{
		Name: v.Name, Repo: s.Repo, Base: s.Base, At: s.Target, Strategy: s.Strategy, Dirty: s.Dirty, History: s.History, Backend: v.Backend,
		Rootfs: v.Rootfs, Image: v.Image, Need: v.Need, Env: env, Limits: v.Limits, Keep: v.Keep, Trust: v.Trust, Unattended: v.Unattended, Agent: v.Agent, Person: true,
	}}
	d.rootDigest = v.RootDigest
	d.asked, d.again, d.since = v.Limits, true, attended(m.taskDir(v.ID), v)
	if v.Asking != nil {
		d.req.Asking = *v.Asking
	}
	for _, g := range v.Grants {
		switch g.Kind {
		case "ro":
			d.req.RO = append(d.req.RO, g.Value)
		case "ptrace", "userns":
			d.req.Grants = append(d.req.Grants, g.Kind)
		case grantPublish:
			d.req.Publish = append(d.req.Publish, g.Value)
		case grantPhase:
			d.req.Phase = g.Value
		case grantNet:
			d.req.Net = g.Value
		case grantAllow:
			d.req.Allow = append(d.req.Allow, g.Value)
		case grantLend, grantLendProd:
			if g.Source == "flag" {
				d.req.Lend = append(d.req.Lend, g.Value)
			}
		case grantRemote:
			d.remoteHosts = append(d.remoteHosts, g.Value)
		}
	}
	if err := m.accepts(&d.req); err != nil {
		return nil, err
	}
	var err error
	d.driver, err = m.driver(d.req.Backend)
	return d, err
}

// unstick proves that nothing runs any more in a task whose cleanup failed, and
// makes it kept.
func (m *Manager) unstick(ctx context.Context, l *live, t inventory.Task) error {
	dctx, done := sys.Detach(ctx, cleanupTime)
	defer done()
	if err := m.endProcesses(dctx, l, t); err != nil {
		defer l.release()
		_, err := m.stuck(dctx, l, &task.CloseReport{ID: l.id}, err)
		return err
	}
	err := m.cfg.DB.Tx(dctx, func(tx *inventory.Tx) error { return m.keptIn(tx, l, t.View.Retention) })
	if err != nil {
		return errors.Join(err, m.letGo(l))
	}
	return nil
}

// keptIn makes a task kept, from wherever it stands, as a part of a larger step.
func (m *Manager) keptIn(tx *inventory.Tx, l *live, r *task.Retention) error {
	if err := markIn(tx, l.id, l.observed); err != nil {
		return err
	}
	l.observed = nil
	if err := tx.SetState(l.id, task.Closing, nil); err != nil {
		return err
	}
	return tx.SetState(l.id, task.Kept, func(v *task.View) { v.Retention, v.Problem = r, "" })
}

// remake records, makes and proves the boundary.
func (m *Manager) remake(ctx context.Context, l *live, t inventory.Task, d *decided, progress func(string)) error {
	plan := &d.plan.Plan
	l.spec, l.secrets, l.checkout, l.driver = d.spec, d.secrets, d.repo.Ref.Repo, d.driver.Name()
	l.asking, l.unattended, l.plan = d.req.Asking, d.req.Unattended, plan.Digest
	l.ruleBy(d)
	l.open, l.lent = netMode(&d.req) == policy.NetOpen, d.lent
	l.decision.begin(d)
	l.spec.Token = task.NewToken() // of the boundary; the files keep theirs
	var err error
	if l.ca, err = certify(&l.spec, d.read); err != nil {
		return err
	}
	l.notes = append(weaker(d), loud(d)...)
	if _, err := l.log.Append(ctx, evidence.ResumeIntent, m.actor(), d.record(map[string]any{
		"from": t.View.State, "retention": t.View.Retention, "env": envNames(l.secrets), "version": m.cfg.Version, "backend": d.driver.Name()})); err != nil {
		return err
	}
	if err := sys.Fault("resume.intended"); err != nil {
		return err
	}
	rs := append([]inventory.Resource{{Resource: task.Resource{Kind: kindSocket, Name: string(l.id) + ".sock", Token: l.spec.Token}, Provider: "boundary"}},
		backendResources(d.driver, l.spec)...)
	err = m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		if _, err := (&room{m: m, id: l.id}).enter(tx, d); err != nil {
			return err
		}
		if err := tx.Intend(l.id, rs); err != nil {
			return err
		}
		if err := use(tx, plan.Accepted); err != nil {
			return err
		}
		// The retention stays on record until it is ready: who finds the task in
		// between makes it kept again.
		return tx.SetState(l.id, task.Creating, func(v *task.View) {
			v.Levels, v.Findings, v.Grants, v.Tools, v.NotIsolated = plan.Levels, plan.Findings, plan.Grants, d.tools, plan.NotIsolated
			v.KeepFor, v.RiskyFiles = d.keepFor(), d.riskyFiles()
			v.Widened = nil // they ended with the boundary
		})
	})
	if err != nil {
		return err
	}
	if err := sys.Fault("resume.recorded"); err != nil {
		return err
	}
	if err := m.points(ctx, l, d.repo.Ref); err != nil {
		return err
	}
	if err := m.unpackRoot(ctx, l, d, progress); err != nil {
		return err
	}
	tell(progress, "building the boundary")
	st, err := m.stand(ctx, d.driver, &l.spec, func(cause error) { m.poisoned(l, cause) })
	if st != nil {
		l.stands(st)
	}
	if err == nil {
		err = sys.Fault("resume.boundary")
	}
	if err != nil {
		return err
	}
	return m.prove(ctx, l, d, st, func() error {
		err := m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
			if err := tx.SetResources(l.id, present(l, task.SourceRef{}, false, st.inst.Resources())); err != nil {
				return err
			}
			return tx.SetState(l.id, task.Probing, nil)
		})
		if err != nil {
			return err
		}
		return sys.Fault("resume.present")
	})
}

// failResume makes a task kept again whose resume failed, and returns why.
func (m *Manager) failResume(ctx context.Context, l *live, cause error) error {
	mine := false
	l.ending.Do(func() {
		mine = true
		l.shut()
		l.cancel(cause)
		l.calls.Wait()
		dctx, done := sys.Detach(ctx, cleanupTime)
		defer done()
		l.report, l.endErr = m.unresume(dctx, l, cause)
		m.mu.Lock()
		delete(m.live, l.id)
		m.mu.Unlock()
	})
	if !mine {
		return errors.Join(cause, task.Errorf(task.CodeState, "resume", "task %s was closed meanwhile", l.id))
	}
	if l.endErr != nil {
		return errors.Join(cause, l.endErr)
	}
	return cause
}

// unresume takes back what a resume made and leaves the task kept until the
// time it was kept before. It can be repeated after a crash at any of its steps.
func (m *Manager) unresume(ctx context.Context, l *live, cause error) (*task.CloseReport, error) {
	rep := &task.CloseReport{Schema: closeSchema, ID: l.id}
	defer l.release()
	l.hush()
	t, err := m.cfg.DB.Task(ctx, l.id)
	if err != nil {
		return rep, errors.Join(err, m.kill(ctx, l))
	}
	rep.Rescued, rep.Retention = t.View.Results, t.View.Retention
	if err := m.endProcesses(ctx, l, t); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	if err := m.recoverApply(ctx, l, false); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	if err := sys.Fault("resume.failed"); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	r := cmp.Or(t.View.Retention, l.resumed, retention(t, "it could not be resumed"))
	rep.State, rep.Retention = task.Kept, r
	if _, err := l.log.AppendBulk(ctx, evidence.ResumeFailed, self, map[string]any{"error": cause.Error(), "code": string(task.CodeOf(cause))}); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	if _, err := l.log.Append(ctx, evidence.TaskKept, self, map[string]any{"until": r.Until.Format(time.RFC3339Nano), "why": r.Why}); err != nil {
		return m.stuck(ctx, l, rep, err)
	}
	err = m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		h := l.log.Head()
		if err := tx.SetHead(l.id, h.Seq, h.Hash); err != nil {
			return err
		}
		if t.View.State == task.Kept { // nothing was recorded yet
			if err := markIn(tx, l.id, l.observed); err != nil {
				return err
			}
		} else if err := m.keptIn(tx, l, r); err != nil {
			return err
		}
		return tx.ClearSupervisor(l.id)
	})
	return rep, err
}
