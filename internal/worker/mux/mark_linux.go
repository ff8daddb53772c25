package mux

import (
	"encoding/binary"
	"sync"
	"time"
)

// mark is how far the output of one operation had come when the other end spoke
// of it. A program that ended has said all it had to say by then, but what it
// said may still be under way.
type mark struct {
	reached chan struct{}
	once    sync.Once
	mu      sync.Mutex
	left    map[*stream]uint64 // wanted counts
}

func (m *mark) reach() { m.once.Do(func() { close(m.reached) }) }

// sendMark tells how much every output of op has had.
func (c *Conn) sendMark(op uint64) error {
	c.mu.Lock()
	var outs []*stream
	for _, s := range c.streams {
		if s.op == op && (s.what == passOut || s.what == passTTY) {
			outs = append(outs, s)
		}
	}
	c.mu.Unlock()
	if len(outs) == 0 {
		return nil
	}
	body := binary.BigEndian.AppendUint64(nil, op)
	for _, s := range outs {
		if s.what == passTTY {
			// A terminal hands over what was written to it a moment later.
			time.Sleep(2 * time.Millisecond)
		}
		body = binary.BigEndian.AppendUint32(body, s.id)
		body = binary.BigEndian.AppendUint64(body, s.written())
	}
	return c.put(markChunk, 0, body) // the event is next
}

// takeMark keeps the last mark of an operation that has output under way. Of any other
// nothing is kept: the other end may name as many as there are numbers.
func (c *Conn) takeMark(b []byte) error {
	if c.inside || len(b) < 8 || (len(b)-8)%12 != 0 || len(b) > 8+12*8 {
		return ErrChunk
	}
	op := binary.BigEndian.Uint64(b)
	m := &mark{reached: make(chan struct{}), left: map[*stream]uint64{}}
	for b = b[8:]; len(b) > 0; b = b[12:] {
		if s := c.stream(binary.BigEndian.Uint32(b)); s != nil && s.op == op {
			m.left[s] = binary.BigEndian.Uint64(b[4:])
		}
	}
	c.mu.Lock()
	old := c.marks[op]
	if len(m.left) > 0 {
		c.marks[op] = m
	} else {
		delete(c.marks, op)
	}
	c.mu.Unlock()
	if old != nil {
		old.reach()
	}
	wanted := make([]*stream, 0, len(m.left))
	for s := range m.left {
		wanted = append(wanted, s)
	}
	for _, s := range wanted {
		s.watch(m)
	}
	m.settle(nil, 0, false)
	return nil
}

// settle notes that s has come to count, or will not come further.
func (m *mark) settle(s *stream, count uint64, over bool) {
	m.mu.Lock()
	if want, ok := m.left[s]; ok && (over || count >= want) {
		delete(m.left, s)
	}
	done := len(m.left) == 0
	m.mu.Unlock()
	if done {
		m.reach()
	}
}

// Delivered is closed once all that the programs of op had put out, when the
// other end last spoke of op, is where it belongs, or cannot come there.
func (c *Conn) Delivered(op uint64) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.marks[op]
	if m == nil {
		m = &mark{reached: make(chan struct{})}
		m.reach()
	}
	delete(c.marks, op)
	return m.reached
}
