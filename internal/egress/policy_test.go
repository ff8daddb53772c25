package egress_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/caisson-dev/caisson/internal/egress"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// judge is how rules become what a gate asks.
func judge(r *policy.Rules) egress.Judge {
	return func(p egress.Point) egress.Answer {
		a, within := r.Way(policy.EgressPoint{Host: p.Host, Addr: p.Addr, Port: p.Port, Method: p.Method, Path: p.Path})
		return egress.Answer{Verdict: a.Verdict, Rule: a.Rule, Range: within}
	}
}

type silent struct{}

func (silent) Decided(egress.Decision) error { return nil }
func (silent) Ended(egress.Outcome)          {}

type answers map[string]string

func (a answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if s, ok := a[host]; ok {
		return []netip.Addr{netip.MustParseAddr(s)}, nil
	}
	return nil, errors.New("asked for " + host)
}

// TestRulesOfPolicy holds the gate to rules as they are written.
func TestRulesOfPolicy(t *testing.T) {
	rule := func(host, cidr, port string) policy.Item {
		e := &policy.Egress{Host: policy.Host(host)}
		if cidr != "" {
			if err := e.CIDR.UnmarshalText([]byte(cidr)); err != nil {
				t.Fatal(err)
			}
		}
		var p policy.Port
		if err := p.UnmarshalText([]byte(port)); err != nil {
			t.Fatal(err)
		}
		e.Ports = []policy.Port{p}
		return policy.Item{Egress: e}
	}
	shipped := policy.Shipped()
	r := &policy.Rules{}
	for _, it := range shipped.Document.Deny.Items() {
		r.Denied = append(r.Denied, policy.Denied{Item: it})
	}
	for _, it := range []policy.Item{
		rule("**", "", "443"), rule("", "0.0.0.0/0", "443"), rule("db.test", "10.1.0.0/16", "5432"), rule("", "127.0.0.1", "8080"), rule("", "169.254.169.254", "80"),
	} {
		r.Granted = append(r.Granted, policy.Granted{Item: it, Via: "base"})
	}
	dialled := errors.New("dialled")
	g, err := egress.New(egress.Config{
		Judge: judge(r), Recorder: silent{},
		Resolver: answers{"a.test.": "93.184.215.14", "meta.test.": "169.254.169.254", "lan.test.": "10.1.2.3", "db.test.": "10.1.2.3", "local.test.": "127.0.0.1"},
		Dial:     func(context.Context, netip.AddrPort) (net.Conn, error) { return nil, dialled },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for dest, want := range map[string]egress.Reason{ // ReasonDial: it came as far as that
		"a.test:443": egress.ReasonDial, "a.test:80": egress.ReasonRule, "meta.test:443": egress.ReasonAddress, "lan.test:443": egress.ReasonAddress, "local.test:443": egress.ReasonAddress,
		"db.test:5432": egress.ReasonDial, "93.184.215.14:443": egress.ReasonDial, "10.1.2.3:443": egress.ReasonAddress, "10.1.2.3:5432": egress.ReasonRule,
		"127.0.0.1:8080": egress.ReasonDial, "127.0.0.1:443": egress.ReasonAddress, "169.254.169.254:80": egress.ReasonRule, "169.254.169.254:443": egress.ReasonRule,
	} {
		d, err := egress.ParseAuthority(dest, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Open(context.Background(), egress.Request{Proto: egress.ProtoConnect, Dest: d}); egress.ReasonOf(err) != want || task.CodeOf(err) == task.CodeInternal {
			t.Errorf("%s: %v, want %q", dest, err, want)
		}
	}
}
