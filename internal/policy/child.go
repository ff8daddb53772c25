package policy

import (
	"slices"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// A child task gets at most the authority of its parent. Child and Within say
// that in two steps: what was asked for, and what came of it.

// Child fills what a request for a child leaves open from its parent, and
// refuses by name what asks for more. now bounds the time that is left.
func Child(parent *task.View, q task.Request, now time.Time) (task.Request, error) {
	no := func(format string, args ...any) *task.Error {
		return task.Errorf(task.CodeDenied, "plan", "a child of task "+string(parent.ID)+" has at most its authority: "+format, args...)
	}
	asked := func(flag string) bool { return q.Origin[flag] != "default" }
	if q.Repo == "" {
		q.Repo = parent.Source.Repo
	}
	if !asked("source") && parent.Source.Strategy == task.StrategyCopy {
		q.Strategy = task.StrategyCopy
	}
	if q.Base == "" && q.Strategy != task.StrategyCopy {
		q.Base = parent.Source.Base
	}
	if q.History == "" || !asked("history") {
		q.History = parent.Source.History
	}
	if q.Strategy == task.StrategyCheckout && parent.Source.Strategy != task.StrategyCheckout {
		return q, no("it has files of its own, not the checkout").WithHint("leave --source out")
	}
	if q.Strategy == task.StrategyCopy && parent.Source.Strategy != task.StrategyCopy {
		return q, no("a copy has files that no commit holds, and it was not given them").WithHint("leave --source out")
	}
	if more(histories, q.History, parent.Source.History) {
		return q, no("--history %s, and it has %s", q.History, parent.Source.History).WithHint("leave --history out")
	}
	if more(dirties, q.Dirty, parent.Source.Dirty) {
		return q, no("it was not given the checkout's uncommitted files that --dirty=%s carries in", q.Dirty).WithHint("leave --dirty out")
	}
	if q.Backend == "" || q.Backend == "auto" {
		q.Backend = parent.Backend
	}
	if q.Backend != parent.Backend {
		return q, no("its backend is %s, not %s", parent.Backend, q.Backend).WithHint("leave --backend out")
	}
	if q.Rootfs == "" && q.Image == "" {
		q.Rootfs, q.Image = parent.Rootfs, parent.Image
	}
	if q.Image != "" && q.Image != parent.Image {
		return q, no("its root is not the image %s", q.Image).WithHint("leave --image out")
	}
	if q.Trust && !parent.Trust {
		return q, no("nobody said to trust its code").WithHint("leave --trust out")
	}
	q.Unattended = q.Unattended || parent.Unattended
	if q.Agent == "" {
		q.Agent = parent.Agent // its demands hold for what it starts; the parent's floors do in any case
	}
	q.Need = parent.Need.Join(q.Need)
	switch {
	case parent.Asking == nil:
	case q.Asking.Rules != nil || q.Asking.Hook != "" || q.Asking.Frozen || q.Asking.Wait != 0:
		return q, no("its rules about tool calls hold for its children too").WithHint("give no rules of its own to the child")
	default:
		q.Asking = *parent.Asking
	}
	return q, limits(parent, &q, now, no)
}

var (
	histories = []task.History{task.HistoryNone, task.HistoryBase, task.HistoryFull}
	dirties   = []task.Dirty{task.DirtyNone, task.DirtyChanged, task.DirtyAll}
)

// more says whether a is more than b; what is not in the order is more than all.
func more[T comparable](order []T, a, b T) bool {
	i := slices.Index(order, a)
	return i < 0 || i > slices.Index(order, b)
}

// limits gives the child no more than the parent has, and of time no more than
// it has left.
func limits(parent *task.View, q *task.Request, now time.Time, no func(string, ...any) *task.Error) error {
	p, c := parent.Limits, &q.Limits
	for _, l := range []struct {
		flag         string
		child, upper *int64
	}{{"memory", &c.MemoryBytes, &p.MemoryBytes}, {"pids", &c.Pids, &p.Pids}, {"disk", &c.DiskBytes, &p.DiskBytes}, {"net-bytes", &c.NetBytes, &p.NetBytes}, {"net-connections", &c.NetConns, &p.NetConns}, {"net-rate", &c.NetRate, &p.NetRate}} {
		if *l.upper == 0 {
			continue // without one
		}
		if *l.child > *l.upper {
			return no("--%s is above its %d", l.flag, *l.upper).WithHint("leave --%s out", l.flag)
		}
		if *l.child == 0 {
			*l.child = *l.upper
		}
	}
	if p.CPUs != 0 {
		if c.CPUs > p.CPUs {
			return no("--cpus is above its %g", p.CPUs).WithHint("leave --cpus out")
		}
		if c.CPUs == 0 {
			c.CPUs = p.CPUs
		}
	}
	if p.Timeout == 0 {
		return nil
	}
	if c.Timeout > p.Timeout {
		return no("--timeout is above its %v", p.Timeout).WithHint("leave --timeout out")
	}
	left := (p.Timeout - now.Sub(parent.Created)).Truncate(time.Second)
	if left <= 0 {
		return no("its time is used up").WithHint("open another task")
	}
	if c.Timeout == 0 || c.Timeout > left {
		c.Timeout = left
	}
	return nil
}

// Within refuses a decided child that would have anything its parent has not:
// another repository, what a parent without its history cannot read, a grant, a
// toolchain, a level of isolation that is lower.
func Within(parent *task.View, p *task.PlanReport, tools []task.Tool) error {
	no := func(format string, args ...any) *task.Error {
		return task.Errorf(task.CodeDenied, "plan", "a child of task "+string(parent.ID)+" has at most its authority: "+format, args...)
	}
	if p.Source.Repo != parent.Source.Repo || p.Source.CommonDir != parent.Source.CommonDir {
		return no("it works on %s, not on %s", parent.Source.Repo, p.Source.Repo).WithHint("leave --repo out")
	}
	if parent.Source.History != task.HistoryFull && p.Source.Base != parent.Source.Base {
		return no("it can read what its base reaches, and the child's base is another").WithHint("leave --base out")
	}
	for _, g := range p.Grants {
		if !slices.ContainsFunc(parent.Grants, func(have task.Grant) bool { return have.Kind == g.Kind && have.Value == g.Value }) {
			return no("it was not given %s %s", g.Kind, g.Value).WithHint("open the parent with it, or leave it out here")
		}
	}
	for _, t := range tools {
		if !slices.ContainsFunc(parent.Tools, func(have task.Tool) bool { return have.Path == t.Path }) {
			return no("it does not see the toolchain %s", t.Path).WithHint("open the child with the PATH that the parent was opened with")
		}
	}
	for _, l := range p.Levels {
		i := slices.IndexFunc(parent.Levels, func(have task.Level) bool { return have.Axis == l.Axis })
		if i >= 0 && parent.Levels[i].Promised > 0 && l.Promised < parent.Levels[i].Promised {
			return no("%s would be %d, and it has %d (%s)", l.Axis, l.Promised, parent.Levels[i].Promised, l.How).WithHint("leave out what lowers it")
		}
	}
	return nil
}

// NotInherited leaves out what was accepted for a parent: a child needs an
// acceptance of its own. The operator's standing ones are nobody's to inherit.
func NotInherited(all []task.Acceptance, parent *task.View) []task.Acceptance {
	return slices.DeleteFunc(slices.Clone(all), func(a task.Acceptance) bool {
		return !a.Standing && (a.Task == parent.ID || slices.ContainsFunc(parent.Accepted, func(c task.Covered) bool { return c.Acceptance.ID == a.ID }))
	})
}
