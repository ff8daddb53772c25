//go:build linux

package egress

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// portsOf is what `caisson ports` says, inside to outside.
func (p *place) portsOf(task string, flags ...string) map[int]int {
	p.t.Helper()
	r := harness.Decode[struct {
		Ports []struct {
			Inside, Host int
			Listening    bool
		}
	}](p.t, p.OK(p.t, p.repo, append([]string{"ports", "--json", task}, flags...)...))
	out := map[int]int{}
	for _, x := range r.Ports {
		out[x.Inside] = x.Host
	}
	return out
}

// serve starts servers of the task itself: a line for a line, at loopback alone.
const serve = `import socket, threading
def at(family, addr):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(addr); s.listen(64)
    def one(c):
        f = c.makefile("rwb")
        for line in f:
            with open("/tmp/heard", "ab") as h: h.write(line)
            f.write(b"inside said " + line); f.flush()
        c.close()
    def loop():
        while True:
            c, _ = s.accept()
            threading.Thread(target=one, args=(c,), daemon=True).start()
    threading.Thread(target=loop).start()
at(socket.AF_INET, ("127.0.0.1", 3000))
at(socket.AF_INET6, ("::1", 3001))
`

// servers has them in a task, or skips where it has no Python.
func (p *place) servers(task string) {
	p.t.Helper()
	if r := p.sh(task, "command -v python3"); r.Exit != 0 {
		p.t.Skip("no python3 to be a server inside")
	}
	p.Write(p.t, p.Tmp+"/serve.py", serve, 0o644)
	r := p.sh(task, "cat >/tmp/serve.py <<'EOF'\n"+serve+"EOF\npython3 /tmp/serve.py >/dev/null 2>&1 & for i in $(seq 600); do (exec 3<>/dev/tcp/127.0.0.1/3000) 2>/dev/null && (exec 3<>/dev/tcp/::1/3001) 2>/dev/null && exit 0; sleep 0.1; done; exit 1")
	if r.Exit != 0 {
		p.t.Fatal(r)
	}
}

// ask says a line to a port of the host, as the identity, and returns the answer.
func (p *place) ask(port int, as int) string {
	p.t.Helper()
	cmd := p.Command(p.t.Context(), p.repo, "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d && echo hello >&3 && timeout 60 head -n1 <&3", port))
	if os.Getuid() == 0 && as != p.UID {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(as), Gid: uint32(as)}}
		cmd.Dir = "/"
	}
	return strings.TrimSpace(harness.Run(p.t, cmd).Stdout)
}

// TestPorts: servers inside, at loopback alone, are reached by whose task it is,
// at ports that stay and never collide, for as long as the task is open.
func TestPorts(t *testing.T) {
	each(t, func(p *place) {
		one := p.open("--name", "web", "--publish", "3000")
		p.servers(one)
		two := p.open("--name", "other", "--publish", "3000")
		p.servers(two)
		at := p.portsOf(one)
		if at[3000] == 0 || at[3001] != 0 {
			p.t.Fatalf("published: %v", at)
		}
		if _, there := at[3001]; !there {
			p.t.Errorf("a server that is not published is not found: %v", at)
		}
		first := at[3000]
		if got := p.ask(first, p.UID); got != "inside said hello" {
			p.t.Errorf("the owner got %q", got)
		}
		if n := p.portsOf(two)[3000]; n == first || n == 0 || p.ask(n, p.UID) != "inside said hello" {
			p.t.Errorf("the other task is at %d, the first at %d", n, first)
		}
		at = p.portsOf(one, "--publish", "3001")
		if got := p.ask(at[3001], p.UID); got != "inside said hello" {
			p.t.Errorf("a server at ::1 said %q", got)
		}
		// Others of this machine, and what only reaches it by name.
		if os.Getuid() == 0 {
			if got := p.ask(first, harness.UserID+1); got != "" {
				p.t.Errorf("another user got %q", got)
			}
			// Who says something and is gone is nobody to the kernel, and nobody's number is
			// root's: what was said must not arrive.
			blind := p.Command(p.t.Context(), p.repo, "bash", "-c", fmt.Sprintf("for i in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/%d && echo blind >&3); done", first))
			blind.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: harness.UserID + 1, Gid: harness.UserID + 1}}
			blind.Dir = "/"
			harness.Run(p.t, blind)
			if got := p.ask(first, p.UID); got != "inside said hello" {
				p.t.Errorf("after another user the owner got %q", got)
			}
			if r := p.sh(one, "cat /tmp/heard"); !strings.Contains(r.Stdout, "hello") || strings.Contains(r.Stdout, "blind") {
				p.t.Errorf("what another user said blindly: %v", r)
			}
			until(p.t, "that another user was refused is not on record", func() bool {
				return strings.Contains(p.OK(p.t, p.repo, "log", one), "may not connect")
			})
		}
		// Of many at a time each gets its answer, and the sockets come back.
		script := "for i in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/%d && echo $i >&3 && timeout 120 head -n1 <&3) & done; wait"
		if r := p.outside(fmt.Sprintf(script, first)); strings.Count(r.Stdout, "inside said ") != 100 {
			p.t.Errorf("%d of 100 answers", strings.Count(r.Stdout, "inside said "))
		}
		if got := p.ask(first, p.UID); got != "inside said hello" {
			p.t.Errorf("after that the owner got %q", got)
		}
		// A port that is taken cannot be chosen.
		if r := p.Caisson(p.t, p.repo, "open", "--publish", fmt.Sprintf("%d:3000", first)); r.Exit == 0 || !strings.Contains(r.Stderr, "cannot be had") {
			p.t.Error(r)
		}
		p.OK(p.t, p.repo, "ports", one, "--withdraw", "3001")
		p.closed(at[3001], "withdrawn")
		// The same name gets the same port again.
		p.Caisson(p.t, p.repo, "close", "--discard", one)
		p.closed(first, "closed")
		again := p.open("--name", "web", "--publish", "3000")
		if n := p.portsOf(again)[3000]; n != first {
			p.t.Errorf("the port of the name was %d and is %d", first, n)
		}
		if got := p.ask(first, p.UID); got != "" {
			p.t.Errorf("without a server inside there is %q", got)
		}
		p.killSupervisor(again)
		p.closed(first, "killed")
	})
}

// closed waits until nobody listens at a port of the host.
func (p *place) closed(port int, why string) {
	p.t.Helper()
	for end := time.Now().Add(harness.Limit); ; time.Sleep(50 * time.Millisecond) {
		c, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return
		}
		c.Close()
		if time.Now().After(end) {
			p.t.Fatalf("%s: somebody still listens at %d", why, port)
		}
	}
}

// TestPortsOfRun: a run offers ports too, and a browser that was led astray gets
// nothing.
func TestPortsOfRun(t *testing.T) {
	one(t, func(p *place) {
		task := p.open("--publish", "8000")
		if r := p.sh(task, "command -v python3"); r.Exit != 0 {
			p.t.Skip("no python3 to be a server inside")
		}
		p.sh(task, "echo hello >hello.txt; python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & for i in $(seq 600); do (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null && exit 0; sleep 0.1; done; exit 1")
		at := p.portsOf(task)[8000]
		for line, want := range map[string]string{
			"curl -sS -m 60 http://127.0.0.1:%d/hello.txt":                                         "hello",
			"curl -sS -m 60 http://localhost:%d/hello.txt":                                         "hello",
			"curl -sS -m 60 -H 'Host: evil.test' http://127.0.0.1:%d/hello.txt":                    "is not this machine",
			"curl -sS -m 60 -H 'Origin: http://evil.test' http://127.0.0.1:%d/hello.txt":           "may not ask",
			"curl -sS -m 60 --http2-prior-knowledge http://127.0.0.1:%d/hello.txt -o /dev/null; :": "",
		} {
			r := p.outside(fmt.Sprintf(line, at))
			if !strings.Contains(r.Stdout, want) || want != "hello" && strings.Contains(r.Stdout, "hello") {
				p.t.Errorf("%s: %v", line, r)
			}
		}
		// By name, at one port for all tasks; when who answers there ends, another does.
		other := p.open("--name", "Second", "--publish", "8000")
		p.sh(other, "echo second >hello.txt; python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & for i in $(seq 600); do (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null && exit 0; sleep 0.1; done; exit 1")
		front := 19000 + p.UID%1000
		named := func(name, want string) {
			p.t.Helper()
			var r harness.Result
			for end := time.Now().Add(harness.Limit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				r = p.outside(fmt.Sprintf("curl -sS -m 60 -H 'Host: %s.localhost:%d' http://127.0.0.1:%d/hello.txt", name, front, front))
				if r.Exit == 0 {
					break
				}
			}
			if !strings.Contains(r.Stdout, want) {
				p.t.Errorf("%s: %v", name, r)
			}
		}
		named("8000."+task, "hello")
		named("8000.second", "second")
		named("8001.second", "no such port")
		if r := p.OK(p.t, p.repo, "ports", other); !strings.Contains(r, fmt.Sprintf("http://8000.second.localhost:%d", front)) {
			p.t.Error(r)
		}
		p.Caisson(p.t, p.repo, "close", "--discard", task)
		named("8000.second", "second")
		named("8000."+task, "no such port")
		// Of a task whose supervisor was killed nobody's port is meant, whoever took it.
		third := p.open("--name", "third", "--publish", "8000")
		gone := p.portsOf(third)[8000]
		p.killSupervisor(third)
		p.closed(gone, "killed")
		thief, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", gone))
		if err != nil {
			p.t.Fatal(err)
		}
		defer thief.Close()
		go http.Serve(thief, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "stolen") }))
		named("8000.third", "no such port")
		task, at = other, p.portsOf(other)[8000]
		if v := p.OK(p.t, p.repo, "show", task); !strings.Contains(v, fmt.Sprintf("8000 at 127.0.0.1:%d", at)) {
			p.t.Error(v)
		}
	})
}
