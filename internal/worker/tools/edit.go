//go:build linux

package tools

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// editFile does edit_file.
func editFile(ctx context.Context, c *Call, args any) (any, *contract.Failure) {
	a := args.(*contract.EditFileArgs)
	s, fail := c.Root.original(ctx, a.Path, a.ExpectSHA256)
	if fail != nil {
		return nil, fail
	}
	defer s.close()
	t := s.text
	res := &contract.EditFileResult{Path: s.shown, Before: s.digest, OtherNames: s.otherNames()}
	first := -1
	for i := range a.Edits {
		if fail := ended(ctx); fail != nil {
			return nil, fail
		}
		body, at, n, fail := replaceText(t.body, &a.Edits[i], t.newline, s.shown, i)
		if fail != nil {
			return nil, fail
		}
		if int64(len(body)) > contract.MaxContent {
			return nil, contract.Fail(contract.TooBig, "%s would become larger than %d bytes", s.shown, contract.MaxContent)
		}
		t.body = body
		res.Replacements += n
		if first < 0 || at < first {
			first = at
		}
	}
	out, fail := t.encode(s.shown)
	if fail != nil {
		return nil, fail
	}
	if fail := s.replace(s.mode(nil), bytesSource(ctx, out, s.shown)); fail != nil {
		return nil, fail
	}
	var nl newlines
	nl.add(t.body)
	res.FirstLine = int64(1 + bytes.Count(t.body[:min(first, len(t.body))], []byte{'\n'}))
	res.Size, res.SHA256, res.Encoding, res.Newline = int64(len(out)), digestOf(out), t.enc, nl.style()
	return res, nil
}

// original is a whole text that is to be changed.
type original struct {
	*spot
	text   *text
	raw    []byte
	digest string
	free   func()
}

func (o *original) close() {
	o.spot.close()
	o.free()
}

// original opens one; expect is the digest that the caller knows, or empty.
func (r *Root) original(ctx context.Context, p, expect string) (*original, *contract.Failure) {
	s, fail := r.spot(p, false)
	if fail != nil {
		return nil, fail
	}
	if s.old == nil {
		s.close()
		return nil, contract.Fail(contract.NotFound, "%s does not exist; write_file makes a new file", s.shown)
	}
	o := &original{spot: s, free: budget.take(ctx, 5*s.old.Size())}
	if o.raw, fail = s.old.whole(ctx, nil, contract.MaxContent); fail == nil {
		o.digest = digestOf(o.raw)
		if fail = s.expect(expect, o.digest); fail == nil {
			o.text, fail = decodeText(o.raw, s.shown)
		}
	}
	if fail != nil {
		o.close()
		return nil, fail
	}
	return o, nil
}

// replaceText makes one edit. at is where the first change begins in the new
// text, n how many replacements there were.
func replaceText(body []byte, e *contract.Edit, style, shown string, which int) (out []byte, at, n int, fail *contract.Failure) {
	v := view{body: body, seen: body}
	old, repl := []byte(e.Old), []byte(e.New)
	crlf := bytes.Contains(body, []byte("\r\n"))
	if crlf && !(style == nlMixed && bytes.Contains(old, []byte("\r\n"))) {
		// A model writes \n for any line end; so do both sides here.
		v.fold()
		old = bytes.ReplaceAll(old, []byte("\r\n"), []byte("\n"))
		repl = bytes.ReplaceAll(repl, []byte("\r\n"), []byte("\n"))
		if bytes.Equal(old, repl) {
			return nil, 0, 0, contract.Fail(contract.BadArgs, "edits[%d] differs in line ends only, and the file's are kept", which)
		}
	}
	found := occurrences(v.seen, old)
	if fail := choose(&found, e, v.seen, old, shown, which); fail != nil {
		return nil, 0, 0, fail
	}
	out = make([]byte, 0, len(body)+len(found)*max(0, len(repl)-len(old)))
	done := 0
	for i, f := range found {
		from, to := v.real(f), v.real(f+len(old))
		out = append(out, body[done:from]...)
		if i == 0 {
			at = len(out)
		}
		r := repl
		if v.folded() && crlfHere(body[from:to], style) {
			r = bytes.ReplaceAll(repl, []byte("\n"), []byte("\r\n"))
		}
		out = append(out, r...)
		done = to
	}
	return append(out, body[done:]...), at, len(found), nil
}

// crlfHere says how lines of the new text end: as in the text they replace, or
// where that has one line, as in the file; in a file with both, as most do now.
func crlfHere(was []byte, style string) bool {
	if i := bytes.IndexByte(was, '\n'); i >= 0 {
		return i > 0 && was[i-1] == '\r'
	}
	return style == nlCRLF || style == nlMixed
}

// occurrences finds old from left to right; they do not overlap.
func occurrences(in, old []byte) (at []int) {
	for off := 0; ; {
		i := bytes.Index(in[off:], old)
		if i < 0 {
			return at
		}
		at = append(at, off+i)
		off += i + len(old)
	}
}

// choose reduces found to what the edit means.
func choose(found *[]int, e *contract.Edit, in, old []byte, shown string, which int) *contract.Failure {
	n := len(*found)
	switch {
	case n == 0:
		return contract.Fail(contract.NoMatch, "edits[%d].old does not occur in %s%s", which, shown, nearly(in, old))
	case e.All:
		return nil
	case e.Occurrence > n:
		return contract.Fail(contract.NoMatch, "edits[%d].old occurs %d times in %s, not %d", which, n, shown, e.Occurrence)
	case e.Occurrence > 0:
		*found = (*found)[e.Occurrence-1 : e.Occurrence]
		return nil
	case n > 1:
		return contract.Fail(contract.Ambiguous, "edits[%d].old occurs %d times in %s (lines %s); give more of the text around it, occurrence, or replace_all", which, n, shown, linesOf(in, *found))
	case bytes.Contains(in[(*found)[0]+1:], old):
		return contract.Fail(contract.Ambiguous, "edits[%d].old overlaps itself in %s (line %s); give more of the text around it", which, shown, linesOf(in, *found))
	}
	return nil
}

// linesOf names the lines of the first few places.
func linesOf(in []byte, at []int) string {
	var out []string
	line, done := 1, 0
	for i, p := range at {
		if i == 8 {
			out = append(out, "…")
			break
		}
		line += bytes.Count(in[done:p], []byte{'\n'})
		done = p
		out = append(out, fmt.Sprint(line))
	}
	return strings.Join(out, ", ")
}

// nearly helps with the usual mistake: the text is there with other spaces.
func nearly(in, old []byte) string {
	want := bytes.Join(bytes.Fields(old), []byte(" "))
	if len(want) == 0 || len(in) > 1<<20 {
		return ""
	}
	first, _, _ := bytes.Cut(bytes.TrimSpace(old), []byte("\n"))
	key := bytes.Join(bytes.Fields(first), []byte(" "))
	line := 0
	for l := range bytes.Lines(in) {
		line++
		if bytes.Equal(bytes.Join(bytes.Fields(l), []byte(" ")), key) {
			return fmt.Sprintf("; line %d is like its beginning but for spaces or what follows", line)
		}
	}
	return ""
}

// view is a text as it is searched: the body itself, or the body with each CRLF
// as LF, and where its bytes really are.
type view struct {
	body, seen []byte
	gone       []int // positions in seen at which a CR was left out, ascending
}

func (v *view) folded() bool { return v.gone != nil }

func (v *view) fold() {
	v.seen = make([]byte, 0, len(v.body))
	v.gone = []int{}
	for b := v.body; len(b) > 0; {
		i := bytes.Index(b, []byte("\r\n"))
		if i < 0 {
			v.seen = append(v.seen, b...)
			return
		}
		v.seen = append(v.seen, b[:i]...)
		v.gone = append(v.gone, len(v.seen))
		v.seen = append(v.seen, '\n')
		b = b[i+2:]
	}
}

// real is where position p of seen is in body. A CRLF is one line end: a
// position before its LF is before its CR.
func (v *view) real(p int) int {
	return p + sort.SearchInts(v.gone, p)
}
