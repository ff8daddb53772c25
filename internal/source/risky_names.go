package source

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// foldName makes what a file system that does not tell case and accents apart,
// or drops characters, could take a name for: HFS+ and APFS, NTFS, and folded
// folders of Linux. It goes further than any one of them: two names that may be
// the same somewhere have one fold.
func foldName(name string) string {
	if plainLower(name) {
		return name
	}
	s := name
	// On NTFS the rest is the name of a stream of the same file. Names that
	// begin so have no such file.
	if i := strings.IndexByte(s, ':'); i > 0 {
		s = s[:i]
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	s = norm.NFD.String(s)
	var b strings.Builder
	for _, r := range s {
		switch {
		case ignorable(r):
		case fullFolds[r] != "":
			b.WriteString(fullFolds[r])
		default:
			b.WriteRune(foldRune(r))
		}
	}
	folded := strings.TrimRight(b.String(), ". ")
	if folded == "" {
		return b.String()
	}
	return folded
}

// plainLower reports whether folding leaves a name as it is.
func plainLower(name string) bool {
	for i := 0; i < len(name); i++ {
		if c := name[i]; c >= 0x80 || c < 0x20 || c == ':' || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return name != "" && name[len(name)-1] != '.' && name[len(name)-1] != ' '
}

// foldRune returns one representative of all forms of a letter.
func foldRune(r rune) rune {
	if r < 0x80 {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	if 'A' <= least && least <= 'Z' { // the Kelvin sign, the long s
		least += 'a' - 'A'
	}
	return least
}

// fullFolds are letters that fold to several, of those that spell ASCII words.
var fullFolds = map[rune]string{
	'ß': "ss", 'ẞ': "ss", 'ﬀ': "ff", 'ﬁ': "fi", 'ﬂ': "fl", 'ﬃ': "ffi", 'ﬄ': "ffl", 'ﬅ': "st", 'ﬆ': "st",
}

// ignorable reports whether a character may count for nothing in a name: HFS+
// drops some, folded folders of Linux drop all that Unicode calls so.
func ignorable(r rune) bool {
	switch {
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x115f, r == 0x1160, r == 0x3164, r == 0xfeff, r == 0xffa0,
		r >= 0x17b4 && r <= 0x17b5, r >= 0x180b && r <= 0x180f, r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e,
		r >= 0x2060 && r <= 0x206f, r >= 0xfe00 && r <= 0xfe0f, r >= 0xfff0 && r <= 0xfff8, r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return false
}

// foldPath folds every component.
func foldPath(p string) []string {
	parts := strings.Split(p, "/")
	for i, c := range parts {
		parts[i] = foldName(c)
	}
	return parts
}

// riskNames finds the rule that a folded path matches. A pattern is components
// that the end of the path must have, with * inside a component for anything;
// "name/**" holds for everything below a folder of that name, at any depth.
type riskNames struct {
	last  map[string][]riskPattern // by a last component without *
	below map[string][]riskPattern // "/**": by the component before
	globs []riskPattern            // the last component has a *
	folds []riskPattern            // "/**" with a * before it
	heads []riskPattern            // every folder that a pattern leads through or names
}

type riskPattern struct {
	rule  int
	parts []string // without the "**"
}

func compileRisks(rules []riskRule) *riskNames {
	n := &riskNames{last: map[string][]riskPattern{}, below: map[string][]riskPattern{}}
	for i, r := range rules {
		for _, text := range r.names {
			dir, isDir := strings.CutSuffix(text, "/**")
			p := riskPattern{rule: i, parts: strings.Split(dir, "/")}
			for k := 1; k < len(p.parts) || isDir && k == len(p.parts); k++ {
				n.heads = append(n.heads, riskPattern{rule: i, parts: p.parts[:k]})
			}
			end := p.parts[len(p.parts)-1]
			glob := strings.Contains(end, "*")
			switch {
			case isDir && glob:
				n.folds = append(n.folds, p)
			case isDir:
				n.below[end] = append(n.below[end], p)
			case glob:
				n.globs = append(n.globs, p)
			default:
				n.last[end] = append(n.last[end], p)
			}
		}
	}
	return n
}

// find returns the index of the first rule behind after that matches, or -1.
func (n *riskNames) find(parts []string, after int) int {
	best := -1
	try := func(ps []riskPattern, parts []string) {
		for _, p := range ps {
			if p.rule > after && (best < 0 || p.rule < best) && p.ends(parts) {
				best = p.rule
			}
		}
	}
	end := parts[len(parts)-1]
	try(n.last[end], parts)
	try(n.globs, parts)
	for i := range len(parts) - 1 {
		try(n.below[parts[i]], parts[:i+1])
		try(n.folds, parts[:i+1])
	}
	return best
}

// folder returns the index of the first rule that has a folder of this path, or
// -1: a link that stands there puts every file of its target under the rule,
// whatever the target is called.
func (n *riskNames) folder(parts []string) int {
	for _, p := range n.heads { // sorted by rule
		if p.ends(parts) {
			return p.rule
		}
	}
	return -1
}

// ends reports whether parts end as the pattern says.
func (p *riskPattern) ends(parts []string) bool {
	if len(parts) < len(p.parts) {
		return false
	}
	parts = parts[len(parts)-len(p.parts):]
	for i := len(parts) - 1; i >= 0; i-- {
		if p.parts[i] == parts[i] {
			continue
		}
		if !strings.Contains(p.parts[i], "*") {
			return false
		}
		// A pattern of the table is always well formed; a test sees to it.
		if ok, err := path.Match(p.parts[i], parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// windowsNames are devices on Windows, in every folder and with any extension.
var windowsNames = []string{
	"con", "prn", "aux", "nul", "conin$", "conout$", "clock$", "com0", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8", "com9", "com¹", "com²", "com³",
	"lpt0", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9", "lpt¹", "lpt²", "lpt³",
}

// deceives says how a component of a path could be read as another one; empty:
// it is plain.
func deceives(name string) string {
	if plain := asciiPlain(name); !plain {
		if !utf8.ValidString(name) {
			return "the name is not UTF-8"
		}
		var latin, cyrillic, greek bool
		for _, r := range name {
			switch {
			case r == 0x061c, r >= 0x200e && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
				return "the name has a character that changes the direction of the text"
			case r < 0x20, r == 0x7f, r >= 0x80 && r < 0xa0, r == 0x2028, r == 0x2029:
				return "the name has a control character"
			// A joiner between letters is part of several scripts, and a
			// variation selector of emoji.
			case r == 0xfe0f:
			case ignorable(r), r == 0x2800, unicode.Is(unicode.Co, r):
				return "the name has a character that is not seen"
			case r != ' ' && unicode.IsSpace(r), r >= 0x2000 && r <= 0x200a, r == 0x202f, r == 0x205f, r == 0x3000:
				return "the name has a space that is not the space"
			case r == 0x2044, r == 0x2215, r == 0x29f8, r == 0xff0f, r == 0x2216, r == 0x29f5, r == 0x29f9, r == 0xff3c, r == 0xfe68, r == 0xff0e, r == 0x2024, r == 0xfe52, r == 0xff1a:
				return "the name has a look-alike of a slash, backslash, dot or colon"
			case unicode.Is(unicode.Latin, r):
				latin = true
			case unicode.Is(unicode.Cyrillic, r):
				cyrillic = true
			case unicode.Is(unicode.Greek, r):
				greek = true
			}
		}
		if latin && cyrillic || cyrillic && greek {
			return "the name mixes letters of two alphabets"
		}
	}
	switch {
	case name == "" || name == "." || name == "..":
		return "the name means a folder"
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		return "the name ends with a dot or a space, which some systems drop"
	case strings.HasPrefix(name, " "):
		return "the name begins with a space"
	case strings.HasPrefix(name, "-"):
		return "the name begins with a dash, so that a command may take it for an option"
	case strings.ContainsAny(name, `\:`):
		return "the name has a backslash or a colon, which lead elsewhere on Windows"
	}
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	if slices.Contains(windowsNames, strings.TrimRight(stem, " ")) {
		return "the name is a device on Windows"
	}
	return ""
}

func asciiPlain(name string) bool {
	for i := 0; i < len(name); i++ {
		if name[i] < 0x20 || name[i] >= 0x7f {
			return false
		}
	}
	return true
}
