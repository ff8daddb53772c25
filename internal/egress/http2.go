package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxStreams is how many requests one connection of HTTP/2 has under way.
const maxStreams = 100

// maxFrame is the longest frame that is read, the shortest that may be said: each
// connection keeps a buffer of that size.
const maxFrame = 16 << 10

// http2 serves the requests of a connection that the program inside made to d. The
// standard library reads its frames; each request is decided about by itself and
// goes out on a connection of its own.
func (s *session) http2(d Dest, t *tls.Conn) {
	l := &single{conn: t, over: make(chan struct{})}
	srv := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.stream(d, w, r) }),
		ConnState: l.state, BaseContext: func(net.Listener) context.Context { return s.g.ctx },
		MaxHeaderBytes: maxHead, IdleTimeout: s.g.Timeouts.Idle, ReadHeaderTimeout: s.g.Timeouts.Head, ErrorLog: log.New(io.Discard, "", 0),
		Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame, WriteByteTimeout: s.g.Timeouts.Idle},
	}
	srv.Protocols.SetHTTP2(true)
	_ = srv.Serve(l)
}

// single is a listener to which one connection comes.
type single struct {
	conn  net.Conn
	taken bool
	once  sync.Once
	over  chan struct{} // closed when the connection is
}

func (l *single) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
		return l.conn, nil
	}
	<-l.over
	return nil, net.ErrClosed
}

func (l *single) Close() error   { return nil }
func (l *single) Addr() net.Addr { return l.conn.LocalAddr() }

func (l *single) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		l.once.Do(func() { close(l.over) })
	}
}

// stream is the program's end of one request of HTTP/2.
type stream struct {
	w   http.ResponseWriter
	r   *http.Request
	cut bool // the answer broke off
}

// stream serves one request. A connection has many of them, each with its head in
// memory for as long as the program inside takes no answer, so all connections
// together have no more than a task may have connections. What goes beyond ends
// without an answer, which would wait as well.
func (s *session) stream(d Dest, w http.ResponseWriter, r *http.Request) {
	select {
	case s.g.streams <- struct{}{}:
		defer func() { <-s.g.streams }()
	default:
		_ = s.g.exhausted(Request{Proto: ProtoHTTPS, Dest: d}, refuse(ReasonLimit, "the task has %d requests of HTTP/2 under way, which is all it may", cap(s.g.streams)))
		panic(http.ErrAbortHandler)
	}
	f := &stream{w: w, r: r}
	h, err := headOf(r, d)
	if err != nil {
		f.answer(s.g.unreadable(ProtoHTTPS, d.String()+" "+h.method+" "+h.target, err))
		return
	}
	x := &sending{g: s.g, h: h, to: d, target: h.target, tls: true}
	if h.body() {
		x.body, x.trailer = r.Body, trailerIn(r.Trailer)
	}
	x.do(r.Context(), f)
	if f.cut {
		panic(http.ErrAbortHandler) // so that the program sees it
	}
}

// trailerIn is the trailer that a request announces, without what says where it
// goes and ends. Its values come with the end of the body.
func trailerIn(t http.Header) http.Header {
	for name := range t {
		if lower := strings.ToLower(name); !isToken(name) || slices.Contains(hop, lower) || slices.Contains(framing, strings.ReplaceAll(lower, "_", "-")) {
			return nil
		}
	}
	return t
}

// interim implements front: HTTP/2 has its own way to let a body begin.
func (f *stream) interim(*sending, *http.Response) error { return nil }

// upgraded implements front.
func (f *stream) upgraded(*sending, *http.Response, *bufio.Reader) error {
	return refuse(ReasonProtocol, "a protocol that was not asked for")
}

// proceed implements front: the library does, once the body is read.
func (f *stream) proceed() error { return nil }

// watch implements front: the context of the request ends so.
func (f *stream) watch(ctx context.Context) (context.Context, func()) { return ctx, func() {} }

// quit implements front.
func (f *stream) quit() { f.r.Body.Close() }

// answer implements front.
func (f *stream) answer(err error) {
	body := "caisson: " + forTask(err) + "\n"
	to := f.w.Header()
	to.Set("Content-Type", "text/plain; charset=utf-8")
	to.Set("Content-Length", strconv.Itoa(len(body)))
	to.Set("X-Caisson-Refused", string(ReasonOf(err)))
	f.w.WriteHeader(statusOf(err))
	_, _ = io.WriteString(f.w, body)
	_ = http.NewResponseController(f.w).Flush() // while the request still counts: see stream
}

// reply implements front.
func (f *stream) reply(x *sending, resp *http.Response, sent <-chan struct{}) (keep bool, err error) {
	dropHop(resp.Header)
	to := f.w.Header()
	for name, v := range resp.Header {
		to[name] = v
	}
	for _, name := range []string{"Content-Type", "Date"} {
		if _, ok := to[name]; !ok {
			to[name] = nil // or the library puts in its own
		}
	}
	empty := x.h.method == "HEAD" || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	if resp.ContentLength >= 0 && (!empty || x.h.method == "HEAD") {
		to.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	f.w.WriteHeader(resp.StatusCode)
	if empty {
		return true, nil
	}
	c := http.NewResponseController(f.w)
	if err := c.Flush(); err != nil {
		return false, err
	}
	if err := copyFlushed(f.w, resp.Body, c.Flush); err != nil {
		f.cut = true
		return false, err
	}
	for name, v := range x.trailerOf(resp) {
		to[http.TrailerPrefix+name] = v
	}
	select {
	case <-sent:
		return true, nil
	case <-time.After(sentFor): // the rest of the request has no reader
		return false, nil
	}
}
