package boundary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("deliver.planned", "deliver.intended", "deliver.applied", "branch.intended", "branch.made", "export.intended", "export.made")

// maxNamed bounds the files that one event names: a line of the record has at
// most a megabyte.
const maxNamed = 500

// Apply implements door.Engine: it brings what a task made into the user's
// checkout, all of it or nothing.
func (m *Manager) Apply(ctx context.Context, ref string, o door.ApplyOptions) (rep *task.ApplyReport, err error) {
	here := func(l *live, t inventory.Task) (err error) {
		rep, err = m.apply(ctx, l, t, o)
		return err
	}
	err = m.act(ctx, ref, doing{op: "apply", progress: o.Progress, live: here, ended: here,
		remote: func(r Remote) (err error) { rep, err = r.Apply(ctx, o); return err }})
	return rep, err
}

// apply does it in the process that holds the task's lock and record.
func (m *Manager) apply(ctx context.Context, l *live, t inventory.Task, o door.ApplyOptions) (*task.ApplyReport, error) {
	ctx, stop := l.while(ctx)
	defer stop()
	if err := m.recoverApply(ctx, l, false); err != nil {
		return nil, err
	}
	if t.View.Source.Strategy == task.StrategyCheckout {
		return nil, task.Errorf(task.CodeState, "apply", "task %s works in your checkout itself: there is nothing to bring into it", l.id).
			WithHint("`caisson diff %s` shows what it changed", l.id)
	}
	r, risks, err := m.look(ctx, &t, o.Progress, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	tell(o.Progress, "comparing with your checkout")
	p, err := r.PlanApply(ctx, source.ApplyOptions{Source: t.View.Source, Journal: filepath.Join(l.dir, applyDir), Env: m.cfg.Environ, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	defer p.Close()
	rep := &task.ApplyReport{
		Schema: "caisson.apply/1", ID: l.id, DryRun: o.DryRun, Checkout: p.Checkout, Digest: p.Digest, Changes: p.Changes, Already: p.Already,
		Risky: risks, Conflicts: p.Conflicts, From: r.From, Notes: append(m.asOfNow(l), p.Notes...),
	}
	if rep.Verification, err = m.verification(ctx, &t.View, r.Tree); err != nil {
		return rep, err
	}
	if err := sys.Fault("deliver.planned"); err != nil {
		return rep, err
	}
	switch {
	case len(p.Conflicts) > 0:
		return rep, task.Errorf(task.CodeConflict, "apply", "the result collides with what is in %s (%s); nothing was changed", p.Checkout, files(len(p.Conflicts))).
			WithHint("`caisson branch %s` makes a branch of the result, which git can merge; or commit and resolve what differs, then apply again", l.id)
	case o.DryRun || len(p.Changes) == 0:
		if s := p.Hindrance(); s != "" {
			rep.Notes = append(rep.Notes, s)
		}
		return rep, nil
	case rep.Verification.Refused():
		return rep, m.mayLeave(ctx, "apply", &t.View, rep.Verification)
	case o.Agreed != "" && o.Agreed != p.Digest:
		return rep, task.Errorf(task.CodeDenied, "apply", "what was agreed to is not what would be done now; nothing was changed").
			WithHint("the task or the checkout changed meanwhile: look at it again")
	case len(risks) > 0 && !o.AllowRisky && o.Agreed == "":
		return rep, task.Errorf(task.CodeDenied, "apply", "the result has risky files (%s), which tools on this machine would execute or trust; nothing was changed", files(task.RiskyFiles(risks))).
			WithHint("look at them: `caisson diff %s`; then `caisson apply --allow-risky %s`", l.id, l.id)
	}
	if err := m.mayLeave(ctx, "apply", &t.View, rep.Verification); err != nil {
		return rep, err
	}
	intent := map[string]any{"verification": verifiedBody(rep.Verification), "digest": p.Digest, "checkout": p.Checkout, "from": r.From, "start": r.Start, "tree": r.Tree, "changes": len(p.Changes), "already": p.Already,
		"files": named(p.Changes), "risky": riskyNamed(risks), "allow_risky": o.AllowRisky, "agreed": o.Agreed != ""}
	if _, err := l.log.Append(ctx, evidence.ApplyIntent, m.actor(), intent); err != nil {
		return rep, err
	}
	if err := sys.Fault("deliver.intended"); err != nil {
		return rep, err
	}
	tell(o.Progress, "changing your checkout")
	err = p.Apply(ctx)
	rep.Applied = err == nil
	if err == nil {
		err = sys.Fault("deliver.applied")
	}
	return rep, errors.Join(err, m.outcome(ctx, l, evidence.ApplyOutcome, map[string]any{"digest": p.Digest, "applied": rep.Applied}, err))
}

// Branch implements door.Engine: it makes what a task made a branch of the
// user's repository.
func (m *Manager) Branch(ctx context.Context, ref string, o door.BranchOptions) (rep *task.BranchReport, err error) {
	here := func(l *live, t inventory.Task) (err error) {
		rep, err = m.branch(ctx, l, t, o)
		return err
	}
	err = m.act(ctx, ref, doing{op: "branch", progress: o.Progress, live: here, ended: here,
		remote: func(r Remote) (err error) { rep, err = r.Branch(ctx, o); return err }})
	return rep, err
}

func (m *Manager) branch(ctx context.Context, l *live, t inventory.Task, o door.BranchOptions) (*task.BranchReport, error) {
	ctx, stop := l.while(ctx)
	defer stop()
	if err := m.fetch(ctx, l, t, o.Progress); err != nil {
		return nil, err
	}
	r, risks, err := m.look(ctx, &t, o.Progress, o.Risky)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	v, err := m.leaves(ctx, "branch", &t.View, r.Tree)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"verification": verifiedBody(v), "branch": r.BranchName(o.Name), "force": o.Force, "from": r.From, "tree": r.Tree, "risky": riskyNamed(risks)}
	if _, err := l.log.Append(ctx, evidence.BranchIntent, m.actor(), body); err != nil {
		return nil, err
	}
	if err := sys.Fault("branch.intended"); err != nil {
		return nil, err
	}
	tell(o.Progress, "making the branch")
	rep, err := r.Branch(ctx, source.BranchOptions{Repo: t.View.Source, Name: o.Name, Force: o.Force})
	if err == nil {
		err = sys.Fault("branch.made")
	}
	out := map[string]any{}
	if rep != nil {
		rep.Risky, rep.Notes, rep.Verification = risks, append(m.asOfNow(l), rep.Notes...), v
		out = map[string]any{"branch": rep.Branch, "object": rep.Object, "commits": rep.Commits, "files": rep.Files, "created": rep.Created}
	}
	return rep, errors.Join(err, m.outcome(ctx, l, evidence.BranchOutcome, out, err))
}

// Export implements door.Engine: it writes what a task made to w, or as files
// into a folder.
func (m *Manager) Export(ctx context.Context, ref string, w io.Writer, o door.ExportOptions) (rep *task.ExportReport, err error) {
	here := func(l *live, t inventory.Task) (err error) {
		rep, err = m.export(ctx, l, t, w, o)
		return err
	}
	err = m.act(ctx, ref, doing{op: "export", progress: o.Progress, live: here, ended: here,
		remote: func(r Remote) (err error) { rep, err = r.Export(ctx, w, o); return err }})
	return rep, err
}

func (m *Manager) export(ctx context.Context, l *live, t inventory.Task, w io.Writer, o door.ExportOptions) (*task.ExportReport, error) {
	ctx, stop := l.while(ctx)
	defer stop()
	if o.Form == source.FormBundle { // the only form that holds commits
		if err := m.fetch(ctx, l, t, o.Progress); err != nil {
			return nil, err
		}
	}
	r, risks, err := m.look(ctx, &t, o.Progress, o.Risky)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	to := o.Dir
	if to == "" {
		to = "-"
	}
	v, err := m.leaves(ctx, "export", &t.View, r.Tree)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"verification": verifiedBody(v), "form": o.Form, "to": to, "from": r.From, "tree": r.Tree, "files": len(r.Changes), "risky": riskyNamed(risks)}
	if _, err := l.log.Append(ctx, evidence.ExportIntent, m.actor(), body); err != nil {
		return nil, err
	}
	if err := sys.Fault("export.intended"); err != nil {
		return nil, err
	}
	tell(o.Progress, "writing the "+o.Form)
	rep, err := r.Export(ctx, source.ExportOptions{Form: o.Form, W: w, Dir: o.Dir, Apart: []string{m.cfg.StateDir, m.cfg.RuntimeDir}})
	if err == nil {
		err = sys.Fault("export.made")
	}
	out := map[string]any{"form": o.Form}
	if rep != nil {
		rep.Risky, rep.Notes, rep.Verification = risks, append(m.asOfNow(l), rep.Notes...), v
		out["files"], out["bytes"], out["object"] = rep.Files, rep.Bytes, rep.Object
	}
	return rep, errors.Join(err, m.outcome(ctx, l, evidence.ExportOutcome, out, err))
}

// look reads the result and what of it is risky, which is told before anything
// is done. The caller closes the result.
func (m *Manager) look(ctx context.Context, t *inventory.Task, progress func(string), risky func([]task.Risk)) (*source.Result, []task.Risk, error) {
	tell(progress, "reading the task's result")
	r, err := m.result(ctx, t, progress)
	if err != nil {
		return nil, nil, err
	}
	risks, err := r.Risks(ctx, matching(t.View.RiskyFiles))
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	if risky != nil && len(risks) > 0 {
		risky(risks)
	}
	return r, risks, nil
}

// fetch brings commits made inside to the host's own view of the task, where
// its files are still there and have any that it lacks.
func (m *Manager) fetch(ctx context.Context, l *live, t inventory.Task, progress func(string)) error {
	if !m.hasFiles(l) || t.View.State == task.Closed {
		return nil
	}
	ws := m.workspace(&t, progress)
	needs, err := source.NeedsFetch(ctx, ws)
	if err != nil || !needs {
		return err
	}
	tell(progress, "fetching the task's commits")
	return m.bundle(ctx, l, t, evidence.FetchIntent, func(ctx context.Context, r io.Reader) error { return source.Fetch(ctx, ws, r, maxBundle) })
}

// while returns a context that also ends when the task is being ended: what has
// not begun to change anything by then gives way.
func (l *live) while(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// asOfNow says that what was read may go on changing.
func (m *Manager) asOfNow(l *live) []string {
	if inst, _ := l.standing(); inst != nil {
		return []string{"the task is open: this is its result as of now"}
	}
	return nil
}

// outcome records how an operation ended that was announced.
func (m *Manager) outcome(ctx context.Context, l *live, typ evidence.Type, body map[string]any, err error) error {
	if err != nil {
		body["error"], body["code"] = err.Error(), string(task.CodeOf(err))
	}
	dctx, done := sys.Detach(ctx, cleanupTime)
	defer done()
	_, aerr := l.log.Append(dctx, typ, self, body)
	return aerr
}

// named lists changes for the record.
func named(cs []task.FileChange) []string {
	var out []string
	for _, c := range cs[:min(len(cs), maxNamed)] {
		out = append(out, c.Status+" "+c.Path)
	}
	return out
}

// riskyNamed lists risky files for the record.
func riskyNamed(rs []task.Risk) []string {
	var out []string
	for _, r := range rs[:min(len(rs), maxNamed)] {
		out = append(out, r.Rule+" "+r.Path)
	}
	return out
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}
