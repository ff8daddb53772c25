package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

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
	if a.Verdict != task.VerdictDeny {
		a = r.Outward.stops(p, a)
	} else if only := r.only(p); only != "" {
		a.Rule += ": " + only
	}
	return a, within
}

// maxOnly is the most rules that a refusal tells of.
const maxOnly = 3

// only says which requests are granted at a place where another is not.
func (r *Rules) only(p EgressPoint) string {
	var may []string
	for _, g := range r.Granted {
		if g.Egress == nil || len(g.Egress.Methods) == 0 && g.Egress.Path == "" {
			continue
		}
		place := *g.Egress
		place.Methods, place.Path = nil, ""
		if !place.coversWay(p) {
			continue
		}
		what := "requests"
		if m := g.Egress.Methods; len(m) > 0 {
			words := make([]string, len(m))
			for i := range m {
				words[i] = string(m[i])
			}
			what = strings.Join(words, ", ")
		}
		if g.Egress.Path != "" {
			what += " below " + string(g.Egress.Path)
		}
		if !slices.Contains(may, what) {
			may = append(may, what)
		}
	}
	if len(may) == 0 {
		return ""
	}
	if len(may) > maxOnly {
		may = append(may[:maxOnly], "some others")
	}
	return "only " + strings.Join(may, "; ") + " may be sent there"
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

// Leaving is what of r counts for the connections of one task: how much of the
// network it has, and what was allowed to it beside. A nil r is what is shipped.
func (r *Rules) Leaving(net NetMode, allowed []Granted) *Rules {
	out := &Rules{Net: Set[NetMode]{Value: net}}
	if r != nil {
		out.Outward = r.Outward
	}
	if r == nil {
		s := Shipped()
		for _, it := range s.Document.Deny.Items() {
			out.Denied = append(out.Denied, Denied{Item: it, From: Origin{Source: s.Source}})
		}
		r = &Rules{}
	}
	if most := r.Net; most.Value != "" && !net.Within(most.Value) {
		out.Net = Set[NetMode]{Value: NetNone, From: most.From} // it was more when it was decided, and is not any more
	}
	for _, d := range r.Denied {
		if d.Egress != nil {
			out.Denied = append(out.Denied, d)
		}
	}
	for _, g := range append(slices.Clone(allowed), r.Granted...) {
		if g.Egress != nil {
			out.Granted = append(out.Granted, g)
		}
	}
	for _, a := range r.Asked {
		if a.Egress != nil {
			out.Asked = append(out.Asked, a)
		}
	}
	return out
}

// Within says whether m is at most most. The zero value, and what is no mode, is
// within all and holds none but itself.
func (m NetMode) Within(most NetMode) bool {
	rank := func(m NetMode) int { return slices.Index(netModes, m) }
	return m == "" || m == NetNone || m == most || rank(most) >= 0 && rank(m) > rank(most)
}

// Everywhere is all of the network, which still takes rules of their own for
// special addresses.
func Everywhere() []Egress {
	return []Egress{{Host: HostAny}, {CIDR: mustCIDR("0.0.0.0/0")}, {CIDR: mustCIDR("::/0")}}
}

// UsualPlaces are the package registries and the repository's own remotes.
func UsualPlaces(remotes []string) []Egress {
	var out []Egress
	for _, h := range Registries {
		out = append(out, Egress{Host: h, Ports: []Port{{443, 443}}})
	}
	own := Egress{Host: HostOrigin, Ports: []Port{{22, 22}, {443, 443}}}
	for _, it := range (Item{Egress: &own}).expand("", remotes) {
		out = append(out, *it.Egress)
	}
	return out
}

// ParseAllow reads what a person allows: HOST:PORT, where HOST is a name, a
// pattern of names, an address or a range of them and PORT a number, a range or *;
// a name without a port, which stands for its ports 80 and 443; or METHOD URL, or a
// URL, which stands for what lies below it. One of https that names a method or a
// path has TLS to that place read on the host.
func ParseAllow(s string) (Egress, error) {
	no := func(format string, args ...any) (Egress, error) {
		return Egress{}, fmt.Errorf("%q is no HOST:PORT: %s", clip(s), fmt.Sprintf(format, args...))
	}
	if strings.Contains(s, "://") {
		p, err := ParseEgress(s)
		if err != nil {
			return Egress{}, err
		}
		e := Egress{Host: Host(p.Host), Ports: []Port{{p.Port, p.Port}}}
		if p.Addr.IsValid() {
			e.Host, e.CIDR = "", CIDR{netip.PrefixFrom(p.Addr, p.Addr.BitLen())}
		}
		if strings.Contains(s, "https://") {
			if p.Method == "" && p.Path == "/" {
				return checked(e, s) // all of it: nobody has to read that
			}
		}
		if p.Method != "" {
			e.Methods = []Method{Method(p.Method)}
		}
		if p.Path != "/" {
			if err := e.Path.UnmarshalText([]byte(p.Path)); err != nil {
				return Egress{}, err
			}
		}
		return checked(e, s)
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 && strings.Trim(s, "0123456789./") != "" {
		// A name alone is the web there, as a browser reads it.
		e, err := ParseAllow(s + ":443")
		if err == nil {
			e.Ports = []Port{{80, 80}, {443, 443}}
		}
		return e, err
	}
	if i <= 0 || strings.Count(s, ":") > 1 && !strings.HasPrefix(s, "[") {
		return no("the port is missing, or an IPv6 address stands without brackets")
	}
	host, port := strings.ToLower(s[:i]), s[i+1:]
	var e Egress
	if port != "*" {
		var p Port
		if err := p.UnmarshalText([]byte(port)); err != nil {
			return no("%v", err)
		}
		e.Ports = []Port{p}
	}
	if in, ok := strings.CutPrefix(host, "["); ok {
		if host, ok = strings.CutSuffix(in, "]"); !ok {
			return no("the bracket is not closed")
		}
	}
	if c := host; strings.Contains(c, "/") || strings.Contains(c, ":") || strings.Trim(c, "0123456789.") == "" {
		if err := e.CIDR.UnmarshalText([]byte(c)); err != nil {
			return no("%v", err)
		}
		return checked(e, s)
	}
	if err := e.Host.UnmarshalText([]byte(strings.TrimSuffix(host, "."))); err != nil {
		return no("%v", err)
	}
	return checked(e, s)
}

func checked(e Egress, s string) (Egress, error) {
	if e.Host == HostOrigin {
		return e, fmt.Errorf("%q: the repository's own remote comes with --net registries, or by its name", clip(s))
	}
	if h := string(e.Host); h == "localhost" || strings.HasSuffix(h, ".localhost") {
		return e, fmt.Errorf("%q: a name of the loopback interface means the task's own there; a service of this machine is 127.0.0.1:PORT", clip(s))
	}
	return e, e.Check()
}
