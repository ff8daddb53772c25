package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func program(t testing.TB, name string) string {
	t.Helper()
	p, err := exec.LookPath(name)
	if err != nil {
		t.Skip(name + " is not installed")
	}
	return p
}

// secure is a TLS server with a certificate of its own, and the file that makes
// a client trust it.
func secure(t testing.TB, h http.Handler) (port int, ca string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS() // its certificate is for example.com
	t.Cleanup(s.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	return portOf(s.Listener.Addr().String()), ca
}

// clean runs a program whose environment says only what is given.
func clean(t testing.TB, path string, env []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8"}, env...)
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// TestCurl asks with the real client in every way that it has.
func TestCurl(t *testing.T) {
	curl := program(t, "curl")
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "hello %s %s %d", r.Host, r.Proto, len(b))
	})
	plain := web(t, hello)
	tlsPort, ca := secure(t, hello)
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, 300_000), 0o644); err != nil {
		t.Fatal(err)
	}
	w := open(t, Config{Judge: only("example.com")})
	for _, host := range []string{"example.com", "evil.example.com"} {
		http := fmt.Sprintf("http://%s:%d/", host, plain)
		https := fmt.Sprintf("https://%s:%d/", host, tlsPort)
		for name, args := range map[string][]string{
			"http":             {"-x", w.proxyURL("http"), http},
			"http, a body":     {"-x", w.proxyURL("http"), "-T", big, http},
			"http, chunks":     {"-x", w.proxyURL("http"), "-T", big, "-H", "Transfer-Encoding: chunked", http},
			"http in a tunnel": {"-x", w.proxyURL("http"), "-p", http},
			"https":            {"-x", w.proxyURL("http"), "--cacert", ca, https},
			"https, HTTP/1.1":  {"-x", w.proxyURL("http"), "--cacert", ca, "--http1.1", https},
			"socks5h":          {"-x", w.proxyURL("socks5h"), http},
			"socks5h, https":   {"-x", w.proxyURL("socks5h"), "--cacert", ca, "-T", big, https},
		} {
			out, err := clean(t, curl, nil, append([]string{"-sS", "--max-time", "60", "-w", " %{http_code}"}, args...)...)
			if ok := err == nil && strings.Contains(out, "hello "+host) && strings.HasSuffix(out, " 200"); ok != (host == "example.com") {
				t.Errorf("%s to %s: %q %v", name, host, out, err)
			}
			if strings.Contains(strings.Join(args, " "), big) && host == "example.com" && !strings.Contains(out, "300000") {
				t.Errorf("%s: %q", name, out)
			}
		}
	}
	for _, args := range [][]string{
		{"--resolve", fmt.Sprintf("other.test:%d:127.0.0.1", tlsPort), "-x", w.proxyURL("http"), "--connect-to", fmt.Sprintf("other.test:%d:example.com:%d", tlsPort, tlsPort), "-k", fmt.Sprintf("https://other.test:%d/", tlsPort)},
		{"-x", w.proxyURL("http"), "-H", "Host: other.test", fmt.Sprintf("http://example.com:%d/", plain)},
		{"-x", w.proxyURL("http"), "-p", "-H", "Host: other.test", fmt.Sprintf("http://example.com:%d/", plain)},
		{"-x", w.proxyURL("socks5"), "--resolve", fmt.Sprintf("example.com:%d:127.0.0.1", plain), fmt.Sprintf("http://example.com:%d/", plain)},
		{"-x", w.proxyURL("socks4a"), fmt.Sprintf("http://example.com:%d/", plain)},
	} {
		if out, err := clean(t, curl, nil, append([]string{"-sS", "--max-time", "60"}, args...)...); strings.Contains(out, "hello") {
			t.Errorf("%q: %q %v", args, out, err)
		}
	}
	for _, q := range w.zone.questions() {
		if q != "example.com." {
			t.Errorf("resolved %q", q)
		}
	}
}

// TestGit clones and pushes through the proxy, told of it by the environment.
func TestGit(t *testing.T) {
	git := program(t, "git")
	core, err := clean(t, git, nil, "--exec-path")
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(core), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("this git has no http-backend")
	}
	dir := t.TempDir()
	id := []string{"-c", "user.name=a", "-c", "user.email=a@a.test", "-c", "safe.directory=*"}
	run := func(env []string, args ...string) (string, error) { return clean(t, git, env, append(id, args...)...) }
	must := func(args ...string) {
		t.Helper()
		if out, err := run(nil, args...); err != nil {
			t.Fatalf("%q: %s", args, out)
		}
	}
	repo := filepath.Join(dir, "repo.git")
	must("init", "-q", "--bare", "-b", "main", repo)
	must("-C", repo, "config", "http.receivepack", "true")
	port, ca := secure(t, &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}, InheritEnv: []string{"PATH"}})
	w := open(t, Config{Judge: only("example.com")})
	for _, proxy := range []string{w.proxyURL("http"), w.proxyURL("socks5h")} {
		env := []string{"HTTPS_PROXY=" + proxy, "GIT_SSL_CAINFO=" + ca, "GIT_TERMINAL_PROMPT=0"}
		url := fmt.Sprintf("https://example.com:%d/repo.git", port)
		work := filepath.Join(t.TempDir(), "work")
		if out, err := run(env, "clone", "-q", url, work); err != nil {
			t.Fatalf("%s: %s", proxy, out)
		}
		if err := os.WriteFile(filepath.Join(work, "file"), make([]byte, 2<<20), 0o644); err != nil {
			t.Fatal(err)
		}
		must("-C", work, "checkout", "-q", "-B", "main")
		must("-C", work, "add", "file")
		must("-C", work, "commit", "-q", "--allow-empty", "-m", "one")
		if out, err := run(env, "-C", work, "push", "-q", "origin", "main"); err != nil {
			t.Fatalf("%s: %s", proxy, out)
		}
		if out, err := run(env, "ls-remote", fmt.Sprintf("https://evil.example.com:%d/repo.git", port)); err == nil {
			t.Errorf("%s: a denied remote: %s", proxy, out)
		}
	}
	if out, err := run(nil, "-C", repo, "rev-list", "--count", "main"); err != nil || strings.TrimSpace(out) != "2" {
		t.Errorf("%q %v", out, err)
	}
}

// TestManyAtOnce has many connections open together, each its own.
func TestManyAtOnce(t *testing.T) {
	const many = 1000
	l := listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	to := fmt.Sprintf("good.test:%d", portOf(l.Addr().String()))
	w := open(t, Config{Judge: only("good.test")})
	var wg, all sync.WaitGroup
	all.Add(many)
	var mu sync.Mutex
	bad := map[string]int{}
	for i := range many {
		wg.Go(func() {
			say := func(s string) { mu.Lock(); bad[s]++; mu.Unlock() }
			c, err := net.Dial("tcp", w.addr)
			if err != nil {
				all.Done()
				say(err.Error())
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(100 * time.Second))
			fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
			head := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
			_, err = io.ReadFull(c, head)
			all.Done()
			if err != nil || !strings.Contains(string(head), " 200 ") {
				say(fmt.Sprint(string(head), err))
				return
			}
			all.Wait() // now all of them are open
			want := fmt.Sprintf("this is %04d", i)
			io.WriteString(c, want)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
				say(fmt.Sprint("wrong echo ", string(got), err))
			}
		})
	}
	wg.Wait()
	for s, n := range bad {
		t.Errorf("%d times %q", n, s)
	}
	if o := w.notes.finished(t); len(o) != many {
		t.Errorf("%d recorded", len(o))
	}
}

// BenchmarkThroughput compares one stream through the gate with a direct one.
func BenchmarkThroughput(b *testing.B) {
	const size = 256 << 20
	l := listen(b)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.CopyN(c, zeros{}, size); c.Close() }()
		}
	}()
	to := fmt.Sprintf("good.test:%d", portOf(l.Addr().String()))
	w := open(b, Config{Judge: only("good.test")})
	for name, connect := range map[string]func() *net.TCPConn{
		"direct": func() *net.TCPConn { c, _ := net.Dial("tcp", l.Addr().String()); return c.(*net.TCPConn) },
		"gate":   func() *net.TCPConn { c, _ := w.tunnelTo(b, to); return c },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for range b.N {
				c := connect()
				buf := make([]byte, 256<<10)
				if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buf); n != size || err != nil {
					b.Fatal(n, err)
				}
				c.Close()
			}
		})
	}
}

// BenchmarkConnect compares what a connection and its first byte cost.
func BenchmarkConnect(b *testing.B) {
	l := listen(b)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { c.Write([]byte("x")); c.Close() }()
		}
	}()
	to := fmt.Sprintf("good.test:%d", portOf(l.Addr().String()))
	w := open(b, Config{Judge: only("good.test"), Limits: Limits{PerSecond: 1e9, Burst: 1 << 30}})
	one := make([]byte, 1)
	b.Run("direct", func(b *testing.B) {
		for range b.N {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			c.Read(one)
			c.Close()
		}
	})
	b.Run("gate", func(b *testing.B) {
		for range b.N {
			c, _ := w.tunnelTo(b, to)
			c.Read(one)
			c.Close()
		}
	})
}

// dialPipe reaches a server that takes everything and gives a short answer.
func dialPipe(context.Context, netip.AddrPort) (net.Conn, error) {
	a, b := net.Pipe()
	go func() {
		defer b.Close()
		one := make([]byte, 1)
		if _, err := b.Read(one); err != nil {
			return
		}
		go io.Copy(io.Discard, b)
		io.WriteString(b, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
	}()
	return a, nil
}

// FuzzProxy says anything to the proxy: it gets through only to what is allowed.
func FuzzProxy(f *testing.F) {
	for _, s := range []string{
		"GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\n\r\n\x16\x03\x01",
		"\x05\x01\x00\x05\x01\x00\x03\x09good.test\x00\x50GET / HTTP/1.1\r\nHost: good.test\r\n\r\n", "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		z := &zone{}
		n := &notes{}
		g, err := New(Config{Judge: only("good.test"), Recorder: n, Resolver: z, Timeouts: Timeouts{Head: time.Second, Idle: time.Second}, Dial: dialPipe})
		if err != nil {
			t.Fatal(err)
		}
		in, out := net.Pipe()
		s := &session{g: g, conn: out, in: &timed{conn: out}}
		s.br = bufio.NewReaderSize(s.in, 4096)
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(io.Discard, in) })
		wg.Go(func() { in.Write(b); in.Close() })
		s.proxy()
		out.Close()
		wg.Wait()
		g.Close()
		n.finished(t)
		for _, q := range z.questions() {
			if q != "good.test." {
				t.Fatalf("resolved %q", q)
			}
		}
		if len(g.limiter.conns) != 0 {
			t.Fatal("a connection is still counted")
		}
	})
}

// TestClientOfGo is one more reader of what the proxy writes.
func TestClientOfGo(t *testing.T) {
	port, _ := secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	w := open(t, Config{Judge: only("example.com")})
	tr := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(w.proxyURL("http")) }, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(fmt.Sprintf("https://example.com:%d/", port))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "HTTP/2.0" {
		t.Errorf("%q", b)
	}
}
