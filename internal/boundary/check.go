package boundary

import (
	"context"
	"errors"
	"strconv"
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

var _ = sys.RegisterFaults("check.intended", "check.measured", "check.recorded")

const (
	// maxChecks bounds the checks that a task's view has; the evidence has all.
	maxChecks = 100
	// maxDiffering bounds the files that a check names as changed.
	maxDiffering = 100
	maxCheckName = 60
)

// typed is what pins the command of a check that a person gave.
const typed = "typed"

// Check implements door.Engine.
func (m *Manager) Check(ctx context.Context, ref string, o door.CheckOptions, io *door.ExecIO) (*task.Check, task.Outcome, error) {
	err := checkName(o.Name)
	if id := m.inside(); err == nil && (id != "" || withinTask()) {
		err = task.Errorf(task.CodeDenied, "check", "this process belongs to a task: what is inside a boundary does not say what verifies it").
			WithHint("on the host, `caisson check TASK -- CMD`; inside, a command simply runs")
	}
	var t inventory.Task
	l := m.lookup(task.ID(ref))
	if err == nil && l == nil {
		if t, err = m.find(ctx, ref); err == nil {
			l = m.lookup(t.ID())
		}
	}
	if err == nil && l == nil {
		if err = m.checkable(t); err == nil {
			err = m.answerable(ctx, t)
		}
		if err == nil {
			return m.cfg.Remote(t.ID()).Check(ctx, o, io)
		}
	}
	if err != nil {
		closeFiles(io.Files[:])
		return nil, task.Outcome{}, err
	}
	return m.check(ctx, l, o, io)
}

// checkable refuses a task whose files no command can be run on.
func (m *Manager) checkable(t inventory.Task) error {
	if t.View.State == task.Ready {
		return nil
	}
	err := task.Errorf(task.CodeState, "check", "task %s is %s, and a check runs in an open one", t.ID(), t.View.State)
	switch t.View.State {
	case task.Kept:
		return err.WithHint("`caisson resume %s` opens it again", t.ID())
	case task.Closed:
		return left(err, &t.View)
	}
	return err.WithHint("`caisson show %s` says more", t.ID())
}

// checkName refuses what would not look in every list like what it is.
func checkName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
	if len(name) > maxCheckName || strings.Trim(name, letters) != "" || strings.HasPrefix(name, "-") {
		return task.Errorf(task.CodeUsage, "check", "%q is no name of a check: up to %d letters, digits and _ . -", short(name, 80), maxCheckName).
			WithHint("for example --name unit-tests")
	}
	return nil
}

// check runs one command on files that nothing else can change meanwhile, and
// puts on record what the host saw of both.
func (m *Manager) check(ctx context.Context, l *live, o door.CheckOptions, io *door.ExecIO) (_ *task.Check, out task.Outcome, err error) {
	handed := false
	defer func() {
		if !handed {
			closeFiles(io.Files[:])
		}
	}()
	if err := l.enter(); err != nil {
		return nil, out, err
	}
	defer l.calls.Done()
	what, err := m.pinned(ctx, l, &o)
	if err != nil {
		return nil, out, err
	}
	cmd := o.Command
	if len(cmd.Argv) == 0 {
		return nil, out, task.Errorf(task.CodeUsage, "check", "no command given")
	}
	wctx, stop := l.while(ctx)
	defer stop()
	tell(io.Progress, "waiting until nothing else runs in the task")
	over, refused := l.clear(wctx, lonely{"check", task.CodeState, "a check runs alone", "and check again"})
	if over != nil {
		defer over()
	}
	if refused != nil {
		return nil, out, refused
	}
	if cmd.Dir == "" {
		cmd.Dir = startDir(l, cmd.From)
	}
	tell(io.Progress, "reading the task's files")
	before, err := source.Measure(wctx, l.ws)
	if err != nil {
		return nil, out, err
	}
	c := &task.Check{Name: o.Name, Argv: cmd.Argv, Dir: cmd.Dir, Digest: callDigest("", task.Command{Argv: cmd.Argv, Dir: cmd.Dir}), Pinned: what.by, Tree: before.Tree, Ignored: before.Ignored + before.Unfit}
	intent := map[string]any{"name": c.Name, "argv": c.Argv, "argv_sha256": c.Digest, "dir": c.Dir, "env": envNames(cmd.Env), "pinned": c.Pinned, "tree": c.Tree, "ignored": c.Ignored}
	if what.policy != "" {
		intent["policy"] = what.policy
	}
	if _, err := l.log.Append(ctx, evidence.CheckIntent, m.actor(), intent); err != nil {
		return nil, out, err
	}
	if err := sys.Fault("check.intended"); err != nil {
		return nil, out, err
	}
	handed = true
	c.Begun = time.Now().UTC()
	out, ran, err := m.inTurn(ctx, l, cmd, io)
	if e := (*task.Error)(nil); what.by != typed && errors.As(err, &e) && (e.Code == task.CodeNoCommand || e.Code == task.CodeNotExecutable) {
		e.Msg = strconv.Quote(short(cmd.Argv[0], 200)) + ": " + e.Msg
		_ = e.WithHint("the check %s names it (%s)", c.Name, c.Pinned)
	}
	if !ran || task.CodeOf(err) == task.CodeOutcomeUnknown {
		return nil, out, errors.Join(err, m.outcome(ctx, l, evidence.CheckOutcome, map[string]any{"argv_sha256": c.Digest, "tree": c.Tree, "level": 0}, err))
	}
	c.Exit, c.Observed, c.Reason, c.Duration = out.Exit, out.Observed, out.Reason, out.Duration
	dctx, done := sys.Detach(ctx, cleanupTime)
	defer done()
	m.afterCheck(dctx, l, c)
	if ferr := sys.Fault("check.measured"); ferr != nil {
		return c, out, errors.Join(err, ferr)
	}
	return c, out, errors.Join(err, m.recordCheck(dctx, l, c))
}

// afterCheck reads the files again and says what the check is worth.
func (m *Manager) afterCheck(ctx context.Context, l *live, c *task.Check) {
	after, err := source.Measure(ctx, l.ws)
	if err == nil {
		c.After = after.Tree
	} else {
		m.cfg.Log("task " + string(l.id) + ": the files cannot be read after the check: " + err.Error())
	}
	c.Level, c.Why = policy.Worth(c)
	if c.After == "" || c.After == c.Tree {
		return
	}
	if c.Changed, err = source.Differing(ctx, l.ws, c.Tree, c.After, maxDiffering); err != nil {
		m.cfg.Log("task " + string(l.id) + ": " + err.Error())
	}
}

// recordCheck puts a check into the evidence, and then into the task's view:
// what the record does not have counts for nothing.
func (m *Manager) recordCheck(ctx context.Context, l *live, c *task.Check) error {
	body := map[string]any{"name": c.Name, "argv_sha256": c.Digest, "pinned": c.Pinned, "tree": c.Tree, "tree_after": c.After, "changed": c.Changed, "ignored": c.Ignored,
		"exit": c.Exit, "observed": c.Observed, "reason": c.Reason, "duration_ms": c.Duration.Milliseconds(), "level": c.Level, "why": c.Why}
	if _, err := l.log.Append(ctx, evidence.CheckOutcome, self, body); err != nil {
		return err
	}
	if err := m.cfg.DB.Update(ctx, l.id, func(v *task.View) {
		v.Checks = append(v.Checks, *c)
		v.Checks = v.Checks[max(0, len(v.Checks)-maxChecks):]
	}); err != nil {
		return err
	}
	return sys.Fault("check.recorded")
}
