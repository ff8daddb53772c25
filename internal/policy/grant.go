package policy

import (
	"fmt"
	"slices"

	"github.com/caisson-dev/caisson/internal/task"
)

// authority collects the ceilings, before anything is held against them.
func (m *merger) authority() {
	own, some := map[Delegatee]bool{}, map[Delegatee]bool{} // who rules here said it; also the shipped policy
	for _, s := range m.docs {
		for _, d := range Delegatees {
			if c := s.Document.Delegate[d]; c != nil && m.rules(s.Source) {
				own[d] = own[d] || s.Source != task.SourceDefault
				some[d] = true
			}
		}
	}
	for _, s := range m.docs {
		for _, d := range Delegatees {
			c := s.Document.Delegate[d]
			if c == nil || s.Source == task.SourceDefault && own[d] || !some[d] {
				continue // a user beside an operator narrows, and opens nothing
			}
			out := Ceiling{Mode: c.Mode}
			for _, it := range c.Items() {
				for _, e := range it.expand(m.c.Home, m.c.Remotes) {
					out.Add(e)
				}
			}
			f := CeilingFrom{For: d, Ceiling: out, From: s.origin("delegate." + string(d))}
			addOnce(m, "ceilings", &m.r.Ceilings, f, []any{d, out})
		}
	}
}

// trusted decides whether the repository's code is known.
func (m *merger) trusted() {
	r := m.r
	for _, s := range m.docs {
		for i, x := range s.Document.Trust {
			if !m.here(x.Repo, x.Ref, x.Expires) || !m.rules(s.Source) && (m.untrusting() || m.said(task.SourceOperator, "unfamiliar")) {
				continue
			}
			o := s.origin(fmt.Sprintf("trust[%d]", i))
			m.lower(task.CodeTrust, "trusted", o, x.Reason)
			if !r.Trusted.Value {
				r.Trusted = Set[bool]{true, o}
			}
		}
	}
	// A person's word ends what those below say, not what the operator says; and
	// that code is hostile takes an entry with an end to take back.
	if m.c.Trusted && !r.Trusted.Value && !m.untrusting() && !m.said(task.SourceOperator, "unfamiliar") && !m.said("", "hostile") {
		r.Trusted = Set[bool]{true, m.c.TrustedBy}
		m.lower(task.CodeTrust, "trusted", m.c.TrustedBy, "")
	}
}

// said tells whether a source, or with "" any, declared the code to be this
// risky or more.
func (m *merger) said(by task.Source, value string) bool {
	return slices.ContainsFunc(m.r.Facts, func(f task.Fact) bool {
		return f.What == task.CodeTrust && (by == "" || f.Source == by) && f.What.Risk(f.Value) >= f.What.Risk(value)
	})
}

// untrusting says that a person's word about a repository does not count.
func (m *merger) untrusting() bool {
	return m.r.AllowTrust.From != Origin{} && !m.r.AllowTrust.Value
}

// requests holds what is asked for against the ceilings.
func (m *merger) requests() {
	for _, s := range m.docs {
		m.at = s
		if m.rules(s.Source) {
			for path, it := range m.items("base", s.Document.Base) {
				m.grant(it, "base", m.from(path))
			}
		} else {
			for path, it := range m.items("base", s.Document.Base) {
				m.request(it, m.from(path))
			}
		}
		for path, it := range m.items("request", s.Document.Request) {
			m.request(it, m.from(path))
		}
	}
	// What is granted anyway needs no question.
	m.r.Asked = slices.DeleteFunc(m.r.Asked, func(a Asked) bool {
		return slices.ContainsFunc(m.r.Granted, func(g Granted) bool { return a.Item.In(g.Item) })
	})
}

func (m *merger) request(it Item, o Origin) {
	d := delegateeOf(o.Source)
	mode, why := m.r.ceiling(d, it)
	switch {
	case why != "":
		addOnce(m, "refused", &m.r.Refused, Refused{it, why, o}, it.key()+" "+string(o.Source))
	case mode == ModeAuto, mode == ModeTrusted && m.r.Trusted.Value:
		m.grant(it, "request", o)
	case slices.ContainsFunc(m.c.Agreed, func(a Item) bool { return a.key() == it.key() }):
		m.grant(it, "request, agreed to", o)
	default:
		addOnce(m, "asked", &m.r.Asked, Asked{it, o}, it.key())
	}
}

// grant notes what may be reached; what is denied as a whole is told as refused.
func (m *merger) grant(it Item, via string, o Origin) {
	for _, d := range m.r.Denied {
		if it.deniedBy(d.Item) {
			addOnce(m, "refused", &m.r.Refused, Refused{it, "it is denied: " + d.Item.String() + " (" + d.From.String() + ")", o}, it.key()+" "+string(o.Source))
			return
		}
	}
	addOnce(m, "granted", &m.r.Granted, Granted{it, via, o}, it.key())
}
