package boundary

import (
	"context"
	"fmt"
	"slices"

	"github.com/caisson-dev/caisson/internal/task"
)

// choose weighs what a boundary around d.repo would be: with the backend that was
// asked for, or else with the first that gives what the task needs. Those that the
// policy prefers come first, then the rest, the one that brings least before the one
// that brings more; what is behind a sufficient one is not looked at. Nothing is made
// here, so nothing falls back: a backend is taken before the first effect, or none is.
func (m *Manager) choose(ctx context.Context, d *decided, id task.ID, argv []string) error {
	d.grants = slices.Clip(d.grants) // each trial adds its own
	fresh := *d
	err := m.weigh(ctx, d, id, argv)
	if err != nil && !elsewhere(err) || err == nil && !d.explain && len(d.plan.Plan.Missing) == 0 {
		return err
	}
	asked := d.req.Backend != "" && d.req.Backend != "auto"
	if asked && err == nil && !d.caps.Usable {
		err = task.Errorf(task.CodeUnavailable, "plan", "the backend %s cannot be used here: %s; nothing was created", d.driver.Name(), d.caps.Why).WithHint("%s", d.caps.Fix)
	}
	if asked && err != nil {
		return err
	}
	rows := []task.Considered{d.looked(err)}
	enough := err == nil && len(d.plan.Plan.Missing) == 0
	taken, none := d.driver.Name(), err
	for _, name := range m.after(d) {
		if enough {
			rows = append(rows, task.Considered{Backend: name, Why: "not looked at: " + taken + " comes before it and gives all that is needed"})
			continue
		}
		t := fresh
		t.ahead, t.trial, t.explain = nil, true, false // what was looked at ahead is another's
		if t.driver, err = m.driver(name); err != nil {
			continue // a policy may name what is not in this version
		}
		err = m.weigh(ctx, &t, id, argv)
		if ctx.Err() != nil {
			return err
		}
		row := t.looked(err)
		if row.Chosen && asked {
			row.Chosen, row.Why = false, "it would give all that is needed; --backend "+d.req.Backend+" was asked for"
		}
		if rows = append(rows, row); row.Chosen {
			t.explain = d.explain
			*d = t
			enough, taken, none = true, name, nil
		}
	}
	if none != nil {
		return none
	}
	if !enough && d.caps.Usable {
		rows[0].Chosen = true // it is what the plan is about, with what is missing
	}
	d.plan.Plan.Considered = append(rows, d.without())
	return nil
}

// elsewhere says that an error is about what one backend cannot do: another may.
func elsewhere(err error) bool {
	return task.CodeOf(err) == task.CodeUnsupported || task.CodeOf(err) == task.CodeUnavailable
}

// after lists the backends behind the one of d, in their order.
func (m *Manager) after(d *decided) []string {
	var order []string
	if r := d.rules.Rules; r != nil {
		order = append(order, r.Prefer.Value...)
	}
	for _, x := range m.cfg.Drivers {
		order = append(order, x.Name())
	}
	var out []string
	for _, n := range order {
		if n != d.driver.Name() && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// looked says of the backend of d, which was weighed with err, why it is, or is not,
// what the task gets. Chosen: it gives all that is needed.
func (d *decided) looked(err error) task.Considered {
	c := task.Considered{Backend: d.driver.Name()}
	switch {
	case err != nil:
		c.Why = err.Error()
	case !d.caps.Usable:
		c.Why = "not usable here: " + d.caps.Why
	case len(d.plan.Plan.Missing) > 0:
		c.Why, c.Short = "it does not give everything that is needed", d.short(d.plan.Effective)
	default:
		c.Chosen, c.Why, c.Short = true, "it promises every level that is needed", d.short(d.plan.Effective)
		if len(c.Short) > 0 {
			c.Why = "what it does not give is accepted"
		}
	}
	return c
}

// without says why a task has a boundary at all.
func (d *decided) without() task.Considered {
	c := task.Considered{Backend: "host", Why: "no execution boundary", Short: d.short(hostAlone)}
	if len(c.Short) == 0 {
		c.Why = "nothing more than a record is needed, but a boundary costs little: none is never taken on its own"
	}
	return c
}

// short lists the axes on which have is less than what is required.
func (d *decided) short(have task.Vector) (out []string) {
	for _, a := range task.Short(d.plan.Required, have) {
		out = append(out, fmt.Sprintf("%s %d, has %d", a, d.plan.Required[a], max(have[a], 0)))
	}
	return out
}

// hostAlone is what there is without a boundary: the record and the inventory.
var hostAlone = task.Vector{task.EVD: 2, task.CLN: 2, task.APR: task.LevelNA, task.VER: task.LevelNA, task.SVC: 0}
