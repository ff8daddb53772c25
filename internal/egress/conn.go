package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a connection to an allowed destination. Its owner ends it with finish,
// or with what a pair has for that, once.
type Conn struct {
	net.Conn
	Addr netip.AddrPort // that was checked and dialled

	gate     *Gate
	id       uint64
	began    time.Time
	up, down atomic.Int64
	handed   atomic.Bool // what it says is no longer passed on
	ended    sync.Once
}

var errHandedOver = errors.New("another part goes on with this connection")

// finish closes the connection and records how it ended.
func (c *Conn) finish(err error) { c.end(err, c.Conn.Close) }

// release records the end of c and leaves the connection to the caller.
func (c *Conn) release() *spare {
	c.end(nil, func() error { return c.Conn.SetDeadline(time.Time{}) })
	return &spare{c.Conn, c.Addr}
}

// spare is a connection that was made before it was known that requests would be
// decided about one by one. The first of them may take it.
type spare struct {
	conn net.Conn
	addr netip.AddrPort
}

// close ends it, if it was not taken.
func (s *spare) close() {
	if s != nil && s.conn != nil {
		s.conn.Close()
		s.conn = nil
	}
}

// end records how the connection ended, once, after last.
func (c *Conn) end(err error, last func() error) {
	c.ended.Do(func() {
		_ = last()
		c.gate.limiter.leave()
		if ReasonOf(err) == ReasonBroken && c.gate.ctx.Err() != nil {
			err = refuse(ReasonClosed, "%v", errClosed)
		}
		o := Outcome{ID: c.id, Addr: c.Addr, Up: c.up.Load(), Down: c.down.Load(), Duration: time.Since(c.began), Reason: ReasonOf(err)}
		if err != nil {
			o.Text = err.Error()
		}
		c.gate.Recorder.Ended(o)
		c.gate.open.Done()
	})
}

// chunk is how much is moved between two looks at the limits. Below it the
// kernel moves the bytes from socket to socket.
const chunk = 1 << 20

// halfCloser is what has an end of its own for each direction.
type halfCloser interface{ CloseWrite() error }

// pair is an allowed connection and the client's end of it.
type pair struct {
	c                *Conn
	client           net.Conn
	lastUp, lastDown atomic.Int64
	down             chan error // nil until startDown
	unwatch          func() bool
}

// with takes the client's end, which it closes when the connection ends.
func (c *Conn) with(client net.Conn) *pair {
	p := &pair{c: c, client: client}
	p.lastUp.Store(time.Now().UnixNano())
	p.lastDown.Store(time.Now().UnixNano())
	p.unwatch = context.AfterFunc(c.gate.ctx, p.cut)
	return p
}

func (p *pair) cut() {
	p.client.Close()
	p.c.Conn.Close()
}

// startDown begins to pass on what the destination says.
func (p *pair) startDown() {
	p.down = make(chan error, 1)
	go func() {
		err := p.c.move(p.client, p.c.Conn, &p.c.down, &p.lastDown, &p.lastUp)
		if err != nil && !errors.Is(err, errHandedOver) {
			p.cut() // the other direction has nothing to say any more
		}
		p.down <- err
	}()
}

// takeBack ends what startDown began and leaves the client's end open. It says
// whether the destination has said nothing so far.
func (p *pair) takeBack() bool {
	p.unwatch()
	if p.down == nil {
		return true
	}
	p.c.handed.Store(true)
	p.c.Conn.SetReadDeadline(time.Unix(1, 0))
	return errors.Is(<-p.down, errHandedOver) && p.c.down.Load() == 0
}

// fail ends both for a reason.
func (p *pair) fail(err error) {
	p.unwatch()
	p.cut()
	if p.down != nil {
		<-p.down
	}
	p.c.finish(err)
}

// run passes first and all that follows it on, until both ends came to theirs,
// and ends both.
func (p *pair) run(first []byte) {
	defer p.unwatch()
	if p.down == nil {
		p.startDown()
	}
	up := error(nil)
	if len(first) > 0 {
		_, up = p.c.Conn.Write(first)
		p.c.count(&p.c.up, int64(len(first)))
	}
	if up == nil {
		up = p.c.move(p.c.Conn, p.client, &p.c.up, &p.lastUp, &p.lastDown)
	}
	if up != nil {
		p.cut()
	}
	// Of two errors the one that is a reason counts; the other came of it.
	err := <-p.down
	if err == nil || up != nil && ReasonOf(up) != ReasonBroken {
		err = up
	}
	p.client.Close()
	p.c.finish(err)
}

func (c *Conn) count(n *atomic.Int64, bytes int64) {
	n.Add(bytes)
	c.gate.limiter.moved(bytes)
}

// move copies src to dst to its end and passes that end on.
func (c *Conn) move(dst, src net.Conn, n, mine, other *atomic.Int64) error {
	idle := c.gate.Timeouts.Idle
	for {
		size := min(chunk, c.gate.limiter.left())
		if size <= 0 {
			return refuse(ReasonLimit, "the task has moved the %d bytes that it may", c.gate.limiter.Bytes)
		}
		if err := src.SetReadDeadline(time.Now().Add(idle)); err != nil {
			return err
		}
		if c.handed.Load() { // its deadline may just have been written over
			return errHandedOver
		}
		got, err := io.CopyN(dst, src, size)
		c.count(n, got)
		if got > 0 {
			mine.Store(time.Now().UnixNano())
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if h, ok := dst.(halfCloser); ok {
				return ignoreGone(h.CloseWrite())
			}
			return dst.Close()
		case errors.Is(err, os.ErrDeadlineExceeded) && c.handed.Load():
			return errHandedOver
		case errors.Is(err, os.ErrDeadlineExceeded):
			// Silence this way is fine while the other way is alive.
			if got == 0 && time.Since(time.Unix(0, other.Load())) > 2*idle {
				return refuse(ReasonTimeout, "silent for %v", idle)
			}
		default:
			return err
		}
	}
}

// ignoreGone lets a half-close pass of an end that is gone already.
func ignoreGone(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "close" {
		return nil
	}
	return err
}

// metered is a Conn whose bytes are counted one call at a time, for what reads
// the stream itself.
type metered struct{ *Conn }

func (m metered) Read(b []byte) (int, error) {
	if err := m.spent(); err != nil {
		return 0, err
	}
	if err := m.Conn.Conn.SetReadDeadline(time.Now().Add(m.gate.Timeouts.Idle)); err != nil {
		return 0, err
	}
	n, err := m.Conn.Conn.Read(b)
	m.count(&m.down, int64(n))
	return n, err
}

func (m metered) Write(b []byte) (int, error) {
	if err := m.spent(); err != nil {
		return 0, err
	}
	n, err := m.Conn.Conn.Write(b)
	m.count(&m.up, int64(n))
	return n, err
}

func (m metered) spent() error {
	if m.gate.limiter.left() <= 0 {
		return refuse(ReasonLimit, "the task has moved the %d bytes that it may", m.gate.limiter.Bytes)
	}
	return nil
}
