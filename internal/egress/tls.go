package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// outTLS is what a gate knows of TLS to servers. The zero value is ready.
type outTLS struct {
	once     sync.Once
	sessions tls.ClientSessionCache
	h2       *http.Transport
}

func (o *outTLS) begin() {
	o.once.Do(func() {
		o.sessions = tls.NewLRUClientSessionCache(64)
		o.h2 = &http.Transport{
			DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				c, ok := ctx.Value(securedKey{}).(*tls.Conn)
				if !ok {
					return nil, errors.New("no connection was made for it")
				}
				return c, nil
			},
			DisableCompression: true, MaxResponseHeaderBytes: maxReply, Protocols: new(http.Protocols),
		}
		o.h2.Protocols.SetHTTP2(true)
	})
}

type securedKey struct{}

// secure puts TLS on c, held to the name that was allowed and to the roots. two
// says that the server took HTTP/2.
func (o *outTLS) secure(ctx context.Context, c *Conn, d Dest, mayTwo bool) (two bool, err error) {
	o.begin()
	protos := []string{"http/1.1"}
	if mayTwo {
		protos = []string{"h2", "http/1.1"}
	}
	w := &wire{Conn: c.Conn, c: c}
	t := tls.Client(w, &tls.Config{ServerName: d.Host.String(), RootCAs: c.gate.Roots, NextProtos: protos, MinVersion: tls.VersionTLS12, ClientSessionCache: o.sessions})
	ctx, done := context.WithTimeout(ctx, c.gate.Timeouts.Head)
	defer done()
	if err := t.HandshakeContext(ctx); err != nil {
		return false, refuse(ReasonTLS, "%s: %v", d, err).toTask("%s: no TLS with it, or none that can be verified; the record of the task says more", d)
	}
	c.Conn = t
	two = t.ConnectionState().NegotiatedProtocol == "h2"
	w.counts.Store(two)
	return two, nil
}

// wire counts the bytes of a stream of TLS whose plain text the standard library
// reads. Its reads end like those of metered.
type wire struct {
	net.Conn
	c      *Conn
	counts atomic.Bool
}

func (w *wire) Read(b []byte) (int, error) {
	if !w.counts.Load() {
		return w.Conn.Read(b)
	}
	if err := (metered{w.c}).spent(); err != nil {
		return 0, err
	}
	if err := w.Conn.SetReadDeadline(time.Now().Add(w.c.gate.Timeouts.Idle)); err != nil {
		return 0, err
	}
	n, err := w.Conn.Read(b)
	w.c.count(&w.c.down, int64(n))
	return n, err
}

func (w *wire) Write(b []byte) (int, error) {
	if !w.counts.Load() {
		return w.Conn.Write(b)
	}
	if err := (metered{w.c}).spent(); err != nil {
		return 0, err
	}
	n, err := w.Conn.Write(b)
	w.c.count(&w.c.up, int64(n))
	return n, err
}

// clientConn makes the one connection of HTTP/2 that a request goes out on.
func (o *outTLS) clientConn(ctx context.Context, c *Conn, d Dest) (*http.ClientConn, error) {
	return o.h2.NewClientConn(context.WithValue(ctx, securedKey{}, c.Conn), "https", d.String())
}

// request2 is x for the standard library, which writes path and authority as they
// are here.
func (x *sending) request2(ctx context.Context) *http.Request {
	host := x.authority()
	r := (&http.Request{
		Method: x.h.method, URL: &url.URL{Scheme: "https", Host: host, Opaque: "https://" + host + x.target}, Host: host,
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: http.Header{}, ContentLength: x.h.length, Trailer: x.trailer,
	}).WithContext(ctx)
	for _, f := range x.h.fields {
		r.Header.Add(f.name, f.value)
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = nil // or the library puts in its own
	}
	if x.h.trailers {
		r.Header.Set("Te", "trailers")
	}
	if x.h.chunked {
		r.ContentLength = -1
	}
	if x.body != nil {
		r.Body = io.NopCloser(x.body)
	}
	return r
}

// reads says whether streams to d are read request by request.
func (g *Gate) reads(d Dest) bool {
	if g.Reads != nil && g.Reads(d) {
		return true
	}
	return g.Lender != nil && g.Lender.Reads(d) && g.may(Point{Proto: ProtoConnect, Host: d.Host.Name(), Addr: d.Host.Addr(), Port: d.Port})
}

// read serves a stream to d of which every request is decided about: TLS is ended
// here, and what is no HTTP goes nowhere.
func (s *session) read(p Proto, d Dest) {
	s.within(s.g.Timeouts.Head)
	first, k, err := s.sniff(d)
	if err == nil {
		switch k {
		case kindHTTP:
			s.replay(first)
			s.http(&d)
			return
		case kindTLS:
			err = s.endTLS(d, first)
		default:
			if len(first) == 0 {
				return // said nothing
			}
			err = refuse(ReasonProtocol, "%s: rules about it name methods or paths, so it must be HTTP", d)
		}
	}
	if err == nil || ReasonOf(err) == ReasonBroken {
		return
	}
	if k == kindTLS && ReasonOf(err) != ReasonTLS { // else it has had its alert
		s.conn.Write(alertDenied)
	}
	s.g.unreadable(p, d.String(), err)
}

// alertDenied ends a stream of TLS that has just begun: access denied.
var alertDenied = []byte{21, 3, 3, 0, 2, 2, 49}

// replay puts first before what is read from the client.
func (s *session) replay(first []byte) {
	if n := s.br.Buffered(); n > 0 {
		rest, _ := s.br.Peek(n)
		first = append(first, rest...)
	}
	c := &replay{Conn: s.conn, first: first}
	s.conn, s.in = c, &timed{conn: c}
	s.patient()
	s.br.Reset(s.in)
}

// endTLS is the server that the program inside wants to talk to.
func (s *session) endTLS(d Dest, first []byte) error {
	if s.g.CA == nil {
		return refuse(ReasonProtocol, "%s: rules about it name methods or paths, and nothing inside trusts this gate to read TLS", d)
	}
	s.replay(first)
	t := tls.Server(s.conn, &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.g.CA.leaf(d.Host) },
		NextProtos:     []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
	})
	ctx, done := context.WithTimeout(s.g.ctx, s.g.Timeouts.Head)
	defer done()
	if err := t.HandshakeContext(ctx); err != nil {
		return refuse(ReasonTLS, "%s: TLS to it is read here, and the program inside does not take part: %v; it trusts other certificates than $SSL_CERT_FILE lists, or pins one", d, err)
	}
	defer t.Close()
	s.conn.SetDeadline(time.Time{})
	s.conn, s.in, s.ended = t, &timed{conn: t}, true
	if t.ConnectionState().NegotiatedProtocol == "h2" {
		s.http2(d, t)
		return nil
	}
	s.patient()
	s.br.Reset(s.in)
	s.http(&d)
	return nil
}

// replay is a connection of which some was read already.
type replay struct {
	net.Conn
	first []byte
}

func (r *replay) Read(b []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

// CloseWrite ends its own direction.
func (r *replay) CloseWrite() error { return closeWrite(r.Conn) }

// through is a connection that is read by way of something else.
type through struct {
	net.Conn
	r io.Reader
}

func (t *through) Read(b []byte) (int, error) { return t.r.Read(b) }

// CloseWrite ends its own direction.
func (t *through) CloseWrite() error { return closeWrite(t.Conn) }

func closeWrite(c net.Conn) error {
	if h, ok := c.(halfCloser); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

// headOf holds a request of HTTP/2 to what readHead holds one of HTTP/1 to. The
// standard library has seen to pseudo fields that come twice, to the fields of
// connections, and to bodies of another length than was said. The scheme does not
// count: what goes on goes by TLS.
func headOf(r *http.Request, d Dest) (*head, error) {
	h := &head{method: r.Method, target: r.RequestURI, minor: 2, host: r.Host, length: r.ContentLength, chunked: r.ContentLength < 0}
	if h.chunked {
		h.length = 0
	}
	switch {
	case r.ProtoMajor != 2:
		return h, badDest("a request of another version")
	case r.Method == http.MethodConnect:
		return h, refuse(ReasonProtocol, "a tunnel in a tunnel")
	case !isMethod(r.Method):
		return h, badDest("%s is no method", quoted(r.Method))
	}
	if h.target != "*" || h.method != "OPTIONS" {
		if err := checkPath(h.target); err != nil {
			return h, err
		}
	}
	to := []string{r.Host}
	count := 0
	for name, values := range r.Header {
		lower := strings.ToLower(name)
		if plain := strings.ReplaceAll(lower, "_", "-"); slices.Contains(framing, plain) && (plain != lower || len(values) != 1) {
			return h, badDest("the header field %s is there twice, or in a form of its own", name)
		}
		if !isToken(name) {
			return h, badDest("%s begins no header field", quoted(name[:min(len(name), 32)]))
		}
		if count += len(values); count > maxFields {
			return h, badDest("more than %d header fields", maxFields)
		}
		for _, v := range values {
			if err := (field{name, v}).check(); err != nil {
				return h, err
			}
		}
		switch {
		case lower == "host":
			to = append(to, values...)
		case lower == "content-length":
			if !lengthIs(values[0], r.ContentLength) {
				return h, badDest("%s is not the length", quoted(values[0]))
			}
		case lower == "transfer-encoding":
			return h, badDest("the transfer encoding %s is not offered", quoted(values[0]))
		case lower == "te":
			h.trailers = true
		case !slices.Contains(hop, lower):
			for _, v := range values {
				h.fields = append(h.fields, field{name, v})
			}
		}
	}
	slices.SortStableFunc(h.fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	for _, s := range to {
		host, err := ParseAuthority(s, 443)
		if err != nil {
			return h, err
		}
		if host != d {
			return h, refuse(ReasonName, "a request for %s with the authority %s", d, quoted(s))
		}
	}
	return h, nil
}

// lengthIs says whether a Content-Length says n.
func lengthIs(s string, n int64) bool {
	v, err := strconv.ParseUint(s, 10, 63)
	return err == nil && strings.Trim(s, "0123456789") == "" && int64(v) == n
}
