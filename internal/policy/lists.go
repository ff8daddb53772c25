package policy

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/caisson-dev/caisson/internal/task"
)

// lists joins what grows.
func (m *merger) lists(d *Document) {
	r := m.r
	for _, a := range task.Axes {
		if l, ok := d.Floors[a]; ok && m.rules(m.at.Source) {
			m.level(&r.Floors, a, l, "floors."+string(a))
		} else if ok {
			m.level(&r.Raised, a, l, "floors."+string(a))
		}
		if l, ok := d.Raise[a]; ok {
			m.level(&r.Raised, a, l, "raise."+string(a))
		}
	}
	for path, it := range m.items("deny", d.Deny) {
		addOnce(m, "denied", &r.Denied, Denied{it, m.from(path)}, it.key())
	}
	for _, c := range task.Characteristics {
		for _, v := range d.Characteristics[c] {
			f := task.Fact{What: c, Value: v, Source: m.at.Source, Evidence: m.from("characteristics." + string(c)).Where, Confidence: task.Certain}
			addOnce(m, "facts", &r.Facts, f, string(c)+" "+v+" "+string(f.Source))
		}
	}
	for i, x := range d.TrustedChecks {
		m.add(func(o Origin) { addSet(m, "trusted_checks", &r.TrustedChecks, x, o) }, "trusted_checks", i)
	}
	for i, x := range d.Suppress {
		if x.Repo == "" || x.Repo.Matches(m.c.Repo...) {
			m.add(func(o Origin) { addSet(m, "suppress", &r.Suppressed, x, o) }, "suppress", i)
		}
	}
	for i, x := range d.Acceptances {
		if m.here(x.Repo, x.Ref, x.Expires) {
			m.add(func(o Origin) { addSet(m, "acceptances", &r.Accepted, x, o) }, "acceptances", i)
		}
	}
	for i, x := range d.Lower {
		if m.here(x.Repo, x.Ref, x.Expires) {
			m.add(func(o Origin) { m.lower(x.Characteristic, x.Value, o, x.Reason) }, "lower", i)
		}
	}
	if d.DecisionHook != nil {
		addSet(m, "hooks", &r.Hooks, *d.DecisionHook, m.from("decision_hook"))
	}
	if t := d.Tools; t != nil {
		for _, l := range []struct {
			v     task.Verdict
			rules []CallRule
		}{{task.VerdictDeny, t.Deny}, {task.VerdictAsk, t.Ask}, {task.VerdictAllow, t.Allow}} {
			for i, x := range l.rules {
				x.Path = x.Path.expand(m.c.Home)
				v := CallVerdict{l.v, x, m.from(fmt.Sprintf("tools.%s[%d]", l.v, i))}
				addOnce(m, "tools", &r.ToolRules, v, []any{l.v, x})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Credentials)) {
		if c := d.Credentials[name]; c != nil && !slices.ContainsFunc(r.Credentials, func(x CredentialFrom) bool { return x.Name == name }) {
			one := *c
			if one.Read.File = one.Read.File.expand(m.c.Home); c.Read.File != "" && one.Read.File == "" {
				continue // a home that is not known: a handle that cannot be read is none
			}
			r.Credentials = append(r.Credentials, CredentialFrom{name, one, m.from("credentials." + name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Services)) {
		if s := d.Services[name]; s != nil && !slices.ContainsFunc(r.Services, func(x ServiceFrom) bool { return x.Name == name }) {
			r.Services = append(r.Services, ServiceFrom{name, *s, m.from("services." + name)})
		}
	}
	for i, x := range d.Checks {
		if !slices.ContainsFunc(r.Checks, func(y Set[NamedCheck]) bool { return y.Value.Name == x.Name }) {
			m.add(func(o Origin) { addSet(m, "checks", &r.Checks, x, o) }, "checks", i)
		}
	}
	for i, x := range d.RiskyFiles {
		m.add(func(o Origin) { addSet(m, "risky_files", &r.RiskyFiles, x, o) }, "risky_files", i)
	}
	for i, x := range d.Tests {
		m.add(func(o Origin) { addSet(m, "tests", &r.Tests, x, o) }, "tests", i)
	}
}

func (m *merger) add(put func(Origin), list string, i int) {
	put(m.from(fmt.Sprintf("%s[%d]", list, i)))
}

func (m *merger) level(into *[]AxisLevel, a task.Axis, l int, path string) {
	i := slices.IndexFunc(*into, func(x AxisLevel) bool { return x.Axis == a })
	switch {
	case i < 0:
		*into = append(*into, AxisLevel{a, l, m.from(path)})
		sort.SliceStable(*into, func(i, j int) bool {
			return slices.Index(task.Axes, (*into)[i].Axis) < slices.Index(task.Axes, (*into)[j].Axis)
		})
	case l > (*into)[i].Level:
		(*into)[i] = AxisLevel{a, l, m.from(path)}
	}
}

// lower notes that less risk counts, and why; of several the least does.
func (m *merger) lower(c task.Characteristic, value string, o Origin, why string) {
	f := task.Fact{What: c, Value: value, Source: o.Source, Evidence: o.Where, Confidence: task.Certain}
	if why != "" {
		f.Evidence += ": " + why
	}
	addOnce(m, "lowered", &m.r.Lowered, f, string(c)+" "+value)
}

func addSet[T any](m *merger, list string, into *[]Set[T], v T, o Origin) {
	addOnce(m, list, into, Set[T]{v, o}, v)
}

// addOnce appends v unless the list has one with the same sense.
func addOnce[T any](m *merger, list string, into *[]T, v T, sense any) {
	k, is := sense.(string)
	if !is {
		k = digest(sense)
	}
	if k = list + " " + k; !m.seen[k] {
		m.seen[k] = true
		*into = append(*into, v)
	}
}

// here says whether a scope holds for this repository now.
func (m *merger) here(repo RepoPattern, ref string, expires Date) bool {
	return repo.Matches(m.c.Repo...) && (ref == "" || ref == m.c.Ref) && !expires.IsZero() && m.c.Now <= expires.Unix()
}

// items yields the patterns of an Authority with their paths, ~ and @origin
// replaced.
func (m *merger) items(at string, a *Authority) func(func(string, Item) bool) {
	return func(yield func(string, Item) bool) {
		n := map[string]int{}
		for _, it := range a.Items() {
			k := it.Kind()
			path := fmt.Sprintf("%s.%s[%d]", at, k, n[k])
			n[k]++
			for _, e := range it.expand(m.c.Home, m.c.Remotes) {
				if !yield(path, e) {
					return
				}
			}
		}
	}
}
