package mux

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
)

// end is what a stream moves bytes from and to on this side.
type end interface {
	// read waits for bytes. io.EOF, or any error: no more come.
	read(p []byte) (int, error)
	// write waits until some of p went. idle returns nil: it waits until there is
	// something to write (nudge) or nobody reads any more, which is an error.
	write(p []byte) (int, error)
	nudge()
	// count returns how many bytes were read and how many more lie ready.
	count() uint64
	resize(rows, cols uint16)
	abort() // ends every read and write
	close() // after the last of them
}

// errNudged says that write(nil) was told of something to write.
var errNudged = errors.New("mux: nudged")

// stream is one descriptor that was passed.
type stream struct {
	c    *Conn
	id   uint32
	op   uint64
	what byte
	end  end
	at   int // inside: its place among the descriptors of its frame

	mu      sync.Mutex
	moved   *sync.Cond
	credit  int      // bytes that may be sent
	queue   [][]byte // that came and were not written yet
	queued  int
	ended   bool   // nothing more comes
	cut     bool   // nobody takes what is sent
	stopped bool   // in every direction
	done    uint64 // bytes written
	wrote   bool   // nothing is written any more
	watcher *mark
	users   int // pumps
}

func newStream(c *Conn, id uint32, op uint64, what byte) *stream {
	s := &stream{c: c, id: id, op: op, what: what, credit: window}
	s.moved = sync.NewCond(&s.mu)
	return s
}

// serve begins to move bytes.
func (s *stream) serve(sends, takes bool) {
	s.mu.Lock()
	for _, on := range []bool{sends, takes} {
		if on {
			s.users++
		}
	}
	s.mu.Unlock()
	if sends {
		go s.send()
	}
	if takes {
		go s.deliver()
	} else {
		s.mu.Lock()
		s.wrote = true
		s.mu.Unlock()
	}
}

// leave is called by each pump when it ends.
func (s *stream) leave() {
	s.mu.Lock()
	s.users--
	last := s.users == 0
	e := s.end
	s.mu.Unlock()
	if last {
		s.c.forget(s)
		e.close()
	}
}

// send moves bytes from this side to the other.
func (s *stream) send() {
	defer s.leave()
	buf := make([]byte, maxChunk)
	for {
		s.mu.Lock()
		for s.credit <= 0 && !s.cut && !s.stopped {
			s.moved.Wait()
		}
		n, over := min(s.credit, len(buf)), s.cut || s.stopped
		s.mu.Unlock()
		if over {
			return
		}
		n, err := s.end.read(buf[:n])
		if n > 0 {
			s.mu.Lock()
			s.credit -= n
			over = s.cut || s.stopped
			s.mu.Unlock()
			if over || s.c.write(dataChunk, s.id, buf[:n]) != nil {
				return
			}
		}
		if err != nil {
			s.mu.Lock()
			over = s.cut || s.stopped
			s.mu.Unlock()
			if !over {
				_ = s.c.write(endChunk, s.id, nil)
			}
			if s.what == passTTY {
				s.finish() // a terminal ends as a whole
			}
			return
		}
	}
}

// deliver moves bytes that came to this side.
func (s *stream) deliver() {
	defer s.leave()
	owed := 0
	for {
		s.mu.Lock()
		var b []byte
		if len(s.queue) > 0 {
			b = s.queue[0]
		}
		over, ended := s.stopped, s.ended && b == nil
		s.mu.Unlock()
		if over || ended {
			s.over()
			if s.what == passTTY {
				s.abort()
			}
			return
		}
		n, err := s.end.write(b)
		if err == errNudged {
			continue
		}
		if err != nil {
			s.over()
			_ = s.c.write(brokenChunk, s.id, nil)
			if s.what == passTTY {
				s.abort()
			}
			return
		}
		s.mu.Lock()
		s.done += uint64(n)
		if n == len(b) {
			s.queue = s.queue[1:]
		} else {
			s.queue[0] = b[n:]
		}
		s.queued -= n
		m, done, empty := s.watcher, s.done, len(s.queue) == 0
		s.mu.Unlock()
		if m != nil {
			m.settle(s, done, false)
		}
		if owed += n; owed >= window/4 || empty {
			// Where this fails nothing more comes, and what came is still written.
			_ = s.c.write(creditChunk, s.id, binary.BigEndian.AppendUint32(nil, uint32(owed)))
			owed = 0
		}
	}
}

// over says that nothing is written here any more.
func (s *stream) over() {
	s.mu.Lock()
	s.wrote = true
	s.queue, s.queued = nil, 0
	m := s.watcher
	s.mu.Unlock()
	if m != nil {
		m.settle(s, 0, true)
	}
}

// watch has m told how far it has come.
func (s *stream) watch(m *mark) {
	s.mu.Lock()
	s.watcher = m
	done, wrote := s.done, s.wrote
	s.mu.Unlock()
	m.settle(s, done, wrote)
}

// written is how many bytes were or can be read on this side.
func (s *stream) written() uint64 { return s.end.count() }

func (s *stream) take(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.queued+len(b) > window {
		return ErrChunk
	}
	if s.wrote || s.stopped {
		return nil
	}
	s.queue = append(s.queue, append([]byte(nil), b...))
	s.queued += len(b)
	s.end.nudge()
	return nil
}

func (s *stream) takeEnd() {
	s.mu.Lock()
	s.ended = true
	e := s.end
	s.mu.Unlock()
	e.nudge()
}

func (s *stream) takeBroken() {
	s.mu.Lock()
	s.cut = true
	s.moved.Broadcast()
	e := s.end
	s.mu.Unlock()
	if s.what == passTTY {
		s.abort()
		return
	}
	e.abort() // it only sends
}

func (s *stream) takeCredit(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 0 || s.credit+n > window {
		return ErrChunk
	}
	s.credit += n
	s.moved.Broadcast()
	return nil
}

func (s *stream) resize(rows, cols uint16) {
	if s.what == passTTY {
		s.end.resize(rows, cols)
	}
}

// finish ends a terminal once all that came for it was written.
func (s *stream) finish() { s.takeEnd() }

// abort ends every direction at once.
func (s *stream) abort() {
	s.mu.Lock()
	s.stopped = true
	s.moved.Broadcast()
	e := s.end
	s.mu.Unlock()
	if e != nil {
		e.abort()
	}
}

// lost ends a stream whose channel is gone. What had come is still written on the
// host; inside nobody is left whom it could serve.
func (s *stream) lost() {
	if s.c.inside || s.what == passIn {
		s.abort()
		return
	}
	s.mu.Lock()
	s.ended, s.cut = true, true
	s.moved.Broadcast()
	s.mu.Unlock()
	s.end.nudge()
}

var errAborted = io.ErrClosedPipe
