//go:build linux

package egress

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// crowd opens many connections at once, in each way, and holds all of them before
// any goes on: crowd N HOLD.
const crowd = `
import asyncio, resource, sys
n = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
bad, up, all = [], 0, asyncio.Event()
async def one(i):
    global up
    try:
        if i % 2:
            r, w = await asyncio.open_connection('a.test', 9998)
        else:
            r, w = await asyncio.open_connection('127.0.0.1', 61080)
            w.write(b'CONNECT a.test:9998 HTTP/1.1\r\nHost: a.test:9998\r\n\r\n')
            head = await r.readuntil(b'\r\n\r\n')
            if b' 200 ' not in head: raise Exception(head)
    except Exception as e:
        bad.append(repr(e)); return
    finally:
        up += 1
        if up == n: all.set()
    await all.wait()
    w.write(b'number %d\n' % i)
    got = await r.readline()
    if got != b'echo number %d\n' % i: bad.append(repr(got))
    w.close()
async def main():
    await asyncio.gather(*(one(i) for i in range(n)))
    print(n - len(bad), 'were answered', bad[:3])
asyncio.run(main())
`

// holds is what a task's supervisor has open, by what it is; nil where nobody may
// look.
func (p *place) holds(task string) map[string]int {
	v := harness.Decode[struct{ Supervisor struct{ PID int } }](p.t, p.OK(p.t, p.repo, "show", "--json", task))
	dir := fmt.Sprintf("/proc/%d/fd", v.Supervisor.PID)
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	out := map[string]int{}
	for _, e := range list {
		at, err := os.Readlink(dir + "/" + e.Name())
		if err != nil {
			continue
		}
		kind, _, _ := strings.Cut(at, ":")
		out[kind]++
	}
	return out
}

// settled waits until the supervisor has no more sockets than before, and every
// connection that began has an end on record. Pipes that moved bytes wait for the
// next ones.
func (p *place) settled(task string, before map[string]int) {
	p.t.Helper()
	var begun, ended int
	var now map[string]int
	defer func() {
		if p.t.Failed() {
			p.t.Logf("%d began and %d ended; open are %v, and were %v", begun, ended, now, before)
		}
	}()
	until(p.t, "something of the connections is left", func() bool {
		begun, ended = 0, 0
		for _, e := range p.crossings(task) {
			if e.Type == "egress.ended" {
				ended++
			} else if e.Body["verdict"] == "allow" && e.Body["proto"] != "dns" {
				begun++
			}
		}
		now = p.holds(task)
		return begun == ended && (before == nil || now["socket"] <= before["socket"])
	})
	if begun == 0 {
		p.t.Error("nothing went out")
	}
}

// TestCrowd: a thousand connections at a time, each its own, and nothing of them
// is left.
func TestCrowd(t *testing.T) {
	one(t, func(p *place) {
		n, rounds := 1000, 1
		if os.Getenv("CAISSON_TEST_FULL") != "" {
			rounds = 5
		}
		if testing.Short() {
			n = 100
		}
		task := p.open("--allow", "a.test:9998", "--allow", "a.test:80")
		p.sh(task, "curl -sS -m 60 -o /dev/null http://a.test/")
		before := p.holds(task)
		for range rounds {
			r := p.sh(task, fmt.Sprintf("python3 - %d <<'E'\n%s\nE", n, crowd))
			if !strings.Contains(r.Stdout, fmt.Sprintf("%d were answered", n)) {
				t.Error(r)
			}
		}
		p.settled(task, before)
	})
}

// TestHanging: who says nothing, or too little, keeps nobody else from going out,
// and nothing of it outlives the task.
func TestHanging(t *testing.T) {
	one(t, func(p *place) {
		task := p.open("--allow", "a.test:80", "--allow", "a.test:443")
		p.sh(task, "curl -sS -m 60 -o /dev/null http://a.test/")
		before := p.holds(task)
		const loris = `
import os, socket, sys, time
said = [b'', b'\x05', b'\x05\x01\x00\x05\x01\x00\x03', b'GET http://a.test/ HTTP/1.1\r\nHost: a.', b'POST http://a.test/slow HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000\r\n\r\nfew',
        b'POST http://a.test/slow HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab', b'CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n\x16\x03\x01\x02\x00\x01\x00', b'CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\nGET /x HT']
open_ = []
for i in range(200):
    s = socket.create_connection(('127.0.0.1', 61080)); s.sendall(said[i % len(said)]); open_.append(s)
for i in range(60):
    s = socket.create_connection(('a.test', (80, 443)[i % 2])); s.sendall((b'GET / HTTP/1.1\r\nHo', b'\x16\x03\x01')[i % 2]); open_.append(s)
print('hanging', flush=True)
if os.fork(): os._exit(0)
os.setsid(); [os.close(i) for i in range(3)]
time.sleep(600)
`
		if r := p.sh(task, "python3 - <<'E'\n"+loris+"\nE"); !strings.Contains(r.Stdout, "hanging") {
			t.Fatal(r)
		}
		for _, set := range []string{"", bare} {
			if r := p.sh(task, set+"curl -sS -m 100 http://a.test/beside; curl -sSk -m 100 https://a.test/beside"); strings.Count(r.Stdout, "GET /beside") != 2 {
				t.Errorf("beside connections that hang: %v", r)
			}
		}
		// All of them die at once.
		p.sh(task, "pkill -9 -f 'python3 -'")
		p.settled(task, before)
	})
}

// TestVanished: an end that is gone ends the other, with the reason on record.
func TestVanished(t *testing.T) {
	one(t, func(p *place) {
		task := p.open("--allow", "a.test:80", "--allow", "a.test:443", "--allow", "a.test:9998")
		p.sh(task, "curl -sS -m 60 -o /dev/null http://a.test/")
		before := p.holds(task)
		for _, set := range []string{"", bare} {
			for _, scheme := range []string{"http", "https"} {
				// The client goes in the middle of a download.
				taken()
				p.sh(task, set+"curl -sSk -o /dev/null "+scheme+"://a.test/endless & sleep 0.3; kill -9 $!")
				saw(t, "endless ends")
				hung.Wait()
				// The server goes: the client must see that something is missing.
				if r := p.sh(task, set+"curl -sSk -m 100 -o /dev/null "+scheme+"://a.test/cut"); r.Exit == 0 {
					t.Errorf("%s %q: half an answer was taken for all of it: %v", scheme, set, r)
				}
			}
		}
		p.settled(task, before)
		reasons := map[string]int{}
		for _, e := range p.crossings(task) {
			if s, ok := e.Body["reason"].(string); ok && e.Type == "egress.ended" {
				reasons[s]++
			}
		}
		if reasons["broken"] < 4 {
			t.Errorf("how they ended, on record: %v", reasons)
		}
	})
}

// TestBounds: what a task may have at a time and move in all is what it gets.
func TestBounds(t *testing.T) {
	one(t, func(p *place) {
		task := p.open("--allow", "a.test:80", "--allow", "a.test:443", "--net-bytes", "20m", "--net-connections", "4")
		r := p.sh(task, "for i in 1 2 3 4 5 6 7 8; do curl -sS -o /dev/null -m 5 http://a.test/endless & done; wait; curl -sS -m 20 http://a.test/after")
		if strings.Contains(r.Stdout, "GET /after") || !strings.Contains(r.Stdout, "20971520 bytes that it may") {
			t.Errorf("more than the bytes went: %v", r)
		}
		hung.Wait()
		var moved float64
		var reasons []string
		for _, e := range p.crossings(task) {
			if e.Type == "egress.ended" {
				moved += e.Body["down"].(float64) + e.Body["up"].(float64)
			}
			if s, ok := e.Body["reason"].(string); ok && !slices.Contains(reasons, s) {
				reasons = append(reasons, s)
			}
		}
		// Each of four may go over by what one chunk is.
		if moved < 20<<20 || moved > 26<<20 || !slices.Contains(reasons, "limit") {
			t.Errorf("%.0f bytes are on record, ended for %q", moved, reasons)
		}
	})
}

// cut breaks off in the middle of an answer.
func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000000")
	_, _ = w.Write(make([]byte, 1000))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}
