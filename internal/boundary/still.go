package boundary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// A task that is open is decided anew when what its decision rests on has
// changed: a policy file, a record of trust, an acceptance, the time. Each new
// command asks, which takes a few looks at files; what runs already goes on.

// unwatchedAfter is the shipped time without a person after which a task that
// nobody attends counts as unwatched for long.
const unwatchedAfter = time.Hour

// standingDecision is the last decision about a task that is open.
type standingDecision struct {
	mu    sync.Mutex
	known bool
	stamp string    // of what it rests on
	until time.Time // it may change by itself then; zero: never
	err   error     // why nothing new may begin

	rests   map[task.Axis]task.Acceptance // what the boundary rests on where it lacks a layer
	lapsed  []task.Axis                   // of those that are over, where that is why nothing new may begin
	watched bool                          // something looks whether it still does
}

// begin takes over the decision that a task is opened by.
func (s *standingDecision) begin(d *decided) {
	s.known, s.stamp = true, d.stamp
	for _, c := range d.plan.Plan.Accepted {
		s.sooner(c.Acceptance.Expires)
	}
	s.restOn(d.plan.Plan.Accepted)
	if _, at := broad(d.req.Unattended, time.Now(), d.unwatched, time.Now()); !at.IsZero() {
		s.sooner(at)
	}
}

func (s *standingDecision) sooner(t time.Time) {
	if s.until.IsZero() || t.Before(s.until) {
		s.until = t
	}
}

// attendedPath is a file whose time of change is when a person last did something
// in the task.
func attendedPath(dir string) string { return filepath.Join(dir, "attended") }

// attend notes that a person did something in a task: typed a command at a
// terminal, answered a question. What cannot be noted counts as nobody.
func attend(dir string) {
	now := time.Now()
	if os.Chtimes(attendedPath(dir), now, now) == nil {
		return
	}
	if f, err := os.OpenFile(attendedPath(dir), os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		_ = f.Close()
	}
}

// attended is when somebody last did something in a task.
func attended(dir string, v *task.View) time.Time {
	if i, err := os.Stat(attendedPath(dir)); err == nil && i.ModTime().After(v.Created) {
		return i.ModTime()
	}
	return v.Created
}

// broad says why a task counts as broad unsupervised work: nobody is asked, and
// nobody was there for long. Empty: it does not; then until is when it will.
func broad(unattended bool, since time.Time, after time.Duration, now time.Time) (why string, until time.Time) {
	if !unattended || since.IsZero() {
		return "", time.Time{}
	}
	if after <= 0 {
		after = unwatchedAfter
	}
	if until = since.Add(after); now.Before(until) {
		return "", until
	}
	return fmt.Sprintf("--unattended, and nobody did anything in it for %s", after), time.Time{}
}

// stamp changes when what decisions rest on does.
func (m *Manager) stamp(repo string) string {
	s := fileStamp(filepath.Join(m.decisionsDir(), "events.jsonl"))
	if m.cfg.Stamp != nil {
		s += m.cfg.Stamp(repo)
	}
	return s
}

func fileStamp(path string) string {
	i, err := os.Stat(path)
	if err != nil {
		return "-;"
	}
	return fmt.Sprintf("%d.%d;", i.Size(), i.ModTime().UnixNano())
}

// mayBegin refuses something new in a task whose boundary has no longer what is
// needed. person: a person is at a terminal and asks for it.
func (m *Manager) mayBegin(ctx context.Context, l *live, person bool) error {
	if m.cfg.Policy == nil {
		return nil
	}
	if person {
		attend(l.dir)
	}
	s := &l.decision
	s.mu.Lock()
	defer s.mu.Unlock()
	return m.decideAnew(ctx, l)
}

// decideAnew is mayBegin for who holds the decision's lock.
func (m *Manager) decideAnew(ctx context.Context, l *live) error {
	s := &l.decision
	stamp := m.stamp(l.checkout)
	if s.known && s.err == nil && s.stamp == stamp && (s.until.IsZero() || time.Now().Before(s.until)) {
		return nil
	}
	first := !s.known
	until, lapsed, err := m.still(ctx, l)
	if task.CodeOf(err) == task.CodeDenied {
		err = noLonger(l.id, err)
	}
	if err != nil && task.CodeOf(err) != task.CodeBoundaryMissing && task.CodeOf(err) != task.CodeDenied {
		s.known, s.lapsed = false, nil
		return err // a policy that cannot be read lets nothing begin
	}
	if err != nil && (s.err == nil || first) {
		dctx, done := sys.Detach(ctx, time.Minute)
		defer done()
		if _, lerr := l.log.Append(dctx, evidence.BoundaryBlocked, self, map[string]any{"error": err.Error(), "code": string(task.CodeOf(err))}); lerr != nil {
			m.cfg.Log("task " + string(l.id) + ": " + lerr.Error())
		}
	}
	s.known, s.stamp, s.until, s.lapsed, s.err = true, stamp, until, lapsed, err
	return err
}

// noLonger is the refusal of a task that has what the policy does not allow any
// more: a folder, a variable or an ability is taken from no boundary that stands.
func noLonger(id task.ID, err error) error {
	why := err.Error()
	var e *task.Error
	if errors.As(err, &e) {
		why = e.Msg
	}
	return task.Errorf(task.CodeDenied, "policy.still", "nothing new begins in task %s, which has what the policy does not allow any more: %s; what runs goes on", id, why).
		WithHint("`caisson close %s` ends it with its work brought out; `caisson policy show` says what holds here", id)
}

// still decides a task anew and holds that against the boundary that stands.
func (m *Manager) still(ctx context.Context, l *live) (time.Time, []task.Axis, error) {
	t, err := m.cfg.DB.Task(ctx, l.id)
	if err != nil {
		return time.Time{}, nil, err
	}
	v := &t.View
	d, err := m.again(ctx, v)
	if err != nil {
		if c := task.CodeOf(err); c == task.CodeDenied || c == task.CodePolicy || c == task.CodeUsage {
			l.lendNone(err)
		}
		return time.Time{}, nil, err
	}
	l.lendStill(d.lent)
	l.ruleBy(d) // at once, whatever comes of the rest
	b := policy.StandingBoundary{Task: l.id, Proved: task.Vector{}, Seen: map[task.Axis]string{}, Began: v.Accepted, Now: time.Now(), Rests: l.decision.rests, Grace: grace}
	for _, lv := range v.Levels {
		b.Proved[lv.Axis], b.Seen[lv.Axis] = lv.Proved, lv.Seen
	}
	if len(v.Accepted)+len(b.Rests) > 0 {
		all, err := m.cfg.DB.Acceptances(ctx)
		if err != nil {
			return time.Time{}, nil, err
		}
		gone := map[string]bool{}
		for _, a := range all {
			gone[a.ID] = a.Revoked != nil
		}
		b.Revoked = func(id string) bool { g, ok := gone[id]; return g || !ok && !strings.HasPrefix(id, "standing:") }
	}
	until, lapsed, err := d.plan.Still(b)
	if err == nil {
		l.decision.restOn(append(v.Accepted[:len(v.Accepted):len(v.Accepted)], d.plan.Plan.Accepted...))
		m.watchRest(l)
	}
	if !d.broadAt.IsZero() && (until.IsZero() || d.broadAt.Before(until)) {
		until = d.broadAt
	}
	return until, lapsed, err
}

// ruled is what the policy says about calls; it does not change under who has it.
func (l *live) ruled() *policy.Calls {
	if r := l.rules.Load(); r != nil {
		return r
	}
	return &policy.Calls{}
}

// ruleBy has the rules of a decision count from here on.
func (l *live) ruleBy(d *decided) {
	r := d.calls()
	l.rules.Store(&r)
	l.leaving.Store(d.leaving)
}
