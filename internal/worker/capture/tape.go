package capture

import (
	"sync"
)

// Tape remembers the end of what a program wrote, for readers that come and go.
// Safe for concurrent use.
type Tape struct {
	Max  int // bytes that are remembered
	Also *Stream

	mu      sync.Mutex
	buf     []byte
	base    int64         // position of buf[0]
	changed chan struct{} // closed at the next change
	ended   bool
}

// Write implements io.Writer.
func (t *Tape) Write(p []byte) (int, error) {
	if t.Also != nil {
		_, _ = t.Also.Write(p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return len(p), nil
	}
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.Max; over > t.Max/4 {
		t.buf = t.buf[:copy(t.buf, t.buf[over:])]
		t.base += int64(over)
	}
	t.tell()
	return len(p), nil
}

// tell is called with mu held.
func (t *Tape) tell() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// Close says that nothing more comes.
func (t *Tape) Close() error {
	t.mu.Lock()
	t.ended = true
	t.tell()
	t.mu.Unlock()
	if t.Also != nil {
		return t.Also.Close()
	}
	return nil
}

// Piece is a part of a tape.
type Piece struct {
	Bytes []byte
	From  int64 // position of the first byte; later than asked for when older ones are forgotten
	Next  int64 // position after the last byte
	More  bool  // there is more already
	Ended bool  // and nothing comes after what there is
}

// From returns at most the next most bytes from position at on, and what is
// closed when there is news.
func (t *Tape) From(at int64, most int) (Piece, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := t.base + int64(len(t.buf))
	at = min(max(at, t.base), end)
	p := t.buf[at-t.base:]
	more := len(p) > most
	if more {
		p = p[:most]
		// A character is not cut in two between two pieces.
		if n := wholeEnd(p); n > 0 {
			p = p[:n]
		}
	}
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	news := t.changed
	if t.ended {
		c := make(chan struct{})
		close(c)
		news = c
	}
	return Piece{Bytes: append([]byte(nil), p...), From: at, Next: at + int64(len(p)), More: more, Ended: t.ended && !more}, news
}
