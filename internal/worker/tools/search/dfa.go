package search

import (
	"encoding/binary"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// A program says which lines may match a pattern, for a scan without a look at
// single lines. It may say yes too often, never no where the pattern matches:
// what is hard to tell from bytes (the end of a line, word boundaries, which
// character beyond ASCII it is) counts as matching. What it lets through is
// asked again of the pattern itself.
type program struct {
	insts   []inst
	start   int32
	class   [256]byte // bytes that no instruction tells apart have one class
	classes int
	of      []byte // one byte of each class
}

type inst struct {
	op   instOp
	set  byteSet
	out  int32
	out2 int32
}

type instOp byte

const (
	iSet   instOp = iota // one byte of set
	iSplit               // out and out2
	iBegin               // at the beginning of a line
	iMatch
)

// maxProgram bounds instructions, and with them the time for one step.
const maxProgram = 2000

// newProgram returns nil where the pattern is too large.
func newProgram(re *syntax.Regexp) *program {
	p := &program{}
	end := p.add(inst{op: iMatch})
	p.start = p.compile(re, end)
	if p.start < 0 {
		return nil
	}
	p.split()
	return p
}

func (p *program) add(i inst) int32 {
	if len(p.insts) >= maxProgram {
		return -1
	}
	p.insts = append(p.insts, i)
	return int32(len(p.insts) - 1)
}

// compile returns where re begins when next follows it; -1: too large.
func (p *program) compile(re *syntax.Regexp, next int32) int32 {
	if next < 0 {
		return -1
	}
	switch re.Op {
	case syntax.OpNoMatch:
		return p.add(inst{op: iSet}) // a byte of no set
	case syntax.OpLiteral:
		for i := len(re.Rune) - 1; i >= 0; i-- {
			next = p.literal(re.Rune[i], re.Flags&syntax.FoldCase != 0, next)
		}
		return next
	case syntax.OpCharClass:
		var set byteSet
		high := false
		for i := 0; i < len(re.Rune); i += 2 {
			for c := re.Rune[i]; c <= min(re.Rune[i+1], utf8.RuneSelf-1); c++ {
				set.add(byte(c))
			}
			high = high || re.Rune[i+1] >= utf8.RuneSelf
		}
		return p.char(set, high, next)
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		var set byteSet
		for c := range utf8.RuneSelf {
			set.add(byte(c))
		}
		return p.char(set, true, next)
	case syntax.OpBeginLine, syntax.OpBeginText:
		return p.add(inst{op: iBegin, out: next})
	case syntax.OpCapture:
		return p.compile(re.Sub[0], next)
	case syntax.OpStar, syntax.OpPlus:
		loop := p.add(inst{op: iSplit, out2: next})
		if loop < 0 {
			return -1
		}
		body := p.compile(re.Sub[0], loop)
		if body < 0 {
			return -1
		}
		if p.insts[loop].out = body; re.Op == syntax.OpPlus {
			return body
		}
		return loop
	case syntax.OpQuest:
		body := p.compile(re.Sub[0], next)
		if body < 0 {
			return -1
		}
		return p.add(inst{op: iSplit, out: body, out2: next})
	case syntax.OpRepeat:
		if re.Max < 0 {
			next = p.compile(&syntax.Regexp{Op: syntax.OpStar, Sub: re.Sub}, next)
		}
		for n := re.Max; n > re.Min && next >= 0; n-- {
			next = p.compile(&syntax.Regexp{Op: syntax.OpQuest, Sub: re.Sub}, next)
		}
		for n := re.Min; n > 0 && next >= 0; n-- {
			next = p.compile(re.Sub[0], next)
		}
		return next
	case syntax.OpConcat:
		for i := len(re.Sub) - 1; i >= 0; i-- {
			next = p.compile(re.Sub[i], next)
		}
		return next
	case syntax.OpAlternate:
		to := p.compile(re.Sub[len(re.Sub)-1], next)
		for i := len(re.Sub) - 2; i >= 0 && to >= 0; i-- {
			from := p.compile(re.Sub[i], next)
			if from < 0 {
				return -1
			}
			to = p.add(inst{op: iSplit, out: from, out2: to})
		}
		return to
	}
	return next // empty, or an assertion that counts as true
}

func (p *program) literal(r rune, fold bool, next int32) int32 {
	if !fold && r != utf8.RuneError && utf8.ValidRune(r) {
		b := utf8.AppendRune(nil, r)
		for i := len(b) - 1; i >= 0 && next >= 0; i-- {
			var set byteSet
			set.add(b[i])
			next = p.add(inst{op: iSet, set: set, out: next})
		}
		return next
	}
	var set byteSet
	high := false
	for f := r; ; {
		if f < utf8.RuneSelf {
			set.add(byte(f))
		} else {
			high = true
		}
		if f = unicode.SimpleFold(f); f == r || !fold {
			return p.char(set, high, next)
		}
	}
}

// char is one character: a byte of set or, with high, bytes beyond ASCII.
func (p *program) char(set byteSet, high bool, next int32) int32 {
	set[0] &^= 1 << '\n' // a line has none
	low := p.add(inst{op: iSet, set: set, out: next})
	if !high || low < 0 {
		return low
	}
	// One or more of them: a character of several, or stray ones that count as one each.
	again := p.add(inst{op: iSplit, out2: next})
	more := p.add(inst{op: iSet, set: byteSet{2: ^uint64(0), 3: ^uint64(0)}, out: again})
	if again < 0 || more < 0 {
		return -1
	}
	p.insts[again].out = more
	return p.add(inst{op: iSplit, out: low, out2: more})
}

// split gives the bytes their classes.
func (p *program) split() {
	seen := map[string]byte{}
	var key []byte
	for c := range 256 {
		key = key[:0]
		var bit byte
		n := 0
		for i := range p.insts {
			if p.insts[i].op != iSet {
				continue
			}
			if bit <<= 1; p.insts[i].set.has(byte(c)) {
				bit |= 1
			}
			if n++; n%8 == 0 {
				key, bit = append(key, bit), 0
			}
		}
		if key = append(key, bit); c == '\n' {
			key = append(key, '\n') // for itself: it begins a line
		}
		k, ok := seen[string(key)]
		if !ok {
			k = byte(len(seen))
			seen[string(key)] = k
			p.of = append(p.of, byte(c))
		}
		p.class[c] = k
	}
	p.classes = len(p.of)
}

// A scanner runs a program as a deterministic automaton, which it makes as it
// goes. It belongs to one goroutine.
type scanner struct {
	p     *program
	next  []int32          // state times classes; 0: not yet known, negative: a state that matches
	sets  [][]int32        // of each state: the instructions that it waits at
	ids   map[string]int32 // of each set
	line  int32            // the state at the beginning of a line
	full  int              // how often the states had to be thrown away
	mark  []uint32
	round uint32
	work  []int32
	stack []int32
	key   []byte
}

// maxStates bounds memory: with 256 classes, 1 MiB.
const maxStates = 1 << 10

func newScanner(p *program) *scanner {
	s := &scanner{p: p, mark: make([]uint32, len(p.insts))}
	s.clear()
	return s
}

func (s *scanner) clear() {
	s.next, s.sets, s.ids = make([]int32, s.p.classes), [][]int32{nil}, map[string]int32{} // state 0 is none
	s.round++
	s.work = s.work[:0]
	s.follow(s.p.start, true)
	s.line = s.state()
}

// follow adds what is reached from i without a byte.
func (s *scanner) follow(i int32, begin bool) {
	s.stack = append(s.stack[:0], i)
	for len(s.stack) > 0 {
		i := s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		if s.mark[i] == s.round {
			continue
		}
		s.mark[i] = s.round
		switch in := &s.p.insts[i]; in.op {
		case iSplit:
			s.stack = append(s.stack, in.out2, in.out)
		case iBegin:
			if begin {
				s.stack = append(s.stack, in.out)
			}
		default:
			s.work = append(s.work, i)
		}
	}
}

// state returns the state for the set in work, negative where it matches.
func (s *scanner) state() int32 {
	slices.Sort(s.work)
	s.key = s.key[:0]
	match := false
	for _, i := range s.work {
		s.key = binary.AppendVarint(s.key, int64(i))
		match = match || s.p.insts[i].op == iMatch
	}
	id, ok := s.ids[string(s.key)]
	if !ok {
		id = int32(len(s.sets))
		s.ids[string(s.key)] = id
		s.sets = append(s.sets, slices.Clone(s.work))
		s.next = append(s.next, make([]int32, s.p.classes)...)
	}
	if match {
		return -id
	}
	return id
}

// step computes one transition.
func (s *scanner) step(from int32, class byte) int32 {
	c := s.p.of[class]
	to := s.line
	if c != '\n' {
		s.round++
		s.work = s.work[:0]
		for _, i := range s.sets[from] {
			if in := &s.p.insts[i]; in.op == iSet && in.set.has(c) {
				s.follow(in.out, false)
			}
		}
		s.follow(s.p.start, false) // a match may begin anywhere
		to = s.state()
	}
	s.next[int(from)*s.p.classes+int(class)] = to
	return to
}

// find returns where in text, which begins with a line, a line may match: a
// position in it or behind its last byte; -1: none does. from begins a line.
func (s *scanner) find(text []byte, from int) int {
	state := s.line
	if state < 0 {
		return from // the empty text matches
	}
	classes := s.p.classes
	for i := from; i < len(text); i++ {
		to := s.next[int(state)*classes+int(s.p.class[text[i]])]
		if to <= 0 {
			if to == 0 {
				if len(s.sets) > maxStates {
					// Too many: forget them all. What the line had so far is lost with
					// them, so it counts as one that may match.
					s.clear()
					s.full++
					return i
				}
				to = s.step(state, s.p.class[text[i]])
			}
			if to < 0 {
				return i
			}
		}
		state = to
	}
	return -1
}
