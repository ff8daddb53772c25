package egress

import (
	"net/netip"
	"sync"
)

// synthetic is where the addresses come from that names have inside a boundary.
// It is set aside for measuring networks, so nothing that may be reached is there.
var synthetic = in("198.18.0.0/15")

// maxNames is the most names that one task gets addresses for.
const maxNames = 1 << 14

// names gives each name an address of its own for as long as the task lives.
// None is ever given to another name: a program may hold on to an address.
type names struct {
	mu     sync.Mutex
	byName map[string]netip.Addr
	byAddr map[netip.Addr]string
	last   netip.Addr
}

// addrOf returns the address of a name that was allowed; false when there are
// none left.
func (n *names) addrOf(name string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a, ok := n.byName[name]; ok {
		return a, true
	}
	if len(n.byName) >= maxNames {
		return netip.Addr{}, false
	}
	if n.byName == nil {
		n.byName, n.byAddr, n.last = map[string]netip.Addr{}, map[netip.Addr]string{}, synthetic.Addr()
	}
	n.last = n.last.Next()
	n.byName[name], n.byAddr[n.last] = n.last, name
	return n.last, true
}

// has says whether the name has an address.
func (n *names) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.byName[name]
	return ok
}

// nameOf returns whose address a is, "" for nobody's.
func (n *names) nameOf(a netip.Addr) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byAddr[a]
}

// meant puts the name in the place of an address that stands for one.
func (g *Gate) meant(d Dest) (Dest, error) {
	a := d.Host.Addr()
	if !a.IsValid() || !synthetic.Contains(a) {
		return d, nil
	}
	name := g.names.nameOf(a)
	if name == "" {
		return Dest{}, refuse(ReasonForm, "%s stands for no name that this task asked for", a)
	}
	return Dest{Host{name: name}, d.Port}, nil
}
