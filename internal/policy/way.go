package policy

import (
	"net/netip"

	"github.com/caisson-dev/caisson/internal/task"
)

// Way answers what a connection asks on its way out, where a name is decided
// about before it has an address, and before a port is known when only its
// address inside is asked for: what is not known yet (an invalid Addr, Port 0)
// does not keep a grant from covering the point, and a denial counts that holds
// whatever it will be. Ask again with each address. within is the narrowest range
// of addresses in a grant or a request that covers p: a rule about names alone
// says nothing about addresses.
func (r *Rules) Way(p EgressPoint) (a Answer, within netip.Prefix) {
	a = Answer{Verdict: task.VerdictDeny, Rule: "nothing grants it"}
	if p.Host == "" && !p.Addr.IsValid() {
		return a, within
	}
	for _, d := range r.Denied {
		if d.Egress != nil && d.Egress.deniesWay(p) {
			return Answer{Verdict: task.VerdictDeny, Rule: "denied: " + d.Kind() + " " + d.Item.String(), From: d.From}, within
		}
	}
	if r.Net.Value == NetNone {
		return Answer{Verdict: task.VerdictDeny, Rule: "net is none", From: r.Net.From}, within
	}
	take := func(v task.Verdict, it Item, rule string, from Origin) {
		if it.Egress == nil || !it.Egress.coversWay(p) || a.Verdict == task.VerdictAllow && v != task.VerdictAllow {
			return
		}
		if a.Verdict != v {
			a, within = Answer{Verdict: v, Rule: rule, From: from}, netip.Prefix{}
		}
		if c := it.Egress.CIDR; !c.IsZero() && (!within.IsValid() || c.Bits() > within.Bits()) {
			within = c.Prefix
		}
	}
	for _, g := range r.Granted {
		take(task.VerdictAllow, g.Item, "granted by "+g.Via+": "+g.Kind()+" "+g.Item.String(), g.From)
	}
	for _, q := range r.Asked {
		take(task.VerdictAsk, q.Item, "asked for, and a person is to agree: "+q.Kind()+" "+q.Item.String(), q.From)
	}
	return a, within
}

// coversWay is Covers for a point of which some is not known yet.
func (e *Egress) coversWay(p EgressPoint) bool {
	known := *e
	if p.Port == 0 {
		// Whether some port may be reached, by whatever method.
		p.Port, known.Ports, known.Methods, known.Path = 1, nil, nil, ""
	}
	if !p.Addr.IsValid() && known.Host != "" {
		known.CIDR = CIDR{}
	}
	return known.Covers(p)
}

// deniesWay is Touches for a point of which some is not known yet: a denial of
// some ports denies no name.
func (e *Egress) deniesWay(p EgressPoint) bool {
	if p.Port == 0 {
		if len(e.Ports) > 0 || len(e.Methods) > 0 || e.Path != "" {
			return false
		}
		p.Port = 1
	}
	return e.Touches(p)
}
