package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// published offers a server and returns where.
func published(t *testing.T, server net.Listener, peer func(net.Conn) error) (*Publication, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Publication{
		Listener: l, Peer: peer, Ours: func(_ string, port uint16) bool { return int(port) == l.Addr().(*net.TCPAddr).Port },
		Dial: func(context.Context) (net.Conn, error) { return net.Dial("tcp", server.Addr().String()) },
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return p, l.Addr().String()
}

func anybody(net.Conn) error { return nil }

func listening(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestPublishedWeb: what pages of other sites do to a server of this machine is
// refused request by request, and what its own pages do is not.
func TestPublishedWeb(t *testing.T) {
	server := listening(t)
	go http.Serve(server, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "echo" {
			c, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			io.Copy(c, rw)
			return
		}
		fmt.Fprintf(w, "%s %s", r.Host, r.URL.Path)
	}))
	_, at := published(t, server, anybody)
	port := at[strings.LastIndexByte(at, ':'):]
	for _, c := range []struct {
		host, method string
		head         map[string]string
		want         int
	}{
		{at, "GET", nil, 200}, {"localhost" + port, "POST", nil, 200}, {"app.localhost" + port, "GET", nil, 200}, {"[::1]" + port, "GET", nil, 200},
		{"evil.test" + port, "GET", nil, 403}, {"evil.test", "GET", nil, 403}, {"127.0.0.1.evil.test" + port, "GET", nil, 403}, {"localhost.evil.test" + port, "GET", nil, 403}, {"10.0.0.1" + port, "GET", nil, 403}, {"2130706433" + port, "GET", nil, 403},
		{at, "POST", map[string]string{"Origin": "http://" + at}, 200}, {at, "POST", map[string]string{"Origin": "http://localhost" + port}, 200},
		{at, "POST", map[string]string{"Origin": "http://evil.test"}, 403}, {at, "GET", map[string]string{"Origin": "null"}, 403}, {at, "GET", map[string]string{"Origin": "http://localhost:1"}, 403}, {at, "GET", map[string]string{"Origin": "file://"}, 403},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		{at, "POST", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		// A page at another port of this machine, of another task for example, is of the same site.
		{at, "GET", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 403},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script", "Referer": "http://127.0.0.1:1/"}, 403},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script", "Referer": "http://evil.test" + port + "/"}, 403},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script", "Referer": "http://" + at + "/page"}, 200},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "Origin": "http://localhost" + port}, 200},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 200},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200},
		{at, "GET", map[string]string{"Sec-Fetch-Site": "else", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, 403},
	} {
		r, err := http.NewRequest(c.method, "http://"+at+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		for k, v := range c.head {
			r.Header.Set(k, v)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.want || c.want == 200 && string(b) != c.host+" /x" {
			t.Errorf("%s %s %v: %d %s", c.method, c.host, c.head, res.StatusCode, b)
		}
	}
	// The first request of a connection says nothing about the second.
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	br := bufio.NewReader(c)
	for i, host := range []string{at, "evil.test"} {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != []int{200, 403}[i] {
			t.Fatalf("%s: %v %v", host, res, err)
		}
		io.Copy(io.Discard, res.Body)
	}
	// A WebSocket passes, and one of another site's page does not.
	for origin, want := range map[string]int{"http://" + at: 101, "http://evil.test": 403} {
		w, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(w, "GET /ws HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", at, origin)
		br := bufio.NewReader(w)
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != want {
			t.Fatalf("%s: %v %v", origin, res, err)
		}
		if want == 101 {
			fmt.Fprint(w, "hello\n")
			if s, err := br.ReadString('\n'); s != "hello\n" {
				t.Errorf("%q %v", s, err)
			}
		}
		w.Close()
	}
}

// TestPublishedRaw: other protocols pass as they are, whoever speaks first, with
// an end for each direction.
func TestPublishedRaw(t *testing.T) {
	server := listening(t)
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				br := bufio.NewReader(c)
				s, err := br.ReadString('\n')
				if err != nil {
					return
				}
				rest, _ := io.ReadAll(br)
				fmt.Fprintf(c, "got %d after %s", len(rest), s)
			}()
		}
	}()
	_, at := published(t, server, anybody)
	big := strings.Repeat("x", 1<<20)
	for _, first := range []string{"hello\n", "\x16\x03\x01\n", "PRI * HTTP/2.0\n", "G\n", "\x00\n"} {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			io.WriteString(c, first+big)
			c.(*net.TCPConn).CloseWrite()
		}()
		b, err := io.ReadAll(c)
		if want := fmt.Sprintf("got %d after %s", len(big), first); string(b) != want || err != nil {
			t.Errorf("%q: %q %v", first, b, err)
		}
		c.Close()
	}
	greeting := listening(t)
	go func() {
		for {
			c, err := greeting.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "220 ready\n")
			s, _ := bufio.NewReader(c).ReadString('\n')
			io.WriteString(c, "you said "+s)
			c.Close()
		}
	}()
	_, at = published(t, greeting, anybody)
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	br := bufio.NewReader(c)
	if s, err := br.ReadString('\n'); s != "220 ready\n" {
		t.Fatalf("%q %v", s, err)
	}
	io.WriteString(c, "GET it\n")
	if b, err := io.ReadAll(br); string(b) != "you said GET it\n" {
		t.Errorf("%q %v", b, err)
	}
}

// TestPublishedPeer: who may not connect gets nothing, and the server sees nobody.
func TestPublishedPeer(t *testing.T) {
	server := listening(t)
	p, at := published(t, server, func(net.Conn) error { return errors.New("another user") })
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("somebody answered")
	}
	if conns, refused := p.Used(); conns != 0 || refused != 1 {
		t.Errorf("%d let in, %d not", conns, refused)
	}
	server.(*net.TCPListener).SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := server.Accept(); err == nil {
		t.Error("the server saw somebody")
	}
}

// TestPublishedNobody: where nothing waits inside, what speaks HTTP is told so, and
// a page of another site is told no more than ever.
func TestPublishedNobody(t *testing.T) {
	server := listening(t)
	_, at := published(t, server, anybody)
	server.Close()
	for origin, want := range map[string]int{"": http.StatusBadGateway, "http://evil.example": http.StatusForbidden} {
		r, _ := http.NewRequest("GET", "http://"+at+"/", nil)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(a.Body)
		a.Body.Close()
		if a.StatusCode != want || !strings.Contains(string(b), "caisson: ") {
			t.Errorf("%q: %d %s", origin, a.StatusCode, b)
		}
	}
	// What speaks something else sees an end.
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "\x00\x00hello\n")
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("%q %v", b, err)
	}
}
