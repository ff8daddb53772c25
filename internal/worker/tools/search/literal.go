package search

import (
	"bytes"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// needle is bytes of which one must be in whatever matches.
type needle struct {
	text []byte
	fold bool // text is lower case; ASCII letters match in either case
}

// maxNeedles is how many of them are looked for at a time.
const maxNeedles = 8

// needles returns texts of which each match of re contains at least one; nil:
// none is known.
func needles(re *syntax.Regexp) []needle {
	switch re.Op {
	case syntax.OpLiteral:
		return literalNeedle(re.Rune, re.Flags&syntax.FoldCase != 0)
	case syntax.OpCharClass:
		// A class of few bytes is as good as a text of length one.
		var out []needle
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i+1] >= utf8.RuneSelf || int(re.Rune[i+1]-re.Rune[i])+len(out) >= 3 {
				return nil
			}
			for c := re.Rune[i]; c <= re.Rune[i+1]; c++ {
				out = append(out, needle{text: []byte{byte(c)}})
			}
		}
		return out
	case syntax.OpCapture, syntax.OpPlus:
		return needles(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min >= 1 {
			return needles(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []needle
		for _, s := range re.Sub {
			if n := needles(s); worth(n) > worth(best) {
				best = n
			}
		}
		return best
	case syntax.OpAlternate:
		var all []needle
		for _, s := range re.Sub {
			n := needles(s)
			if n == nil || len(all)+len(n) > maxNeedles {
				return nil
			}
			all = append(all, n...)
		}
		return all
	}
	return nil
}

// worth compares sets: the longer the shortest text and the fewer, the better.
func worth(n []needle) int {
	if len(n) == 0 {
		return 0
	}
	short := len(n[0].text)
	for _, x := range n {
		short = min(short, len(x.text))
	}
	return min(short, 16)*2*maxNeedles - len(n) + 1
}

// literalNeedle is what a literal has for sure. In a folded one, letters that
// have a third form somewhere in Unicode (k, s, and all beyond ASCII) split it;
// so does U+FFFD, which also stands for bytes that are no UTF-8.
func literalNeedle(runes []rune, fold bool) []needle {
	var best, now []byte
	end := func() {
		if len(now) > len(best) {
			best = slices.Clone(now)
		}
		now = now[:0]
	}
	for _, r := range runes {
		switch {
		case r == utf8.RuneError || !utf8.ValidRune(r):
			end()
		case !fold:
			now = utf8.AppendRune(now, r)
		case r >= utf8.RuneSelf || !asciiFold(r):
			end()
		default:
			now = append(now, byte(unicode.ToLower(r)))
		}
	}
	if end(); len(best) == 0 {
		return nil
	}
	if fold && bytes.IndexFunc(best, unicode.IsLetter) < 0 {
		fold = false
	}
	return []needle{{text: best, fold: fold}}
}

// asciiFold says whether all forms of r are ASCII.
func asciiFold(r rune) bool {
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if f >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// finder looks for several needles at a time. It belongs to one goroutine.
type finder struct {
	needles []seeker
}

// seeker looks for one needle by its rarest byte.
type seeker struct {
	needle
	rare   int  // position of that byte
	a, b   byte // its forms
	nextA  int  // where each form is next, len of the text: nowhere
	nextB  int
	found  int // where the needle is next; -1: not yet looked for
	misses int
}

func newFinder(n []needle) *finder {
	f := &finder{}
	for _, x := range n {
		s := seeker{needle: x}
		for i, c := range x.text {
			if frequency(c) < frequency(x.text[s.rare]) {
				s.rare = i
			}
		}
		s.a = x.text[s.rare]
		s.b = s.a
		if x.fold && lower(s.a) {
			s.b = s.a - 'a' + 'A'
		}
		f.needles = append(f.needles, s)
	}
	return f
}

// frequency ranks bytes by how often text and code have them.
func frequency(c byte) int {
	const common = " etaoinsrlcdupmfh_g.byv,x()=\"wk-01:;/2T'SE{}\t\n"
	if i := bytes.IndexByte([]byte(common), c); i >= 0 {
		return 100 - i
	}
	return 0
}

// reset begins with a new text.
func (f *finder) reset() {
	for i := range f.needles {
		s := &f.needles[i]
		s.found, s.nextA, s.nextB, s.misses = -1, -1, -1, 0
	}
}

// next returns where in text, from a position on that never falls between
// resets, the first needle begins; -1: none does.
func (f *finder) next(text []byte, from int) int {
	at := len(text)
	for i := range f.needles {
		s := &f.needles[i]
		if s.found < from {
			s.found = s.seek(text, from)
		}
		at = min(at, s.found)
	}
	if at == len(text) {
		return -1
	}
	return at
}

// seek returns the position of the needle, len(text) for none.
func (s *seeker) seek(text []byte, from int) int {
	if !s.fold && (s.misses > 64 || len(s.text) == 1) {
		// A byte that is not rare here: the library's search does not depend on one.
		if i := bytes.Index(text[from:], s.text); i >= 0 {
			return from + i
		}
		return len(text)
	}
	for p := from + s.rare; ; p++ {
		if p >= len(text) {
			return len(text)
		}
		if s.nextA < p {
			s.nextA = indexFrom(text, p, s.a)
		}
		at := s.nextA
		if s.a != s.b {
			if s.nextB < p {
				s.nextB = indexFrom(text, p, s.b)
			}
			at = min(at, s.nextB)
		}
		if at == len(text) {
			return at
		}
		p = at
		begin := p - s.rare
		if begin+len(s.text) <= len(text) && s.equal(text[begin:begin+len(s.text)]) {
			return begin
		}
		if s.misses++; !s.fold && s.misses > 64 {
			return s.seek(text, begin+1)
		}
	}
}

func indexFrom(text []byte, from int, c byte) int {
	if i := bytes.IndexByte(text[from:], c); i >= 0 {
		return from + i
	}
	return len(text)
}

func (s *seeker) equal(b []byte) bool {
	if !s.fold {
		return bytes.Equal(b, s.text)
	}
	for i, c := range b {
		if upper(c) {
			c += 'a' - 'A'
		}
		if c != s.text[i] {
			return false
		}
	}
	return true
}
