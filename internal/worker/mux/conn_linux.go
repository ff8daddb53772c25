package mux

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// Conn is one end. It implements frame.Transport: one goroutine at a time calls
// Recv, any number Send.
type Conn struct {
	rw     io.ReadWriteCloser
	r      *bufio.Reader
	inside bool
	before func(time.Time) error // sets the deadline of a write; nil: none
	limit  time.Duration

	sendMu sync.Mutex // one frame and what belongs to it at a time
	wmu    sync.Mutex // one chunk at a time
	out    []byte     // chunks that wait for the next write

	// of Recv
	buf     []byte
	rest    []byte // of frames, not yet returned
	pending []int  // descriptors of the frame that follows
	passed  []*stream
	blob    *blob

	mu      sync.Mutex
	streams map[uint32]*stream
	next    uint32
	marks   map[uint64]*mark
	dead    error
}

// Option configures an end.
type Option func(*Conn)

// WriteDeadline bounds how long the other end may leave one chunk untaken.
func WriteDeadline(limit time.Duration, set func(time.Time) error) Option {
	return func(c *Conn) { c.limit, c.before = limit, set }
}

// Host makes the end that passes pipes, terminals and files, and takes files. It
// owns rw.
func Host(rw io.ReadWriteCloser, opts ...Option) *Conn { return newConn(rw, false, opts) }

// Inside makes the end that takes pipes and terminals, and passes files. It owns
// rw.
func Inside(rw io.ReadWriteCloser, opts ...Option) *Conn { return newConn(rw, true, opts) }

func newConn(rw io.ReadWriteCloser, inside bool, opts []Option) *Conn {
	c := &Conn{rw: rw, r: bufio.NewReaderSize(rw, 64<<10), inside: inside, buf: make([]byte, maxChunk), streams: map[uint32]*stream{}, marks: map[uint64]*mark{}, next: 1}
	if inside {
		c.next = 2
	}
	for _, o := range opts {
		o(c)
	}
	return c
}

// Close ends both directions and every stream.
func (c *Conn) Close() error {
	err := c.rw.Close()
	c.fail(io.ErrClosedPipe)
	return err
}

func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.dead != nil {
		c.mu.Unlock()
		return
	}
	c.dead = err
	all := make([]*stream, 0, len(c.streams))
	for _, s := range c.streams {
		all = append(all, s)
	}
	marks := c.marks
	c.marks = map[uint64]*mark{}
	c.mu.Unlock()
	for _, s := range all {
		s.lost()
	}
	for _, m := range marks {
		m.reach()
	}
}

// flushAt is how much of what put was given waits at most.
const flushAt = maxChunk

// write sends one chunk, behind what waits.
func (c *Conn) write(kind, stream uint32, body []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.appendChunk(kind, stream, body)
	return c.flush()
}

// put is write that may leave the chunk to the next write: what belongs to one frame
// goes with it, for an engine wakes two programs for each piece on its way.
func (c *Conn) put(kind, stream uint32, body []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.appendChunk(kind, stream, body)
	if len(c.out) < flushAt {
		return nil
	}
	return c.flush()
}

// appendChunk is called with wmu held, as flush is.
func (c *Conn) appendChunk(kind, stream uint32, body []byte) {
	h := head(kind, stream, len(body))
	c.out = append(append(c.out, h[:]...), body...)
}

func (c *Conn) flush() error {
	if c.before != nil {
		if err := c.before(time.Now().Add(c.limit)); err != nil {
			return err
		}
	}
	_, err := c.rw.Write(c.out)
	c.out = c.out[:0]
	return err
}

// Send implements frame.Transport.
func (c *Conn) Send(p []byte, fds []int) error {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	kind, op := frame.Peek(p)
	same := map[[2]uint64]uint32{} // streams of this frame, by what they lead to
	for i, fd := range fds {
		if err := c.pass(fd, i, kind, op, same); err != nil {
			return err
		}
	}
	if kind == frame.Event && c.inside {
		if err := c.sendMark(op); err != nil {
			return err
		}
	}
	n := uint32(len(fds)) // of the first chunk alone
	for first := true; first || len(p) > 0; first = false {
		m := min(len(p), maxChunk)
		if err := c.write(bytesChunk, n, p[:m]); err != nil {
			return err
		}
		p, n = p[m:], 0
	}
	return nil
}

// pass announces one descriptor, which stays the caller's. nth is its place among
// those of the frame. What leads to one place stays one, so that the order is kept
// in which a program writes to both.
func (c *Conn) pass(fd, nth int, kind frame.Kind, op uint64, same map[[2]uint64]uint32) error {
	if c.inside || kind != frame.Request {
		return c.passContent(fd)
	}
	what, body, err := look(fd, nth)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	place := [2]uint64{uint64(st.Dev), st.Ino}
	if id, twice := same[place]; twice && what == passOut {
		return c.put(passChunk, id, []byte{passSame})
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	e := newHostEnd(own)
	s, err := c.open(op, what, e)
	if err != nil {
		e.close()
		return err
	}
	if what == passOut {
		same[place] = s.id
	}
	err = c.put(passChunk, s.id, body)
	if err != nil {
		s.abort() // each pump sees it at once
	}
	s.serveHost(e)
	return err
}

// open makes a stream of this end's.
func (c *Conn) open(op uint64, what byte, e end) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return nil, c.dead
	}
	if len(c.streams) >= maxStreams {
		return nil, errors.New("mux: too many streams")
	}
	s := newStream(c, c.next, op, what)
	s.end = e // before the other end can speak of it
	c.next += 2
	c.streams[s.id] = s
	return s, nil
}

func (c *Conn) forget(s *stream) {
	c.mu.Lock()
	if c.streams[s.id] == s {
		delete(c.streams, s.id)
	}
	c.mu.Unlock()
}

func (c *Conn) stream(id uint32) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// Recv implements frame.Transport: it reads chunks until some of a frame is there.
// It never waits for a stream: what comes for one has room.
func (c *Conn) Recv(p []byte) (int, []int, error) {
	var fds []int
	for len(c.rest) == 0 {
		ch, err := readChunk(c.r, c.buf)
		if err == nil {
			fds, err = c.take(ch)
		}
		if err != nil {
			c.drop()
			c.fail(err)
			return 0, fds, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, fds, nil
}

// drop closes what belonged to a frame that does not come.
func (c *Conn) drop() {
	for _, fd := range c.pending {
		_ = unix.Close(fd)
	}
	c.pending = nil
	if c.blob != nil {
		c.blob.close()
		c.blob = nil
	}
}

// take handles one chunk. It returns the descriptors of the frame that begins in
// c.rest.
func (c *Conn) take(ch chunk) (fds []int, err error) {
	if c.blob != nil && ch.kind != blobChunk && (ch.kind == bytesChunk || ch.kind == passChunk) {
		return nil, ErrChunk // the content is not whole
	}
	switch ch.kind {
	case bytesChunk:
		if len(ch.body) == 0 || int(ch.stream) != len(c.pending) || len(c.pending) > 0 && ch.stream == 0 {
			return nil, ErrChunk
		}
		_, op := frame.Peek(ch.body)
		for _, s := range c.passed {
			s.op = op
			s.serveInside()
		}
		fds, c.pending, c.passed, c.rest = c.pending, nil, nil, ch.body
		return fds, nil
	case passChunk:
		return nil, c.takePass(ch)
	case blobChunk:
		return nil, c.takeBlob(ch)
	case markChunk:
		return nil, c.takeMark(ch.body)
	}
	s := c.stream(ch.stream)
	if s == nil {
		return nil, nil // it ended here, and the other end does not know yet
	}
	switch ch.kind {
	case dataChunk:
		if len(ch.body) == 0 {
			return nil, ErrChunk // no window would bound how many come
		}
		return nil, s.take(ch.body)
	case endChunk:
		s.takeEnd()
	case brokenChunk:
		s.takeBroken()
	case creditChunk:
		if len(ch.body) != 4 {
			return nil, ErrChunk
		}
		return nil, s.takeCredit(int(binary.BigEndian.Uint32(ch.body)))
	case sizeChunk:
		if len(ch.body) != 4 || !c.inside {
			return nil, ErrChunk
		}
		s.resize(binary.BigEndian.Uint16(ch.body), binary.BigEndian.Uint16(ch.body[2:]))
	}
	return nil, nil
}

func (c *Conn) takePass(ch chunk) error {
	if len(ch.body) == 0 || len(c.pending) >= frame.MaxFDs {
		return ErrChunk
	}
	what := ch.body[0]
	if what == passBlob {
		if len(ch.body) != 9 {
			return ErrChunk
		}
		size := binary.BigEndian.Uint64(ch.body[1:])
		if size > MaxBlob {
			return ErrChunk
		}
		b, err := newBlob(int64(size))
		if err != nil {
			return err
		}
		c.blob = b
		return c.settleBlob()
	}
	if what == passSame && c.inside {
		for _, s := range c.passed {
			if s.id == ch.stream {
				fd, err := unix.FcntlInt(uintptr(c.pending[s.at]), unix.F_DUPFD_CLOEXEC, 3)
				if err != nil {
					return err
				}
				c.pending = append(c.pending, fd)
				return nil
			}
		}
		return ErrChunk
	}
	if !c.inside || ch.stream%2 != 1 || c.stream(ch.stream) != nil {
		return ErrChunk
	}
	c.mu.Lock()
	full := len(c.streams) >= maxStreams
	c.mu.Unlock()
	if full {
		return ErrChunk
	}
	s := newStream(c, ch.stream, 0, what)
	given, err := s.make(ch.body[1:])
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.streams[s.id] = s
	c.mu.Unlock()
	s.at = len(c.pending)
	c.pending, c.passed = append(c.pending, given), append(c.passed, s)
	return nil
}
