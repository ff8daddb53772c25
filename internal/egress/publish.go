package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Publication offers a server inside a boundary at a listener of the host.
type Publication struct {
	// Listener is the host's, on a loopback address. Serve closes it.
	Listener net.Listener
	// Dial connects to the server inside.
	Dial func(ctx context.Context) (net.Conn, error)
	// Peer refuses who may not connect. It is asked once per connection.
	Peer func(net.Conn) error
	// Ours says whether a name and port of this machine belong to the same task:
	// pages from there may ask for what is here.
	Ours func(host string, port uint16) bool
	// Refused is told who was not let in, and why. It is called by many at once.
	Refused func(why string)

	conns, refused atomic.Int64
}

// Used says how many connections came, and how many connections or requests were
// not let in.
func (p *Publication) Used() (conns, refused int64) { return p.conns.Load(), p.refused.Load() }

// maxPublished is the most connections of one publication at a time.
const maxPublished = 256

// Serve answers until ctx ends, and returns when everybody that came is gone.
// What speaks HTTP is held, request by request, to hosts and pages of this
// machine: a name of somebody else's that leads here is refused, and so is what
// another site's page asks for.
func (p *Publication) Serve(ctx context.Context) error {
	defer p.Listener.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	web := &handedOver{conns: make(chan net.Conn), done: ctx.Done(), addr: p.Listener.Addr()}
	server := &http.Server{Handler: p.handler(ctx), ReadHeaderTimeout: 30 * time.Second, ErrorLog: log.New(io.Discard, "", 0), BaseContext: func(net.Listener) context.Context { return ctx }}
	wg.Go(func() { _ = server.Serve(web) })
	defer server.Close()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = p.Listener.Close() })
	defer stop()
	slots := make(chan struct{}, maxPublished)
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			select {
			case <-time.After(10 * time.Millisecond): // the machine is out of descriptors, or the client is gone already
				continue
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = c.Close()
			p.refuse("more than the connections that one port may have")
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			p.take(ctx, c, web)
		})
	}
}

func (p *Publication) refuse(why string) {
	p.refused.Add(1)
	if p.Refused != nil {
		p.Refused(why)
	}
}

// saysWhat is how long a client may take to say something where nobody waits.
const saysWhat = 5 * time.Second

// take finds out what a connection is.
func (p *Publication) take(ctx context.Context, c net.Conn, web *handedOver) {
	if p.Peer == nil || p.Dial == nil {
		_ = c.Close()
		return
	}
	if err := p.Peer(c); err != nil {
		_ = c.Close()
		p.refuse(err.Error())
		return
	}
	p.conns.Add(1)
	inside, err := p.Dial(ctx)
	if err != nil {
		// Nobody waits there: what speaks HTTP is told so.
		_ = c.SetReadDeadline(time.Now().Add(saysWhat))
		if br := bufio.NewReaderSize(c, 4096); isWeb(br) {
			_ = c.SetReadDeadline(time.Time{})
			web.give(&buffered{c, br})
			return
		}
		_ = c.Close()
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = inside.Close() })
	defer stop()
	br := bufio.NewReaderSize(c, 4096)
	said := make(chan error, 1) // by the client
	go func() { _, err := br.Peek(1); said <- err }()
	type word struct {
		b   []byte
		err error
	}
	greeted := make(chan word, 1) // by the server
	go func() {
		b := make([]byte, 4096)
		n, err := inside.Read(b)
		greeted <- word{b[:n], err}
	}()
	var first *word // nil: it comes later
	select {
	case err := <-said:
		said <- err
		if err != nil || !isWeb(br) {
			break
		}
		_ = inside.SetReadDeadline(time.Unix(1, 0))
		w := <-greeted
		if len(w.b) == 0 {
			_ = inside.Close()
			web.give(&buffered{c, br})
			return
		}
		_ = inside.SetReadDeadline(time.Time{})
		first = &word{b: w.b}
	case w := <-greeted:
		first = &w
	}
	var both sync.WaitGroup
	both.Go(func() {
		err := <-said
		if err == nil {
			_, err = io.Copy(inside, br)
		}
		if h, ok := inside.(halfCloser); ok && (err == nil || errors.Is(err, io.EOF)) {
			_ = h.CloseWrite() // the server may go on
			return
		}
		_ = inside.Close()
		_ = c.Close()
	})
	if first == nil {
		w := <-greeted
		first = &w
	}
	if _, err := c.Write(first.b); err == nil && first.err == nil {
		_, _ = io.Copy(c, inside)
	}
	if h, ok := c.(halfCloser); ok {
		_ = h.CloseWrite()
	}
	_ = inside.Close()
	_ = c.Close()
	both.Wait()
}

// isWeb says whether a client speaks HTTP/1, as browsers do without TLS.
func isWeb(br *bufio.Reader) bool {
	for n := 1; ; n++ {
		b, err := br.Peek(n)
		if err != nil {
			return false
		}
		if n = max(n, br.Buffered()); n > len(b) {
			b, _ = br.Peek(n)
		}
		switch kindOf(b) {
		case kindHTTP:
			return !strings.HasPrefix(string(b), "PRI ")
		case kindMore:
		default:
			return false
		}
	}
}

// buffered is a connection of which something was read.
type buffered struct {
	net.Conn
	br *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.br.Read(p) }

// handedOver is a listener of connections that somebody else accepted.
type handedOver struct {
	conns chan net.Conn
	done  <-chan struct{}
	addr  net.Addr
}

func (h *handedOver) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.done:
		_ = c.Close()
	}
}

func (h *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}
func (h *handedOver) Close() error   { return nil }
func (h *handedOver) Addr() net.Addr { return h.addr }

// handler passes requests on, WebSockets among them.
func (p *Publication) handler(ctx context.Context) http.Handler {
	transport := &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx) },
		DisableCompression:  true,
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 5 * time.Second,
	}
	context.AfterFunc(ctx, transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "inside"
			r.Out.Host = r.In.Host
		},
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "caisson: the server inside does not answer: "+forTask(err), http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := admits(r, p.Ours); err != nil {
			p.refuse(err.Error())
			http.Error(w, "caisson: "+err.Error(), http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// admits refuses a request that a page of another site made, or that was made
// for a name that is not this machine's.
func admits(r *http.Request, ours func(host string, port uint16) bool) error {
	no := func(format string, args ...any) error {
		return task.Errorf(task.CodeDenied, "publish", format, args...)
	}
	if _, ok := localHost(r.Host); !ok {
		return no("the host %s is not this machine: use localhost or 127.0.0.1", quoted(r.Host))
	}
	for _, o := range r.Header.Values("Origin") {
		u, err := url.Parse(o)
		if err != nil || u.Host == "" {
			return no("a page without an origin may not ask for this (%s)", quoted(o))
		}
		port, ok := localHost(u.Host)
		if !ok || u.Scheme != "http" && u.Scheme != "https" {
			return no("a page of %s may not ask for this", quoted(o))
		}
		if ours == nil || !ours(u.Hostname(), port) {
			return no("a page of %s is not of this task, and may not ask for this", quoted(o))
		}
	}
	leads := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" && slices.Contains([]string{"GET", "HEAD"}, r.Method)
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case site == "" || site == "none" || site == "same-origin" || leads:
	case site != "same-site":
		return no("a page of another site may only lead here")
	case len(r.Header.Values("Origin")) == 0 && !refersTo(r, ours):
		// To browsers all ports of one name are one site: another task's, and whatever
		// else this machine serves.
		return no("a page at another port of this machine may only lead here, unless it is of this task and says so")
	}
	return nil
}

// refersTo says whether a page of the same task asks, by the one other field that
// no page can write as it likes.
func refersTo(r *http.Request, ours func(host string, port uint16) bool) bool {
	l := r.Header.Values("Referer")
	if len(l) != 1 || ours == nil {
		return false
	}
	u, err := url.Parse(l[0])
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	port, ok := localHost(u.Host)
	return ok && ours(u.Hostname(), port)
}

// localHost reads HOST[:PORT] and says whether it names this machine.
func localHost(s string) (port uint16, ok bool) {
	d, err := ParseAuthority(s, 80)
	if err != nil {
		return 0, false
	}
	if a := d.Host.Addr(); a.IsValid() {
		return d.Port, a.IsLoopback() && a != netip.Addr{}
	}
	n := d.Host.Name()
	return d.Port, n == "localhost" || strings.HasSuffix(n, ".localhost")
}
