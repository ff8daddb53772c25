package policy

import (
	"net/netip"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func egressOf(t *testing.T, host, cidr string, ports ...uint16) Item {
	t.Helper()
	e := &Egress{Host: Host(host)}
	if cidr != "" {
		e.CIDR = mustCIDR(cidr)
	}
	for _, p := range ports {
		e.Ports = append(e.Ports, Port{p, p})
	}
	return Item{Egress: e}
}

func TestWay(t *testing.T) {
	get := egressOf(t, "read.test", "", 80)
	get.Egress.Methods = []Method{"GET"}
	r := &Rules{
		Granted: []Granted{
			{Item: egressOf(t, "**.good.test", "", 443), Via: "base"}, {Item: egressOf(t, "db.test", "10.1.0.0/16", 5432), Via: "base"}, {Item: egressOf(t, "", "10.0.0.0/8", 22), Via: "base"},
			{Item: egressOf(t, "", "10.2.3.4/32", 22), Via: "base"}, {Item: get, Via: "base"},
		},
		Asked:  []Asked{{Item: egressOf(t, "ask.test", "", 443)}, {Item: egressOf(t, "**.good.test", "", 80)}},
		Denied: []Denied{{Item: egressOf(t, "bad.good.test", "")}, {Item: egressOf(t, "half.good.test", "", 80)}, {Item: egressOf(t, "", "169.254.0.0/16")}},
	}
	for _, c := range []struct {
		host, addr string
		port       uint16
		method     string
		want       task.Verdict
		within     string
	}{
		{"a.good.test", "", 443, "", task.VerdictAllow, ""},
		{"a.good.test", "93.184.215.14", 443, "", task.VerdictAllow, ""},
		{"a.good.test", "169.254.169.254", 443, "", task.VerdictDeny, ""},
		{"a.good.test", "10.0.0.1", 443, "", task.VerdictAllow, ""}, // and no range: the gate refuses it
		{"a.good.test", "", 80, "", task.VerdictAsk, ""},
		{"a.good.test", "", 22, "", task.VerdictDeny, ""},
		{"a.good.test", "", 0, "", task.VerdictAllow, ""},
		{"bad.good.test", "", 443, "", task.VerdictDeny, ""},
		{"bad.good.test", "", 0, "", task.VerdictDeny, ""},
		{"half.good.test", "", 0, "", task.VerdictAllow, ""},
		{"half.good.test", "", 80, "", task.VerdictDeny, ""},
		{"good.test", "", 443, "", task.VerdictDeny, ""},
		{"ask.test", "", 443, "", task.VerdictAsk, ""},
		{"ask.test", "", 0, "", task.VerdictAsk, ""},
		{"db.test", "", 5432, "", task.VerdictAllow, "10.1.0.0/16"},
		{"db.test", "10.1.2.3", 5432, "", task.VerdictAllow, "10.1.0.0/16"},
		{"db.test", "10.2.2.3", 5432, "", task.VerdictDeny, ""},
		{"", "10.9.9.9", 22, "", task.VerdictAllow, "10.0.0.0/8"},
		{"", "10.2.3.4", 22, "", task.VerdictAllow, "10.2.3.4/32"},
		{"other.test", "10.2.3.4", 22, "", task.VerdictAllow, "10.2.3.4/32"},
		{"other.test", "", 22, "", task.VerdictDeny, ""}, // an address grants no name, so it is not resolved
		{"read.test", "", 80, "GET", task.VerdictAllow, ""},
		{"read.test", "", 80, "POST", task.VerdictDeny, ""},
		{"read.test", "", 80, "", task.VerdictDeny, ""},
		{"", "", 80, "", task.VerdictDeny, ""},
	} {
		p := EgressPoint{Host: c.host, Port: c.port, Method: c.method}
		if c.addr != "" {
			p.Addr = netip.MustParseAddr(c.addr)
		}
		a, within := r.Way(p)
		got := ""
		if within.IsValid() {
			got = within.String()
		}
		if c.addr == "" {
			c.within = "" // said once there is an address
			got = ""
		}
		if a.Verdict != c.want || got != c.within {
			t.Errorf("%+v: %+v within %s", c, a, got)
		}
	}
	if a, _ := (&Rules{}).Way(EgressPoint{Host: "a.test", Port: 443}); a.Verdict != task.VerdictDeny {
		t.Errorf("no rules: %+v", a)
	}
	r.Net.Value = NetNone
	if a, _ := r.Way(EgressPoint{Host: "a.good.test", Port: 443}); a.Verdict != task.VerdictDeny {
		t.Errorf("net none: %+v", a)
	}
}

// TestWayTellsOfRequests: where some requests are granted, a refusal of another
// says which.
func TestWayTellsOfRequests(t *testing.T) {
	some := func(path string, methods ...Method) Granted {
		it := egressOf(t, "api.test", "", 443)
		it.Egress.Path, it.Egress.Methods = URLPath(path), methods
		return Granted{Item: it, Via: "base"}
	}
	list := []Granted{{Item: egressOf(t, "api.test", "", 80), Via: "base"}, some("/v1", "GET", "HEAD"), some("", "POST"), some("/v2")}
	for _, c := range []struct {
		rules []Granted
		host  string
		port  uint16
		want  string
	}{
		{list, "api.test", 443, "nothing grants it: only GET, HEAD below /v1; POST; requests below /v2 may be sent there"},
		{append(list, some("/v3")), "api.test", 443, "nothing grants it: only GET, HEAD below /v1; POST; requests below /v2; some others may be sent there"},
		{list, "api.test", 8443, "nothing grants it"},
		{list, "other.test", 443, "nothing grants it"},
		{nil, "api.test", 443, "nothing grants it"},
	} {
		a, _ := (&Rules{Granted: c.rules}).Way(EgressPoint{Host: c.host, Port: c.port, Method: "DELETE", Path: "/v1/x"})
		if a.Verdict != task.VerdictDeny || a.Rule != c.want {
			t.Errorf("%s:%d: %s %q, not %q", c.host, c.port, a.Verdict, a.Rule, c.want)
		}
	}
}
