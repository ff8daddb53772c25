package egress

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestMatrix asks for an allowed and a denied name in every way: all say the
// same, and no denied name is ever resolved.
func TestMatrix(t *testing.T) {
	port := web(t, nil)
	get := func(host string) string {
		return fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n\r\n", host, port)
	}
	for name, ask := range map[string]func(t *testing.T, w *way, host string) bool{
		"absolute form": func(t *testing.T, w *way, host string) bool {
			return strings.Contains(w.say(t, fmt.Sprintf("GET http://%s:%d/ HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host, port, host, port)), "200 OK")
		},
		"connect": func(t *testing.T, w *way, host string) bool {
			c, s := w.tunnelTo(t, fmt.Sprintf("%s:%d", host, port))
			if !strings.Contains(s, " 200 ") {
				return false
			}
			io.WriteString(c, get(host))
			return strings.Contains(line(t, c), "200 OK")
		},
		"socks": func(t *testing.T, w *way, host string) bool {
			c, code := w.socksTo(t, host, port)
			if code != socksOK {
				return false
			}
			io.WriteString(c, get(host))
			return strings.Contains(line(t, c), "200 OK")
		},
		"the second of two at once": func(t *testing.T, w *way, host string) bool {
			got := w.say(t, fmt.Sprintf("GET http://good.test:%d/1 HTTP/1.1\r\nHost: good.test:%d\r\n\r\nGET http://%s:%d/2 HTTP/1.1\r\nHost: %s:%d\r\n\r\n", port, port, host, port, host, port))
			return strings.Count(got, "200 OK") == 2
		},
		"a WebSocket": func(t *testing.T, w *way, host string) bool {
			got := w.say(t, fmt.Sprintf("GET http://%s:%d/ HTTP/1.1\r\nHost: %s:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", host, port, host, port))
			return strings.Contains(got, "200 OK") // by a server that knows none
		},
		"by address given for the name": func(t *testing.T, w *way, host string) bool {
			a, ok := askName(t, w.Gate, host)
			if !ok {
				return false
			}
			c, code := w.socksTo(t, a.String(), port)
			if code != socksOK {
				return false
			}
			io.WriteString(c, get(host))
			return strings.Contains(line(t, c), "200 OK")
		},
	} {
		for host, want := range map[string]bool{
			"good.test": true, "GOOD.Test": true, "evil.test": false, "evilgood.test": false, "good.test.evil.test": false, "sub.good.test": false, "secret-data.evil.test": false,
		} {
			t.Run(name+" "+host, func(t *testing.T) {
				w := open(t, Config{Judge: only("good.test")})
				if got := ask(t, w, host); got != want {
					d, o := w.notes.all()
					t.Errorf("%v, want %v: %+v %+v", got, want, d, o)
				}
				for _, q := range w.zone.questions() {
					if q != "good.test." {
						t.Errorf("resolved %q", q)
					}
				}
				d, _ := w.notes.all()
				if last := d[len(d)-1]; (last.Verdict == task.VerdictDeny) == want || last.Dest.Host.Name() != strings.ToLower(host) {
					t.Errorf("recorded as %+v", last)
				}
			})
		}
	}
}

// TestNotOffered refuses what is no way out, and the control beside each passes.
func TestNotOffered(t *testing.T) {
	port := web(t, nil)
	to := fmt.Sprintf("good.test:%d", port)
	w := open(t, Config{Judge: only("good.test")})
	for name, c := range map[string]struct{ say, want string }{
		"a control":                   {"GET http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\n\r\n", "HTTP/1.1 200"},
		"a control of HTTP/1.0":       {"GET http://" + to + "/ HTTP/1.0\r\n\r\n", "HTTP/1.1 200"},
		"a control with a body":       {"POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nContent-Length: 2\r\n\r\nhi", `"hi"`},
		"a control with chunks":       {"POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n\r\n", `"hi"`},
		"origin form":                 {"GET / HTTP/1.1\r\nHost: " + to + "\r\n\r\n", "400"},
		"https in absolute form":      {"GET https://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\n\r\n", "400"},
		"another Host":                {"GET http://" + to + "/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"},
		"another port in Host":        {"GET http://" + to + "/ HTTP/1.1\r\nHost: good.test:1\r\n\r\n", "403"},
		"an empty Host":               {"GET http://" + to + "/ HTTP/1.1\r\nHost:\r\n\r\n", "400"},
		"no Host":                     {"GET http://" + to + "/ HTTP/1.1\r\n\r\n", "400"},
		"two Hosts":                   {"GET http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nHost: " + to + "\r\n\r\n", "400"},
		"a length beside chunks":      {"POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		"two lengths":                 {"POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", "400"},
		"a list of lengths":           {"POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nContent-Length: 2, 2\r\n\r\nhi", "400"},
		"a signed length":             {"POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nContent-Length: +2\r\n\r\nhi", "400"},
		"a length by another name":    {"POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nContent_Length: 2\r\n\r\n", "400"},
		"another encoding":            {"POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "400"},
		"a hidden encoding":           {"POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nTransfer-Encoding : chunked\r\n\r\n", "400"},
		"chunks in HTTP/1.0":          {"POST http://" + to + "/ HTTP/1.0\r\nHost: " + to + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		"a folded line":               {"GET http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nX: a\r\n b\r\n\r\n", "400"},
		"LF alone":                    {"GET http://" + to + "/ HTTP/1.1\nHost: " + to + "\n\n", "400"},
		"CR in a value":               {"GET http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nX: a\rb\r\n\r\n", "400"},
		"NUL in a value":              {"GET http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nX: a\x00b\r\n\r\n", "400"},
		"Connection names the length": {"POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nConnection: content-length\r\nContent-Length: 2\r\n\r\nhi", "400"},
		"a small method":              {"get http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\n\r\n", "400"},
		"two spaces":                  {"GET  http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\n\r\n", "400"},
		"another version":             {"GET http://" + to + "/ HTTP/2.0\r\nHost: " + to + "\r\n\r\n", "400"},
		"HTTP/2 as if it were known":  {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"},
		"a long head":                 {"GET http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nX: " + strings.Repeat("a", maxHead) + "\r\n\r\n", "400"},
		"many fields":                 {"GET http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\n" + strings.Repeat("X: y\r\n", maxFields) + "\r\n", "400"},
		"userinfo":                    {"GET http://good.test@evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", "400"},
		"connect with a path":         {"CONNECT " + to + "/x HTTP/1.1\r\nHost: " + to + "\r\n\r\n", "400"},
		"connect without a port":      {"CONNECT good.test HTTP/1.1\r\nHost: good.test\r\n\r\n", "400"},
		"connect with another Host":   {"CONNECT " + to + " HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"},
		"connect with a body":         {"CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\nContent-Length: 1\r\n\r\nx", "400"},
		"connect to a short address":  {"CONNECT 127.1:80 HTTP/1.1\r\nHost: 127.1:80\r\n\r\n", "400"},
		"SOCKS 4a":                    {"\x04\x01\x00\x50\x00\x00\x00\x01u\x00good.test\x00", "\x00\x5b"},
		"SOCKS with a password only":  {"\x05\x01\x02", "\x05\xff"},
		"SOCKS BIND":                  {"\x05\x01\x00\x05\x02\x00\x03\x09good.test\x00\x50", "\x05\x00\x05\x07"},
		"SOCKS UDP":                   {"\x05\x01\x00\x05\x03\x00\x03\x09good.test\x00\x50", "\x05\x00\x05\x07"},
		"SOCKS with a NUL":            {"\x05\x01\x00\x05\x01\x00\x03\x13good.test\x00.evil.test\x00\x50", "\x05\x00\x05\x02"},
		"SOCKS by a short address":    {"\x05\x01\x00\x05\x01\x00\x03\x05127.1\x00\x50", "\x05\x00\x05\x02"},
		"SOCKS by IPv4 in IPv6":       {"\x05\x01\x00\x05\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01\x00\x50", "\x05\x00\x05\x02"},
		"SOCKS to no port":            {"\x05\x01\x00\x05\x01\x00\x03\x09good.test\x00\x00", "\x05\x00\x05\x02"},
		"SOCKS, an odd address":       {"\x05\x01\x00\x05\x01\x00\x07\x00\x00", "\x05\x00\x05\x08"},
		"TLS to the proxy":            {"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00\r\n\r\n", "400"},
	} {
		if got := w.say(t, c.say); !strings.Contains(got, c.want) || !strings.HasPrefix(name, "a control") && strings.Contains(got, "HTTP/1.1 200") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for _, q := range w.zone.questions() {
		if q != "good.test." {
			t.Errorf("resolved %q", q)
		}
	}
}

// TestFields shows what a request and an answer leave behind on the way.
func TestFields(t *testing.T) {
	port := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, b, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(b, "HTTP/1.1 200 Fine\rX-Split: secret\r\nConnection: X-Hop\r\nX-Hop: secret\r\nProxy-Authenticate: Basic\r\nX-End: stays\r\n\r\n%s %v", r.Host, r.Header)
		b.Flush()
	}))
	w := open(t, Config{Judge: only("good.test")})
	to := fmt.Sprintf("good.test:%d", port)
	got := w.say(t, "GET http://GOOD.test.:"+fmt.Sprint(port)+"/ HTTP/1.1\r\nHost: "+to+"\r\nProxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nConnection: close, X-Mine\r\nX-Mine: secret\r\nTE: trailers\r\nX-Kept: a\r\n\r\n")
	for _, s := range []string{"200 OK", to, "X-End: stays", "X-Kept:[a]"} {
		if !strings.Contains(got, s) {
			t.Errorf("%q is missing in %q", s, got)
		}
	}
	for _, s := range []string{"secret", "c2VjcmV0", "X-Hop", "X-Mine", "Proxy-", "Te:", "trailers"} {
		if strings.Contains(got, s) {
			t.Errorf("%q is in %q", s, got)
		}
	}
}

// TestPolicySeesMethods rules a method and a path, which only plain HTTP shows.
func TestPolicySeesMethods(t *testing.T) {
	port := web(t, nil)
	w := open(t, Config{Judge: func(p Point) Answer {
		if p.Host == "good.test" && p.Method == "GET" && strings.HasPrefix(p.Path, "/ok") && !strings.Contains(p.Path, "?") {
			return Answer{task.VerdictAllow, "reading", loopback}
		}
		return Answer{task.VerdictDeny, "only reading", netip.Prefix{}}
	}})
	to := fmt.Sprintf("good.test:%d", port)
	for target, want := range map[string]string{"GET http://" + to + "/ok?q": " 200 ", "POST http://" + to + "/ok": " 403 ", "GET http://" + to + "/no": " 403 ", "CONNECT " + to: " 403 "} {
		if got := w.say(t, target+" HTTP/1.1\r\nHost: "+to+"\r\n\r\n"); !strings.Contains(got, want) {
			t.Errorf("%s: %q", target, got)
		}
	}
}

// TestPlainHTTPInATunnel decides about each request by itself there, too.
func TestPlainHTTPInATunnel(t *testing.T) {
	port := web(t, nil)
	w := open(t, Config{Judge: only("good.test")})
	to := fmt.Sprintf("good.test:%d", port)
	c, _ := w.tunnelTo(t, to)
	r := bufio.NewReader(c)
	for i := range 2 {
		fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: %s\r\n\r\n", i, to)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || !strings.Contains(string(b), to) {
			t.Fatalf("%d %q", resp.StatusCode, b)
		}
	}
	// Much at once: what was read ahead is all there, in its order.
	c, _ = w.tunnelTo(t, to)
	long := strings.Repeat("x", 3000)
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 3000\r\n\r\n%sGET /next HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", to, long, to)
	if b, _ := io.ReadAll(c); !strings.Contains(string(b), long) || !strings.Contains(string(b), "/next") {
		t.Errorf("%q", b)
	}
	for _, bad := range []string{"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "GET http://evil.test/ HTTP/1.1\r\nHost: " + to + "\r\n\r\n", "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		c, s := w.tunnelTo(t, to)
		if !strings.Contains(s, "200") {
			t.Fatal(s)
		}
		io.WriteString(c, bad)
		if s := line(t, c); !strings.Contains(s, " 40") {
			t.Errorf("%q: %q", bad, s)
		}
	}
}

// TestServerName holds the name in a TLS greeting to the destination.
func TestServerName(t *testing.T) {
	seen := make(chan string, 100)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello from ", r.TLS.ServerName) }))
	s.TLS = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) { seen <- h.ServerName; return nil, nil }}
	s.StartTLS()
	defer s.Close()
	port := portOf(s.Listener.Addr().String())
	w := open(t, Config{Judge: only("good.test", "127.0.0.1")})
	for _, c := range []struct {
		dest, name string
		ok         bool
	}{
		{"good.test", "good.test", true}, {"good.test", "evil.test", false}, {"good.test", "", false}, {"good.test", "sub.good.test", false}, {"127.0.0.1", "", true}, {"127.0.0.1", "good.test", false},
	} {
		conn, head := w.tunnelTo(t, fmt.Sprintf("%s:%d", c.dest, port))
		if !strings.Contains(head, "200") {
			t.Fatal(head)
		}
		tc := tls.Client(conn, &tls.Config{ServerName: c.name, InsecureSkipVerify: true})
		err := tc.Handshake()
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil {
			fmt.Fprintf(tc, "GET / HTTP/1.0\r\n\r\n")
			b, _ := io.ReadAll(tc)
			if !strings.Contains(string(b), "hello from") {
				t.Errorf("%q", b)
			}
			<-seen
		}
		conn.Close()
	}
	raw := func(b []byte) {
		conn, _ := w.tunnelTo(t, fmt.Sprintf("good.test:%d", port))
		conn.Write(b)
		io.Copy(io.Discard, conn)
	}
	raw(hello(sniExt("good.test"), ext{extECH, []byte{0}}))
	raw(hello(sniExt("good.test", "evil.test")))
	in := hello(sniExt("good.test"))[recordHeader:]
	raw(append(record(in[:9]), record(in[9:])...))
	raw([]byte{22, 3, 1, 0xff, 0xff})
	named := 0
	for _, o := range w.notes.finished(t) {
		if o.Reason == ReasonName {
			if named++; o.Up != 0 {
				t.Errorf("bytes went out: %+v", o)
			}
		}
	}
	if named != 8 {
		t.Errorf("%d refused by name, want 8", named)
	}
	select {
	case n := <-seen:
		t.Errorf("the server saw %q", n)
	default:
	}
}

func TestWellKnownPorts(t *testing.T) {
	for _, c := range []struct {
		port uint16
		say  string
		want Reason
	}{
		{443, "SSH-2.0-x\r\n", ReasonProtocol}, {443, "GET / HTTP/1.1\r\n", ReasonProtocol}, {80, "SSH-2.0-x\r\n", ReasonProtocol}, {443, string(hello(sniExt("good.test"))), ""}, {22, "SSH-2.0-x\r\n", ""},
	} {
		s := &session{g: &Gate{}, br: bufio.NewReader(strings.NewReader(c.say))}
		if _, _, err := s.sniff(Dest{Host{name: "good.test"}, c.port}); ReasonOf(err) != c.want {
			t.Errorf("%q on port %d: %v", c.say, c.port, err)
		}
	}
}

// TestSecretsAreNotRecorded looks for what must stand in no record.
func TestSecretsAreNotRecorded(t *testing.T) {
	port := web(t, nil)
	w := open(t, Config{Judge: only("good.test")})
	to := fmt.Sprintf("good.test:%d", port)
	for _, say := range []string{
		"GET http://" + to + "/?key=s3cret HTTP/1.1\r\nHost: " + to + "\r\nAuthorization: Bearer s3cret\r\n\r\n",
		"GET http://user:s3cret@" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\n\r\n",
		"GET https://" + to + "/?key=s3cret HTTP/1.1\r\nHost: " + to + "\r\n\r\n",
		"GET http://" + to + "/?key=s3cret HTTP/3.1\r\nHost: " + to + "\r\n\r\n",
		"GET http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nAuthorization : Bearer s3cret\r\n\r\n",
		"GET http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nAuthorization: Bearer s3cret\x01\r\n\r\n",
		"CONNECT user:s3cret@" + to + " HTTP/1.1\r\nHost: " + to + "\r\n\r\n",
	} {
		w.say(t, say)
	}
	d, o := w.notes.all()
	if text := fmt.Sprintf("%+v %+v", d, o); len(d) != 7 || strings.Contains(text, "s3cret") {
		t.Errorf("%d recorded: %s", len(d), text)
	}
}

// TestRequestsInDisguise: a request in a tunnel is read also where only a lenient
// server takes it for one; what is none passes.
func TestRequestsInDisguise(t *testing.T) {
	var mu sync.Mutex
	var got strings.Builder
	l := listen(t)
	go func() { // takes what comes, as the most lenient of servers
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 4096)
				n, _ := c.Read(b)
				mu.Lock()
				got.Write(b[:n])
				mu.Unlock()
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}()
		}
	}()
	dest := fmt.Sprintf("good.test:%d", portOf(l.Addr().String()))
	push := "POST /r.git/git-receive-pack HTTP/1.1\r\nHost: " + dest + "\r\nContent-Length: 4\r\n\r\n0000"
	for name, c := range map[string]struct {
		says   string
		passes bool
	}{
		"as it is":         {"POST", true}, // and read: below
		"an empty line":    {"\r\nPOST", false},
		"a line feed":      {"\nPOST", false},
		"a blank":          {" POST", false},
		"many":             {strings.Repeat("\r\n", 1000) + "POST", false},
		"small letters":    {"post", false},
		"a tabulator":      {"POST\t", false},
		"something else":   {"EHLO ", true},
		"else after blank": {"\r\nEHLO ", true},
	} {
		t.Run(name, func(t *testing.T) {
			got.Reset()
			w := open(t, Config{Judge: only("good.test")})
			conn, head := w.tunnelTo(t, dest)
			if !strings.Contains(head, " 200 ") {
				t.Fatal(head)
			}
			io.WriteString(conn, c.says+strings.TrimPrefix(push, "POST"))
			conn.CloseWrite()
			io.ReadAll(conn)
			mu.Lock()
			defer mu.Unlock()
			if passed := strings.Contains(got.String(), "git-receive-pack"); passed != c.passes {
				t.Errorf("passed %v: %q", passed, got.String())
			}
			read := false
			d, _ := w.notes.all()
			for _, d := range d {
				read = read || d.Path == "/r.git/git-receive-pack"
			}
			if read != (name == "as it is") {
				t.Errorf("read as a request: %v", read)
			}
		})
	}
	// Blanks without an end are no reason to hold them.
	w := open(t, Config{Judge: only("good.test")})
	conn, _ := w.tunnelTo(t, dest)
	if _, err := io.WriteString(conn, strings.Repeat("\r\n", 8*maxHello)); err == nil {
		conn.CloseWrite()
		io.ReadAll(conn)
	}
	if o := w.notes.last(t); o.Reason != ReasonProtocol {
		t.Errorf("%+v", o)
	}
}
