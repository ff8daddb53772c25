package search

import "strings"

// An ignoreFile is one parsed file of ignore rules. Paths are matched relative
// to the folder that it is in.
type ignoreFile struct {
	rules []ignoreRule
}

type ignoreRule struct {
	negated bool
	dirOnly bool
	// base: the pattern has no slash and is matched against the last component.
	base bool
	// The pattern is lit followed by what rest matches, or, with suffix, anything
	// followed by lit.
	lit    string
	suffix bool
	rest   *wild // nil: nothing
}

// maxIgnore bounds one file of rules; what is beyond is not read.
const maxIgnore = 256 << 10

// maxRule bounds one rule; a longer one counts as matching nothing, as no path is
// that long.
const maxRule = 4096

// parseIgnore reads rules as git does: a line is one rule, '#' and empty lines are
// none, '!' takes back, trailing spaces do not count unless escaped.
func parseIgnore(text string) *ignoreFile {
	f := &ignoreFile{}
	text = strings.TrimPrefix(text, "\xef\xbb\xbf")
	for len(text) > 0 {
		line, rest, _ := strings.Cut(text, "\n")
		text = rest
		line = strings.TrimSuffix(line, "\r")
		if line == "" || line[0] == '#' {
			continue
		}
		if i := strings.IndexByte(line, 0); i >= 0 {
			line = line[:i]
		}
		if r, ok := parseRule(trimSpaces(line)); ok {
			f.rules = append(f.rules, r)
		}
	}
	return f
}

// trimSpaces takes trailing spaces off, except one that is escaped.
func trimSpaces(s string) string {
	end := len(s)
	for end > 0 && s[end-1] == ' ' {
		end--
	}
	// An odd number of backslashes before the first of them escapes it.
	n := 0
	for n < end && s[end-1-n] == '\\' {
		n++
	}
	if n%2 == 1 && end < len(s) {
		end++
	}
	return s[:end]
}

func special(c byte) bool { return c == '*' || c == '?' || c == '[' || c == '\\' }

func parseRule(p string) (r ignoreRule, ok bool) {
	if p, r.negated = strings.CutPrefix(p, "!"); p == "" || len(p) > maxRule {
		return r, false
	}
	if p, r.dirOnly = strings.CutSuffix(p, "/"); p == "" {
		return r, false
	}
	r.base = !strings.Contains(p, "/")
	if !r.base {
		p = strings.TrimPrefix(p, "/")
	}
	n := 0
	for n < len(p) && !special(p[n]) {
		n++
	}
	switch {
	case n == len(p):
		r.lit = p
	case r.base && p[0] == '*' && strings.IndexFunc(p[1:], func(c rune) bool { return c < 128 && special(byte(c)) }) < 0:
		r.lit, r.suffix = p[1:], true
	case r.base:
		r.rest = gitWild(p, false)
	default:
		r.lit, r.rest = p[:n], gitWild(p[n:], true)
	}
	return r, true
}

// verdict is what rules say of a path.
type verdict int8

const (
	unmatched verdict = iota
	ignored
	included // a later rule took it back
)

// match asks for one path below the file's folder; base is its last component.
// The parents of path were asked before and are not ignored.
func (f *ignoreFile) match(path, base string, dir bool) verdict {
	for i := len(f.rules) - 1; i >= 0; i-- {
		if r := &f.rules[i]; (dir || !r.dirOnly) && r.match(path, base) {
			if r.negated {
				return included
			}
			return ignored
		}
	}
	return unmatched
}

func (r *ignoreRule) match(path, base string) bool {
	name := path
	if r.base {
		name = base
	}
	if r.suffix {
		return strings.HasSuffix(name, r.lit)
	}
	if len(name) < len(r.lit) || name[:len(r.lit)] != r.lit {
		return false
	}
	if r.rest == nil {
		return len(name) == len(r.lit)
	}
	return r.rest.match(name[len(r.lit):])
}

// Kinds of files of rules, the strongest first: a rule of a stronger kind counts
// before one of a weaker kind, wherever both are.
const (
	rgRules  = iota // .rgignore
	anyRules        // .ignore
	gitRules        // .gitignore
	gitInfo         // .git/info/exclude
	ruleKinds
)

var ruleNames = [...]string{rgRules: ".rgignore", anyRules: ".ignore", gitRules: ".gitignore"}

// A ruleChain is the rules that hold in one folder: its own and those of the
// folders above it. It is never changed once made.
type ruleChain struct {
	up    *ruleChain
	base  string // the folder relative to the search's root with a slash at its end; "" for the root
	files [ruleKinds]*ignoreFile
	repo  bool // a repository begins here: git's rules from above do not hold
}

// verdict asks the nearest rule of the strongest kind. path is relative to the
// search's root.
func (c *ruleChain) verdict(path string, dir bool) verdict {
	base := path[strings.LastIndexByte(path, '/')+1:]
	for kind := range ruleKinds {
		for n := c; n != nil; n = n.up {
			if f := n.files[kind]; f != nil {
				if v := f.match(path[len(n.base):], base, dir); v != unmatched {
					return v
				}
			}
			if n.repo && kind >= gitRules {
				break
			}
		}
	}
	return unmatched
}
