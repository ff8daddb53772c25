package egress

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/caisson-dev/caisson/internal/task"
)

// arrived is what reached the servers of a matrix.
type arrived struct {
	sync.Mutex
	list []string
}

func (a *arrived) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.Lock()
	a.list = append(a.list, r.Method+" "+r.Host+r.RequestURI)
	a.Unlock()
	if r.Header.Get("Upgrade") == "websocket" {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			c.Close()
		}
		return
	}
	io.Copy(io.Discard, r.Body)
}

func (a *arrived) taken() []string {
	a.Lock()
	defer a.Unlock()
	l := a.list
	a.list = nil
	return l
}

// matrix is a gate that reads example.com, at one port with TLS and one without.
type matrix struct {
	*readable
	arrived *arrived
	plain   int
}

func newMatrix(t testing.TB) *matrix {
	a := &arrived{}
	port, roots := secureWeb(t, true, a)
	m := &matrix{arrived: a, plain: web(t, a)}
	m.readable = reading(t, Config{Roots: roots}, port)
	return m
}

func (m *matrix) at(secure bool) string {
	if secure {
		return fmt.Sprintf("example.com:%d", m.port)
	}
	return fmt.Sprintf("example.com:%d", m.plain)
}

// asked is a stream to host, for which the way was asked for in one of the forms.
func (m *matrix) asked(t testing.TB, form string, dest string) net.Conn {
	t.Helper()
	host, port, _ := strings.Cut(dest, ":")
	n, _ := strconv.Atoi(port)
	switch form {
	case "connect":
		c, head := m.tunnelTo(t, dest)
		if !strings.Contains(head, " 200 ") {
			return nil
		}
		return c
	case "socks":
		c, code := m.socksTo(t, host, n)
		if code != 0 {
			return nil
		}
		return c
	}
	// A program that knows no proxy connects to the address that stands for the name.
	addr, _ := m.names.addrOf(host)
	l := listen(t)
	go m.serve(l, func(s *session) { s.direct(netip.AddrPortFrom(addr, uint16(n))) })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

func (m *matrix) secured(t testing.TB, c net.Conn, proto string) *tls.Conn {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(m.ca.PEM())
	s := tls.Client(c, &tls.Config{ServerName: "example.com", RootCAs: roots, NextProtos: []string{proto}})
	if err := s.Handshake(); err != nil {
		t.Fatal(err)
	}
	return s
}

// oneAnswer sends a request of HTTP/1.1 and returns the status of its answer.
func oneAnswer(t testing.TB, c net.Conn, text string) int {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	n := status(t, bufio.NewReader(c))
	if n == http.StatusSwitchingProtocols {
		c.Close()
	}
	return n
}

func status(t testing.TB, r *bufio.Reader) int {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode
	}
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// two sends requests of HTTP/2 on one connection, each with its fields, and returns
// the statuses of their answers; 0: the stream was broken off.
func two(t testing.TB, c net.Conn, requests ...[][2]string) []int {
	t.Helper()
	io.WriteString(c, http2.ClientPreface)
	fr := http2.NewFramer(c, c)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	fr.AllowIllegalWrites = true
	fr.WriteSettings()
	var b strings.Builder
	enc := hpack.NewEncoder(&b)
	for i, q := range requests {
		b.Reset()
		for _, f := range q {
			enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: []byte(b.String()), EndStream: true, EndHeaders: true})
	}
	out, left := make([]int, len(requests)), len(requests)
	seen := map[uint32]bool{}
	for left > 0 {
		f, err := fr.ReadFrame()
		if err != nil {
			return out
		}
		id := f.Header().StreamID
		code := -1
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			code, _ = strconv.Atoi(f.PseudoValue("status"))
		case *http2.RSTStreamFrame:
			code = 0
		case *http2.GoAwayFrame:
			return out
		}
		if code >= 0 && !seen[id] {
			seen[id] = true
			out[id/2] = code
			left--
		}
	}
	return out
}

func request2(method, authority, path string, more ...[2]string) [][2]string {
	return append([][2]string{{":method", method}, {":scheme", "https"}, {":authority", authority}, {":path", path}}, more...)
}

// TestVerdictsInsideTLS: however something is asked for, the verdict is the same, and nothing
// else arrives.
func TestVerdictsInsideTLS(t *testing.T) {
	m := newMatrix(t)
	head := func(method, dest, path string, more ...string) string {
		return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n%s\r\n", method, path, dest, strings.Join(more, ""))
	}
	type try func(form, method, path string) int
	fronts := map[string]struct {
		secure bool
		try
	}{
		"plain": {false, func(form, method, path string) int {
			d := m.at(false)
			return oneAnswer(t, m.asked(t, form, d), head(method, d, path))
		}},
		"HTTP/1.1 in TLS": {true, func(form, method, path string) int {
			d := m.at(true)
			return oneAnswer(t, m.secured(t, m.asked(t, form, d), "http/1.1"), head(method, d, path))
		}},
		"HTTP/2 in TLS": {true, func(form, method, path string) int {
			d := m.at(true)
			return two(t, m.secured(t, m.asked(t, form, d), "h2"), request2(method, d, path))[0]
		}},
		"WebSocket": {false, func(form, method, path string) int {
			d := m.at(false)
			return oneAnswer(t, m.asked(t, form, d), head(method, d, path, "Connection: Upgrade\r\nUpgrade: websocket\r\n"))
		}},
		"WebSocket in TLS": {true, func(form, method, path string) int {
			d := m.at(true)
			return oneAnswer(t, m.secured(t, m.asked(t, form, d), "http/1.1"), head(method, d, path, "Connection: Upgrade\r\nUpgrade: websocket\r\n"))
		}},
		"second of two": {false, func(form, method, path string) int {
			d := m.at(false)
			c := m.asked(t, form, d)
			r := bufio.NewReader(c)
			io.WriteString(c, head("GET", d, "/")+head(method, d, path))
			if n := status(t, r); n != 200 {
				t.Errorf("the first was answered with %d", n)
			}
			return status(t, r)
		}},
		"second of two in TLS": {true, func(form, method, path string) int {
			d := m.at(true)
			c := m.secured(t, m.asked(t, form, d), "http/1.1")
			r := bufio.NewReader(c)
			io.WriteString(c, head("GET", d, "/")+head(method, d, path))
			if n := status(t, r); n != 200 {
				t.Errorf("the first was answered with %d", n)
			}
			return status(t, r)
		}},
		"second of two in HTTP/2": {true, func(form, method, path string) int {
			d := m.at(true)
			return two(t, m.secured(t, m.asked(t, form, d), "h2"), request2("GET", d, "/"), request2(method, d, path))[1]
		}},
	}
	absolute := func(method, path string) int {
		d := m.at(false)
		return oneAnswer(t, m.dialled(t), fmt.Sprintf("%s http://%s%s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n", method, d, path, d))
	}
	for _, q := range []struct {
		method, path string
		allowed      bool
	}{{"GET", "/x", true}, {"GET", "/no", false}, {"POST", "/in/y", true}, {"POST", "/out", false}, {"DELETE", "/x", false}} {
		check := func(name string, code int, prefix int) {
			t.Helper()
			got := m.arrived.taken()
			if ok := code == 200 || code == 101; ok != q.allowed || !q.allowed && code != 403 || (len(got) == prefix+1) != q.allowed {
				t.Errorf("%s %s, %s: %d, and %q arrived", q.method, q.path, name, code, got)
			}
		}
		check("absolute form", absolute(q.method, q.path), 0)
		for name, f := range fronts {
			for _, form := range []string{"connect", "socks", "direct"} {
				first := 0
				if strings.HasPrefix(name, "second") {
					first = 1
				}
				check(name+", "+form, f.try(form, q.method, q.path), first)
			}
		}
	}
}

// TestOneHostPerStream: on a stream to one host nothing is asked of another one.
func TestOneHostPerStream(t *testing.T) {
	m := newMatrix(t)
	own := m.at(true)
	for name, q := range map[string][][2]string{
		"another authority":             request2("GET", "other.test", "/"),
		"another port":                  request2("GET", "example.com:1", "/"),
		"no port":                       request2("GET", "example.com", "/"),
		"userinfo":                      request2("GET", "x@"+own, "/"),
		"an authority twice":            append([][2]string{{":authority", "other.test"}}, request2("GET", own, "/")...),
		"another Host":                  request2("GET", own, "/", [2]string{"host", "other.test"}),
		"a Host twice":                  request2("GET", own, "/", [2]string{"host", own}, [2]string{"host", "other.test"}),
		"a Host alone, another":         {{":method", "GET"}, {":scheme", "https"}, {":path", "/"}, {"host", "other.test"}},
		"nobody":                        {{":method", "GET"}, {":scheme", "https"}, {":path", "/"}},
		"a length that is not":          request2("GET", own, "/", [2]string{"content-length", "5"}),
		"two lengths":                   request2("GET", own, "/", [2]string{"content-length", "0"}, [2]string{"content-length", "5"}),
		"a length by another name":      request2("GET", own, "/", [2]string{"content_length", "5"}),
		"a host by another name":        request2("GET", own, "/", [2]string{"Host_", "x"}, [2]string{"transfer_encoding", "chunked"}),
		"chunks":                        request2("GET", own, "/", [2]string{"transfer-encoding", "chunked"}),
		"a connection's field":          request2("GET", own, "/", [2]string{"connection", "close"}),
		"an upgrade":                    request2("GET", own, "/", [2]string{"upgrade", "websocket"}),
		"a tunnel":                      {{":method", "CONNECT"}, {":authority", own}},
		"a tunnel for a WebSocket":      request2("CONNECT", own, "/", [2]string{":protocol", "websocket"}),
		"a path of its own":             request2("GET", own, "http://other.test/"),
		"no path":                       request2("GET", own, ""),
		"everything":                    request2("GET", own, "*"),
		"a path with a fragment":        request2("GET", own, "/#x"),
		"a path with a space":           request2("GET", own, "/ HTTP/1.1\r\nHost: other.test"),
		"a method in small letters":     request2("get", own, "/"),
		"a method with a line":          request2("GET / HTTP/1.1\r\nX:", own, "/"),
		"a field with a line":           request2("GET", own, "/", [2]string{"x", "1\r\nHost: other.test"}),
		"a field with a line in a name": request2("GET", own, "/", [2]string{"x\r\nhost", "other.test"}),
	} {
		for _, form := range []string{"connect", "direct"} {
			got := two(t, m.secured(t, m.asked(t, form, own), "h2"), request2("GET", own, "/first"), q)
			if name == "a host by another name" {
				got[1] = 400 // the names in capitals end the stream in one version of the library
			}
			if l := m.arrived.taken(); got[1] == 200 || len(l) > 1 || len(l) == 1 && l[0] != "GET "+own+"/first" {
				t.Errorf("%s: %v, and %q arrived", name, got, l)
			}
		}
	}
	// The control: the same two, both of them well.
	if got := two(t, m.secured(t, m.asked(t, "connect", own), "h2"), request2("GET", own, "/first"), request2("GET", own, "/second", [2]string{"host", own})); got[0] != 200 || got[1] != 200 || len(m.arrived.taken()) != 2 {
		t.Errorf("the control: %v", got)
	}
	for _, secure := range []bool{false, true} {
		for _, form := range []string{"connect", "socks", "direct"} {
			d := m.at(secure)
			c := m.asked(t, form, d)
			if secure {
				c = m.secured(t, c, "http/1.1")
			}
			fmt.Fprintf(c, "GET /first HTTP/1.1\r\nHost: %s\r\n\r\nGET /second HTTP/1.1\r\nHost: other.test\r\n\r\n", d)
			b, _ := io.ReadAll(c)
			if l := m.arrived.taken(); len(l) != 1 || strings.Count(string(b), "HTTP/1.1 403 ") != 1 {
				t.Errorf("pipelined, %v, %s: %q arrived, and %q came back", secure, form, l, b)
			}
		}
	}
	// Prior knowledge of HTTP/2 where there is no TLS.
	for _, form := range []string{"connect", "socks", "direct"} {
		got := two(t, m.asked(t, form, m.at(false)), request2("GET", m.at(false), "/"))
		if l := m.arrived.taken(); got[0] != 0 || len(l) != 0 {
			t.Errorf("prior knowledge, %s: %v, and %q arrived", form, got, l)
		}
	}
	// A host that nothing is granted of, by every form.
	for _, form := range []string{"connect", "socks"} {
		if c := m.asked(t, form, fmt.Sprintf("other.test:%d", m.port)); c != nil {
			t.Errorf("a way to another host, by %s", form)
		}
	}
	d, _ := m.notes.all()
	for _, d := range d {
		if d.Verdict == task.VerdictAllow && d.Dest.Host.Name() != "example.com" {
			t.Errorf("on record: %+v", d)
		}
	}
}

// FuzzHead2: what is let on of a request of HTTP/2 says one thing only.
func FuzzHead2(f *testing.F) {
	f.Add("GET", "/x?y", "example.com", "Host", "example.com", int64(0))
	f.Add("POST", "/", "example.com:443", "Content-Length", "5", int64(5))
	f.Add("GET", "//x", "EXAMPLE.com.", "content_length", "5", int64(-1))
	f.Add("OPTIONS", "*", "other.test", "Te", "trailers", int64(0))
	f.Add("GET", "/\r\n", "example.com", "Transfer-Encoding", "chunked", int64(0))
	d := Dest{Host{name: "example.com"}, 443}
	f.Fuzz(func(t *testing.T, method, target, host, name, value string, length int64) {
		r := &http.Request{Method: method, RequestURI: target, Host: host, ProtoMajor: 2, TLS: &tls.ConnectionState{}, ContentLength: length, Header: http.Header{name: {value}}, URL: &url.URL{}}
		h, err := headOf(r, d)
		if err != nil {
			return
		}
		var b strings.Builder
		x := &sending{h: h, to: d, target: h.target, tls: true}
		if err := x.write(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		br := bufio.NewReader(strings.NewReader(text))
		got, err := readHead(br)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if got.method != method || got.target != target || got.host != "example.com" || br.Buffered() > 0 || got.upgrade || got.chunked != (length < 0) || length > 0 && got.length != length {
			t.Errorf("%q is %+v", text, got)
		}
	})
}

// FuzzHTTP2 says anything in frames of HTTP/2: nothing arrives but what is allowed.
func FuzzHTTP2(f *testing.F) {
	m := newMatrix(f)
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	var b strings.Builder
	enc := hpack.NewEncoder(&b)
	for _, q := range [][][2]string{request2("GET", m.at(true), "/"), request2("GET", "other.test", "/")} {
		b.Reset()
		for _, v := range q {
			enc.WriteField(hpack.HeaderField{Name: v[0], Value: v[1]})
		}
		var fr strings.Builder
		http2.NewFramer(&fr, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(b.String()), EndStream: true, EndHeaders: true})
		f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00" + fr.String()))
	}
	f.Fuzz(func(t *testing.T, frames []byte) {
		c := m.secured(t, m.asked(t, "connect", m.at(true)), "h2")
		io.WriteString(c, http2.ClientPreface)
		c.Write(frames)
		c.CloseWrite()
		c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // after an error the server lingers
		io.Copy(io.Discard, c)
		c.Close()
		for _, s := range m.arrived.taken() {
			if !strings.Contains(s, " "+m.at(true)+"/") || !strings.HasPrefix(s, "GET ") && !strings.HasPrefix(s, "HEAD ") && !strings.HasPrefix(s, "POST ") || strings.HasSuffix(s, "/no") {
				t.Errorf("%q arrived", s)
			}
		}
	})
}
