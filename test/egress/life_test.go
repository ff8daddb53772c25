//go:build linux

package egress

import (
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// saw waits until the world has seen something; what else it saw is gone then.
func saw(t *testing.T, what string) {
	t.Helper()
	for end := time.Now().Add(harness.Limit); ; time.Sleep(20 * time.Millisecond) {
		if slices.Contains(taken(), what) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the world never saw %q", what)
		}
	}
}

// begin starts a command of the product and goes on.
func (p *place) begin(args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := p.Command(context.Background(), p.repo, harness.Bin(), args...)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	return cmd
}

// killSupervisor ends the supervisor of a task as a crash would.
func (p *place) killSupervisor(task string) {
	p.t.Helper()
	v := harness.Decode[struct{ Supervisor struct{ PID int } }](p.t, p.OK(p.t, p.repo, "show", "--json", task))
	if v.Supervisor.PID < 2 {
		p.t.Fatal("the task has no supervisor")
	}
	if err := syscall.Kill(v.Supervisor.PID, syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
}

const download = "curl -sS -o /dev/null http://a.test/endless"

// TestEnds: whatever ends a task ends its connections, on both sides, and the
// record says how.
func TestEnds(t *testing.T) {
	each(t, func(p *place) {
		for _, how := range []string{"close", "kill", "run"} {
			taken()
			var task string
			var cmd *exec.Cmd
			if how == "run" {
				cmd = p.begin(append(append([]string{"run", "--name", "runs"}, allow(granted)...), "--", "bash", "-c", download)...)
			} else {
				task = p.open(allow(granted)...)
				cmd = p.begin("exec", task, "--", "bash", "-c", download)
			}
			saw(p.t, "endless begins")
			switch how {
			case "close":
				p.OK(p.t, p.repo, "close", "--discard", task)
			case "kill":
				p.killSupervisor(task)
			case "run":
				_ = cmd.Process.Signal(syscall.SIGTERM)
			}
			saw(p.t, "endless ends")
			hung.Wait()
			_ = cmd.Wait()
			if how == "close" {
				es := p.crossings(task)
				if len(es) == 0 || es[len(es)-1].Type != "egress.ended" || es[len(es)-1].Body["reason"] == nil || es[len(es)-1].Body["down"].(float64) == 0 {
					p.t.Errorf("the end of the download is not on record: %v", es)
				}
			}
		}
	})
}

// TestOtherTask: the way out of one task is not another's.
func TestOtherTask(t *testing.T) {
	one(t, func(p *place) {
		one, two := p.open(allow(granted)...), p.open(allow([]string{"b.test:80"})...)
		taken()
		if r := p.sh(one, "curl -sS -m 60 http://a.test/one"); !strings.Contains(r.Stdout, "GET /one") {
			p.t.Error(r)
		}
		if r := p.sh(two, "curl -sS -m 60 http://b.test/two"); !strings.Contains(r.Stdout, "GET /two") {
			p.t.Error(r)
		}
		taken()
		a := p.sh(one, "curl -sS -m 20 http://b.test/; "+direct+"curl -sS -m 20 http://b.test/")
		b := p.sh(two, "curl -sS -m 20 http://a.test/; "+direct+"curl -sS -m 20 http://a.test/; exec 3<>/dev/tcp/127.0.0.1/5432")
		if got := taken(); len(got) > 0 {
			p.t.Errorf("the world saw %q\n%v\n%v", got, a, b)
		}
	})
}

// userPolicy writes the user's own policy file.
func (p *place) userPolicy(text string) {
	p.Write(p.t, p.Home+"/.config/caisson/policy.yaml", text, 0o600)
}

// TestPolicy: what the policy grants counts with a list, what it denies never,
// and a change of it counts for what is open.
func TestPolicy(t *testing.T) {
	one(t, func(p *place) {
		p.userPolicy("version: 1\nbase: {egress: [{host: a.test, ports: [80], methods: [GET], path: /pub}]}\n")
		task := p.open("--net", "allowlist", "--allow", "b.test:80")
		for line, want := range map[string]bool{
			"curl -sS -m 60 http://a.test/pub/x": true, "curl -sS -m 60 http://a.test/pub": true, "curl -sS -m 60 http://b.test/": true,
			"curl -sS -m 60 http://a.test/private": false, "curl -sS -m 60 -d x http://a.test/pub/x": false, "curl -sS -m 60 http://a.test/pub/../private --path-as-is": false,
			"curl -sS -m 60 -p http://a.test/private": false, direct + "curl -sS -m 60 http://a.test/private": false, direct + "curl -sS -m 60 http://a.test/pub/y": true,
		} {
			taken()
			r := p.sh(task, line)
			if got := has(taken(), "http "); got != want {
				p.t.Errorf("%s: reached: %v\n%v", line, got, r)
			}
		}
		p.userPolicy("version: 1\ndeny: {egress: [{host: b.test}]}\n")
		for end := time.Now().Add(harness.Limit); ; time.Sleep(200 * time.Millisecond) { // looked at once a second
			taken()
			r := p.sh(task, "curl -sS -m 60 http://b.test/later; curl -sS -m 60 http://a.test/pub")
			if !has(taken(), "http ") {
				break
			}
			if time.Now().After(end) {
				p.t.Fatalf("a denial does not count for an open task: %v", r)
			}
		}
		if r := p.Caisson(p.t, p.repo, "open", "--allow", "b.test:80"); r.Exit == 0 || !strings.Contains(r.Stderr, "denied") {
			p.t.Error(r)
		}
		p.userPolicy("version: 1\nnet: allowlist\n")
		if r := p.Caisson(p.t, p.repo, "open", "--net", "open"); r.Exit == 0 || !strings.Contains(r.Stderr, "--net open is more than the policy allows") {
			p.t.Error(r)
		}
	})
}

// TestAsked: a person is asked about a connection, their answer counts for it and
// for no other.
func TestAsked(t *testing.T) {
	one(t, func(p *place) {
		p.userPolicy("version: 1\ndelegate: {project: {mode: ask, egress: [{host: a.test, ports: [80]}]}}\n")
		p.Write(p.t, p.repo+"/.caisson.yaml", "version: 1\nrequest: {egress: [{host: a.test, ports: [80]}]}\n", 0o644)
		p.Git(p.t, p.repo, "add", "-A")
		p.Git(p.t, p.repo, "commit", "-q", "-m", "asks")
		task := p.open("--net", "allowlist")
		taken()
		for i, answer := range []string{"deny", "approve"} {
			path := "/asked" + strconv.Itoa(i)
			cmd := p.Command(context.Background(), p.repo, harness.Bin(), "exec", task, "--", "bash", "-c", "curl -sS -m 300 -o /dev/null -w '%{http_code}' http://a.test"+path)
			var out strings.Builder
			cmd.Stdout = &out
			if err := cmd.Start(); err != nil {
				p.t.Fatal(err)
			}
			q := p.question()
			if !strings.Contains(q.Tool, "a.test:80"+path) {
				p.t.Errorf("a question about %q", q.Tool)
			}
			p.OK(p.t, p.repo, answer, q.ID)
			_ = cmd.Wait()
			want := map[string]string{"deny": "403", "approve": "200"}[answer]
			if out.String() != want || has(taken(), "http ") != (answer == "approve") {
				p.t.Errorf("%s: %s", answer, out.String())
			}
		}
		alone := p.open("--net", "allowlist", "--unattended")
		if r := p.sh(alone, "curl -sS -m 60 http://a.test/"); has(taken(), "http ") {
			p.t.Errorf("nobody was there to ask: %v", r)
		}
	})
}

type question struct{ ID, Tool, Task string }

// question waits for one.
func (p *place) question() question {
	p.t.Helper()
	for end := time.Now().Add(harness.Limit); ; time.Sleep(50 * time.Millisecond) {
		l := harness.Decode[struct{ Questions []question }](p.t, p.OK(p.t, p.repo, "approve", "--json"))
		if len(l.Questions) > 0 {
			return l.Questions[0]
		}
		if time.Now().After(end) {
			p.t.Fatal("nobody was asked")
		}
	}
}

// TestOpenIsTold: everything may be reached with open but what never may, and
// that is said in the plan, to the person, and on record.
func TestOpenIsTold(t *testing.T) {
	one(t, func(p *place) {
		taken()
		told := p.Caisson(p.t, p.repo, "open", "--name", "all", "--net", "open")
		r := p.sh("all",
			"curl -sS -m 60 http://a.test/; curl -sSk -m 60 https://b.test/; for h in meta lan local mapped; do curl -sS -m 20 http://$h.test/; done; curl -sS -m 20 http://169.254.169.254/; curl -sS -m 20 http://10.9.0.1/; NO_PROXY= no_proxy= curl -sS -m 20 http://127.0.0.1:18080/; true")
		got := taken()
		if !has(got, "http 93.184.215.14:80") || !has(got, "https b.test") {
			p.t.Errorf("open is not open: %q %v", got, r)
		}
		for _, s := range got {
			for _, no := range []string{metadata + ":", lan + ":", "127.0.0.1:"} {
				if strings.Contains(s, no) {
					p.t.Errorf("open reached %q", s)
				}
			}
		}
		if !strings.Contains(told.Stderr, "every public address may be reached") {
			p.t.Errorf("a person was not told: %v", told)
		}
		plan := p.OK(p.t, p.repo, "plan", "--net", "open")
		if !strings.Contains(plan, "net-open") {
			p.t.Error(plan)
		}
		if r := p.Caisson(p.t, p.repo, "plan", "--net", "open", "--need", "NET=2"); r.Exit != 3 {
			p.t.Error(r)
		}
		if r := p.Caisson(p.t, p.repo, "plan", "--allow", "a.test:80", "--need", "NET=2"); r.Exit != 0 {
			p.t.Error(r)
		}
	})
}

// TestResumed: a task that is resumed has the way out that it had.
func TestResumed(t *testing.T) {
	one(t, func(p *place) {
		task := p.open(append(allow(granted), "--keep", "always")...)
		p.Caisson(p.t, p.repo, "close", task)
		p.OK(p.t, p.repo, "resume", task)
		taken()
		if r := p.sh(task, "curl -sS -m 60 http://a.test/again; curl -sS -m 20 http://b.test/"); !strings.Contains(r.Stdout, "GET /again") || has(taken(), "http 93.184.215.15") {
			p.t.Error(r)
		}
		if r := p.Caisson(p.t, p.repo, "open", "--parent", task, "--allow", "b.test:80"); r.Exit == 0 {
			p.t.Errorf("a child got more than its parent: %v", r)
		}
		child := p.open("--parent", task, "--allow", "a.test:80")
		if r := p.sh(child, "curl -sS -m 60 http://a.test/child"); !strings.Contains(r.Stdout, "GET /child") {
			p.t.Error(r)
		}
	})
}
