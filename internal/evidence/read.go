package evidence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// decodeLine reads one line strictly: one object, no unknown field, nothing
// after it.
func decodeLine(line []byte, e *Event) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(e); err != nil {
		return err
	}
	if rest := line[d.InputOffset():]; len(rest) > 0 {
		return fmt.Errorf("%d bytes after the event", len(rest))
	}
	e.Line = line
	return nil
}

// lineReader reads lines of at most MaxLine bytes. It always reads a line's
// bytes in one go from where the line begins, and keeps none of an incomplete
// one: a writer may cut that off and go on in its place.
type lineReader struct {
	f     *os.File
	buf   []byte // read, not yet returned
	space []byte // what buf lies in
	start int64  // offset of buf in the file
}

func newLineReader(f *os.File) *lineReader {
	return &lineReader{f: f, space: make([]byte, 64<<10)}
}

// errPartial says that there is an incomplete line at the end for now.
var errPartial = errors.New("incomplete line")

// next returns a complete line without its line feed (the caller's to keep),
// io.EOF at the end, errPartial when the end lies within a line. It may be
// called again after both, when the file has changed.
func (l *lineReader) next() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf, '\n'); i >= 0 {
			line := bytes.Clone(l.buf[:i])
			l.buf, l.start = l.buf[i+1:], l.start+int64(i+1)
			if i+1 > MaxLine {
				break
			}
			return line, nil
		}
		if len(l.buf) == len(l.space) {
			if len(l.space) > MaxLine {
				break
			}
			l.space = make([]byte, 2*len(l.space))
		}
		n, err := l.f.ReadAt(l.space, l.start)
		l.buf = l.space[:n]
		if err == nil || err == io.EOF && bytes.IndexByte(l.buf, '\n') >= 0 {
			continue
		}
		l.buf = nil
		if err == io.EOF && n > MaxLine {
			break
		}
		if err == io.EOF && n > 0 {
			return nil, errPartial
		}
		return nil, err
	}
	return nil, fmt.Errorf("a line is longer than %d bytes: %w", MaxLine, ErrAltered)
}

// Read yields the events with sequence number from or higher that are in the
// log now. A line that cannot be read ends it with an error of code evidence;
// an incomplete last line, which a writer may be about to finish, ends it
// silently. The chain is not checked: see Verify.
func Read(dir string, from uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f, err := openLog(dir)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer f.Close()
		drain(newLineReader(f), from, yield)
	}
}

func openLog(dir string) (*os.File, error) {
	f, err := os.Open(filepath.Join(dir, FileName))
	if err != nil {
		return nil, fail("evidence.read", "cannot read the evidence: %w", err)
	}
	return f, nil
}

// drain yields what is there and reports whether to go on.
func drain(lr *lineReader, from uint64, yield func(Event, error) bool) bool {
	for {
		line, err := lr.next()
		if err == io.EOF || err == errPartial {
			return true
		}
		var e Event
		if err == nil {
			err = decodeLine(line, &e)
		}
		if err != nil {
			yield(Event{}, fail("evidence.read", "the evidence cannot be read after event %d: %w", e.Seq, err))
			return false
		}
		if e.Seq >= from && !yield(e, nil) {
			return false
		}
	}
}

// Follow is Read that goes on with events as they are added, until ctx ends,
// the caller stops or the log is removed. It ends without an error then.
func Follow(ctx context.Context, dir string, from uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f, err := openLog(dir)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer f.Close()
		// Watched before the first read: no event falls between.
		w, err := watch(f)
		if err != nil {
			yield(Event{}, fail("evidence.follow", "cannot watch the evidence: %w", err))
			return
		}
		defer w.close()
		lr := newLineReader(f)
		for drain(lr, from, yield) {
			if !present(f) || w.wait(ctx) != nil {
				drain(lr, from, yield)
				return
			}
		}
	}
}

// present reports whether the open log still has its name.
func present(f *os.File) bool {
	a, err1 := f.Stat()
	b, err2 := os.Stat(f.Name())
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// Verify checks the whole log: every line's form, the sequence, the chain, and
// that it reaches the recorded head (a zero Head: nothing was recorded). It
// returns how far the log is in order. The error has code evidence and matches
// exactly one of ErrAltered, ErrDropped, ErrReordered, ErrTruncated and
// ErrTorn, or is one of reading the file.
func Verify(dir string, recorded Head) (Head, error) {
	const op = "evidence.verify"
	head := Head{Hash: Genesis}
	f, err := openLog(dir)
	if err != nil {
		return head, err
	}
	defer f.Close()
	lr := newLineReader(f)
	var first Event
	for {
		line, err := lr.next()
		if err == io.EOF {
			break
		}
		if err == errPartial {
			return head, fail(op, "the line after event %d is incomplete: %w", head.Seq, ErrTorn)
		}
		if err != nil {
			return head, fail(op, "after event %d: %w", head.Seq, err)
		}
		var e Event
		if err := decodeLine(line, &e); err != nil {
			return head, fail(op, "the line after event %d is not an event (%v): %w", head.Seq, err, ErrAltered)
		}
		if first.Seq == 0 {
			first = e
		}
		switch want := head.Seq + 1; {
		case e.Seq < want:
			return head, fail(op, "event %d stands again after event %d: %w", e.Seq, head.Seq, ErrReordered)
		case e.Seq > want:
			if found, err := later(lr, want); err != nil {
				return head, err
			} else if found {
				return head, fail(op, "event %d stands before event %d: %w", e.Seq, want, ErrReordered)
			}
			return head, fail(op, "event %d is missing: %w", want, ErrDropped)
		case e.Prev != head.Hash:
			return head, fail(op, "event %d does not continue the one before it, so one of the two was changed: %w", e.Seq, ErrAltered)
		case e.Task != first.Task || !e.Type.Known():
			return head, fail(op, "event %d has another task or an unknown type: %w", e.Seq, ErrAltered)
		}
		head = Head{Seq: e.Seq, Hash: hexLeaf(line)}
		if head.Seq == recorded.Seq && head.Hash != recorded.Hash {
			return head, fail(op, "event %d is not the one that was recorded: %w", e.Seq, ErrAltered)
		}
	}
	if head.Seq < recorded.Seq {
		return head, fail(op, "the log ends with event %d, but %d was recorded: %w", head.Seq, recorded.Seq, ErrTruncated)
	}
	return head, nil
}

// later reports whether an event with this sequence number comes later.
func later(lr *lineReader, seq uint64) (bool, error) {
	for {
		line, err := lr.next()
		if err == io.EOF || err == errPartial {
			return false, nil
		}
		if err != nil {
			return false, fail("evidence.verify", "%w", err)
		}
		var e struct{ Seq uint64 }
		if strings.Contains(string(line), `"seq"`) && json.Unmarshal(line, &e) == nil && e.Seq == seq {
			return true, nil
		}
	}
}

// pause returns nil after d, and the cause when ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
