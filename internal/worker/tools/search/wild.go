package search

import (
	"math/bits"
	"strings"
)

// A wild is a compiled glob over bytes. It is matched as a set of positions in
// its tokens, so time is at most name length times pattern length, whatever the
// pattern: both may come from a file that an agent wrote.
type wild struct {
	toks  []wildTok
	stars []int // indexes of tokens that may match nothing
	dead  bool  // malformed: matches nothing
}

type wildTok struct {
	kind wildKind
	c    byte
	set  *byteSet
}

type wildKind byte

const (
	wLit  wildKind = iota
	wAny           // one byte, no slash
	wSet           // one byte of set, no slash
	wStar          // any bytes without slash
	wAll           // any bytes
	wSkip          // nothing; the two tokens after it, wAll and a slash, may be left out
)

// byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *byteSet) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

func (w *wild) push(t wildTok) {
	if t.kind >= wStar {
		w.stars = append(w.stars, len(w.toks))
	}
	w.toks = append(w.toks, t)
}

// states is a set of positions; position i means that tokens before i matched.
type states []uint64

func (s states) has(i int) bool { return s[i>>6]&(1<<(i&63)) != 0 }
func (s states) add(i int)      { s[i>>6] |= 1 << (i & 63) }

// close adds what is reached without a byte. Tokens only lead forward.
func (w *wild) close(s states) {
	for _, i := range w.stars {
		if !s.has(i) {
			continue
		}
		s.add(i + 1)
		if w.toks[i].kind == wSkip {
			s.add(i + 3)
		}
	}
}

// run returns the positions reached after name, in one of the two buffers.
func (w *wild) run(name string, a, b states) states {
	a.add(0)
	w.close(a)
	for i := 0; i < len(name); i++ {
		c := name[i]
		clear(b)
		any := false
		for word, v := range a {
			for v != 0 {
				p := word<<6 + bits.TrailingZeros64(v)
				v &= v - 1
				if p >= len(w.toks) {
					continue
				}
				t := &w.toks[p]
				next := -1
				switch t.kind {
				case wLit:
					if c == t.c {
						next = p + 1
					}
				case wAny:
					if c != '/' {
						next = p + 1
					}
				case wSet:
					if c != '/' && t.set.has(c) {
						next = p + 1
					}
				case wStar:
					if c != '/' {
						next = p
					}
				case wAll:
					next = p
				}
				if next >= 0 {
					b.add(next)
					any = true
				}
			}
		}
		if !any {
			return nil
		}
		w.close(b)
		a, b = b, a
	}
	return a
}

// states runs w with buffers on the stack where the pattern is of usual length.
func (w *wild) states(name string) (end, alive bool) {
	if w.dead {
		return false, false
	}
	var small [8]uint64
	var a, b states
	if n := len(w.toks)>>6 + 1; n <= 4 {
		a, b = small[:n], small[4:4+n]
	} else {
		a, b = make(states, n), make(states, n)
	}
	s := w.run(name, a, b)
	return s != nil && s.has(len(w.toks)), s != nil
}

func (w *wild) match(name string) bool {
	end, _ := w.states(name)
	return end
}

// gitWild compiles a pattern of an ignore file. slashes says that the pattern is
// matched against a path, where only ** crosses a slash.
func gitWild(p string, slashes bool) *wild {
	w := &wild{}
	for i := 0; i < len(p); {
		switch c := p[i]; c {
		case '*':
			from := i
			for i < len(p) && p[i] == '*' {
				i++
			}
			// Two stars reach over slashes only as a whole component; what came
			// before the pattern's literal beginning was cut off counts as one.
			whole := i-from > 1 && (from == 0 || p[from-1] == '/') &&
				(i == len(p) || p[i] == '/' || strings.HasPrefix(p[i:], `\/`))
			switch {
			case !slashes || !whole:
				w.push(wildTok{kind: wStar})
			case i < len(p) && p[i] == '/':
				w.push(wildTok{kind: wSkip})
				w.push(wildTok{kind: wAll})
			default:
				w.push(wildTok{kind: wAll})
			}
		case '?':
			w.push(wildTok{kind: wAny})
			i++
		case '[':
			set, n := gitClass(p[i:])
			if n == 0 {
				w.dead = true
				return w
			}
			w.push(wildTok{kind: wSet, set: set})
			i += n
		case '\\':
			if i+1 == len(p) {
				w.dead = true
				return w
			}
			w.push(wildTok{kind: wLit, c: p[i+1]})
			i += 2
		default:
			w.push(wildTok{kind: wLit, c: c})
			i++
		}
	}
	return w
}

// gitClass reads a bracket expression at the start of p and returns its length,
// 0 when it has no end or names an unknown class.
func gitClass(p string) (*byteSet, int) {
	i := 1
	negated := i < len(p) && (p[i] == '!' || p[i] == '^')
	if negated {
		i++
	}
	set := &byteSet{}
	prev, ranged := byte(0), false // ranged: prev may begin a range
	for first := true; ; first = false {
		if i >= len(p) {
			return nil, 0
		}
		c := p[i]
		switch {
		case c == ']' && !first:
			if negated {
				for k := range set {
					set[k] = ^set[k]
				}
			}
			return set, i + 1
		case c == '\\':
			if i++; i >= len(p) {
				return nil, 0
			}
			set.add(p[i])
			prev, ranged = p[i], true
		case c == '-' && ranged && i+1 < len(p) && p[i+1] != ']':
			i++
			if p[i] == '\\' {
				if i++; i >= len(p) {
					return nil, 0
				}
			}
			for k := int(prev); k <= int(p[i]); k++ {
				set.add(byte(k))
			}
			ranged = false
		case c == '[' && i+1 < len(p) && p[i+1] == ':':
			end := strings.IndexByte(p[i+2:], ']')
			if end < 0 {
				return nil, 0
			}
			name := p[i+2 : i+2+end]
			if end == 0 || name[end-1] != ':' {
				set.add('[')
				prev, ranged = '[', true
				break
			}
			in := posix[name[:end-1]]
			if in == nil {
				return nil, 0
			}
			for k := 0; k < 256; k++ {
				if in(byte(k)) {
					set.add(byte(k))
				}
			}
			i += 2 + end
			ranged = false
		default:
			set.add(c)
			prev, ranged = c, true
		}
		i++
	}
}

func lower(c byte) bool { return c >= 'a' && c <= 'z' }
func upper(c byte) bool { return c >= 'A' && c <= 'Z' }
func digit(c byte) bool { return c >= '0' && c <= '9' }
func alnum(c byte) bool { return lower(c) || upper(c) || digit(c) }

// posix holds the named classes in the C locale, which git uses.
var posix = map[string]func(byte) bool{
	"alnum":  alnum,
	"alpha":  func(c byte) bool { return lower(c) || upper(c) },
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < 32 || c == 127 },
	"digit":  digit,
	"graph":  func(c byte) bool { return c > 32 && c < 127 },
	"lower":  lower,
	"print":  func(c byte) bool { return c >= 32 && c < 127 },
	"punct":  func(c byte) bool { return c > 32 && c < 127 && !alnum(c) },
	"space":  func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' },
	"upper":  upper,
	"xdigit": func(c byte) bool { return digit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' },
}
