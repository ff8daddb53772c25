package boundary

import (
	"slices"
	"testing"

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
