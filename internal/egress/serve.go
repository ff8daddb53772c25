package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// ServeProxy answers programs that know a proxy: HTTP/1.1 and SOCKS 5 on the one
// port. It closes l, and returns when l or the gate is closed and everybody that
// came is gone.
func (g *Gate) ServeProxy(l net.Listener) error {
	return g.serve(l, func(s *session) { s.proxy() })
}

// ServeDirect answers programs that know none. The address at which l got a
// connection is the one that the program wanted: see the listeners of a boundary
// whose routes all lead to itself. Else as ServeProxy.
func (g *Gate) ServeDirect(l net.Listener) error {
	return g.serve(l, func(s *session) {
		a, ok := s.conn.LocalAddr().(*net.TCPAddr)
		if !ok {
			return
		}
		s.direct(netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port()))
	})
}

func (g *Gate) serve(l net.Listener, handle func(*session)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	stop := context.AfterFunc(g.ctx, func() { l.Close() })
	defer stop()
	// More than may be open: who waits here has not yet said where it wants to go.
	slots := make(chan struct{}, 2*g.limiter.Conns)
	for pause := time.Duration(0); ; {
		slots <- struct{}{}
		conn, err := l.Accept()
		if err != nil {
			<-slots
			switch {
			case g.ctx.Err() != nil, errors.Is(err, net.ErrClosed):
				return nil
			case pause > 10*time.Second:
				return err
			}
			// The machine is out of descriptors, or the client is gone already.
			pause = max(5*time.Millisecond, 2*pause)
			select {
			case <-time.After(pause):
			case <-g.ctx.Done():
			}
			continue
		}
		pause = 0
		wg.Go(func() {
			defer func() { <-slots }()
			s := &session{g: g, conn: conn, in: &timed{conn: conn}}
			s.br = bufio.NewReaderSize(s.in, 4096)
			stop := context.AfterFunc(g.ctx, func() { conn.Close() })
			defer stop()
			defer conn.Close()
			handle(s)
		})
	}
}

// session is one connection of a program inside.
type session struct {
	g     *Gate
	conn  net.Conn
	in    *timed
	br    *bufio.Reader // of in
	spare *spare        // of the tunnel that the requests came in; nil: none
	// ended says that conn is what is inside TLS that the gate ended.
	ended bool
}

// timed reads with a deadline: a moment for all reads together, else idle for
// each of them.
type timed struct {
	conn  net.Conn
	until time.Time
	idle  time.Duration
	// woken ends a read, and any that begins while it is set.
	woken atomic.Bool
}

func (t *timed) Read(b []byte) (int, error) {
	at := t.until
	if at.IsZero() {
		at = time.Now().Add(t.idle)
	}
	if err := t.conn.SetReadDeadline(at); err != nil {
		return 0, err
	}
	if t.woken.Load() { // its deadline may just have been written over
		return 0, os.ErrDeadlineExceeded
	}
	return t.conn.Read(b)
}

// within bounds all that is read from now on; patient bounds each read alone.
func (s *session) within(d time.Duration) { s.in.until = time.Now().Add(d) }
func (s *session) patient() {
	s.in.until, s.in.idle = time.Time{}, s.g.Timeouts.Idle
}

// proceed tells a client that waits for it to send its body.
func (s *session) proceed() error {
	_, err := io.WriteString(s.conn, "HTTP/1.1 100 Continue\r\n\r\n")
	return err
}

// watch returns a context that ends when the client does. Nothing else may read
// until stop was called; what came meanwhile is there to be read then.
func (s *session) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			_, err := s.br.Peek(s.br.Buffered() + 1)
			switch {
			case err == nil && s.br.Buffered() < s.br.Size():
			case err == nil || errors.Is(err, bufio.ErrBufferFull) || errors.Is(err, os.ErrDeadlineExceeded):
				return
			default:
				cancel(refuse(ReasonBroken, "the client is gone"))
				return
			}
		}
	}()
	return ctx, func() {
		s.in.woken.Store(true)
		s.conn.SetReadDeadline(time.Unix(1, 0))
		<-done
		s.in.woken.Store(false)
		cancel(context.Canceled)
	}
}

// proxy tells the two protocols apart by the first byte.
func (s *session) proxy() {
	s.within(s.g.Timeouts.Head)
	first, err := s.br.Peek(1)
	if err != nil {
		return
	}
	switch first[0] {
	case 5:
		s.socks()
	case 4:
		s.g.unreadable(ProtoSOCKS, "SOCKS 4", refuse(ReasonProtocol, "SOCKS 4 is not offered: use SOCKS 5"))
		s.last([]byte{0, 0x5b, 0, 0, 0, 0, 0, 0})
	default:
		s.http(nil)
	}
}

// direct goes where the program believes to be already.
func (s *session) direct(to netip.AddrPort) {
	h, err := FromAddr(to.Addr())
	if err != nil {
		s.g.unreadable(ProtoDirect, to.String(), err)
		return
	}
	d, err := s.g.meant(Dest{h, to.Port()})
	if err != nil {
		s.g.unreadable(ProtoDirect, to.String(), err)
		return
	}
	// Port 80 is HTTP or nothing, so each request is decided about, by its method
	// and path as well, where some of them may be allowed at all.
	if d.Port == 80 && s.g.may(Point{Proto: ProtoDirect, Host: d.Host.Name(), Addr: d.Host.Addr()}) {
		s.http(&d)
		return
	}
	s.pass(ProtoDirect, d, func(err error) bool { return err == nil })
}

// may says whether the policy, or a person after it, may allow p.
func (g *Gate) may(p Point) bool {
	a := g.Judge(p)
	return a.Verdict == task.VerdictAllow || a.Verdict == task.VerdictAsk
}

// pass goes on with a stream to d, which was asked for in the way p. told tells
// the client, who waits for it, that it may begin or why not; false: it is gone.
func (s *session) pass(p Proto, d Dest, told func(error) bool) {
	if s.g.reads(d) {
		// Nothing is decided, and nothing leaves, before there is a request.
		if err := s.g.limiter.pace(s.g.ctx); err != nil {
			told(err)
		} else if told(nil) {
			s.read(p, d)
		}
		return
	}
	c, err := s.g.Open(s.g.ctx, Request{Proto: p, Dest: d})
	if err != nil {
		told(err)
		return
	}
	if !told(nil) {
		c.finish(errGone)
		return
	}
	s.tunnel(d, c)
}

var errGone = errors.New("the client is gone")

// unreadable records what could not be read, at the pace of everything else. It
// returns the refusal that the client gets.
func (g *Gate) unreadable(p Proto, said string, err error) error {
	reason := ReasonOf(err)
	if reason == ReasonBroken {
		reason = ReasonForm
		err = &Refusal{Reason: reason, err: err}
	}
	if perr := g.limiter.pace(g.ctx); perr != nil {
		return perr
	}
	if rerr := g.Recorder.Decided(Decision{ID: g.IDs.Add(1), Time: time.Now(), Proto: p, Said: quoted(said), Verdict: task.VerdictDeny, Rule: err.Error(), Reason: reason}); rerr != nil {
		return refuseRecord(rerr)
	}
	return err
}

// kind is what a stream begins with.
type kind int

const (
	kindMore kind = iota // too little to tell
	kindTLS
	kindHTTP
	kindOther
)

// kindOf looks at the first bytes that a client sends.
func kindOf(b []byte) kind {
	if len(b) == 0 {
		return kindMore
	}
	if b[0] == recordHandshake {
		return kindTLS
	}
	// Servers pass over empty lines and blanks in front of a request, and some take
	// a method in small letters: such a request is read, and refused for its form.
	if b = bytes.TrimLeft(b, " \t\r\n\v\f"); len(b) == 0 {
		return kindMore
	}
	word := bytes.ToUpper(b[:min(len(b), longestMethod+1)])
	more := false
	for _, m := range httpMethods {
		if bytes.HasPrefix(word, []byte(m)) && len(word) > len(m) && (word[len(m)] == ' ' || word[len(m)] == '\t') {
			return kindHTTP
		}
		more = more || len(word) <= len(m) && m[:len(word)] == string(word)
	}
	if more {
		return kindMore
	}
	return kindOther
}

// httpMethods are those by which a stream of HTTP is known where it may be
// something else. PRI begins HTTP/2.
var httpMethods = []string{
	"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI",
	"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "QUERY",
}

// longestMethod is the length of the longest of them.
const longestMethod = len("PROPPATCH")

// tunnel passes bytes on to the destination that was allowed, once the names in
// them are the one that was. On port 443 they are TLS and on port 80 HTTP, or
// nothing goes; elsewhere what is neither passes: it carries no name.
func (s *session) tunnel(d Dest, c *Conn) {
	p := c.with(s.conn)
	s.patient()
	if d.Port == 443 || d.Port == 80 {
		s.within(s.g.Timeouts.Head)
	} else {
		p.startDown() // the other side may speak first
	}
	first, k, err := s.sniff(d)
	if err != nil {
		if k == kindTLS && p.down == nil {
			s.conn.Write(alertDenied)
		}
		p.fail(err)
		return
	}
	if k == kindHTTP {
		if !p.takeBack() {
			p.fail(refuse(ReasonProtocol, "%s spoke first, and got HTTP", d))
			return
		}
		// Each request is decided about by itself from here on.
		s.spare = c.release()
		defer s.spare.close()
		s.br = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(first), s.br), 4096)
		s.http(&d)
		return
	}
	if n := s.br.Buffered(); n > 0 {
		rest, _ := s.br.Peek(n)
		first = append(first, rest...)
	}
	p.run(first)
}

// sniff reads until it knows what the client speaks and, of TLS, to whom.
func (s *session) sniff(d Dest) (b []byte, k kind, err error) {
	buf := make([]byte, 2048)
	for {
		switch k = kindOf(b); k {
		case kindTLS:
			name, err := parseHello(b)
			if errors.Is(err, errHelloMore) {
				break
			}
			if err != nil {
				return b, k, refuse(ReasonName, "%s: %v", d, err)
			}
			return b, k, sameName(d, name)
		case kindHTTP, kindOther:
			if d.Port == 443 || d.Port == 80 && k == kindOther {
				return b, k, refuse(ReasonProtocol, "%s: neither TLS on port 443 nor HTTP on port 80", d)
			}
			return b, k, nil
		}
		if len(b) > 2*maxHello {
			return b, k, refuse(ReasonProtocol, "%s: after %d bytes it cannot be told what is spoken", d, len(b))
		}
		n, err := s.br.Read(buf)
		b = append(b, buf[:n]...)
		if n > 0 {
			continue
		}
		if errors.Is(err, io.EOF) {
			if len(b) == 0 || k != kindTLS && d.Port != 443 && d.Port != 80 {
				return b, kindOther, nil // said nothing, or too little to be anything
			}
			return b, k, refuse(ReasonName, "%s: the greeting breaks off", d)
		}
		if err != nil {
			return b, k, err
		}
	}
}

// sameName holds the server name of a greeting to the destination.
func sameName(d Dest, name string) error {
	if name == "" {
		if d.Host.Name() == "" {
			return nil // an address was allowed, and an address is named
		}
		return refuse(ReasonName, "%s: its TLS greeting names no server", d)
	}
	h, err := ParseSNI(name)
	if err != nil || h != d.Host {
		return refuse(ReasonName, "%s: its TLS greeting names %s", d, quoted(name))
	}
	return nil
}

// last sends an answer after which nothing more is read, and waits a little for
// the client to take it: an end with bytes unread would destroy it on the way.
func (s *session) last(b []byte) {
	s.conn.SetWriteDeadline(time.Now().Add(s.g.Timeouts.Head))
	if _, err := s.conn.Write(b); err != nil {
		return
	}
	if h, ok := s.conn.(halfCloser); ok && h.CloseWrite() == nil {
		s.conn.SetReadDeadline(time.Now().Add(2 * time.Second))
		io.CopyN(io.Discard, s.conn, 1<<20)
	}
}
