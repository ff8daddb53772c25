//go:build linux

package egress

import (
	"strings"
	"testing"
)

// TestLimits: what a task may move ends with it and not with a resume, and its
// crossings are counted on.
func TestLimits(t *testing.T) {
	one(t, func(p *place) {
		task := p.open(append(allow(granted), "--keep", "always", "--net-bytes", "3m", "--net-connections", "1")...)
		if s := p.OK(p.t, p.repo, "show", task); !strings.Contains(s, "net bytes 3 MiB") || !strings.Contains(s, "net connections 1") {
			p.t.Error(s)
		}
		// One at a time: another is refused while this is open, and works after it.
		// The first one's end may still be on its way when the second comes.
		if r := p.sh(task, "curl -sS -m 60 http://a.test/first; for i in $(seq 100); do exec 3<>/dev/tcp/127.0.0.1/5432; echo one >&3; head -n1 <&3 2>/dev/null | grep . && break; exec 3>&- 3<&-; sleep .1; done; curl -sS -m 60 -o /dev/null -w '%{http_code}\n' http://a.test/second; exec 3>&- 3<&-"); !strings.Contains(r.Stdout, "GET /first") || !strings.Contains(r.Stdout, "echo one") || !strings.Contains(r.Stdout, "429") {
			p.t.Error(r)
		}
		if r := p.sh(task, "curl -sS http://a.test/endless | wc -c"); strings.TrimSpace(r.Stdout) == "" || len(strings.TrimSpace(r.Stdout)) > 7 {
			p.t.Errorf("more than 10 MB with a limit of 3 MiB: %v", r)
		}
		if r := p.sh(task, "curl -sS -m 60 http://a.test/third"); !strings.Contains(r.Stdout, "has moved the 3145728 bytes") {
			p.t.Error(r)
		}
		p.Caisson(p.t, p.repo, "close", task)
		p.OK(p.t, p.repo, "resume", task)
		if r := p.sh(task, "curl -sS -m 60 http://a.test/fourth"); !strings.Contains(r.Stdout, "has moved the 3145728 bytes") {
			p.t.Errorf("a resume gave bytes: %v", r)
		}
		last, limited := 0.0, 0
		for _, e := range p.crossings(task) {
			n, _ := e.Body["crossing"].(float64)
			if e.Type == "egress.decided" && n > 0 && e.Body["again"] == nil {
				if n <= last {
					p.t.Errorf("the crossing %v follows %v", n, last)
				}
				last = n
			}
			if e.Body["reason"] == "limit" {
				limited++
			}
		}
		if limited < 3 {
			p.t.Errorf("%d refusals and ends by a limit are on record", limited)
		}
	})
}
