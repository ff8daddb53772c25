//go:build linux

package egress

import (
	"strings"
	"testing"
)

// TestReadWithoutAName: who goes to a host that is to be read by its address, and
// names it inside TLS alone, is read too; where nothing is to be read it is the
// control.
func TestReadWithoutAName(t *testing.T) {
	one(t, func(p *place) {
		const line = "curl -sSk -m 60 -X DELETE -H 'Host: a.test' https://93.184.215.14/unnamed"
		for _, c := range []struct {
			policy string
			passes bool
		}{
			{"version: 1\n", true},
			{"version: 1\noutward: {verdict: deny, read: [a.test]}\n", false},
		} {
			p.userPolicy(c.policy)
			task := p.open("--net", "open")
			taken()
			r := p.sh(task, line)
			if got := strings.Join(taken(), "\n"); strings.Contains(got, "/unnamed") != c.passes {
				p.t.Errorf("%q: the world saw %q\n%v", c.policy, got, r)
			}
			p.OK(p.t, p.repo, "close", "--discard", task)
		}
	})
}
