package search

import (
	"context"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// matcher is a pattern, compiled once for all who search.
type matcher struct {
	re        *regexp.Regexp // of a line without its end, or of a whole file
	group     int            // the part of a match that the caller meant
	needles   []needle
	exact     bool     // a line matches where it has the needle
	prog      *program // nil: too large
	multiline bool
	returns   bool     // the pattern speaks of carriage returns
	after     *matcher // of a multiline one: begins behind the first character
}

// maxInsts bounds the compiled pattern, and with it the time per byte.
const maxInsts = 10000

// notWord is a character that no word has.
const notWord = `[^\pL\pM\p{Nd}\p{Pc}]`

func newMatcher(a *contract.GrepArgs) (*matcher, *contract.Failure) {
	if len(a.Pattern) > contract.MaxPattern {
		return nil, contract.Fail(contract.BadArgs, "the pattern is longer than %d bytes", contract.MaxPattern)
	}
	expr := a.Pattern
	if a.Fixed {
		expr = regexp.QuoteMeta(expr)
	}
	// By itself first: what is put around it must not complete it.
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, contract.Fail(contract.BadArgs, "the pattern is no regular expression (RE2): %v; with fixed it is taken as it is", err)
	}
	if !a.Multiline && hasNewline(re) {
		return nil, contract.Fail(contract.BadArgs, "the pattern has a line's end in it; ask with multiline")
	}
	flags := ""
	if a.IgnoreCase {
		flags += "i"
	}
	if a.Multiline {
		flags += "ms"
	}
	m := &matcher{multiline: a.Multiline, returns: strings.Contains(a.Pattern, `\r`) || strings.Contains(a.Pattern, "\r")}
	m.exact = re.Op == syntax.OpLiteral && re.Flags&syntax.FoldCase == 0 && !a.IgnoreCase && !a.Word && !a.Multiline
	for _, r := range re.Rune {
		m.exact = m.exact && r != utf8.RuneError && r != '\r'
	}
	expr = "(?" + flags + ":" + expr + ")"
	if a.Word {
		expr = "(?" + flags + ":(?:^|" + notWord + ")(" + expr + ")(?:$|" + notWord + "))"
		m.group = 1
	}
	if re, err = syntax.Parse(expr, syntax.Perl); err == nil && size(re) > maxInsts {
		return nil, contract.Fail(contract.BadArgs, "the pattern is too large; repeat less in it")
	}
	if err == nil {
		m.re, err = regexp.Compile(expr)
	}
	if err != nil {
		return nil, contract.Fail(contract.BadArgs, "the pattern is no regular expression (RE2): %v", err)
	}
	if m.multiline {
		m.after = &matcher{re: regexp.MustCompile(`\A(?s:.)(?s:.*?)(` + expr + `)`), group: m.group + 1}
	}
	m.needles = needles(re)
	m.exact = m.exact && len(m.needles) == 1
	if !m.exact && !m.multiline {
		m.prog = newProgram(re)
	}
	return m, nil
}

// hasNewline says whether a match must have a line's end in it.
func hasNewline(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpLiteral:
		return strings.ContainsRune(string(re.Rune), '\n')
	case syntax.OpCharClass:
		return len(re.Rune) == 2 && re.Rune[0] == '\n' && re.Rune[1] == '\n'
	}
	for _, s := range re.Sub {
		if hasNewline(s) {
			return true
		}
	}
	return false
}

// size estimates the instructions of re before they are made.
func size(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, s := range re.Sub {
		n += size(s)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, 1<<20)
}

// longText is from where on a search in one text can be cut off.
const longText = 32 << 10

// find returns where in text the pattern is, or nil.
func (m *matcher) find(ctx context.Context, text []byte) []int {
	if len(text) <= longText {
		if m.group == 0 {
			return m.re.FindIndex(text)
		}
		return m.loc(m.re.FindSubmatchIndex(text))
	}
	r := &runes{ctx: ctx, text: text}
	if m.group == 0 {
		return m.re.FindReaderIndex(r)
	}
	return m.loc(m.re.FindReaderSubmatchIndex(r))
}

func (m *matcher) loc(l []int) []int {
	if l == nil {
		return nil
	}
	return l[2*m.group : 2*m.group+2]
}

// runes gives out a text until ctx ends. A pattern over a long text may take
// seconds, and the library has no other way to be stopped.
type runes struct {
	ctx  context.Context
	text []byte
	n    int
}

func (r *runes) ReadRune() (rune, int, error) {
	if len(r.text) == 0 {
		return 0, 0, io.EOF
	}
	if r.n++; r.n&0xfff == 0 && r.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRune(r.text)
	r.text = r.text[size:]
	return c, size, nil
}
