package cli

import (
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/policy"
)

// TestPropose: only what a rule would have allowed is proposed, as what the
// policy reads.
func TestPropose(t *testing.T) {
	p := proposal{Task: "t1"}
	ev := func(kind string, kv ...any) {
		b := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			b[kv[i].(string)] = kv[i+1]
		}
		p.learn(door.Event{Type: kind, Task: "tid", Body: b})
	}
	deny := func(kv ...any) {
		ev("egress.decided", append([]any{"verdict", "deny", "reason", "rule", "rule", "nothing grants it", "proto", "connect"}, kv...)...)
	}
	deny("to", "a.test:443")
	deny("to", "a.test:443", "again", float64(4))
	deny("to", "[2001:db8::1]:80")
	deny("to", "93.184.215.14:22", "proto", "direct")
	deny("to", "d.test:443", "proto", "https", "method", "POST", "path", "/v1/x")
	deny("to", "d.test:443", "proto", "https", "method", "POST", "path", "/v1/it's")
	deny("to", "b.test", "proto", "dns")
	deny("to", "a.test", "proto", "dns")
	deny("to", "169.254.169.254:80", "rule", "denied: egress 169.254.0.0/16")
	deny("to", "d.test:443", "proto", "https", "method", "DELETE", "path", "/v1/x")
	ev("egress.decided", "crossing", float64(7), "verdict", "allow", "to", "lan.test:80", "proto", "connect")
	ev("egress.ended", "crossing", float64(7), "reason", "address", "text", "lan.test has the address 10.0.0.2")
	deny("to", "10.0.0.1:80", "reason", "address", "rule", "granted by a range; but it is private")
	deny("said", "\"junk\"", "reason", "form")
	ev("egress.decided", "verdict", "allow", "to", "c.test:443", "proto", "connect")
	ev("egress.ended", "crossing", float64(1))
	var b strings.Builder
	if err := p.write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"{host: a.test, ports: [443]} # asked for 5 times; --allow a.test:443", `{cidr: "2001:db8::1/128", ports: [80]}`, "--allow [2001:db8::1]:80", `{cidr: "93.184.215.14/32", ports: [22]}`, "# b.test: its address",
		"{host: d.test, ports: [443], methods: [POST], path: /v1/x} # asked for once; --allow 'POST https://d.test:443/v1/x'", "--allow 'DELETE https://d.test:443/v1/x'", "# What task tid ",
		"# lan.test:80 was refused once because of its address: lan.test has the address 10.0.0.2\n", "# 10.0.0.1:80 was refused once because of its address: granted by a range; but it is private\n", "{host: d.test, ports: [443], methods: [POST]} # asked"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	for _, no := range []string{"169.254", "--allow 10.0.0.1", "--allow lan.test", "c.test", "junk", "# a.test"} {
		if strings.Contains(b.String(), no) {
			t.Errorf("%q is proposed:\n%s", no, b.String())
		}
	}
	for _, r := range p.Rules {
		if _, err := policy.ParseAllow(r.allow()); err != nil {
			t.Error(err)
		}
	}
	b.Reset()
	if err := (&proposal{Task: "t1"}).write(&b); err != nil || !strings.Contains(b.String(), "There is nothing.\n") {
		t.Errorf("%s %v", b.String(), err)
	}
	for want, q := range map[string]*proposal{"has no way out": {Task: "t1", noWay: true}, "but about addresses": {Task: "t1", noWay: true, Addresses: []astray{{To: "a.test:1", Times: 2}}}} {
		b.Reset()
		if err := q.write(&b); err != nil || !strings.Contains(b.String(), want) || strings.Contains(b.String(), "There is nothing.") {
			t.Errorf("%s %v", b.String(), err)
		}
	}
}
