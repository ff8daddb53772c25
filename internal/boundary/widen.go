package boundary

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/approval"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

const allowSchema = "caisson.allow/1"

// maxWidened is the most destinations that are added to one task.
const maxWidened = 100

// viaWidened is how a destination that was added is called in rules.
const viaWidened = "allow, while it was open"

// Allow implements door.Engine.
func (m *Manager) Allow(ctx context.Context, ref string, o door.AllowOptions) (*task.AllowReport, error) {
	for _, s := range slices.Concat(o.Places, o.Withdraw) {
		if _, err := addition(s); err != nil {
			return nil, err
		}
	}
	var out *task.AllowReport
	err := m.act(ctx, ref, doing{
		op: "allow",
		live: func(l *live, t inventory.Task) (err error) {
			out, err = m.allow(ctx, l, o)
			return err
		},
		remote: func(x Remote) (err error) { out, err = x.Allow(ctx, o); return err },
		ended: func(l *live, t inventory.Task) error {
			return task.Errorf(task.CodeState, "allow", "task %s is %s: nothing in it reaches anything", l.id, t.View.State).WithHint("`caisson resume %s` opens a kept task again, with what it was opened with", l.id)
		},
	})
	return out, err
}

// addition reads a destination that is to be added. All of the network is none:
// that is told, accepted and measured when a task is opened.
func addition(s string) (policy.Egress, error) {
	e, err := policy.ParseAllow(s)
	if err != nil {
		return e, task.Errorf(task.CodeUsage, "allow", "%v", err).WithHint("for example example.com:443, '*.example.com:443' or 127.0.0.1:5432")
	}
	if e.Host == policy.HostAny || e.CIDR.IsValid() && e.CIDR.Bits() < 8 {
		return e, task.Errorf(task.CodeUsage, "allow", "%s is everything, and an open task gets single destinations", s).
			WithHint("`caisson open --net open` opens a task that reaches everything, and says so")
	}
	return e, nil
}

func (m *Manager) allow(ctx context.Context, l *live, o door.AllowOptions) (*task.AllowReport, error) {
	attend(l.dir)
	rep := &task.AllowReport{Schema: allowSchema, Task: l.id}
	for _, s := range o.Withdraw {
		if err := m.narrow(ctx, l, s); err != nil {
			return nil, err
		}
	}
	for _, s := range o.Places {
		notes, err := m.widen(ctx, l, "user", task.Widened{To: s, By: m.actor().ID, Reason: approval.Visible(short(o.Reason, 500)), At: time.Now().UTC()})
		if err != nil {
			return nil, err
		}
		rep.Notes = append(rep.Notes, notes...)
	}
	t, err := m.cfg.DB.Task(ctx, l.id)
	if err != nil {
		return nil, err
	}
	if rep.Widened = t.View.Widened; rep.Widened == nil {
		rep.Widened = []task.Widened{}
	}
	return rep, nil
}

// mayWiden says whether somebody may have a destination added, by the rules of
// this moment. A model's request is for a person to answer; ask says so.
func (m *Manager) mayWiden(ctx context.Context, l *live, who policy.Delegatee, e policy.Egress) (ask bool, err error) {
	if l.passage() == nil {
		return false, task.Errorf(task.CodeDenied, "allow", "task %s has no way out, and none can be added to a boundary that stands", l.id).
			WithHint("a person opens one with `caisson open --net allowlist`")
	}
	if l.ca == nil && len(policy.OneGrant(e).ReadPlaces()) > 0 {
		return false, task.Errorf(task.CodeDenied, "allow", "methods and paths in TLS are read where programs inside trust the gate to do it, and this boundary was made without that").
			WithHint("allow all of the place, HOST:443, or a person opens a task with the rule: `caisson open --allow`")
	}
	t, err := m.cfg.DB.Task(ctx, l.id)
	if err != nil {
		return false, err
	}
	d, err := m.again(ctx, &t.View)
	if err != nil {
		return false, err
	}
	r := d.rules.Rules
	if r == nil {
		s := policy.Shipped()
		if r, err = policy.Merge([]policy.Sourced{s}, policy.Context{Home: m.cfg.Identity.Home}); err != nil {
			return false, err
		}
	}
	if most := r.Net; most.Value == policy.NetNone {
		return false, refusal("allow "+e.String(), "net is none", most.From)
	}
	a := r.Wish(who, policy.Item{Egress: &e})
	if a.Verdict == task.VerdictDeny {
		err := refusal("allow "+e.String(), a.Rule, a.From)
		if who != "user" {
			err = err.WithHint("a person can add it themselves with `caisson allow %s %s`, where the policy lets them; else go on without it", l.id, addable(e))
		}
		return false, err
	}
	return who != "user", m.parentReaches(ctx, t.View.Parent, e)
}

// parentReaches refuses what the parent of a child task may not reach.
func (m *Manager) parentReaches(ctx context.Context, parent task.ID, e policy.Egress) error {
	if parent == "" {
		return nil
	}
	t, err := m.cfg.DB.Task(ctx, parent)
	if err != nil {
		return err
	}
	d, err := m.again(ctx, &t.View)
	if err != nil {
		return err
	}
	if !lets(d.leaving, e) {
		return task.Errorf(task.CodeDenied, "allow", "a child of task %s has at most its authority, and that may not reach %s", parent, e).
			WithHint("`caisson allow %s %s` lets the parent reach it", parent, addable(e))
	}
	return nil
}

// addable is e as `caisson allow` takes it.
func addable(e policy.Egress) string {
	s := e.String()
	return task.ShellWord(strings.Fields(s)[0])
}

// widen adds one destination: on record first, then for the gate. It lasts as
// long as the boundary.
func (m *Manager) widen(ctx context.Context, l *live, who policy.Delegatee, w task.Widened) ([]string, error) {
	e, err := addition(w.To)
	if err != nil {
		return nil, err
	}
	if _, err := m.mayWiden(ctx, l, who, e); err != nil {
		return nil, err
	}
	// No decision is made anew meanwhile from a view without it.
	l.decision.mu.Lock()
	defer l.decision.mu.Unlock()
	t, err := m.cfg.DB.Task(ctx, l.id)
	if err != nil {
		return nil, err
	}
	switch {
	case slices.ContainsFunc(t.View.Widened, func(o task.Widened) bool { return o.To == w.To }):
		return []string{w.To + " was added before"}, nil
	case len(t.View.Widened) >= maxWidened:
		return nil, task.Errorf(task.CodeLimit, "allow", "%d destinations were added to the task, which is the most", maxWidened)
	}
	body := map[string]any{"to": w.To, "by": w.By}
	if w.Reason != "" {
		body["reason"] = w.Reason
	}
	if w.Question != "" {
		body["question"] = w.Question
	}
	if _, err := l.log.Append(ctx, evidence.EgressWidened, m.actor(), body); err != nil {
		return nil, err
	}
	if err := m.cfg.DB.Update(ctx, l.id, func(v *task.View) { v.Widened = append(v.Widened, w) }); err != nil {
		return nil, err
	}
	old := l.leaving.Load()
	if old == nil {
		old = (*policy.Rules)(nil).Leaving(policy.NetAllowlist, nil)
	}
	next := *old
	next.Granted = append(slices.Clone(old.Granted), policy.Granted{Item: policy.Item{Egress: &e}, Via: viaWidened, From: policy.Origin{Source: task.SourceFlag}})
	l.leaving.Store(&next)
	return l.onlyProxy(e), nil
}

// onlyProxy says where programs that know no proxy do not get: what listens
// inside was made with the boundary.
func (l *live) onlyProxy(e policy.Egress) []string {
	w := l.spec.Way
	if w == nil {
		return nil
	}
	for _, p := range e.Ports {
		for n := int(p.Low); n <= int(p.High); n++ {
			if own := e.CIDR.IsValid() && e.CIDR.Addr().IsLoopback(); own || !slices.Contains(w.Ports, uint16(n)) {
				return []string{"programs reach " + e.String() + " only through the proxy in HTTP_PROXY and ALL_PROXY: what catches the others was made when the task was opened"}
			}
		}
	}
	return nil
}

// narrow takes one destination back. Connections that are open go on.
func (m *Manager) narrow(ctx context.Context, l *live, to string) error {
	e, err := addition(to)
	if err != nil {
		return err
	}
	l.decision.mu.Lock()
	defer l.decision.mu.Unlock()
	t, err := m.cfg.DB.Task(ctx, l.id)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(t.View.Widened, func(o task.Widened) bool { return o.To == to }) {
		return task.Errorf(task.CodeNotFound, "allow", "%s was not added to the task while it was open", to).WithHint("`caisson allow %s` lists what was", l.id)
	}
	if old := l.leaving.Load(); old != nil {
		next := *old
		next.Granted = slices.DeleteFunc(slices.Clone(old.Granted), func(g policy.Granted) bool { return g.Via == viaWidened && g.Item.String() == e.String() })
		l.leaving.Store(&next)
	}
	if err := m.cfg.DB.Update(ctx, l.id, func(v *task.View) {
		v.Widened = slices.DeleteFunc(v.Widened, func(o task.Widened) bool { return o.To == to })
	}); err != nil {
		return err
	}
	_, err = l.log.Append(ctx, evidence.EgressNarrowed, m.actor(), map[string]any{"to": to})
	return err
}

// added are the destinations that were added to an open task, of those that the
// rules of this moment still let be added.
func (d *decided) added() (out []policy.Granted) {
	for _, w := range d.widened {
		e, err := addition(w.To)
		if err != nil {
			continue
		}
		it := policy.Item{Egress: &e}
		if r := d.rules.Rules; r != nil && r.Wish("user", it).Verdict != task.VerdictAllow {
			continue
		}
		out = append(out, policy.Granted{Item: it, Via: viaWidened, From: policy.Origin{Source: task.SourceFlag}})
	}
	return out
}
