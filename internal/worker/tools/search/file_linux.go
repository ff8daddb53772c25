package search

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// Bounds of what one goroutine holds of a file.
const (
	firstRead = 64 << 10  // most files are smaller
	nextRead  = 256 << 10 // else
	maxLine   = 1 << 20   // a longer line is searched in pieces
	maxWhole  = 8 << 20   // of a file that must be held whole
)

// grepOptions is what a call asks for, with its limits filled in.
type grepOptions struct {
	m             *matcher
	output        string
	before, after int
	most          limits
}

// searcher looks through one file after the other. It belongs to one goroutine.
type searcher struct {
	*grepOptions
	ctx   context.Context
	large *sync.Mutex // who holds it may hold more than nextRead
	buf   []byte
	find  *finder
	scan  *scanner
	skip  contract.Skipped

	// of the current file
	out     contract.GrepFile
	quiet   bool // no text
	over    bool // the limit is passed
	text    int  // bytes in out
	line    int  // number of the region's first line
	left    int  // lines after the last match that are still to be shown
	shown   int  // number of the last line in out
	tail    []contract.GrepLine
	holding bool
}

func newSearcher(ctx context.Context, o *grepOptions, large *sync.Mutex) *searcher {
	s := &searcher{grepOptions: o, ctx: ctx, large: large, buf: make([]byte, firstRead)}
	if o.m.needles != nil {
		s.find = newFinder(o.m.needles)
	}
	if o.m.prog != nil {
		s.scan = newScanner(o.m.prog)
	}
	return s
}

// errNotFile says that what was opened is no regular file after all.
var errNotFile = errors.New("search: no regular file")

// search looks through an open file. asked: it is the very file that the call
// names, so that it counts also when it is binary.
func (s *searcher) search(fd int, asked bool) error {
	s.out = contract.GrepFile{}
	s.quiet, s.over = s.output != "lines", false
	s.text, s.line, s.left, s.shown, s.tail = 0, 1, 0, 0, s.tail[:0]
	defer s.release()
	n, eof, err := s.fill(fd, 0)
	if err != nil || n == 0 {
		return err
	}
	if enc := utf16Mark(s.buf[:n]); enc != "" {
		return s.whole(fd, n, eof, enc, asked)
	}
	if bytes.IndexByte(s.buf[:n], 0) >= 0 {
		if !asked {
			s.skip.Binary++
			return nil
		}
		s.quiet, s.out.Binary = true, true
	}
	if bytes.HasPrefix(s.buf[:n], []byte("\xef\xbb\xbf")) {
		n = copy(s.buf, s.buf[3:n]) // a mark is no part of the first line
	}
	if s.m.multiline {
		return s.whole(fd, n, eof, "", asked)
	}
	return s.lines(fd, n, eof, asked)
}

// fill reads until the buffer is full or the file at its end.
func (s *searcher) fill(fd, n int) (int, bool, error) {
	for n < len(s.buf) {
		k, err := readFD(fd, s.buf[n:])
		if err != nil {
			return n, false, err
		}
		if k == 0 {
			return n, true, nil
		}
		n += k
	}
	return n, false, nil
}

// grow makes room for more of a file. Only one searcher at a time has a large buffer.
func (s *searcher) grow(n, size int) {
	if size > nextRead && !s.holding {
		s.large.Lock()
		s.holding = true
	}
	b := make([]byte, size)
	copy(b, s.buf[:n])
	s.buf = b
}

func (s *searcher) release() {
	if s.holding {
		s.buf, s.holding = make([]byte, firstRead), false
		s.large.Unlock()
	}
}

// regular refuses a pipe or device that took the place of a file since its
// folder was read. Nobody asks for the many files that one read brings whole.
func regular(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errNotFile
	}
	return nil
}

// lines searches line by line. n bytes are in the buffer.
func (s *searcher) lines(fd, n int, eof, asked bool) error {
	if !eof {
		if err := regular(fd); err != nil {
			return err
		}
		if len(s.buf) < nextRead {
			s.grow(n, nextRead)
		}
		var err error
		if n, eof, err = s.fill(fd, n); err != nil {
			return err
		}
	}
	long := false
	defer func() {
		if long {
			s.skip.LongLines++
		}
	}()
	for checked := 0; ; {
		if err := context.Cause(s.ctx); err != nil {
			return err
		}
		end, last := n, eof
		if i := bytes.IndexByte(s.buf[checked:n], 0); i >= 0 {
			if s.out.Binary = true; asked {
				s.quiet = true
			} else {
				// Text so far, and binary from here.
				end, last = bytes.LastIndexByte(s.buf[:checked+i], '\n')+1, true
			}
		}
		if !last {
			if end = bytes.LastIndexByte(s.buf[:n], '\n') + 1; end == 0 {
				if len(s.buf) < maxLine {
					checked = n
					s.grow(n, min(4*len(s.buf), maxLine))
					var err error
					if n, eof, err = s.fill(fd, n); err != nil {
						return err
					}
					continue
				}
				end = n
				long = true
			}
		}
		s.region(s.buf[:end])
		if last && s.out.Binary && s.out.Count == 0 {
			s.skip.Binary++
		}
		if last || s.over || s.output == "files" && s.out.Count > 0 {
			return nil
		}
		checked = copy(s.buf, s.buf[end:n])
		var err error
		if n, eof, err = s.fill(fd, checked); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}

// region searches whole lines.
func (s *searcher) region(b []byte) {
	if s.find != nil {
		s.find.reset()
	}
	counted, number := 0, s.line // the line at counted has that number
	next := 0                    // where lines begin that may still be shown as context
	for pos, n := 0, 0; pos < len(b) && !s.over; n++ {
		if n&0xff == 0xff && s.ctx.Err() != nil {
			return
		}
		from, to := s.candidate(b, pos)
		if from < 0 {
			break
		}
		pos = to + 1
		text := bytes.TrimSuffix(b[from:to], []byte{'\r'})
		loc := s.match(text)
		if loc == nil {
			continue
		}
		s.out.Count++
		if s.output == "files" {
			return
		}
		if s.quiet {
			continue
		}
		number += bytes.Count(b[counted:from], newline)
		counted = from
		next = s.following(b, next, from, number)
		if s.out.Count > s.most.matches {
			s.out.Count--
			s.over = true
			break
		}
		s.preceding(b, next, from, number)
		s.emit(number, text, loc)
		s.left, next = s.after, min(to+1, len(b))
	}
	if s.quiet {
		return
	}
	number += bytes.Count(b[counted:], newline)
	if !s.over {
		next = s.following(b, next, len(b), number)
	}
	if s.before > 0 {
		s.keep(b, next, number)
	}
	s.line = number
}

var newline = []byte{'\n'}

// candidate returns the next line from pos on that may match; negative: none.
func (s *searcher) candidate(b []byte, pos int) (from, to int) {
	at := pos
	switch {
	case s.find != nil:
		if at = s.find.next(b, pos); at < 0 {
			return -1, 0
		}
	case s.scan != nil && s.scan.full < 16:
		if at = s.scan.find(b, pos); at < 0 {
			return -1, 0
		}
	}
	from = pos + bytes.LastIndexByte(b[pos:at], '\n') + 1
	return from, indexFrom(b, at, '\n')
}

// match returns where in a line the pattern is, nil: nowhere.
func (s *searcher) match(text []byte) []int {
	if s.m.exact {
		i := bytes.Index(text, s.m.needles[0].text)
		return []int{i, i + len(s.m.needles[0].text)}
	}
	if s.find != nil && s.scan != nil && s.scan.full < 16 && len(text) > 0 && s.scan.find(text, 0) < 0 {
		return nil
	}
	return s.m.find(s.ctx, text)
}

// following shows lines after the last match, from next up to before; number is
// that of the line at before. It returns where the first line is that was not shown.
func (s *searcher) following(b []byte, next, before, number int) int {
	if s.left == 0 || next >= before {
		return next
	}
	n := number - bytes.Count(b[next:before], newline)
	for s.left > 0 && next < before {
		to := indexFrom(b, next, '\n')
		s.emit(n, bytes.TrimSuffix(b[next:to], []byte{'\r'}), nil)
		s.left--
		n++
		next = min(to+1, len(b))
	}
	return next
}

// preceding shows lines before the match at from, none twice.
func (s *searcher) preceding(b []byte, next, from, number int) {
	start, n := from, 0
	for n < s.before && start > next {
		start = bytes.LastIndexByte(b[next:start-1], '\n') + next + 1
		n++
	}
	if more := s.before - n; more > 0 && next == 0 {
		for i := max(0, len(s.tail)-more); i < len(s.tail); i++ {
			if s.tail[i].Number > s.shown {
				s.push(s.tail[i])
			}
		}
	}
	for ; n > 0; n-- {
		to := indexFrom(b, start, '\n')
		s.emit(number-n, bytes.TrimSuffix(b[start:to], []byte{'\r'}), nil)
		start = to + 1
	}
	s.tail = s.tail[:0]
}

// keep remembers the last lines of a region; a match in the next may want them.
func (s *searcher) keep(b []byte, next, number int) {
	start, n := len(b), 0
	if len(b) > 0 && b[len(b)-1] != '\n' {
		return // the end of the file, or of a piece of a line
	}
	for n < s.before && start > next {
		start = bytes.LastIndexByte(b[next:start-1], '\n') + next + 1
		n++
	}
	for i := n; i > 0; i-- {
		to := indexFrom(b, start, '\n')
		s.tail = append(s.tail, shownLine(number-i, bytes.TrimSuffix(b[start:to], []byte{'\r'}), nil))
		start = to + 1
	}
	if extra := len(s.tail) - s.before; extra > 0 {
		s.tail = append(s.tail[:0], s.tail[extra:]...)
	}
}

// emit puts a line into the result; loc is where it matches, nil: it is context.
func (s *searcher) emit(number int, text []byte, loc []int) { s.push(shownLine(number, text, loc)) }

func (s *searcher) push(l contract.GrepLine) {
	if s.text > s.most.text {
		s.over = true
		return
	}
	s.text += len(l.Text) + len(l.TextBytes) + 32
	s.shown = l.Number
	s.out.Lines = append(s.out.Lines, l)
}

// shownLine is a line as a result has it: not too long, and around the match.
func shownLine(number int, text []byte, loc []int) contract.GrepLine {
	l := contract.GrepLine{Number: number}
	from, to := 0, len(text)
	if loc != nil {
		l.Match, l.Column = true, loc[0]+1
	}
	if to > contract.GrepLineMax {
		l.Cut = true
		if loc != nil && loc[1] > contract.GrepLineMax {
			from = max(0, loc[0]-contract.GrepLineMax/4)
		}
		to = min(len(text), from+contract.GrepLineMax)
		// No character is cut in two.
		for i := 0; i < utf8.UTFMax && from > 0 && from < to && !utf8.RuneStart(text[from]); i++ {
			from++
		}
		for i := 0; i < utf8.UTFMax && to < len(text) && to > from && !utf8.RuneStart(text[to]); i++ {
			to--
		}
	}
	l.Text, l.TextBytes = texts(text[from:to])
	return l
}

// texts is b as a string, and b itself where it is not UTF-8.
func texts(b []byte) (string, []byte) {
	if utf8.Valid(b) {
		return string(b), nil
	}
	return string(bytes.ToValidUTF8(b, []byte("\uFFFD"))), bytes.Clone(b)
}

// whole searches a file that must be held as one: over lines, or because it has
// to be decoded first.
func (s *searcher) whole(fd, n int, eof bool, enc string, asked bool) error {
	for !eof {
		if err := regular(fd); err != nil {
			return err
		}
		if err := context.Cause(s.ctx); err != nil {
			return err
		}
		if n == len(s.buf) {
			if len(s.buf) >= maxWhole {
				s.skip.TooLarge++
				return nil
			}
			s.grow(n, min(4*len(s.buf), maxWhole))
		}
		var err error
		if n, eof, err = s.fill(fd, n); err != nil {
			return err
		}
	}
	b := s.buf[:n]
	if enc != "" {
		if !s.holding && n > nextRead {
			s.large.Lock()
			s.holding = true
		}
		b = decode16(b, enc)
		s.out.Encoding = enc
	}
	if bytes.IndexByte(b, 0) >= 0 {
		if s.out.Binary = true; !asked {
			s.skip.Binary++
			return nil
		}
		s.quiet = true
	}
	if s.m.multiline {
		if !s.m.returns && bytes.Contains(b, []byte("\r\n")) {
			b = bytes.ReplaceAll(b, []byte("\r\n"), newline)
		}
		s.spans(b)
	} else {
		s.region(b)
	}
	return context.Cause(s.ctx)
}

// spans finds matches that may cross lines. Each line that has a part of one counts.
func (s *searcher) spans(b []byte) {
	if s.find != nil {
		s.find.reset()
		if s.find.next(b, 0) < 0 {
			return
		}
	}
	counted, number, next := 0, 1, 0
	for pos := 0; pos <= len(b) && !s.over && s.ctx.Err() == nil; {
		loc := s.spanFrom(b, pos)
		if loc == nil || loc[0] == len(b) && len(b) > 0 && b[len(b)-1] == '\n' || len(b) == 0 {
			break
		}
		from := bytes.LastIndexByte(b[:loc[0]], '\n') + 1
		last := loc[1]
		if last > loc[0] {
			last-- // an end of line that is in the match belongs to its line
		}
		end := indexFrom(b, last, '\n')
		for at := max(from, next); at <= end && !s.over; {
			to := indexFrom(b, at, '\n')
			s.out.Count++
			switch {
			case s.output == "files":
				return
			case s.quiet:
			default:
				number += bytes.Count(b[counted:at], newline)
				counted = at
				next = s.following(b, next, at, number)
				if s.out.Count > s.most.matches {
					s.out.Count--
					s.over = true
					break
				}
				s.preceding(b, next, at, number)
				s.emit(number, bytes.TrimSuffix(b[at:to], []byte{'\r'}), []int{max(0, loc[0]-at), max(0, min(loc[1], to)-at)})
				s.left = s.after
			}
			next = min(to+1, len(b))
			at = to + 1
		}
		if pos = loc[1]; loc[1] == loc[0] {
			pos = min(indexFrom(b, pos, '\n')+1, len(b)) // the line is shown already
		}
		if pos >= len(b) {
			break
		}
	}
	if !s.over && !s.quiet {
		number += bytes.Count(b[counted:], newline)
		s.following(b, next, len(b), number)
	}
}

// spanFrom finds the first match from pos on.
func (s *searcher) spanFrom(b []byte, pos int) []int {
	from, m := pos, s.m
	if pos > 0 && b[pos-1] != '\n' {
		// The pattern has to see what stands before.
		_, size := utf8.DecodeLastRune(b[:pos])
		from, m = pos-size, s.m.after
	}
	loc := m.find(s.ctx, b[from:])
	if loc == nil {
		return nil
	}
	return []int{loc[0] + from, loc[1] + from}
}

// utf16Mark names the encoding that a byte order mark tells.
func utf16Mark(b []byte) string {
	switch {
	case len(b) >= 4 && b[0] == 0xff && b[1] == 0xfe && b[2] == 0 && b[3] == 0:
		return "" // UTF-32: binary
	case len(b) >= 2 && b[0] == 0xff && b[1] == 0xfe:
		return "utf-16le"
	case len(b) >= 2 && b[0] == 0xfe && b[1] == 0xff:
		return "utf-16be"
	}
	return ""
}

func decode16(b []byte, enc string) []byte {
	order := binary.ByteOrder(binary.LittleEndian)
	if enc == "utf-16be" {
		order = binary.BigEndian
	}
	out := make([]byte, 0, len(b)*3/4)
	for b = b[2:]; len(b) >= 2; b = b[2:] {
		r := rune(order.Uint16(b))
		if utf16.IsSurrogate(r) {
			low := rune(0)
			if len(b) >= 4 {
				low = rune(order.Uint16(b[2:]))
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				b = b[2:]
			}
		}
		out = utf8.AppendRune(out, r)
	}
	if len(b) == 1 {
		out = utf8.AppendRune(out, utf8.RuneError)
	}
	return out
}
