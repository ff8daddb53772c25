package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// notes is a Recorder that keeps everything.
type notes struct {
	mu      sync.Mutex
	decided []Decision
	ended   []Outcome
	fail    error
}

func (n *notes) Decided(d Decision) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.decided = append(n.decided, d)
	return n.fail
}

func (n *notes) Ended(o Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = append(n.ended, o)
}

func (n *notes) all() ([]Decision, []Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]Decision(nil), n.decided...), append([]Outcome(nil), n.ended...)
}

// finished waits until every allowed decision has its outcome.
func (n *notes) finished(t testing.TB) []Outcome {
	t.Helper()
	for range 1000 {
		d, o := n.all()
		allowed := 0
		for _, d := range d {
			if d.Verdict == task.VerdictAllow && d.Proto != ProtoDNS {
				allowed++
			}
		}
		if allowed == len(o) {
			return o
		}
		time.Sleep(10 * time.Millisecond)
	}
	d, o := n.all()
	t.Fatalf("%d decisions and %d outcomes: %+v %+v", len(d), len(o), d, o)
	return nil
}

// last is the outcome of what was decided last.
func (n *notes) last(t testing.TB) Outcome {
	t.Helper()
	all := n.finished(t)
	d, _ := n.all()
	for _, o := range all {
		if o.ID == d[len(d)-1].ID {
			return o
		}
	}
	t.Fatalf("no outcome of %+v", d[len(d)-1])
	return Outcome{}
}

// zone is a resolver that notes what it was asked.
type zone struct {
	mu    sync.Mutex
	asked []string
	at    map[string][]string // without: 127.0.0.1
	next  func(n int, name string) []string
}

func (z *zone) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if network != "ip" || !strings.HasSuffix(host, ".") {
		return nil, fmt.Errorf("asked for %s %s", network, host)
	}
	z.asked = append(z.asked, host)
	l, ok := z.at[strings.TrimSuffix(host, ".")]
	if !ok {
		l = []string{"127.0.0.1"}
	}
	if z.next != nil {
		l = z.next(len(z.asked), host)
	}
	var out []netip.Addr
	for _, s := range l {
		out = append(out, netip.MustParseAddr(s))
	}
	if len(out) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return out, nil
}

func (z *zone) questions() []string {
	z.mu.Lock()
	defer z.mu.Unlock()
	return append([]string(nil), z.asked...)
}

var loopback = netip.MustParsePrefix("127.0.0.1/32")

// only allows these names, at any port, and 127.0.0.1 behind them.
func only(names ...string) Judge {
	return func(p Point) Answer {
		for _, n := range names {
			if p.Host == n || p.Host == "" && p.Addr.String() == n {
				return Answer{task.VerdictAllow, "test allows " + n, loopback}
			}
		}
		return Answer{task.VerdictDeny, "nothing grants it", netip.Prefix{}}
	}
}

type way struct {
	*Gate
	notes *notes
	zone  *zone
	addr  string // of the proxy
}

func (w *way) proxyURL(scheme string) string { return scheme + "://" + w.addr }

// open makes a gate with a proxy in front.
func open(t testing.TB, c Config) *way {
	t.Helper()
	w := &way{notes: &notes{}}
	if c.Recorder == nil {
		c.Recorder = w.notes
	}
	if c.Resolver == nil {
		w.zone = &zone{}
		c.Resolver = w.zone
	} else if z, ok := c.Resolver.(*zone); ok {
		w.zone = z
	}
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	w.Gate = g
	l := listen(t)
	w.addr = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- g.ServeProxy(l) }()
	t.Cleanup(func() {
		g.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.notes.finished(t)
		if n := len(g.limiter.conns); n != 0 {
			t.Errorf("%d connections are still counted", n)
		}
	})
	return w
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func portOf(addr string) int {
	_, p, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(p)
	return n
}

// web is a plain HTTP server that says what it got.
func web(t testing.TB, h http.Handler) (port int) {
	t.Helper()
	if h == nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s%s %q", r.Method, r.Host, r.URL, b)
		})
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return portOf(s.Listener.Addr().String())
}

// dialled is a raw connection to the proxy.
func (w *way) dialled(t testing.TB) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(60 * time.Second))
	return c.(*net.TCPConn)
}

// say sends text and returns all that comes back.
func (w *way) say(t testing.TB, text string) string {
	t.Helper()
	c := w.dialled(t)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	c.CloseWrite()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("after %q: %v", b, err)
	}
	return string(b)
}

// tunnel opens one by CONNECT.
func (w *way) tunnelTo(t testing.TB, dest string) (*net.TCPConn, string) {
	t.Helper()
	c := w.dialled(t)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", dest, dest)
	return c, line(t, c)
}

// line reads a head byte by byte, so that nothing behind it is lost, and returns
// its first line.
func line(t testing.TB, c net.Conn) string {
	t.Helper()
	var b []byte
	one := make([]byte, 1)
	for !strings.HasSuffix(string(b), "\r\n\r\n") {
		if _, err := c.Read(one); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			t.Fatal(err)
		}
		b = append(b, one[0])
	}
	first, _, _ := strings.Cut(string(b), "\r\n")
	return first
}

// socksTo asks by name, or by address, and returns the reply's code.
func (w *way) socksTo(t testing.TB, host string, port int) (*net.TCPConn, byte) {
	t.Helper()
	c := w.dialled(t)
	req := append([]byte{5, 1, 0, 5, 1, 0, 3, byte(len(host))}, host...)
	if a, err := netip.ParseAddr(host); err == nil {
		kind := byte(1)
		if a.Is6() {
			kind = 4
		}
		req = append([]byte{5, 1, 0, 5, 1, 0, kind}, a.AsSlice()...)
	}
	c.Write(append(req, byte(port>>8), byte(port)))
	r := bufio.NewReaderSize(c, 16)
	b := make([]byte, 12)
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return c, b[3]
}
