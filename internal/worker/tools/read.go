//go:build linux

package tools

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// chunk is how much is read at a time.
const chunk = 64 << 10

// tries is how often a file is read anew that changes meanwhile.
const tries = 3

// readFile does read_file. Its memory is a chunk and the result, whatever the
// file's size; UTF-16 alone is held whole.
func readFile(ctx context.Context, c *Call, args any) (any, *contract.Failure) {
	a := args.(*contract.ReadFileArgs)
	for n := 1; ; n++ {
		f, fail := c.Root.OpenFile(a.Path)
		if fail != nil {
			return nil, fail
		}
		res, fail := f.result(ctx, a)
		steady := fail == nil && f.steady()
		if fail == nil && steady && res.Truncated {
			if _, err := unix.Seek(f.FD, 0, io.SeekStart); err == nil {
				c.Out = f.FD
				return res, nil
			}
		}
		f.Close()
		if fail != nil || steady {
			return res, fail
		}
		if n == tries {
			return nil, contract.Fail(contract.Changed, "%s is being changed while it is read; try again", f.Path)
		}
	}
}

// steady reports whether the file was not changed since it was opened. One that
// only grew, as a log does, was: what was read is its beginning.
func (f *File) steady() bool {
	var now unix.Stat_t
	if unix.Fstat(f.FD, &now) != nil {
		return false
	}
	return now.Mtim == f.Stat.Mtim && now.Size == f.Stat.Size || now.Size > f.Stat.Size
}

func modeString(mode uint32) string { return fmt.Sprintf("%04o", mode&0o7777) }

func (f *File) result(ctx context.Context, a *contract.ReadFileArgs) (*contract.ReadFileResult, *contract.Failure) {
	// One byte more than the size says, so that a small file ends in one read.
	buf := make([]byte, min(f.Size(), chunk)+1)
	n, err := io.ReadFull(f, buf)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return nil, failure(err, f.Path)
	}
	n = int(min(int64(n), f.Size()))
	head := buf[:n]
	res := &contract.ReadFileResult{Path: f.Path, Size: f.Size(), Mode: modeString(f.Stat.Mode)}
	mime, image, isText := mimeOf(head)
	res.MIME = mime
	switch {
	case a.As == "base64" || a.As != "text" && image:
		res.Kind = "binary"
		if image {
			res.Kind = "image"
		} else if isText {
			res.Kind = "text"
		}
		return res, f.base64(ctx, res, head)
	case !isText && a.As == "text":
		return nil, contract.Fail(contract.Binary, "%s is no text but %s; read it as base64", f.Path, mime)
	case !isText:
		res.Kind, res.Truncated = "binary", true
		return res, f.digest(ctx, res, head)
	}
	res.Kind = "text"
	enc, mark := encodingOf(head)
	if enc == encUTF16LE || enc == encUTF16BE {
		return res, f.wide(ctx, res, a, head)
	}
	return res, f.lines(ctx, res, a, head, mark)
}

// rest calls each with what follows head, up to the size that the file had when
// it was opened, until each says that it has enough.
func (f *File) rest(ctx context.Context, head []byte, each func([]byte) (more bool)) *contract.Failure {
	left := f.Size() - int64(len(head))
	if !each(head) || left <= 0 {
		return nil
	}
	if _, err := unix.Seek(f.FD, int64(len(head)), io.SeekStart); err != nil {
		return failure(err, f.Path)
	}
	buf := make([]byte, min(left, chunk))
	for left > 0 {
		if fail := ended(ctx); fail != nil {
			return fail
		}
		n, err := f.Read(buf[:min(left, int64(len(buf)))])
		if err == io.EOF {
			return nil // it became shorter, which steady sees
		}
		if err != nil {
			return failure(err, f.Path)
		}
		left -= int64(n)
		if !each(buf[:n]) {
			return nil
		}
	}
	return nil
}

// whole reads all of a file of at most limit bytes.
func (f *File) whole(ctx context.Context, head []byte, limit int64) ([]byte, *contract.Failure) {
	if f.Size() > limit {
		return nil, contract.Fail(contract.TooBig, "%s has %d bytes, and %d are the most", f.Path, f.Size(), limit)
	}
	out := make([]byte, 0, f.Size())
	fail := f.rest(ctx, head, func(p []byte) bool { out = append(out, p...); return true })
	return out, fail
}

func sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

func digestOf(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// digest hashes what is not too much to read.
func (f *File) digest(ctx context.Context, res *contract.ReadFileResult, head []byte) *contract.Failure {
	if f.Size() > contract.MaxWhole {
		return nil
	}
	h := sha256.New()
	fail := f.rest(ctx, head, func(p []byte) bool { h.Write(p); return true })
	res.SHA256 = sum(h)
	return fail
}

func (f *File) base64(ctx context.Context, res *contract.ReadFileResult, head []byte) *contract.Failure {
	if f.Size() > contract.MaxImage {
		res.Truncated = true
		return f.digest(ctx, res, head)
	}
	b, fail := f.whole(ctx, head, contract.MaxImage)
	if fail != nil {
		return fail
	}
	res.SHA256, res.Base64 = digestOf(b), base64.StdEncoding.EncodeToString(b)
	return nil
}

// wide reads UTF-16.
func (f *File) wide(ctx context.Context, res *contract.ReadFileResult, a *contract.ReadFileArgs, head []byte) *contract.Failure {
	raw, fail := f.whole(ctx, head, contract.MaxWhole)
	if fail != nil {
		return fail
	}
	t, fail := decodeText(raw, f.Path)
	if fail != nil {
		return fail
	}
	res.SHA256, res.Encoding, res.BOM = digestOf(raw), t.enc, t.bom
	w := newWindow(a)
	w.add(t.body)
	w.into(res, true)
	return nil
}

// lines reads everything else that is a text.
func (f *File) lines(ctx context.Context, res *contract.ReadFileResult, a *contract.ReadFileArgs, head []byte, mark int) *contract.Failure {
	h := sha256.New()
	w := newWindow(a)
	valid := validator{ok: true}
	all := f.Size() <= contract.MaxWhole
	fail := f.rest(ctx, head, func(p []byte) bool {
		h.Write(p)
		p, mark = p[min(mark, len(p)):], 0
		valid.add(p)
		w.add(p)
		return all || !w.full
	})
	if fail != nil {
		return fail
	}
	if all = all || !w.full; all {
		res.SHA256 = sum(h)
	}
	res.Encoding, res.BOM = encUTF8, bytes.HasPrefix(head, bomUTF8)
	if !valid.end(all) {
		res.Encoding, res.BOM = encLatin1, false
		w.out = fromLatin1(w.out)
	}
	w.into(res, all)
	return nil
}

// validator checks UTF-8 that comes in pieces.
type validator struct {
	ok   bool
	tail []byte // the beginning of a character
}

func (v *validator) add(p []byte) {
	if !v.ok {
		return
	}
	if len(v.tail) > 0 {
		n := min(len(p), utf8.UTFMax)
		joined := append(v.tail, p[:n]...)
		if !utf8.FullRune(joined) {
			v.tail = joined
			return
		}
		r, size := utf8.DecodeRune(joined)
		if r == utf8.RuneError && size == 1 {
			v.ok = false
			return
		}
		p = p[size-len(v.tail):]
		v.tail = nil
	}
	cut := len(p)
	for i := 1; i < utf8.UTFMax && i <= len(p); i++ {
		if c := p[len(p)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-i:]) {
				cut = len(p) - i
			}
			break
		}
	}
	v.tail = append(v.tail, p[cut:]...)
	v.ok = utf8.Valid(p[:cut])
}

// end reports whether all of it was UTF-8; whole says that nothing follows.
func (v *validator) end(whole bool) bool { return v.ok && (!whole || len(v.tail) == 0) }

// window collects the lines that were asked for from a text in pieces.
type window struct {
	from, to int64 // lines, from 1; to is the last
	line     int64 // that the next byte belongs to
	mid      bool  // a byte of that line was seen
	out      []byte
	first    int64 // of out
	last     int64
	full     bool // nothing more is collected
	cut      bool // because of the size
	more     bool // there was something behind what was collected
	nl       newlines
}

func newWindow(a *contract.ReadFileArgs) *window {
	w := &window{from: max(a.Offset, 1), line: 1}
	limit := a.Limit
	if limit == 0 {
		limit = contract.DefaultRead
	}
	if w.to = w.from + limit - 1; w.to < w.from {
		w.to = 1<<63 - 1
	}
	return w
}

func (w *window) add(p []byte) {
	if len(p) == 0 {
		return
	}
	w.nl.add(p)
	for len(p) > 0 && !w.full && w.line < w.from {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			w.mid = true
			return
		}
		w.line, w.mid, p = w.line+1, false, p[i+1:]
	}
	// The part to take is one piece: find its end, line by line.
	n, room := 0, contract.MaxInline-len(w.out)
	at := w.line
	for n < len(p) && !w.full {
		end := len(p)
		i := bytes.IndexByte(p[n:], '\n')
		if i >= 0 {
			end = n + i + 1
		}
		if end > room {
			w.full, w.cut = true, true
			end = room
		} else if i >= 0 && w.line == w.to {
			w.full = true
		}
		if end > n {
			w.last = w.line
			if w.mid = p[end-1] != '\n'; !w.mid {
				w.line++
			}
		}
		n = end
	}
	if n > 0 {
		if w.first == 0 {
			w.first = at
		}
		w.out = append(w.out, p[:n]...)
	}
	if rest := p[n:]; len(rest) > 0 {
		w.more = true
		w.line += int64(bytes.Count(rest, []byte{'\n'}))
		w.mid = rest[len(rest)-1] != '\n'
	}
}

// into finishes res. all says that the whole text went through the window.
func (w *window) into(res *contract.ReadFileResult, all bool) {
	res.Lines, res.Newline = -1, w.nl.style()
	if all {
		res.Lines = w.line - 1
		if w.mid {
			res.Lines++
		}
	}
	out := w.out
	if w.cut {
		if i := bytes.LastIndexByte(out, '\n'); i >= 0 {
			if i+1 < len(out) { // the last line is left out whole, and asked for next
				out = out[:i+1]
				w.last--
			}
			res.NextOffset = w.last + 1
		} else {
			for i := 0; i < utf8.UTFMax && len(out) > 0; i++ { // not half of a character
				if r, n := utf8.DecodeLastRune(out); r != utf8.RuneError || n != 1 {
					break
				}
				out = out[:len(out)-1]
			}
			res.CutLine, res.NextOffset = true, w.last+1
		}
	} else if w.full && (w.more || !all) {
		res.NextOffset = w.to + 1
	}
	res.Content, res.FirstLine, res.LastLine = string(out), w.first, w.last
	res.Truncated = w.more || w.full && !all
}
