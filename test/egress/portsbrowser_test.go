//go:build linux

package egress

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// devServer is a server of a task as a project has one: a page, and a WebSocket
// that the page talks to. It notes what it was asked for.
const devServer = `
import base64, hashlib, http.server, struct
page = b'''<!DOCTYPE html><title>dev</title><script>
const told = new Promise(done => { const s = new WebSocket('ws://' + location.host + '/ws'); s.onopen = () => s.send('hello'); s.onmessage = m => done('echoed ' + m.data); s.onerror = () => done('no echo'); });
const api = fetch('/api', {method: 'POST', body: 'x'}).then(r => r.text(), () => 'no answer');
Promise.all([told, api]).then(r => { document.title = 'done'; fetch('/result-' + encodeURIComponent(r.join(', '))); });
</script><img src=/hold>'''
held = __import__('threading').Event()
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *a): pass
    def note(self): open('/tmp/seen', 'a').write('%s %s origin=%s\n' % (self.command, self.path, self.headers.get('Origin')))
    def give(self, b):
        self.send_response(200); self.send_header('Content-Type', 'text/html'); self.send_header('Content-Length', str(len(b))); self.end_headers(); self.wfile.write(b)
    def do_POST(self):
        self.note(); self.rfile.read(int(self.headers.get('Content-Length', 0))); self.give(b'api answered')
    def do_GET(self):
        self.note()
        if self.path == '/ws':
            key = self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
            self.wfile.write(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' + base64.b64encode(hashlib.sha1(key.encode()).digest()) + b'\r\n\r\n')
            h = self.rfile.read(2); n = h[1] & 127; mask = self.rfile.read(4); d = self.rfile.read(n)
            d = bytes(b ^ mask[i % 4] for i, b in enumerate(d))
            self.wfile.write(bytes([0x81, len(d)]) + d); self.wfile.flush(); held.wait(60); self.close_connection = True
            return
        if self.path.startswith('/result-'): held.set()
        if self.path == '/': held.clear()
        if self.path == '/hold': held.wait(60)
        self.give(page if self.path == '/' else b'treasure')
http.server.ThreadingHTTPServer(('127.0.0.1', 5173), H).serve_forever()
`

// TestPortsBrowser: a person's browser shows what a task serves, its WebSocket
// too, at the port and by its name; pages of other sites get nothing of it, and a
// name of somebody else's that leads to this machine neither.
func TestPortsBrowser(t *testing.T) {
	one(t, func(p *place) {
		chromium := program(p.t, "chromium", "chromium")
		task := p.open("--name", "dev", "--publish", "5173")
		r := p.sh(task, "cat >/tmp/dev.py <<'E'\n"+devServer+"\nE\n(setsid python3 /tmp/dev.py >/dev/null 2>&1 &); for i in $(seq 600); do (exec 3<>/dev/tcp/127.0.0.1/5173) 2>/dev/null && exit 0; sleep 0.1; done; exit 1")
		if r.Exit != 0 {
			p.t.Fatal(r)
		}
		port, front := p.portsOf(task)[5173], 19000+p.UID%1000
		browse := func(url string) string {
			r := p.outside(fmt.Sprintf("%s --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir=$(mktemp -d -p %s) --timeout=60000 --dump-dom '%s' 2>/dev/null", chromium, p.Tmp, url))
			return r.Stdout
		}
		seen := func() string {
			return p.sh(task, "cat /tmp/seen 2>/dev/null; : >/tmp/seen").Stdout
		}
		until(t, "the name never led anywhere", func() bool {
			return p.outside(fmt.Sprintf("curl -fsS -m 20 -o /dev/null -H 'Host: 5173.dev.localhost:%d' http://127.0.0.1:%d/", front, front)).Exit == 0
		})
		seen()
		for _, at := range []string{fmt.Sprintf("http://127.0.0.1:%d/", port), fmt.Sprintf("http://5173.dev.localhost:%d/", front)} {
			dom := browse(at)
			if got := seen(); !strings.Contains(got, "/result-echoed%20hello%2C%20api%20answered") {
				t.Errorf("%s: the server inside saw %s\n%s", at, got, dom)
			}
		}
		// Another site's page; a name of somebody else's at the same port.
		foreign := []string{fmt.Sprintf("http://a.test/attack?port=%d", port), fmt.Sprintf("http://local.test:%d/", port), fmt.Sprintf("http://a.test/attack?port=%d", front), fmt.Sprintf("http://local.test:%d/", front)}
		if os.Getenv("CAISSON_TEST_FULL") == "" {
			foreign = foreign[:2]
		}
		for _, at := range foreign {
			taken()
			dom := browse(at)
			if got := seen(); got != "" || strings.Contains(dom, "treasure") {
				t.Errorf("%s: the server inside saw %s\n%s", at, got, dom)
			}
			if got := taken(); strings.Contains(at, "attack") && !has(got, "result tried") {
				t.Errorf("a dead test: the page of %s tried nothing: %q\n%s", at, got, dom)
			}
		}
	})
}
