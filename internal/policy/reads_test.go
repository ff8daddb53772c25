package policy

import (
	"net/netip"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestReadsAddresses: where some hosts are to be read, TLS to an address that no
// rule names is read as well: such a host may be behind it.
func TestReadsAddresses(t *testing.T) {
	own := CIDR{netip.MustParsePrefix("93.184.215.20/32")}
	rules := func(read ...Host) *Rules {
		r := &Rules{Net: Set[NetMode]{Value: NetOpen}}
		for _, e := range Everywhere() {
			r.Granted = append(r.Granted, Granted{Item: Item{Egress: &e}})
		}
		r.Granted = append(r.Granted, Granted{Item: Item{Egress: &Egress{CIDR: own}}})
		for _, h := range read {
			r.Outward.Read = append(r.Outward.Read, Set[Host]{Value: h})
		}
		return r
	}
	point := func(host, addr string, port uint16) EgressPoint {
		p := EgressPoint{Host: host, Port: port}
		if addr != "" {
			p.Addr = netip.MustParseAddr(addr)
		}
		return p
	}
	for _, c := range []struct {
		name string
		r    *Rules
		p    EgressPoint
		want bool
	}{
		{"the host", rules("git.test"), point("git.test", "", 443), true},
		{"another", rules("git.test"), point("a.test", "", 443), false},
		{"an address", rules("git.test"), point("", "93.184.215.14", 443), true},
		{"an address, 8443", rules("**"), point("", "93.184.215.14", 8443), true},
		{"an address, another port", rules("git.test"), point("", "93.184.215.14", 22), false},
		{"an address of IPv6", rules("git.test"), point("", "2606:2800::1", 443), true},
		{"an address that a rule names", rules("git.test"), point("", "93.184.215.20", 443), false},
		{"nothing is to be read", rules(), point("", "93.184.215.14", 443), false},
	} {
		if got := c.r.Reads(c.p); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if a, _ := c.r.Way(c.p); a.Verdict != task.VerdictAllow {
			t.Errorf("%s: a dead test: %+v", c.name, a)
		}
	}
}
