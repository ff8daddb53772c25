package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/caisson-dev/caisson/internal/task"
)

// Change is one difference between two sets of rules.
type Change struct {
	Path  string `json:"path"`
	Text  string `json:"text"`
	Loose bool   `json:"loose"` // the second allows more, or demands less
	From  Origin `json:"from"`  // in the second; of what is gone, in the first
}

// Diff says what became reachable, and what else changed, from a to b.
func Diff(a, b *Rules) []Change {
	d := differ{out: []Change{}}
	d.reach(a, b)
	d.levels("floors", a.Floors, b.Floors)
	d.levels("raised", demanded(a), demanded(b))

	lessOrNone(&d, "max_ttl", a.MaxTTL, b.MaxTTL, Duration.String)
	lessOrNone(&d, "wait", a.Wait, b.Wait, Duration.String)
	lessOrNone(&d, "unwatched_after", a.Unwatched, b.Unwatched, Duration.String)
	lessOrNone(&d, "limits.memory", a.Limits.Memory, b.Limits.Memory, Size.String)
	lessOrNone(&d, "limits.cpus", a.Limits.CPUs, b.Limits.CPUs, number[Number])
	lessOrNone(&d, "limits.pids", a.Limits.Pids, b.Limits.Pids, number[Count])
	lessOrNone(&d, "limits.disk", a.Limits.Disk, b.Limits.Disk, Size.String)
	lessOrNone(&d, "limits.timeout", a.Limits.Timeout, b.Limits.Timeout, Duration.String)
	lessOrNone(&d, "limits.net_bytes", a.Limits.NetBytes, b.Limits.NetBytes, Size.String)
	lessOrNone(&d, "limits.net_connections", a.Limits.NetConns, b.Limits.NetConns, number[Count])
	lessOrNone(&d, "limits.net_rate", a.Limits.NetRate, b.Limits.NetRate, number[Count])
	lessOrNone(&d, "budget.tasks", a.Budget.Tasks, b.Budget.Tasks, number[Count])
	lessOrNone(&d, "budget.memory", a.Budget.Memory, b.Budget.Memory, Size.String)
	lessOrNone(&d, "budget.cpus", a.Budget.CPUs, b.Budget.CPUs, number[Number])
	lessOrNone(&d, "budget.disk", a.Budget.Disk, b.Budget.Disk, Size.String)
	lessOrNone(&d, "retention.environments", a.Retention.Environments, b.Retention.Environments, Duration.String)
	if x, y := a.Retention.Evidence, b.Retention.Evidence; x.Value != y.Value {
		d.add("retention.evidence", said(x.Value > 0, x.Value.String())+" → "+said(y.Value > 0, y.Value.String()), y.Value < x.Value, y.From, x.From)
	}
	later(&d, "budget.when_full", a.Budget.WhenFull, b.Budget.WhenFull, fulls)
	later(&d, "delegation", a.Delegation, b.Delegation, delegations)
	later(&d, "net", a.Net, b.Net, netModes)
	later(&d, "outward.verdict", a.Outward.Verdict, b.Outward.Verdict, verdicts)
	later(&d, "tool_default", a.ToolDefault, b.ToolDefault, verdicts)
	d.flag("frozen", a.Frozen, b.Frozen, false)
	d.flag("unattended", a.Unattended, b.Unattended, false)
	d.flag("trusted", a.Trusted, b.Trusted, true)
	allowTrust := func(s Set[bool]) Set[bool] {
		if (s.From == Origin{}) {
			s.Value = true
		}
		return s
	}
	d.flag("allow_trust", allowTrust(a.AllowTrust), allowTrust(b.AllowTrust), true)
	d.assurances(a, b)
	d.backends(a, b)

	set(&d, "lowered", a.Lowered, b.Lowered, true, func(f task.Fact) (any, string, Origin) {
		return []string{string(f.What), f.Value}, string(f.What) + " " + f.Value, Origin{f.Source, f.Evidence}
	})
	set(&d, "facts", a.Facts, b.Facts, false, func(f task.Fact) (any, string, Origin) {
		return []string{string(f.What), f.Value}, string(f.What) + " " + f.Value, Origin{f.Source, f.Evidence}
	})
	sets(&d, "trusted_checks", a.TrustedChecks, b.TrustedChecks, true)
	sets(&d, "suppressed", a.Suppressed, b.Suppressed, true)
	sets(&d, "acceptances", a.Accepted, b.Accepted, true)
	sets(&d, "delegable", a.Delegable, b.Delegable, true)
	sets(&d, "decision_hooks", a.Hooks, b.Hooks, false)
	sets(&d, "risky_files", a.RiskyFiles, b.RiskyFiles, false)
	set(&d, "outward.ask", a.Outward.Ask, b.Outward.Ask, false, func(x OutwardFrom) (any, string, Origin) { return x.Egress, x.Egress.String(), x.From })
	sets(&d, "outward.read", a.Outward.Read, b.Outward.Read, false)
	sets(&d, "checks", a.Checks, b.Checks, false)
	for _, v := range verdicts {
		only := func(r *Rules) []CallVerdict {
			return slices.DeleteFunc(slices.Clone(r.ToolRules), func(x CallVerdict) bool { return x.sound() != v })
		}
		set(&d, "tools."+string(v), only(a), only(b), v == task.VerdictAllow, func(x CallVerdict) (any, string, Origin) { return x.CallRule, x.CallRule.String(), x.From })
	}
	d.credentials(a, b)
	set(&d, "services", a.Services, b.Services, false, func(s ServiceFrom) (any, string, Origin) { return []any{s.Name, s.Service}, s.Name, s.From })
	return d.out
}

// credentials compares handles: a new one opens something only where it is lent,
// and of a changed one nobody knows that it opens no more.
func (d *differ) credentials(a, b *Rules) {
	find := func(r *Rules, name string) *CredentialFrom {
		for i := range r.Credentials {
			if r.Credentials[i].Name == name {
				return &r.Credentials[i]
			}
		}
		return nil
	}
	for _, x := range b.Credentials {
		switch y := find(a, x.Name); {
		case y == nil:
			lent := slices.ContainsFunc(b.Granted, func(g Granted) bool { return g.Credential.Covers(x.Name) })
			d.add("credentials", "new: "+x.Name+": "+x.Credential.String(), lent, x.From, x.From)
		case digest(y.Credential) != digest(x.Credential):
			d.add("credentials", "changed: "+x.Name+": "+x.Credential.String(), true, x.From, x.From)
		}
	}
	for _, y := range a.Credentials {
		if find(b, y.Name) == nil {
			d.add("credentials", "gone: "+y.Name+": "+y.Credential.String(), false, Origin{}, y.From)
		}
	}
}

type differ struct{ out []Change }

func (d *differ) add(path, text string, loose bool, o, gone Origin) {
	if (o == Origin{}) {
		o = gone
	}
	d.out = append(d.out, Change{path, text, loose, o})
}

// reach compares what may be reached. An item counts as reached before when one
// item of before holds it: what several hold together is told too often, never
// too seldom.
func (d *differ) reach(a, b *Rules) {
	kept := func(it Item, gs []Granted) bool {
		return slices.ContainsFunc(gs, func(g Granted) bool { return it.In(g.Item) })
	}
	for _, g := range b.Granted {
		if !kept(g.Item, a.Granted) {
			d.add("granted", "reachable now: "+g.Kind()+" "+g.Item.String(), true, g.From, g.From)
		}
	}
	for _, g := range a.Granted {
		if !kept(g.Item, b.Granted) {
			d.add("granted", "no more reachable as a whole: "+g.Kind()+" "+g.Item.String(), false, Origin{}, g.From)
		}
	}
	denied := func(it Item, ds []Denied) bool {
		return slices.ContainsFunc(ds, func(x Denied) bool { return it.deniedBy(x.Item) })
	}
	for _, x := range a.Denied {
		if !denied(x.Item, b.Denied) {
			d.add("denied", "no more denied: "+x.Kind()+" "+x.Item.String(), true, Origin{}, x.From)
		}
	}
	for _, x := range b.Denied {
		if !denied(x.Item, a.Denied) {
			d.add("denied", "denied now: "+x.Kind()+" "+x.Item.String(), false, x.From, x.From)
		}
	}
	for _, x := range b.Asked {
		if !kept(x.Item, a.Granted) && !slices.ContainsFunc(a.Asked, func(y Asked) bool { return x.Item.In(y.Item) }) {
			d.add("asked", "reachable now when a person agrees: "+x.Kind()+" "+x.Item.String(), true, x.From, x.From)
		}
	}
	d.ceilings(a, b)
}

// deniedBy says whether a denial of other stops all that a denial of it stops.
func (it Item) deniedBy(other Item) bool {
	if it.Mount != nil && other.Mount != nil {
		return other.Mount.Path.holds(it.Mount.Path) && (other.Mount.Mode != AccessRW || it.Mount.Mode == AccessRW)
	}
	if it.Command != nil && other.Command != nil {
		return it.Command.In(other.Command)
	}
	return it.In(other)
}

// ceilings compares what each source may ask for.
func (d *differ) ceilings(a, b *Rules) {
	of := func(r *Rules, who Delegatee) []CeilingFrom {
		return slices.DeleteFunc(slices.Clone(r.Ceilings), func(c CeilingFrom) bool { return c.For != who })
	}
	for _, who := range Delegatees {
		before, after := of(a, who), of(b, who)
		if len(after) == 0 {
			for _, c := range before {
				d.add("delegate."+string(who), "nothing may be asked for any more", false, Origin{}, c.From)
			}
			continue
		}
		if len(before) == 0 {
			d.add("delegate."+string(who), "something may be asked for now", true, after[0].From, after[0].From)
			continue
		}
		// What lies in all of after lies in before when one of after does.
		for _, old := range before {
			if !slices.ContainsFunc(after, func(c CeilingFrom) bool { return c.Authority.In(&old.Authority) && !looserMode(old.Mode, c.Mode) }) {
				d.add("delegate."+string(who), "more may be asked for, or with fewer questions", true, after[0].From, old.From)
			}
		}
		for _, now := range after {
			if !slices.ContainsFunc(before, func(c CeilingFrom) bool { return c.Authority.In(&now.Authority) && !looserMode(now.Mode, c.Mode) }) {
				d.add("delegate."+string(who), "less may be asked for, or with more questions", false, now.From, now.From)
			}
		}
	}
}

// looserMode says whether b asks less often than a.
func looserMode(a, b Mode) bool {
	rank := func(m Mode) int {
		if m == "" {
			m = ModeAsk
		}
		return slices.Index(modes, m)
	}
	return rank(b) < rank(a)
}

// demanded are the levels that count: raised ones and floors.
func demanded(r *Rules) []AxisLevel {
	out := slices.Clone(r.Raised)
	for _, f := range r.Floors {
		if i := slices.IndexFunc(out, func(x AxisLevel) bool { return x.Axis == f.Axis }); i < 0 {
			out = append(out, f)
		} else if f.Level > out[i].Level {
			out[i] = f
		}
	}
	return out
}

func (d *differ) levels(path string, a, b []AxisLevel) {
	at := func(l []AxisLevel, axis task.Axis) AxisLevel {
		for _, x := range l {
			if x.Axis == axis {
				return x
			}
		}
		return AxisLevel{}
	}
	for _, axis := range task.Axes {
		if x, y := at(a, axis), at(b, axis); x.Level != y.Level {
			d.add(path, fmt.Sprintf("%s %d → %d", axis, x.Level, y.Level), y.Level < x.Level, y.From, x.From)
		}
	}
}

// lessOrNone compares limits: none at all is the most.
func lessOrNone[T cmp.Ordered](d *differ, path string, a, b Set[T], show func(T) string) {
	var zero T
	if a.Value == b.Value {
		return
	}
	loose := a.Value != zero && (b.Value == zero || b.Value > a.Value)
	d.add(path, said(a.Value != zero, show(a.Value))+" → "+said(b.Value != zero, show(b.Value)), loose, b.From, a.From)
}

func said(given bool, text string) string {
	if !given {
		return "not set"
	}
	return text
}

func number[T any](n T) string { return fmt.Sprint(n) }

// later compares two words of an order, the loosest first; none is the loosest.
func later[T ~string](d *differ, path string, a, b Set[T], order []T) {
	if a.Value != b.Value {
		d.add(path, said(a.Value != "", string(a.Value))+" → "+said(b.Value != "", string(b.Value)), max(slices.Index(order, b.Value), 0) < max(slices.Index(order, a.Value), 0), b.From, a.From)
	}
}

func (d *differ) flag(path string, a, b Set[bool], loose bool) {
	if a.Value != b.Value {
		d.add(path, fmt.Sprintf("%v → %v", a.Value, b.Value), b.Value == loose, b.From, a.From)
	}
}

func (d *differ) assurances(a, b *Rules) {
	axes := []AssuranceAxis{"default"}
	for _, x := range task.Axes {
		axes = append(axes, AssuranceAxis(x))
	}
	at := func(r *Rules, x AssuranceAxis) (AssuranceFrom, bool) {
		i := slices.IndexFunc(r.MinAssurance, func(y AssuranceFrom) bool { return y.Axis == x })
		if i < 0 {
			return AssuranceFrom{}, false
		}
		return r.MinAssurance[i], true
	}
	for _, x := range axes {
		before, had := at(a, x)
		after, has := at(b, x)
		if before.Least == after.Least {
			continue
		}
		loose := slices.Index(Assurances, after.Least) < slices.Index(Assurances, before.Least)
		if had != has && x != "default" {
			// The default takes the place of what is not named.
			def, _ := at(a, "default")
			if has {
				loose = slices.Index(Assurances, after.Least) < slices.Index(Assurances, def.Least)
			}
		}
		d.add("min_assurance", fmt.Sprintf("%s %s → %s", x, said(had, string(before.Least)), said(has, string(after.Least))), loose, after.From, before.From)
	}
}

func (d *differ) backends(a, b *Rules) {
	x, y := a.Allowed, b.Allowed
	if digest(x.Value) != digest(y.Value) {
		loose := x.Value != nil && (y.Value == nil || slices.ContainsFunc(y.Value, func(n string) bool { return !slices.Contains(x.Value, n) }))
		d.add("backends_allowed", fmt.Sprintf("%s → %s", said(x.Value != nil, fmt.Sprint(x.Value)), said(y.Value != nil, fmt.Sprint(y.Value))), loose, y.From, x.From)
	}
	if digest(a.Prefer.Value) != digest(b.Prefer.Value) {
		d.add("backends_prefer", fmt.Sprintf("%v → %v", a.Prefer.Value, b.Prefer.Value), false, b.Prefer.From, a.Prefer.From)
	}
}

func sets[T any](d *differ, path string, a, b []Set[T], gives bool) {
	set(d, path, a, b, gives, func(s Set[T]) (any, string, Origin) { return s.Value, text(s), s.From })
}

// set compares two lists. gives says that an item of the list allows something.
func set[T any](d *differ, path string, a, b []T, gives bool, show func(T) (any, string, Origin)) {
	index := func(l []T) map[string]bool {
		m := map[string]bool{}
		for _, x := range l {
			k, _, _ := show(x)
			m[digest(k)] = true
		}
		return m
	}
	was, is := index(a), index(b)
	for _, x := range b {
		if k, text, o := show(x); !was[digest(k)] {
			d.add(path, "new: "+text, gives, o, o)
		}
	}
	for _, x := range a {
		if k, text, o := show(x); !is[digest(k)] {
			d.add(path, "gone: "+text, !gives, Origin{}, o)
		}
	}
}
