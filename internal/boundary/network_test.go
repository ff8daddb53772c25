package boundary

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// TestListen: sockets stand where programs that know no proxy would go, and
// nowhere else.
func TestListen(t *testing.T) {
	for _, c := range []struct {
		allow []string
		ports []uint16
		six   []uint16
		at    []string
		all   bool
		proxy uint16
	}{
		{nil, []uint16{80, 443}, nil, nil, true, proxyPort},
		{[]string{"a.test:22", "b.test:443", "c.test:8000-8002"}, []uint16{22, 80, 443, 8000, 8001, 8002}, nil, nil, true, proxyPort},
		{[]string{"127.0.0.1:5432", "[::1]:5433"}, []uint16{80, 443}, nil, []string{"127.0.0.1:5432", "[::1]:5433"}, true, proxyPort},
		{[]string{"127.0.0.1:5432", "db.test:5432"}, []uint16{80, 443, 5432}, nil, nil, true, proxyPort},
		{[]string{"[::1]:5432", "db.test:5432"}, []uint16{80, 443, 5432}, nil, []string{"[::1]:5432"}, true, proxyPort},
		{[]string{"[2001:db8::1]:5432", "127.0.0.1:5433"}, []uint16{80, 443, 5432}, []uint16{5432}, []string{"127.0.0.1:5433"}, true, proxyPort},
		{[]string{"[2001:db8::1]:5432", "127.0.0.1:5432"}, []uint16{80, 443, 5432}, nil, nil, true, proxyPort},
		{[]string{"[2001:db8::1]:5432", "127.0.0.1:5432", "[::1]:5432"}, []uint16{80, 443, 5432}, []uint16{5432}, nil, true, proxyPort},
		{[]string{"127.0.0.0/8:9000"}, []uint16{80, 443, 9000}, nil, nil, true, proxyPort},
		{[]string{"a.test:61080-61081"}, []uint16{80, 443, 61080, 61081}, nil, nil, true, 61082},
		{[]string{"127.0.0.1:61080"}, []uint16{80, 443}, nil, []string{"127.0.0.1:61080"}, true, 61081},
	} {
		d := &decided{req: task.Request{Allow: c.allow}}
		w, all, _ := listen((*policy.Rules)(nil).Leaving(policy.NetAllowlist, d.places()))
		if !slices.Equal(w.Ports, c.ports) || !slices.Equal(w.Six, c.six) || !slices.Equal(w.At, c.at) || all != c.all || w.Proxy != c.proxy {
			t.Errorf("%q: %+v %v", c.allow, w, all)
		}
	}
	d := &decided{req: task.Request{Allow: []string{"a.test:1-65535"}}}
	if w, all, _ := listen((*policy.Rules)(nil).Leaving(policy.NetAllowlist, d.places())); all || len(w.Ports) != maxCaught {
		t.Errorf("%d sockets for all ports, told: %v", len(w.Ports), !all)
	}
}

func TestCheckNet(t *testing.T) {
	for _, q := range []task.Request{{Net: "all"}, {Net: "none", Allow: []string{"a.test:1"}}, {Allow: []string{""}}, {Net: "open", Allow: []string{"127.0.0.1"}}} {
		if err := checkNet(&q); task.CodeOf(err) != task.CodeUsage {
			t.Errorf("%+v: %v", q, err)
		}
	}
	for _, q := range []task.Request{{}, {Net: "none"}, {Net: "open"}, {Allow: []string{"a.test:443"}}, {Net: "registries", Allow: []string{"a.test:443"}}} {
		if err := checkNet(&q); err != nil {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// What needs a connection is refused by its name where the backend cannot have one
// cross the boundary, whoever wished for it.
func TestConnects(t *testing.T) {
	none := backend.Capabilities{Usable: true, Way: backend.Variant{Why: "no way out", Fix: "x"}, Inward: backend.Variant{Why: "no way in", Fix: "x"}}
	lent := []task.Grant{{Kind: grantLend, Value: "npm", Source: "operator"}}
	for _, c := range []struct {
		name string
		d    decided
		want string
	}{
		{"nothing", decided{}, ""},
		{"a mode", decided{req: task.Request{Net: "open"}}, "--net open: no way out"},
		{"a destination", decided{req: task.Request{Allow: []string{"a.example:443"}}}, "--net allowlist: no way out"},
		{"an installation", decided{req: task.Request{Phase: phaseInstall}}, "--phase install: no way out"},
		{"a credential that a policy lends", decided{grants: lent}, "the credential npm that is lent: no way out"},
		{"one of production", decided{grants: []task.Grant{{Kind: grantLendProd, Value: "aws", Source: "flag"}}}, "the credential aws that is lent: no way out"},
		{"a port", decided{req: task.Request{Publish: []string{"80:8080"}}}, "--publish 80:8080: no way in"},
	} {
		d := c.d
		if err := d.connects(); err != nil {
			t.Errorf("%s: refused where the backend can do it: %v", c.name, err)
		}
		d.caps = none
		err := d.connects()
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || task.CodeOf(err) != task.CodeUnsupported {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
