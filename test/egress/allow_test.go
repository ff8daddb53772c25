//go:build linux

package egress

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestAllowLater: a person adds a destination to an open task; it is that one, in
// that task, until it ends or is taken back, and the policy's denials count.
func TestAllowLater(t *testing.T) {
	each(t, func(p *place) {
		p.userPolicy("version: 1\ndeny: {egress: [{host: lan.test}]}\n")
		task, other := p.open("--allow", "a.test:80", "--keep", "always"), p.open("--allow", "a.test:80")
		curl := "curl -sS -m 60 http://b.test/x"
		if r := p.sh(task, curl); strings.Contains(r.Stdout, "GET /x") {
			p.t.Fatal(r)
		}
		if r := p.OK(p.t, p.repo, "allow", task, "b.test:80", "--reason", "the docs"); !strings.Contains(r, "b.test:80, allowed by ") {
			p.t.Error(r)
		}
		for _, line := range []string{curl, direct + curl} {
			if r := p.sh(task, line); !strings.Contains(r.Stdout, "GET /x") {
				p.t.Errorf("what was added is not reached: %v", r)
			}
			if r := p.sh(other, line); strings.Contains(r.Stdout, "GET /x") {
				p.t.Errorf("another task got it: %v", r)
			}
		}
		if s := p.OK(p.t, p.repo, "show", task); !strings.Contains(s, "b.test:80, allowed by ") || !strings.Contains(s, "the docs") {
			p.t.Error(s)
		}
		if s := p.OK(p.t, p.repo, "log", "--egress", task); !strings.Contains(s, "b.test:80 is allowed until the task ends") {
			p.t.Error(s)
		}
		for args, want := range map[string]string{
			"lan.test:80": "denied: egress lan.test", "**:443": "open --net open", "0.0.0.0/0:80": "open --net open", "nonsense:x": "no HOST:PORT",
			"GET https://b.test/x": "made without that",
		} {
			if r := p.Caisson(p.t, p.repo, "allow", task, args); r.Exit == 0 || !strings.Contains(r.Stderr, want) {
				p.t.Errorf("%s: %v", args, r)
			}
		}
		child := p.open("--parent", other, "--allow", "a.test:80")
		if r := p.Caisson(p.t, p.repo, "allow", child, "b.test:80"); r.Exit == 0 || !strings.Contains(r.Stderr, "at most its authority") {
			p.t.Errorf("a child got more than its parent: %v", r)
		}
		none := p.open()
		if r := p.Caisson(p.t, p.repo, "allow", none, "b.test:80"); r.Exit == 0 || !strings.Contains(r.Stderr, "--net allowlist") {
			p.t.Errorf("a task without a way out got one: %v", r)
		}
		if r := p.sh(task, "caisson allow "+task+" lan.test:80"); r.Exit == 0 {
			p.t.Errorf("from inside: %v", r)
		}
		// A changed policy is held against it, and it stays across that.
		p.userPolicy("version: 1\ndeny: {egress: [{host: lan.test}, {host: c.test}]}\n")
		time.Sleep(1100 * time.Millisecond) // policy files are looked at once a second
		if r := p.sh(task, curl); !strings.Contains(r.Stdout, "GET /x") {
			p.t.Errorf("lost with a change of the policy: %v", r)
		}
		p.userPolicy("version: 1\ndeny: {egress: [{host: b.test}]}\n")
		for end := time.Now().Add(harness.Limit); ; time.Sleep(200 * time.Millisecond) {
			if r := p.sh(task, curl); !strings.Contains(r.Stdout, "GET /x") {
				break
			}
			if time.Now().After(end) {
				p.t.Fatal("a denial does not count for what was added")
			}
		}
		p.userPolicy("version: 1\n")
		if r := p.Caisson(p.t, p.repo, "allow", "--withdraw", task, "b.test:80"); r.Exit == 0 || !strings.Contains(r.Stderr, "the task comes first") {
			p.t.Errorf("in the wrong order: %v", r)
		}
		p.OK(p.t, p.repo, "allow", task, "--withdraw", "b.test:80")
		if r := p.sh(task, curl); strings.Contains(r.Stdout, "GET /x") {
			p.t.Errorf("it was taken back: %v", r)
		}
		p.OK(p.t, p.repo, "allow", task, "b.test:80")
		p.Caisson(p.t, p.repo, "close", task)
		p.OK(p.t, p.repo, "resume", task)
		if r := p.sh(task, curl+"; curl -sS -m 60 http://a.test/y"); strings.Contains(r.Stdout, "GET /x") || !strings.Contains(r.Stdout, "GET /y") {
			p.t.Errorf("it outlived the task: %v", r)
		}
		if s := p.OK(p.t, p.repo, "show", task); strings.Contains(s, "b.test:80") {
			p.t.Error(s)
		}
	})
}

// TestRefusedAtTheEnd: a run says how many connections were refused and where they
// are on record; each kind of request is there, and what would let it out.
func TestRefusedAtTheEnd(t *testing.T) {
	one(t, func(p *place) {
		const reach = "for m in GET POST DELETE; do curl -sS -m 60 -X $m http://b.test/$m; done; true"
		args := []string{"--allow", "GET http://b.test/v1", "--keep", "never", "--", "bash", "-c", reach}
		r := p.Caisson(p.t, p.repo, append([]string{"run"}, args...)...)
		_, id, found := strings.Cut(r.Stderr, "caisson: 3 connections were refused: caisson log --egress ")
		if !found || !strings.Contains(r.Stdout, "only GET below /v1 may be sent there") {
			p.t.Fatal(r)
		}
		id, _, _ = strings.Cut(id, "\n")
		s := p.OK(p.t, p.repo, "log", "--egress", id)
		for _, m := range []string{"GET", "POST", "DELETE"} {
			if !strings.Contains(s, m+" http://b.test:80/"+m+" ") {
				p.t.Errorf("%s is not told apart:\n%s", m, s)
			}
		}
		if r := p.Caisson(p.t, p.repo, append([]string{"run", "-q"}, args...)...); strings.Contains(r.Stderr, "refused: caisson") {
			p.t.Error(r)
		}
		if r := p.Caisson(p.t, p.repo, "run", "--allow", "a.test:80", "--keep", "never", "--", "true"); strings.Contains(r.Stderr, "refused") {
			p.t.Error(r)
		}
		none := p.open("--name", "none")
		if s := p.OK(p.t, p.repo, "log", "--propose", "none"); !strings.Contains(s, "What task "+none+" asked") || !strings.Contains(s, "this task has no way out") {
			p.t.Error(s)
		}
	})
}
