//go:build linux

package egress

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// ways are the roads of one client to the same place.
var ways = map[string]string{"proxy": "", "direct": bare, "socks": bare + "export ALL_PROXY=socks5h://127.0.0.1:61080; "}

// TestFlows: what is long, slow, large or two-way passes as it is.
func TestFlows(t *testing.T) {
	one(t, func(p *place) {
		size := int64(64 << 20)
		if s := os.Getenv("CAISSON_TEST_EGRESS_BYTES"); s != "" {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				p.t.Fatal(err)
			}
			size = n
		}
		task := p.open("--allow", "a.test:80", "--allow", "a.test:443")
		for way, set := range ways {
			for _, scheme := range []string{"http", "https"} {
				for what, c := range map[string]struct{ line, want string }{
					// The second event comes only after the first was seen.
					"events":     {"set -o pipefail; curl -sSN -m 300 S://a.test/events | while read -r l; do echo \"$l\"; case $l in *first*) curl -sS -m 300 S://a.test/heard;; esac; done", "data: first\n\ndata: second\n"},
					"download":   {fmt.Sprintf("curl -sS S://a.test/big?n=%d | wc -c", size), strconv.FormatInt(size, 10) + "\n"},
					"upload":     {"head -c 8000000 /dev/zero | curl -sS -T - S://a.test/up", "PUT /up, 8000000 bytes"},
					"slow body":  {"(printf one; sleep 0.2; printf two; sleep 0.2; printf three) | curl -sSN -T - S://a.test/slow", "PUT /slow, 11 bytes"},
					"slow taker": {"curl -sS --limit-rate 6M S://a.test/big?n=3000000 | wc -c", "3000000\n"},
					"many":       {"for i in 1 2 3; do curl -sS --parallel --parallel-max 20 'S://a.test/many/[1-20]'; done | grep -c 'GET /many'", "60\n"},
				} {
					if way == "socks" && what != "download" && what != "events" || way == "direct" && scheme == "https" && strings.HasPrefix(what, "slow") {
						continue
					}
					if r := p.sh(task, set+strings.ReplaceAll(c.line, "S://", scheme+"://")); !strings.Contains(r.Stdout, c.want) || r.Exit != 0 {
						p.t.Errorf("%s by %s, %s: %v", what, way, scheme, r)
					}
				}
			}
		}
	})
}

// TestOwnServers: a task with all of the network still has its own servers where
// they usually are.
func TestOwnServers(t *testing.T) {
	one(t, func(p *place) {
		task := p.open("--net", "open")
		for _, port := range []int{3000, 4200, 5000, 5173, 8000, 8080, 8888, 9000} {
			taken()
			r := p.sh(task, fmt.Sprintf("echo own >own; timeout 200 python3 -m http.server %[1]d --bind 127.0.0.1 >/dev/null 2>&1 & for i in $(seq 600); do (exec 3<>/dev/tcp/127.0.0.1/%[1]d) 2>/dev/null && break; sleep 0.1; done; curl -sS -m 100 http://127.0.0.1:%[1]d/own; curl -sS -m 100 http://localhost:%[1]d/own; kill %%1", port))
			if strings.Count(r.Stdout, "own") != 2 || len(taken()) > 0 {
				t.Errorf("%d: %v", port, r)
			}
		}
	})
}

// TestNginx: a server that others wrote, at ports of its own.
func TestNginx(t *testing.T) {
	one(t, func(p *place) {
		nginx := program(p.t, "nginx", "nginx-light")
		at := p.Tmp + "/nginx"
		p.Mkdir(p.t, at+"/www")
		p.Write(p.t, at+"/www/file", strings.Repeat("0123456789", 100000), 0o644)
		p.Write(p.t, at+"/conf", fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/error;
events { worker_connections 200; }
http { access_log %[1]s/access; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  gzip on; gzip_types *; keepalive_timeout 60;
  server { listen %[2]s:8081; server_name nginx.test; root %[1]s/www; location /away { return 302 http://b.test/; } } 
  server { listen %[2]s:8081; server_name other.test; return 200 "the wrong server"; } }
`, at, nginxHost), 0o644)
		daemon(p.t, p.Command(context.Background(), p.repo, nginx, "-c", at+"/conf", "-e", at+"/error"))
		until(p.t, "nginx never answered", func() bool { return p.outside("curl -s -o /dev/null http://nginx.test:8081/file").Exit == 0 })
		task := p.open("--allow", "nginx.test:8081")
		for way, set := range ways {
			for line, want := range map[string]string{
				"curl -sS http://nginx.test:8081/file | wc -c":                                                                  "1000000\n",
				"curl -sS --compressed http://nginx.test:8081/file | wc -c":                                                     "1000000\n",
				"curl -sS -r 10-19 http://nginx.test:8081/file":                                                                 "0123456789",
				"curl -sSI http://nginx.test:8081/file":                                                                         "Content-Length: 1000000",
				"curl -sS -o /dev/null -w '%{http_code} ' http://nginx.test:8081/none http://nginx.test:8081/file -o /dev/null": "404 200 ",
			} {
				if r := p.sh(task, set+line); !strings.Contains(r.Stdout, want) {
					p.t.Errorf("%s, %s: %v", way, line, r)
				}
			}
			taken()
			if r := p.sh(task, set+"curl -sSL -m 20 http://nginx.test:8081/away; curl -sS -m 20 -H 'Host: other.test:8081' http://nginx.test:8081/"); has(taken(), "http ") || strings.Contains(r.Stdout, "wrong server") {
				p.t.Errorf("%s: a redirect or another Host got through: %v", way, r)
			}
		}
		b, err := os.ReadFile(filepath.Join(at, "access"))
		if err != nil || strings.Contains(string(b), "other.test") || strings.Count(string(b), "/file") < 15 {
			p.t.Errorf("what nginx saw: %s %v", b, err)
		}
	})
}

// TestResolver: the name server of this machine is asked for allowed names and
// for no other, whatever the task tries; what it logs is the witness.
func TestResolver(t *testing.T) {
	one(t, func(p *place) {
		dnsmasq := program(p.t, "dnsmasq", "dnsmasq-base")
		logged := p.Tmp + "/dns.log"
		p.Write(p.t, logged, "", 0o644)
		cmd := p.Command(context.Background(), p.repo, dnsmasq, "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--no-daemon", "--log-queries", "--log-facility="+logged, "--pid-file="+p.Tmp+"/dns.pid",
			"--listen-address=127.0.0.53", "--bind-interfaces", "--cache-size=0", "--address=/a.test/"+public, "--address=/test/"+other)
		cmd.SysProcAttr = nil // its port is a low one
		daemon(p.t, cmd)
		before, err := os.ReadFile("/etc/resolv.conf")
		if err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile("/etc/resolv.conf", []byte("nameserver 127.0.0.53\nsearch lan.test\n"), 0o644); err != nil {
			p.t.Skipf("the name server of this world cannot be changed: %v", err)
		}
		defer func() { _ = os.WriteFile("/etc/resolv.conf", before, 0o644) }()
		until(p.t, "dnsmasq never answered", func() bool { return p.outside("getent hosts b.test").Exit == 0 })
		task := p.open("--allow", "a.test:80", "--allow", "*.a.test:443")
		size := func() int { b, _ := os.ReadFile(logged); return len(b) }
		at := size()
		p.sh(task, "curl -sS -m 60 http://a.test/; "+bare+"curl -sS -m 60 http://a.test/")
		r := p.sh(task, strings.ReplaceAll(`for h in D.b.test b.test D.x.a.test a.test.evil.test; do
	getent hosts $h; getent ahosts $h.; curl -sS -m 20 http://$h/; curl -sS -m 20 -p http://$h/; curl -sSk -m 20 https://$h/
	curl -sS -m 20 -x socks5h://127.0.0.1:61080 http://$h/; curl -sS -m 20 -x socks4a://127.0.0.1:61080 http://$h/; curl -sS -m 20 -x socks5://127.0.0.1:61080 http://$h/
	(`+bare+`curl -sS -m 20 http://$h/; curl -sS -m 20 http://$h:53/; curl -sSk -m 20 https://$h:853/)
	(exec 3<>/dev/tcp/$h/80); (echo x >/dev/udp/$h/53); (echo x >/dev/tcp/1.1.1.1/53); (echo x >/dev/tcp/1.1.1.1/853); (echo x >/dev/udp/224.0.0.251/5353); (echo x >/dev/udp/127.0.0.53/53)
	python3 -c 'import socket,sys; print(socket.getaddrinfo(sys.argv[1], 80))' $h; ping -c1 -W1 $h
	python3 - $h <<'E'
import socket, struct, sys
q = b'\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00' + b''.join(bytes([len(l)]) + l.encode() for l in sys.argv[1].split('.')) + b'\x00'
for kind in (1, 16, 65):
    for at in ('127.0.0.1', '1.1.1.1', '127.0.0.53', '8.8.8.8'):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.5)
        s.sendto(q + struct.pack('>HH', kind, 1), (at, 53))
        try: s.recv(1500)
        except OSError: pass
E
done; curl -sSk -m 20 -H 'accept: application/dns-message' https://cloudflare-dns.com/dns-query?dns=AAAB; true`, "D", "c2VjcmV0"))
		b, err := os.ReadFile(logged)
		if err != nil {
			p.t.Fatal(err)
		}
		asked := 0
		for line := range strings.SplitSeq(string(b[at:]), "\n") {
			if _, q, ok := strings.Cut(line, "query["); ok {
				if f := strings.Fields(q); len(f) < 2 || f[1] != "a.test" {
					p.t.Errorf("the name server was asked: %s", line)
				}
				asked++
			}
		}
		if asked == 0 {
			p.t.Errorf("a dead test: the name server was asked nothing: %s\n%v", b, r)
		}
	})
}

// TestBrowser: a page, its WebSocket and what it may not reach, in a browser that
// is told of the proxy and in one that is not.
func TestBrowser(t *testing.T) {
	one(t, func(p *place) {
		chromium := program(p.t, "chromium", "chromium")
		task := p.open("--allow", "a.test:80", "--allow", "a.test:443")
		for _, set := range []string{"", bare} {
			for _, scheme := range []string{"http", "https"} {
				if (set == "") == (scheme == "http") && os.Getenv("CAISSON_TEST_FULL") == "" {
					continue
				}
				taken()
				r := p.sh(task, set+fmt.Sprintf("%s --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --ignore-certificate-errors --user-data-dir=$(mktemp -d) --timeout=60000 --dump-dom %s://a.test/page 2>/tmp/err; tail /tmp/err", chromium, scheme))
				got := taken()
				if !has(got, "result echoed hello, refused b.test") || has(got, "https b.test") || !has(got, "websocket a.test") {
					p.t.Errorf("%q %s: %v\nthe world saw %q", set, scheme, r, got)
				}
			}
		}
	})
}
