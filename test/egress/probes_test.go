//go:build linux

package egress

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// asker asks the proxy in each way that it has, and in some that it has not: one
// probe after another, from its input.
const asker = `
import json, socket, struct, sys
def ask(kind, host, addr, path):
    s = socket.create_connection(('127.0.0.1', 61080)); s.settimeout(60)
    get = lambda target, h=host, more='': ('GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n' % (target, h, more)).encode()
    def read(end):
        b = b''
        try:
            while not (end and end in b):
                n = s.recv(4096)
                if not n: break
                b += n
        except OSError: pass
        return b
    def tunnel(host):
        s.sendall(('CONNECT %s:80 HTTP/1.1\r\nHost: %s:80\r\n\r\n' % (host, host)).encode())
        return b' 200 ' in read(b'\r\n\r\n').split(b'\r\n')[0]
    def socks(kind, to):
        s.sendall(b'\x05\x01\x00'); s.recv(2)
        s.sendall(b'\x05\x01\x00' + bytes([kind]) + to + struct.pack('>H', 80))
        return s.recv(10)[1:2] == b'\x00'
    if kind == 'connect': tunnel(host) and s.sendall(get(path))
    elif kind == 'get': s.sendall(get('http://' + host + path, more='Connection: close\r\n'))
    elif kind == 'name': socks(3, bytes([len(host.encode())]) + host.encode()) and s.sendall(get(path))
    elif kind == 'address': socks(1, socket.inet_aton(addr)) and s.sendall(get(path))
    elif kind == 'socks4a':
        s.sendall(b'\x04\x01' + struct.pack('>H', 80) + b'\x00\x00\x00\x01' + b'me\x00' + host.encode() + b'\x00')
        if s.recv(8)[1:2] == b'\x5a': s.sendall(get(path))
    elif kind == 'websocket': s.sendall(get('http://' + host + path, more='Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n'))
    elif kind == 'pipelined': s.sendall(get('http://a.test/first', 'a.test') + get('http://' + host + path, more='Connection: close\r\n'))
    elif kind == 'another host': s.sendall(get('http://a.test/first', 'a.test') + get('http://a.test' + path, more='Connection: close\r\n'))
    elif kind == 'in a tunnel': tunnel('a.test') and s.sendall(get('/first', 'a.test') + get(path, more='Connection: close\r\n'))
    elif kind == 'prior knowledge': tunnel(host) and s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00')
    try: s.shutdown(socket.SHUT_WR)
    except OSError: pass
    return read(None)
for p in json.load(sys.stdin):
    try: print(p, ask(*p))
    except Exception as e: print(p, repr(e))
`

// probe is one question to the proxy.
type probe struct{ kind, host, addr string }

// askAll has a task ask everything, and returns which of it reached a server, all
// that the world saw, and what was said.
func (p *place) askAll(task string, list []probe) (reached []bool, saw []string, said string) {
	p.t.Helper()
	var in [][]string
	for i, q := range list {
		in = append(in, []string{q.kind, q.host, q.addr, fmt.Sprintf("/probe%d.", i)})
	}
	b, err := json.Marshal(in)
	if err != nil {
		p.t.Fatal(err)
	}
	taken()
	r := p.sh(task, "cat >/tmp/asker.py <<'E'\n"+asker+"\nE\npython3 /tmp/asker.py <<'E'\n"+string(b)+"\nE")
	if r.Exit != 0 || strings.Count(r.Stdout, "\n") < len(list) {
		p.t.Fatal(r)
	}
	saw = taken()
	for i := range list {
		reached = append(reached, slices.ContainsFunc(saw, func(s string) bool { return strings.HasSuffix(s, fmt.Sprintf("/probe%d.", i)) }))
	}
	return reached, saw, r.Stdout
}

// TestMatrix: whichever way is taken to ask, the verdict is the same (P34, P35).
func TestMatrix(t *testing.T) {
	one(t, func(p *place) {
		task := p.open("--allow", "a.test:80")
		standIn := strings.Fields(p.sh(task, "getent ahostsv4 a.test").Stdout)[0]
		var list []probe
		for _, kind := range []string{"connect", "get", "name", "address", "socks4a", "websocket", "pipelined", "another host", "in a tunnel", "prior knowledge"} {
			list = append(list, probe{kind, "a.test", standIn}, probe{kind, "b.test", other}, probe{kind, "c2VjcmV0.denied.test", other})
		}
		reached, saw, said := p.askAll(task, list)
		for i, q := range list {
			// What is not offered is so for everybody.
			if want := q.host == "a.test" && q.kind != "socks4a" && q.kind != "prior knowledge"; reached[i] != want {
				t.Errorf("%v: reached %v\n%s", q, reached[i], said)
			}
		}
		for _, s := range saw {
			if strings.Contains(s, "b.test") || strings.Contains(s, "denied") || strings.Contains(s, other) || strings.Contains(s, "PRI") {
				t.Errorf("the world saw %q", s)
			}
		}
	})
}

// TestSpellings: one name or address has one meaning however it is spelled, and
// the record has it in one form (P36, P37).
func TestSpellings(t *testing.T) {
	one(t, func(p *place) {
		task := p.open("--allow", "a.test:80")
		var list []probe
		same := []string{"a.test", "A.TEST", "a.test.", "A.Test."}
		for _, host := range append(slices.Clone(same), "a.test..", ".a.test", "a..test", "[a.test]", "a.test%00.b.test", "b.test%00.a.test", "b.test#.a.test", "b.test?.a.test", "b.test/.a.test", `b.test\.a.test`,
			"a.test@b.test", "b.test@a.test", "a:b@a.test", "evila.test", "a.test.evil.test", "xa.test", "a.test:80:80", "a.test b.test", "a．test", "аa.test", "xn--a-.test", "B.TEST", "b.test.") {
			for _, kind := range []string{"connect", "get", "name"} {
				list = append(list, probe{kind, host, ""})
			}
		}
		reached, _, said := p.askAll(task, list)
		for i, q := range list {
			if reached[i] != slices.Contains(same, q.host) {
				t.Errorf("%q by %s: reached %v\n%s", q.host, q.kind, reached[i], said)
			}
		}
		for _, e := range p.crossings(task) {
			to, _ := e.Body["to"].(string)
			if e.Body["verdict"] == "allow" && to != "a.test:80" && to != "a.test" || to != strings.ToLower(to) || strings.Contains(to, ".:") {
				t.Errorf("on record: %v", e.Body)
			}
		}

		// With everything allowed that is public, what is not stays so.
		all := p.open("--net", "open")
		list = []probe{{"get", public, ""}}
		direct := bare
		for _, host := range []string{
			"2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "169.16689662", "169.254.169.254", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "::ffff:a9fe:a9fe", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[::169.254.169.254]",
			"127.1", "127.0.0.1", "2130706433", "0", "0.0.0.0", "localhost", "[::1]", "[::]", "127.0.0.1.", "017700000001", "10.9.0.1", "[fe80::1]", "[fe80::1%25lo]", "[fd00::1]", "100.100.100.200", "192.0.0.192", "100.64.0.1", "198.18.255.1", "224.0.0.1", "255.255.255.255", "a.localhost",
		} {
			for _, kind := range []string{"connect", "get", "name"} {
				list = append(list, probe{kind, host, ""})
			}
			direct += "curl -g -sS -m 20 'http://" + host + "/direct'; "
		}
		reached, saw, said := p.askAll(all, list)
		if !reached[0] {
			t.Errorf("a dead test: a public address is not reached with open: %s", said)
		}
		for _, s := range saw {
			if !strings.Contains(s, public) {
				t.Errorf("the world saw %q\n%s", s, said)
			}
		}
		r := p.sh(all, direct)
		if got := taken(); len(got) > 0 {
			t.Errorf("the world saw %q\n%v", got, r)
		}
	})
}

// counters reads what the kernel of this world counts.
func counters(t *testing.T, names ...string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, file := range []string{"/proc/self/net/snmp", "/proc/self/net/snmp6"} {
		b, _ := os.ReadFile(file)
		lines := strings.Split(string(b), "\n")
		for i, l := range lines {
			f := strings.Fields(l)
			if strings.HasSuffix(file, "6") && len(f) == 2 {
				out[f[0]], _ = strconv.Atoi(f[1])
			} else if i%2 == 1 {
				for j, name := range strings.Fields(lines[i-1]) {
					if j > 0 && j < len(f) {
						out[strings.TrimSuffix(f[0], ":")+name], _ = strconv.Atoi(f[j])
					}
				}
			}
		}
	}
	for n := range out {
		if !slices.Contains(names, n) {
			delete(out, n)
		}
	}
	return out
}

// TestOtherProtocols: what is no TCP leaves nothing and reaches nothing (P40); the
// kernel of the world counts what arrives.
func TestOtherProtocols(t *testing.T) {
	one(t, func(p *place) {
		watched := []string{"IcmpInEchos", "UdpInDatagrams", "UdpNoPorts", "UdpLiteInDatagrams", "Icmp6InEchos", "Udp6InDatagrams", "Udp6NoPorts"}
		const script = `
import socket, struct, sys
def attempt(what, f):
    try: print(what, 'sent', f())
    except Exception as e: print(what, e)
for port in (53, 123, 443, 5353, 9999):
    attempt('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'datagram', ('` + public + `', port)))
    attempt('udp6', lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'datagram', ('::1', port)))
    attempt('udplite', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136).sendto(b'datagram', ('` + public + `', port)))
echo = b'\x08\x00' + struct.pack('>H', 0xffff - 0x0800 - 1 - 1) + b'\x00\x01\x00\x01'
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    attempt('icmp', lambda: socket.socket(socket.AF_INET, kind, 1).sendto(echo, ('` + public + `', 0)))
attempt('sctp', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).connect(('` + public + `', 80)))
attempt('raw tcp', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 6).sendto(b'x' * 20, ('` + public + `', 0)))
attempt('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3).bind(('lo', 0)))
attempt('multicast', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'datagram', ('224.0.0.251', 5353)))
attempt('link-local', lambda: socket.create_connection(('fe80::1', 80, 0, 1), 5))
attempt('vsock', lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 1)))
attempt('bluetooth', lambda: socket.socket(31, socket.SOCK_RAW, 1))
attempt('mptcp', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(('` + other + `', 9998)))
`
		task := p.open("--net", "open")
		// Who asked for names, and whatever else this world does, is over by now.
		taken()
		before := counters(p.t, watched...)
		r := p.sh(task, bare+"timeout 100 python3 - <<'E'\n"+script+"\nE")
		after := counters(p.t, watched...)
		if len(before) < 4 || !strings.Contains(r.Stdout, "udp sent") {
			t.Fatalf("nothing is counted or tried here: %v %v", before, r)
		}
		for n, v := range before {
			if after[n] != v {
				t.Errorf("%s went from %d to %d: %v", n, v, after[n], r)
			}
		}
		if got := taken(); len(got) > 0 {
			t.Errorf("the world saw %q\n%v", got, r)
		}
		for _, no := range []string{"sctp sent", "raw tcp sent", "packet sent", "vsock sent", "link-local sent", "bluetooth sent"} {
			if strings.Contains(r.Stdout, no) {
				t.Errorf("%s: %v", no, r)
			}
		}
		before = counters(p.t, watched...)
		out := p.outside("timeout 100 python3 - <<'E'\n" + script + "\nE")
		if after := counters(p.t, watched...); after["UdpInDatagrams"] == before["UdpInDatagrams"] || !has(taken(), "udp datagram") {
			t.Errorf("a dead test: without a boundary nothing was counted: %v %v %v", before, after, out)
		}
	})
}

// TestEmptyLists: a list that is empty, missing or unreadable is no network, or no
// start (P42).
func TestEmptyLists(t *testing.T) {
	one(t, func(p *place) {
		const reach = "curl -sS -m 20 http://a.test/; curl -sS -m 20 http://b.test/; " + bare + "curl -sS -m 20 http://a.test/; curl -sS -m 20 -x http://127.0.0.1:61080 http://a.test/; getent hosts a.test; true"
		for _, text := range []string{
			"", "# nothing\n", "version: 1\n", "version: 1\nbase: {egress: []}\n", "version: 1\nbase: {egress: }\n", "version: 1\nbase: {egress: [\" \"]}\n", "version: 1\nbase: {egress: [{host: \"\"}]}\n", "version: 1\nbase: {egress: [{}]}\n",
			"version: 1\nbase: {egress: [{ports: [80]}]}\n", "version: 1\nbase: {egress: {host: a.test}}\n", "version: 1\nbase: {egress: \"*\"}\n", "version: 1\nbase: {egress: [{host: \"a.test b.test\"}]}\n", "version: 1\nbase: {egress: [{host: a.test, port: 80}]}\n", "{{{", "version: 1\nbase: {egress: [{host: \"http://a.test\"}]}\n",
			"version: 1\nbase: {egress: [{cidr: \"\"}]}\n", "version: 1\nbase: {egress: [{cidr: 0.0.0.0}]}\n",
		} {
			p.userPolicy(text)
			taken()
			r := p.Caisson(p.t, p.repo, "run", "--net", "allowlist", "--keep", "never", "--", "bash", "-c", reach)
			if got := taken(); len(got) > 0 {
				t.Errorf("%q: the world saw %q\n%v", text, got, r)
			}
		}
		p.userPolicy("version: 1\n")
		for _, s := range []string{"", " ", ",", "*", ":80", "a.test:", "a.test:0", "a.test:99999", "http://", "a.test:80,b.test:80", "\na.test:80", "[]:80", "[\" \"]", "/0:80"} {
			taken()
			r := p.Caisson(p.t, p.repo, "run", "--allow", s, "--keep", "never", "--", "bash", "-c", reach)
			if got := taken(); len(got) > 0 || r.Exit == 0 {
				t.Errorf("--allow %q: exit %d, the world saw %q\n%v", s, r.Exit, got, r)
			}
		}
	})
}

// TestSandboxInside: what makes a sandbox or a namespace of its own inside has
// the same way out or none (P43); the product's own doors are not there (P44).
func TestSandboxInside(t *testing.T) {
	one(t, func(p *place) {
		program(p.t, "bwrap", "bubblewrap")
		harness.NeedsGrant(p.t, "userns")
		task := p.open("--grant", "userns", "--allow", "a.test:80")
		for line, want := range map[string]bool{
			"bwrap --dev-bind / / curl -sS -m 60 http://a.test/":                                                                                  true,
			"bwrap --dev-bind / / curl -sS -m 20 http://b.test/":                                                                                  false,
			"bwrap --dev-bind / / bash -c '" + "curl -sS --noproxy \"*\" -m 20 http://" + other + "/'":                                            false,
			"bwrap --dev-bind / / --unshare-net curl -sS -m 20 http://a.test/":                                                                    false,
			"unshare -Urn bash -c 'ip link set lo up; ip route add local default dev lo; curl -sS -m 20 --noproxy \"*\" http://" + other + "/'":   false,
			"unshare -Ur bash -c 'ip route flush table local; ip route add default dev lo; curl -sS -m 20 --noproxy \"*\" http://" + other + "/'": false,
		} {
			taken()
			if r := p.sh(task, line); has(taken(), "http ") != want {
				t.Errorf("%s: %v", line, r)
			}
		}
		// A relay inside is one more client.
		taken()
		r := p.sh(task, `python3 - <<'E' &
import socket, threading
l = socket.create_server(('127.0.0.1', 7000))
for _ in range(2):
    c = l.accept()[0]; u = socket.create_connection(('127.0.0.1', 61080))
    def pump(a, b):
        while True:
            d = a.recv(4096)
            if not d: break
            b.sendall(d)
    threading.Thread(target=pump, args=(c, u), daemon=True).start(); threading.Thread(target=pump, args=(u, c), daemon=True).start()
import time; time.sleep(20)
E
for i in $(seq 200); do (exec 3<>/dev/tcp/127.0.0.1/7000) 2>/dev/null && break; sleep 0.1; done; curl -sS -m 20 -x http://127.0.0.1:7000 http://b.test/; kill %1`)
		if has(taken(), "http ") {
			t.Error(r)
		}
		// Doors: no socket of the product, and none of its files.
		r = p.sh(task, "ls -d "+p.Runtime+" "+p.State+" /run/user 2>/dev/null; grep -c caisson /proc/net/unix; find / -xdev -type s 2>/dev/null | grep -i caisson")
		if m := regexp.MustCompile(`(?m)^/|^[1-9]`).FindString(r.Stdout); m != "" {
			t.Error(r)
		}
	})
}
