package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// readable is a gate that ends TLS to example.com, and what it needs.
type readable struct {
	*way
	ca   *CA
	port int
}

// requests allows GET everywhere and POST below /in, at example.com.
func requests(p Point) Answer {
	switch {
	case p.Host != "example.com":
		return Answer{task.VerdictDeny, "nothing grants it", netip.Prefix{}}
	case p.Method == "GET" && p.Path != "/no", p.Method == "POST" && strings.HasPrefix(p.Path, "/in"), p.Method == "HEAD":
		return Answer{task.VerdictAllow, "test", loopback}
	}
	return Answer{task.VerdictDeny, "no such request", netip.Prefix{}}
}

func everyHost(d Dest) bool { return d.Host.Name() == "example.com" }

// secureWeb is a server for example.com whose certificate roots holds.
func secureWeb(t testing.TB, two bool, h http.Handler) (port int, roots *x509.CertPool) {
	t.Helper()
	if h == nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%d %s %s%s %q", r.ProtoMajor, r.Method, r.Host, r.RequestURI, b)
		})
	}
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = two
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	roots = x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return portOf(s.Listener.Addr().String()), roots
}

func reading(t testing.TB, c Config, port int) *readable {
	t.Helper()
	ca, err := NewCA("a test")
	if err != nil {
		t.Fatal(err)
	}
	c.CA = ca
	if c.Judge == nil {
		c.Judge = requests
	}
	if c.Reads == nil {
		c.Reads = everyHost
	}
	return &readable{open(t, c), ca, port}
}

// client is one of Go that trusts the boundary's certificate.
func (r *readable) client(t testing.TB, two bool) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(r.ca.PEM()) {
		t.Fatal("no certificate")
	}
	proxy, _ := url.Parse("http://" + r.addr)
	tr := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!two)
	tr.Protocols.SetHTTP2(two)
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func (r *readable) url(path string) string {
	return fmt.Sprintf("https://example.com:%d%s", r.port, path)
}

func TestRequestsInsideTLSAreRuled(t *testing.T) {
	for _, two := range []bool{false, true} {
		for _, server := range []bool{false, true} {
			port, roots := secureWeb(t, server, nil)
			w := reading(t, Config{Roots: roots}, port)
			c := w.client(t, two)
			proto := 1
			if two && server {
				proto = 2
			}
			for _, q := range []struct {
				method, path, body string
				status             int
			}{
				{"GET", "/a%2fb?secret=1", "", 200}, {"GET", "//x", "", 200}, {"GET", "/no", "", 403}, {"POST", "/in/x", "hello", 200},
				{"POST", "/out", "hello", 403}, {"DELETE", "/in", "", 403}, {"GET", "/", "", 200}, {"HEAD", "/", "", 200},
			} {
				req, _ := http.NewRequest(q.method, w.url(q.path), strings.NewReader(q.body))
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(two, server, q, err)
				}
				b, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				want := fmt.Sprintf("%d %s example.com:%d%s %q", proto, q.method, port, q.path, q.body)
				if q.method == "HEAD" {
					want = ""
				}
				if resp.StatusCode != q.status || q.status == 200 && string(b) != want || q.status == 403 && resp.Header.Get("X-Caisson-Refused") != "rule" {
					t.Errorf("%v %v %+v: %d %q, want %q", two, server, q, resp.StatusCode, b, want)
				}
				d, _ := w.notes.all()
				path, _, _ := strings.Cut(q.path, "?")
				if last := d[len(d)-1]; last.Proto != ProtoHTTPS || last.Method != q.method || last.Path != path || last.Dest.String() != fmt.Sprintf("example.com:%d", port) {
					t.Errorf("on record: %+v", last)
				}
				if o := w.notes.finished(t); q.body != "" && q.status == 200 && o[len(o)-1].Up < int64(len(q.body)) {
					t.Errorf("%+v", o[len(o)-1])
				}
			}
		}
	}
}

func TestServersThatCannotBeVerifiedGetNothing(t *testing.T) {
	var got atomic.Int32
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got.Add(1) })
	port, roots := secureWeb(t, true, h)
	cases := map[string]struct {
		host  string
		roots *x509.CertPool
		want  int
	}{"unknown issuer": {"example.com", x509.NewCertPool(), 502}, "another name": {"elsewhere.test", roots, 502}, "control": {"example.com", roots, 200}}
	for name, c := range cases {
		for _, two := range []bool{false, true} {
			got.Store(0)
			w := reading(t, Config{Roots: c.roots, Judge: only(c.host), Reads: func(Dest) bool { return true }}, port)
			resp, err := w.client(t, two).Get(fmt.Sprintf("https://%s:%d/", c.host, port))
			if err != nil {
				t.Fatal(name, err)
			}
			resp.Body.Close()
			if resp.StatusCode != c.want || (got.Load() > 0) != (c.want == 200) {
				t.Errorf("%s: %d, %d requests arrived", name, resp.StatusCode, got.Load())
			}
			if o := w.notes.last(t); c.want != 200 && o.Reason != ReasonTLS {
				t.Errorf("%s: %+v", name, o)
			}
		}
	}
}

func TestProgramsThatTakeNoPartAreOnRecord(t *testing.T) {
	port, roots := secureWeb(t, true, nil)
	dest := fmt.Sprintf("example.com:%d", port)
	shake := func(c *tls.Config) func(t *testing.T, conn net.Conn) {
		return func(t *testing.T, conn net.Conn) {
			if err := tls.Client(conn, c).Handshake(); err == nil {
				t.Error("they came to an understanding")
			}
		}
	}
	say := func(s string) func(t *testing.T, conn net.Conn) {
		return func(t *testing.T, conn net.Conn) {
			io.WriteString(conn, s)
			conn.(*net.TCPConn).CloseWrite()
			io.ReadAll(conn)
		}
	}
	for name, c := range map[string]struct {
		do   func(t *testing.T, conn net.Conn)
		want Reason
	}{
		"it pins":       {shake(&tls.Config{ServerName: "example.com", RootCAs: roots}), ReasonTLS},
		"another name":  {shake(&tls.Config{ServerName: "other.test", InsecureSkipVerify: true}), ReasonName},
		"no name":       {shake(&tls.Config{InsecureSkipVerify: true}), ReasonName},
		"not HTTP":      {shake(&tls.Config{ServerName: "example.com", InsecureSkipVerify: true, NextProtos: []string{"mqtt"}}), ReasonTLS},
		"neither":       {say("SSH-2.0-x\r\n"), ReasonProtocol},
		"prior version": {say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ReasonForm},
		"not HTTP in TLS": {func(t *testing.T, conn net.Conn) {
			c := tls.Client(conn, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true})
			io.WriteString(c, "SSH-2.0-x\r\n")
			b, _ := io.ReadAll(c)
			if !strings.Contains(string(b), " 400 ") {
				t.Errorf("%q", b)
			}
		}, ReasonForm},
		"absolute form in TLS": {func(t *testing.T, conn net.Conn) {
			c := tls.Client(conn, &tls.Config{ServerName: "example.com", InsecureSkipVerify: true})
			fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", dest, dest)
			io.ReadAll(c)
		}, ReasonForm},
	} {
		t.Run(name, func(t *testing.T) {
			w := reading(t, Config{Roots: roots}, port)
			conn, head := w.tunnelTo(t, dest)
			if !strings.Contains(head, " 200 ") {
				t.Fatal(head)
			}
			c.do(t, conn)
			conn.Close()
			for range 500 {
				if d, _ := w.notes.all(); len(d) > 0 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			d, _ := w.notes.all()
			if len(d) != 1 || d[0].Verdict != task.VerdictDeny || d[0].Reason != c.want || !strings.Contains(d[0].Said, "example.com") || len(w.zone.questions()) != 0 {
				t.Errorf("on record: %+v", d)
			}
		})
	}
}

// A destination that nothing names methods for stays a tunnel: the program sees
// the certificate of the server itself.
func TestOtherDestinationsStayTunnels(t *testing.T) {
	port, roots := secureWeb(t, true, nil)
	w := reading(t, Config{Judge: only("example.com"), Reads: func(Dest) bool { return false }}, port)
	proxy, _ := url.Parse("http://" + w.addr)
	tr := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(w.url("/no"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if d, _ := w.notes.all(); resp.StatusCode != 200 || d[0].Proto != ProtoConnect {
		t.Errorf("%d %+v", resp.StatusCode, d)
	}
}

func TestStreamsTrailersAndWebSocketsInsideTLS(t *testing.T) {
	more := map[string]chan string{"false": make(chan string), "true": make(chan string)}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			for s := range more[r.URL.RawQuery] {
				io.WriteString(w, s)
				w.(http.Flusher).Flush()
			}
		case "/in/both": // as gRPC does
			w.Header().Set("Trailer", "Grpc-Status")
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			b := make([]byte, 100)
			n, _ := r.Body.Read(b)
			w.Write(b[:n])
			w.(http.Flusher).Flush()
			io.Copy(w, r.Body)
			w.Header().Set("Grpc-Status", "7"+r.Trailer.Get("Sum")+r.Header.Get("Te"))
		case "/ws":
			c, rw, _ := w.(http.Hijacker).Hijack()
			defer c.Close()
			io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly")
			rw.Flush()
			b := make([]byte, 4)
			io.ReadFull(rw, b)
			c.Write(bytes.ToUpper(b))
		case "/in/size":
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		}
	})
	port, roots := secureWeb(t, true, h)
	w := reading(t, Config{Roots: roots}, port)
	for _, two := range []bool{false, true} {
		c, which := w.client(t, two), fmt.Sprint(two)
		go func() { more[which] <- "data: 1\n\n" }()
		resp, err := c.Get(w.url("/events?" + which))
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(resp.Body)
		for i := range 3 { // each is there before the next is made
			if s, err := r.ReadString('\n'); err != nil || s != fmt.Sprintf("data: %d\n", i+1) {
				t.Fatalf("%q %v", s, err)
			}
			r.ReadString('\n')
			if i < 2 {
				more[which] <- fmt.Sprintf("data: %d\n\n", i+2)
			}
		}
		resp.Body.Close()
		close(more[which])
		const big = 20 << 20
		resp, err = c.Post(w.url("/in/size"), "", io.LimitReader(zeros{}, big))
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); string(b) != fmt.Sprint(big) {
			t.Errorf("%s bytes arrived", b)
		}
		resp.Body.Close()
	}

	pr, pw := io.Pipe()
	req, _ := http.NewRequest("POST", w.url("/in/both"), pr)
	req.Header.Set("Te", "trailers")
	req.Trailer = http.Header{"Sum": nil}
	go func() { io.WriteString(pw, "ping") }()
	resp, err := w.client(t, true).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "ping" {
		t.Fatalf("%q %v", b, err)
	}
	req.Trailer.Set("Sum", "42")
	pw.Close()
	io.ReadAll(resp.Body)
	resp.Body.Close()
	if got := resp.Trailer.Get("Grpc-Status"); got != "742trailers" {
		t.Errorf("trailer %q of %v", got, resp.Trailer)
	}

	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(w.ca.PEM())
	raw, _ := w.tunnelTo(t, fmt.Sprintf("example.com:%d", port))
	ws := tls.Client(raw, &tls.Config{ServerName: "example.com", RootCAs: roots})
	fmt.Fprintf(ws, "GET /ws HTTP/1.1\r\nHost: example.com:%d\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", port)
	if s := line(t, ws); !strings.Contains(s, " 101 ") {
		t.Fatal(s)
	}
	io.WriteString(ws, "ping")
	if b, _ := io.ReadAll(ws); string(b) != "earlyPING" {
		t.Errorf("%q", b)
	}
}

// A server that takes a request and breaks off is not asked again.
func TestNoRequestIsSentTwice(t *testing.T) {
	for _, two := range []bool{false, true} {
		var got atomic.Int32
		port, roots := secureWeb(t, two, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got.Add(1)
			panic(http.ErrAbortHandler)
		}))
		w := reading(t, Config{Roots: roots}, port)
		resp, err := w.client(t, two).Post(w.url("/in"), "", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 502 || got.Load() != 1 {
			t.Errorf("%v: %d, sent %d times", two, resp.StatusCode, got.Load())
		}
	}
}

// An answer that breaks off is no whole one to the program.
func TestAnAnswerThatBreaksOffIsSeenToInsideTLS(t *testing.T) {
	port, roots := secureWeb(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	w := reading(t, Config{Roots: roots}, port)
	for _, two := range []bool{false, true} {
		resp, err := w.client(t, two).Get(w.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != "half" || err == nil {
			t.Errorf("%v: %q %v", two, b, err)
		}
	}
}

// A program that gives up waiting ends what it asked for, as in a tunnel.
func TestWhoIsGoneWaitsForNothingInsideTLS(t *testing.T) {
	begun, over := make(chan bool, 1), make(chan bool, 1)
	port, roots := secureWeb(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, "/events") {
			io.WriteString(w, "data\n\n")
			w.(http.Flusher).Flush()
		}
		begun <- true
		<-r.Context().Done()
		over <- true
	}))
	w := reading(t, Config{Roots: roots}, port)
	for _, two := range []bool{false, true} {
		for _, q := range []struct{ method, path, body string }{{"GET", "/", ""}, {"GET", "/events", ""}, {"POST", "/in", "hello"}, {"POST", "/in/events", "hello"}} {
			c := w.client(t, two)
			ctx, cancel := context.WithCancel(t.Context())
			req, _ := http.NewRequestWithContext(ctx, q.method, w.url(q.path), strings.NewReader(q.body))
			done := make(chan error, 1)
			go func() {
				resp, err := c.Do(req)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				done <- err
			}()
			<-begun
			cancel()
			<-over
			if err := <-done; err == nil {
				t.Error("an answer after all")
			}
		}
	}
}

// The end of the gate ends what is read, idle or not.
func TestTheEndEndsWhatIsReadInsideTLS(t *testing.T) {
	m := newMatrix(t)
	var cs []net.Conn
	for _, proto := range []string{"h2", "http/1.1"} {
		for _, say := range []bool{false, true} {
			c := m.secured(t, m.asked(t, "connect", m.at(true)), proto)
			if say && proto == "h2" {
				two(t, c, request2("GET", m.at(true), "/"))
			}
			cs = append(cs, c)
		}
	}
	m.Close()
	for _, c := range cs {
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("it goes on")
		}
	}
}

// Bytes are counted and bounded inside TLS as everywhere.
func TestBytesInsideTLS(t *testing.T) {
	port, roots := secureWeb(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.Copy(w, io.LimitReader(zeros{}, 8<<20))
	}))
	for _, two := range []bool{false, true} {
		w := reading(t, Config{Roots: roots}, port)
		resp, err := w.client(t, two).Get(w.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if o := w.notes.last(t); o.Down < 8<<20 || o.Down > 9<<20 || o.Reason != "" {
			t.Errorf("%v: %+v", two, o)
		}
		for _, method := range []string{"GET", "POST"} {
			w := reading(t, Config{Roots: roots, Limits: Limits{Bytes: 1 << 20}}, port)
			req, _ := http.NewRequest(method, w.url("/in"), io.LimitReader(zeros{}, 8<<20))
			if method == "GET" {
				req.Body = nil
			}
			resp, err := w.client(t, two).Do(req)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			o := w.notes.last(t)
			if o.Reason != ReasonLimit || o.Up+o.Down > 3<<20 || err == nil && resp.StatusCode == 200 {
				t.Errorf("%v %s: %+v, the program got %v", two, method, o, err)
			}
		}
	}
}
