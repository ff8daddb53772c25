package egress

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestStreams: who speaks first, ends of one direction, much data, slow data.
func TestStreams(t *testing.T) {
	serve := func(h func(c *net.TCPConn)) string {
		l := listen(t)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { defer c.Close(); h(c.(*net.TCPConn)) }()
			}
		}()
		return fmt.Sprintf("good.test:%d", portOf(l.Addr().String()))
	}
	w := open(t, Config{Judge: only("good.test")})
	t.Run("the server speaks first", func(t *testing.T) {
		c, _ := w.tunnelTo(t, serve(func(c *net.TCPConn) { io.WriteString(c, "SSH-2.0-server\r\n"); io.Copy(c, c) }))
		b := make([]byte, 16)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "SSH-2.0-server\r\n" {
			t.Fatalf("%q %v", b, err)
		}
		io.WriteString(c, "SSH-2.0-client\r\n")
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "SSH-2.0-client\r\n" {
			t.Fatalf("%q %v", b, err)
		}
	})
	t.Run("half closed", func(t *testing.T) {
		c, _ := w.tunnelTo(t, serve(func(c *net.TCPConn) { b, _ := io.ReadAll(c); fmt.Fprintf(c, "got %d", len(b)) }))
		c.Write(make([]byte, 100_000))
		c.CloseWrite()
		if b, err := io.ReadAll(c); err != nil || string(b) != "got 100000" {
			t.Errorf("%q %v", b, err)
		}
	})
	t.Run("much", func(t *testing.T) {
		const size = 64 << 20
		c, _ := w.tunnelTo(t, serve(func(c *net.TCPConn) { io.CopyN(c, zeros{}, size) }))
		if n, err := io.Copy(io.Discard, c); n != size || err != nil {
			t.Errorf("%d %v", n, err)
		}
		c.Close()
		if last := w.notes.last(t); last.Down != size || last.Reason != "" {
			t.Errorf("%+v", last)
		}
	})
	t.Run("the client vanishes", func(t *testing.T) {
		gone := make(chan error, 1)
		c, _ := w.tunnelTo(t, serve(func(c *net.TCPConn) { _, err := io.Copy(io.Discard, c); gone <- err }))
		c.SetLinger(0)
		c.Write([]byte("x"))
		c.Close()
		select {
		case <-gone:
		case <-time.After(60 * time.Second):
			t.Error("the server still waits")
		}
	})
	t.Run("the client vanishes from a download", func(t *testing.T) {
		gone := make(chan bool)
		port := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(int64(1)<<50))
			io.Copy(w, zeros{})
			close(gone)
		}))
		c := w.dialled(t)
		fmt.Fprintf(c, "GET http://good.test:%d/ HTTP/1.1\r\nHost: good.test:%d\r\n\r\n", port, port)
		if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil {
			t.Fatal(err)
		}
		c.Close()
		select {
		case <-gone:
		case <-time.After(60 * time.Second):
			t.Error("the server still sends")
		}
	})
	t.Run("an upload in small parts", func(t *testing.T) {
		port := web(t, nil)
		c := w.dialled(t)
		fmt.Fprintf(c, "PUT http://good.test:%d/ HTTP/1.1\r\nHost: good.test:%d\r\nTransfer-Encoding: chunked\r\n\r\n", port, port)
		for range 20 {
			io.WriteString(c, "1\r\nx\r\n")
			time.Sleep(2 * time.Millisecond)
		}
		io.WriteString(c, "0\r\n\r\n")
		c.CloseWrite()
		if b, _ := io.ReadAll(c); !strings.Contains(string(b), strings.Repeat("x", 20)) {
			t.Errorf("%q", b)
		}
	})
	t.Run("an answer before the end of the request", func(t *testing.T) {
		port := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "too big", http.StatusRequestEntityTooLarge)
		}))
		c := w.dialled(t)
		fmt.Fprintf(c, "PUT http://good.test:%d/ HTTP/1.1\r\nHost: good.test:%d\r\nContent-Length: 1000000\r\n\r\nx", port, port)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
			t.Errorf("%+v %v", resp, err)
		}
	})
	t.Run("events one by one", func(t *testing.T) {
		next := make(chan bool)
		port := web(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range next {
				fmt.Fprint(w, "data: x\n\n")
				w.(http.Flusher).Flush()
			}
		}))
		c := w.dialled(t)
		fmt.Fprintf(c, "GET http://good.test:%d/ HTTP/1.1\r\nHost: good.test:%d\r\n\r\n", port, port)
		next <- true
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 9)
		for i := range 3 {
			if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "data: x\n\n" {
				t.Fatalf("%d: %q %v", i, b, err)
			}
			if i < 2 {
				next <- true
			}
		}
		close(next)
		if rest, err := io.ReadAll(resp.Body); len(rest) != 0 || err != nil {
			t.Errorf("%q %v", rest, err)
		}
	})
	t.Run("a body after 100 Continue", func(t *testing.T) {
		port := web(t, nil)
		c := w.dialled(t)
		fmt.Fprintf(c, "POST http://good.test:%d/ HTTP/1.1\r\nHost: good.test:%d\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", port, port)
		if s := line(t, c); !strings.Contains(s, "100") {
			t.Fatal(s)
		}
		io.WriteString(c, "body")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); !bytes.Contains(b, []byte(`"body"`)) {
			t.Errorf("%q", b)
		}
	})
	t.Run("an answer that is cut off", func(t *testing.T) {
		for _, text := range []string{"Content-Length: 100\r\n\r\nshort", "Transfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n"} {
			to := serve(func(c *net.TCPConn) { c.Read(make([]byte, 1024)); io.WriteString(c, "HTTP/1.1 200 OK\r\n"+text) })
			c := w.dialled(t)
			fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("%q passes for whole", b)
			}
		}
	})
	t.Run("a WebSocket", func(t *testing.T) {
		to := serve(func(c *net.TCPConn) {
			r := bufio.NewReader(c)
			req, err := http.ReadRequest(r)
			if err != nil || req.Header.Get("Upgrade") != "websocket" {
				return
			}
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly")
			io.Copy(c, r)
		})
		c := w.dialled(t)
		fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", to, to)
		if s := line(t, c); !strings.Contains(s, "101") {
			t.Fatal(s)
		}
		io.WriteString(c, " echo")
		b := make([]byte, 10)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "early echo" {
			t.Errorf("%q %v", b, err)
		}
		c.Close()
		if last := w.notes.last(t); last.Up < 5 || last.Down < 10 {
			t.Errorf("%+v", last)
		}
	})
	t.Run("another protocol than asked for", func(t *testing.T) {
		to := serve(func(c *net.TCPConn) {
			c.Read(make([]byte, 1024))
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		})
		if got := w.say(t, "GET http://"+to+"/ HTTP/1.1\r\nHost: "+to+"\r\n\r\n"); !strings.Contains(got, " 400 ") {
			t.Errorf("%q", got)
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestSlow ends those who never say what they want, and those who say nothing
// for long.
func TestSlow(t *testing.T) {
	w := open(t, Config{Judge: only("good.test"), Timeouts: Timeouts{Head: 200 * time.Millisecond, Idle: 200 * time.Millisecond}})
	for _, begin := range []string{"G", "GET http://good.test/ HTTP/1.1\r\nHost:", "\x05", "\x05\x01\x00\x05"} {
		c := w.dialled(t)
		io.WriteString(c, begin)
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("%q: %v", begin, err)
		}
	}
	l := listen(t)
	c, s := w.tunnelTo(t, fmt.Sprintf("good.test:%d", portOf(l.Addr().String())))
	if !strings.Contains(s, "200") {
		t.Fatal(s)
	}
	c.Write([]byte("hello"))
	io.Copy(io.Discard, c)
	if o := w.notes.finished(t); o[0].Reason != ReasonTimeout || o[0].Up != 5 {
		t.Errorf("%+v", o)
	}
}

// TestOneDialForPlainHTTPInATunnel: the connection that a tunnel began with takes its
// first request; every other has its own.
func TestOneDialForPlainHTTPInATunnel(t *testing.T) {
	var dials atomic.Int32
	var d net.Dialer
	port := web(t, nil)
	w := open(t, Config{Judge: only("good.test"), Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		dials.Add(1)
		return d.DialContext(ctx, "tcp", to.String())
	}})
	dest := fmt.Sprintf("good.test:%d", port)
	c, head := w.tunnelTo(t, dest)
	if !strings.Contains(head, " 200 ") {
		t.Fatal(head)
	}
	br := bufio.NewReader(c)
	for i := range 3 {
		fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: %s\r\n\r\n", i, dest)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(resp.Body); !strings.Contains(string(b), fmt.Sprintf("/%d ", i)) || int(dials.Load()) != i+1 {
			t.Errorf("%q after %d dials", b, dials.Load())
		}
	}
	// One that says nothing leaves no connection behind.
	c, _ = w.tunnelTo(t, dest)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
	if b, _ := io.ReadAll(c); !strings.Contains(string(b), " 403 ") {
		t.Errorf("%q", b)
	}
	if o := w.notes.finished(t); len(o) != 5 {
		t.Errorf("%+v", o)
	}
}
