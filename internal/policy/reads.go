package policy

import "slices"

// partial says whether e is about some methods or paths alone.
func (e *Egress) partial() bool { return len(e.Methods) > 0 || e.Path != "" }

// wholly is e for every method and path.
func (e *Egress) wholly() *Egress {
	w := *e
	w.Methods, w.Path = nil, ""
	return &w
}

// Reads says whether every request to a destination must be seen to be decided
// about: some of them may be allowed, and rules about it that count name methods or
// paths. p has neither.
func (r *Rules) Reads(p EgressPoint) bool {
	p.Method, p.Path = "", ""
	if r == nil || r.Net.Value == NetNone || p.Port == 0 {
		return false
	}
	some := false
	for _, d := range r.Denied {
		if d.Egress == nil || !d.Egress.wholly().deniesWay(p) {
			continue
		}
		if !d.Egress.partial() {
			return false // whatever it is
		}
		some = true
	}
	for _, x := range r.Outward.Ask {
		some = some || x.partial() && x.wholly().deniesWay(p)
	}
	some = some || slices.Contains(readPorts, p.Port) && (r.Outward.reads(p.Host) || r.mayBeRead(p))
	may, all := false, false
	part := some
	take := func(e *Egress, grants bool) {
		if e == nil || !e.wholly().coversWay(p) {
			return
		}
		may = true
		part = part || e.partial()
		all = all || grants && !e.partial()
	}
	for _, g := range r.Granted {
		take(g.Egress, true)
	}
	for _, a := range r.Asked {
		take(a.Egress, false)
	}
	return may && part && (some || !all)
}

// mayBeRead says whether a host that is to be read may be behind an address that
// is asked for without a name: any address that no rule names.
func (r *Rules) mayBeRead(p EgressPoint) bool {
	named := func(e *Egress) bool { return e != nil && e.CIDR.IsValid() && e.CIDR.Bits() > 0 && e.coversWay(p) }
	return p.Host == "" && p.Addr.IsValid() && len(r.Outward.Read) > 0 &&
		!slices.ContainsFunc(r.Granted, func(g Granted) bool { return named(g.Egress) }) &&
		!slices.ContainsFunc(r.Asked, func(a Asked) bool { return named(a.Egress) })
}

// OneGrant are rules that allow e and nothing else.
func OneGrant(e Egress) *Rules {
	return &Rules{Net: Set[NetMode]{Value: NetAllowlist}, Granted: []Granted{{Item: Item{Egress: &e}}}}
}

// ReadPlaces lists the rules that have TLS read: see Reads. Those about port 80 alone
// are not among them.
func (r *Rules) ReadPlaces() (out []string) {
	if r == nil || r.Net.Value == NetNone {
		return nil
	}
	plain := func(e *Egress) bool {
		return len(e.Ports) > 0 && !slices.ContainsFunc(e.Ports, func(p Port) bool { return p.Low != 80 || p.High != 80 })
	}
	put := func(e *Egress) {
		if s := e.String(); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	var open []*Egress // what may be reached, after a question or without
	for _, g := range r.Granted {
		if g.Egress != nil {
			open = append(open, g.Egress)
		}
	}
	free := slices.Clone(open)
	for _, a := range r.Asked {
		if a.Egress != nil {
			open = append(open, a.Egress)
		}
	}
	for _, e := range open {
		if e.partial() && !plain(e) && !slices.ContainsFunc(free, func(g *Egress) bool { return !g.partial() && e.In(g) }) {
			put(e)
		}
	}
	for _, d := range r.Denied {
		if e := d.Egress; e != nil && e.partial() && !plain(e) && slices.ContainsFunc(open, func(g *Egress) bool { return e.meets(g) }) {
			put(e)
		}
	}
	for _, x := range r.Outward.Ask {
		if e := &x.Egress; e.partial() && !plain(e) && slices.ContainsFunc(open, func(g *Egress) bool { return e.meets(g) }) {
			put(e)
		}
	}
	for _, h := range r.Outward.Read {
		e := &Egress{Host: h.Value}
		for _, n := range readPorts {
			e.Ports = append(e.Ports, Port{n, n})
		}
		if slices.ContainsFunc(open, func(g *Egress) bool { return e.meets(g) }) {
			put(e)
		}
	}
	return out
}

// readPorts are those of a host in outward.read at which TLS carries HTTP: what else
// it has stays as it is.
var readPorts = []uint16{443, 8443}

// meets says whether some destination may be in both. It errs on the side of yes.
func (e *Egress) meets(g *Egress) bool {
	if e.Host != "" && g.Host != "" && !e.Host.in(g.Host) && !g.Host.in(e.Host) {
		return false
	}
	return len(e.Ports) == 0 || len(g.Ports) == 0 || slices.ContainsFunc(e.Ports, func(a Port) bool {
		return slices.ContainsFunc(g.Ports, func(b Port) bool { return a.Low <= b.High && b.Low <= a.High })
	})
}
