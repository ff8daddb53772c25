// Package capture takes what a program of a boundary writes, at the host's ends
// of its pipes: the beginning and the end of it in memory, all of it up to a
// bound in a file, the sum of it for the record.
//
// Its limit: bytes are a claim of the inside; it reads none of them for meaning,
// starts nothing and opens nothing by itself.
package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// half is how much of the beginning and of the end of a stream is kept.
const half = 32 << 10

// TailSize is how much of the end goes on record.
const TailSize = 4 << 10

// Stream collects what goes through one pipe. Safe for concurrent use.
type Stream struct {
	// Live receives every piece as it comes, from one goroutine, and is waited
	// for: a reader that is slow makes the program slow. A piece is its until it
	// returns. May be nil. GiveUp ends the waiting.
	Live func(p []byte)
	// Spill opens the file for everything, once there is more than is kept in
	// memory; the stream closes it. nil: there is none.
	Spill func() (*os.File, error)
	// MaxSpill bounds the file, File is what to call it.
	MaxSpill int64
	File     string

	begin  sync.Once
	pieces chan []byte
	used   chan []byte   // pieces that Live is done with, for the next ones
	heard  chan struct{} // closed when Live has got everything
	gave   chan struct{} // closed by GiveUp
	giving sync.Once

	mu      sync.Mutex
	n       int64
	sum     hash.Hash
	head    []byte // the first half
	tail    []byte // what came after it, at most the last half
	file    *os.File
	spilled int64
	err     error
	closed  bool
}

// GiveUp leaves a Live that does not return to itself: it gets nothing more.
func (s *Stream) GiveUp() {
	s.begin.Do(s.listen)
	s.giving.Do(func() { close(s.gave) })
}

// listen is called once.
func (s *Stream) listen() {
	s.pieces, s.used, s.heard, s.gave = make(chan []byte, 16), make(chan []byte, 16), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.heard)
		for {
			select {
			case <-s.gave:
				return
			case p, ok := <-s.pieces:
				if !ok {
					return
				}
				s.Live(p)
				select {
				case s.used <- p:
				default:
				}
			}
		}
	}()
}

// Write implements io.Writer. It fails never: a program must not be held up by
// a full disk of ours.
func (s *Stream) Write(p []byte) (int, error) {
	size := len(p)
	if s.Live != nil {
		s.begin.Do(s.listen)
		var piece []byte
		select {
		case piece = <-s.used:
		default:
		}
		select {
		case s.pieces <- append(piece[:0], p...):
		case <-s.gave:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return size, nil
	}
	if s.sum == nil {
		s.sum = sha256.New()
	}
	s.sum.Write(p)
	s.n += int64(len(p))
	if s.file == nil && s.err == nil && s.Spill != nil && s.n > 2*half {
		if s.file, s.err = s.Spill(); s.err == nil {
			s.spill(s.head)
			s.spill(s.tail)
		}
	}
	s.spill(p)
	if room := half - len(s.head); room > 0 {
		k := min(room, len(p))
		s.head = append(s.head, p[:k]...)
		p = p[k:]
	}
	s.tail = append(s.tail, p...)
	if over := len(s.tail) - half; over > half { // seldom, so that bytes are not moved at each piece
		s.tail = s.tail[:copy(s.tail, s.tail[over:])]
	}
	return size, nil
}

// spill is called with mu held.
func (s *Stream) spill(p []byte) {
	if s.file == nil || s.err != nil {
		return
	}
	p = p[:min(int64(len(p)), s.MaxSpill-s.spilled)]
	n, err := s.file.Write(p)
	s.spilled += int64(n)
	s.err = err
}

// Close lets go of the file, once Live has got everything. There is one writer,
// and it is the one that closes: nothing comes later.
func (s *Stream) Close() error {
	if s.Live != nil {
		s.begin.Do(s.listen)
		close(s.pieces)
		select {
		case <-s.heard:
		case <-s.gave:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.file != nil {
		if err := s.file.Close(); s.err == nil {
			s.err = err
		}
		s.file = nil
	}
	return s.err
}

// Result is what became of a stream.
type Result struct {
	Bytes   int64
	SHA256  string
	Text    string // UTF-8; a line in the middle says what is not in it
	Omitted int64  // bytes that are not in Text
	Spilled int64  // bytes in the file; 0: there is none
	Tail    []byte
	Err     error // of the file
}

// Result returns what came so far.
func (s *Stream) Result() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Result{Bytes: s.n, Spilled: s.spilled, Err: s.err}
	if s.sum == nil {
		s.sum = sha256.New()
	}
	r.SHA256 = hex.EncodeToString(s.sum.Sum(nil))
	tail := s.tail[max(0, len(s.tail)-half):]
	r.Omitted = s.n - int64(len(s.head)+len(tail))
	head := s.head
	if r.Omitted > 0 {
		cut := wholeEnd(head)
		from := wholeBegin(tail)
		r.Omitted += int64(len(head) - cut + from)
		head, tail = head[:cut], tail[from:]
	}
	var b strings.Builder
	if r.Omitted > 0 {
		b.WriteString(Clean(head))
		if b.WriteString("\n[… " + strconv.FormatInt(r.Omitted, 10) + " bytes left out"); r.Spilled > 0 {
			b.WriteString("; " + s.File + " has all of it")
			if r.Spilled < r.Bytes {
				b.WriteString(" but the end")
			}
		}
		b.WriteString(" …]\n")
		b.WriteString(Clean(tail))
	} else {
		b.WriteString(Clean(append(head[:len(head):len(head)], tail...)))
	}
	r.Text = b.String()
	last := s.tail
	if len(last) < TailSize { // then the head goes on where it begins
		last = append(append([]byte(nil), s.head[max(0, len(s.head)-TailSize):]...), last...)
	}
	last = last[max(0, len(last)-TailSize):]
	r.Tail = append([]byte(nil), last[wholeBegin(last):]...)
	return r
}

// Clean is p as UTF-8: bytes that are none become U+FFFD.
func Clean(p []byte) string { return strings.ToValidUTF8(string(p), "\uFFFD") }

// wholeEnd is the length of p without a character that is cut at its end.
func wholeEnd(p []byte) int {
	for i := 1; i <= utf8.UTFMax && i <= len(p); i++ {
		if c := p[len(p)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-i:]) {
				return len(p) - i
			}
			break
		}
	}
	return len(p)
}

// wholeBegin is where the first whole character of p begins.
func wholeBegin(p []byte) int {
	for i := range min(utf8.UTFMax, len(p)) {
		if utf8.RuneStart(p[i]) {
			return i
		}
	}
	return 0
}

var _ io.WriteCloser = (*Stream)(nil)
