package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func TestParseAllow(t *testing.T) {
	for s, want := range map[string]string{
		"example.com:443": "example.com:443", "EXAMPLE.com.:443": "example.com:443", "*.example.com:8000-8100": "*.example.com:8000-8100", "**:443": "**:443", "a.test:*": "a.test", "a.test": "a.test:80,443", "*.A.test": "*.a.test:80,443",
		"127.0.0.1:5432": "127.0.0.1/32:5432", "10.0.0.0/8:5432": "10.0.0.0/8:5432", "[::1]:80": "::1/128:80", "[fd00::/8]:80": "fd00::/8:80",
		"https://example.com": "example.com:443", "https://example.com/below": "example.com:443 /below", "GET https://example.com/": "GET example.com:443", "https://example.com:8443/": "example.com:8443", "http://a.test/pub": "a.test:80 /pub", "GET http://a.test/pub": "GET a.test:80 /pub", "http://10.0.0.1/": "10.0.0.1/32:80",
	} {
		e, err := ParseAllow(s)
		if err != nil || e.String() != want {
			t.Errorf("%q: %q %v, want %q", s, e, err, want)
		}
	}
	for _, s := range []string{
		"", " ", ":", ":443", "10.0.0.1", "localhost", "example.com:", "example.com:0", "example.com:65536", "example.com:http", "example.com:443:443", "*:443", "a.*.test:443", "::1:80", "[::1:80", "[::ffff:10.0.0.1]:80",
		"2852039166:80", "0251.0376.0251.0376:80", "127.1:80", "0x7f.1:80", "10.0.0.1/8:80", "localhost:80", "x.localhost:80", "@origin:443", "user@example.com:443", "ex ample.com:443", "exämple.com:443",
		"ftp://example.com/", "http://u:p@example.com/", "http://example.com/a/../b",
	} {
		if e, err := ParseAllow(s); err == nil {
			t.Errorf("%q was read as %q", s, e)
		}
	}
}

func TestNetWithin(t *testing.T) {
	order := []NetMode{NetNone, NetAllowlist, NetRegistries, NetOpen}
	for i, a := range order {
		for j, b := range order {
			if got := a.Within(b); got != (i <= j) {
				t.Errorf("%s within %s: %v", a, b, got)
			}
		}
	}
	for _, bad := range []NetMode{"", "all"} {
		if NetAllowlist.Within(bad) || NetOpen.Within(bad) {
			t.Errorf("%q holds something", bad)
		}
	}
	if NetMode("all").Within(NetRegistries) {
		t.Error("what is no mode is within one")
	}
}

// TestLeaving: what is denied counts before what a flag allows, and a network that
// the policy has narrowed since is none.
func TestLeaving(t *testing.T) {
	allowed := []Granted{{Item: Item{Egress: &Egress{Host: "a.test"}}, Via: "--allow"}, {Item: Item{Egress: &Egress{CIDR: mustCIDR("169.254.0.0/16")}}, Via: "--allow"}}
	name := EgressPoint{Host: "a.test", Port: 443}
	meta := EgressPoint{Addr: netip.MustParseAddr("169.254.169.254"), Port: 80}
	for _, c := range []struct {
		r    *Rules
		net  NetMode
		p    EgressPoint
		want task.Verdict
	}{
		{nil, NetAllowlist, name, task.VerdictAllow},
		{nil, NetAllowlist, meta, task.VerdictDeny},
		{nil, NetNone, name, task.VerdictDeny},
		{&Rules{}, NetAllowlist, name, task.VerdictAllow},
		{&Rules{Denied: []Denied{{Item: Item{Egress: &Egress{Host: "*.test"}}}}}, NetOpen, name, task.VerdictDeny},
		{&Rules{Net: Set[NetMode]{Value: NetNone}}, NetAllowlist, name, task.VerdictDeny},
		{&Rules{Net: Set[NetMode]{Value: NetAllowlist}}, NetRegistries, name, task.VerdictDeny},
		{&Rules{Net: Set[NetMode]{Value: NetRegistries}}, NetAllowlist, name, task.VerdictAllow},
		{&Rules{}, NetAllowlist, EgressPoint{Host: "b.test", Port: 443}, task.VerdictDeny},
	} {
		if a, _ := c.r.Leaving(c.net, allowed).Way(c.p); a.Verdict != c.want {
			t.Errorf("%+v %s %+v: %v", c.r, c.net, c.p, a)
		}
	}
}

// TestUsualPlaces: a remote that is no name opens nothing.
func TestUsualPlaces(t *testing.T) {
	have := map[Host]bool{}
	for _, e := range UsualPlaces([]string{"git.test", "10.0.0.1", "", "a b"}) {
		have[e.Host] = true
		if e.Host == "" || len(e.Ports) == 0 {
			t.Errorf("%v", e)
		}
	}
	if !have["git.test"] || !have[Registries[0]] || len(have) != len(Registries)+1 {
		t.Errorf("%v", have)
	}
}

// TestIdleNetwork: what the policy grants of a network is told to whose task has
// none, with the way to it.
func TestIdleNetwork(t *testing.T) {
	at := Origin{Source: task.SourceUser, Where: "/p.yaml:3"}
	e := Item{Egress: &Egress{Host: "a.example"}}
	for want, r := range map[string]*Rules{
		"[]": {Granted: []Granted{{Item{Env: "X"}, "base", at}}, Asked: []Asked{{Item{Env: "Y"}, at}}},
		"granted, and this task has no network, which --net allowlist gives it: a.example (base, user /p.yaml:3)": {Granted: []Granted{{e, "base", at}}},
		"granted, and this task has no network: net is none (user /p.yaml:3): a.example (base, user /p.yaml:3)":   {Granted: []Granted{{e, "base", at}}, Net: Set[NetMode]{NetNone, at}},
		"asked for, which counts when a person agreed as it is used":                                              {Asked: []Asked{{e, at}}},
		"; and 2 more": {Granted: []Granted{{e, "base", at}, {e, "base", at}, {e, "base", at}, {e, "base", at}, {e, "base", at}}},
	} {
		if got := r.IdleNetwork(); !strings.Contains(fmt.Sprint(got), want) {
			t.Errorf("%q: %q", want, got)
		}
	}
	if got := (*Rules)(nil).IdleNetwork(); got != nil {
		t.Error(got)
	}
	for _, r := range []*Rules{{Granted: []Granted{{e, "base", at}}}, {Asked: []Asked{{e, at}}}} {
		if got := r.idle(); len(got) > 0 {
			t.Errorf("a network is told where it is not known whether there is one: %q", got)
		}
	}
}

// TestSharedNetwork: an open gate is told as one, and no network without a gate is.
func TestSharedNetwork(t *testing.T) {
	open := &Input{Grants: []task.Grant{{Kind: "net", Value: "open"}}}
	if got := shared(open, task.NET, 1)[0]; !strings.Contains(got, "where a rule names their addresses") {
		t.Error(got)
	}
	for _, in := range []*Input{{}, {Grants: []task.Grant{{Kind: "net", Value: "allowlist"}}}} {
		if got := shared(in, task.NET, 1)[0]; !strings.Contains(got, "LAN, cloud metadata, the host's gateway") {
			t.Error(got)
		}
	}
}

func TestTakesPackages(t *testing.T) {
	for host, want := range map[string]bool{string(Registries[0]): true, "upload." + string(Registries[2]): true, "evil" + string(Registries[0]): false, "": false, "a.example": false} {
		if got := TakesPackages(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
