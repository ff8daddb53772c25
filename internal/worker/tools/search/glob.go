package search

import (
	"strings"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// Glob is a compiled pattern for paths. "*" and "?" stay in one component, "**"
// as a whole component is any number of them, "[a-z]", "[!a]" and "[[:alpha:]]"
// are one byte, "{a,b}" is either, "\" takes the next byte as it is. No pattern
// makes a match take longer than the pattern's length times the path's.
type Glob struct {
	alts []*wild
	dirs bool // the pattern ends with a slash: folders
}

// Bounds of one pattern after its braces were taken apart.
const (
	maxAlternatives = 256
	maxExpanded     = 64 << 10
)

// NewGlob compiles a pattern. One without a slash matches names in every folder,
// as for rg --glob; one that begins with a slash only in the first.
func NewGlob(pattern string) (*Glob, *contract.Failure) {
	g := &Glob{}
	all, fail := braces(pattern)
	if fail != nil {
		return nil, fail
	}
	for i, p := range all {
		if strings.IndexByte(p, 0) >= 0 {
			return nil, contract.Fail(contract.BadArgs, "the pattern holds a NUL")
		}
		for strings.HasPrefix(p, "./") {
			p = p[2:]
		}
		rooted := strings.HasPrefix(p, "/")
		p, dirs := strings.CutSuffix(strings.TrimPrefix(p, "/"), "/")
		if i > 0 && dirs != g.dirs {
			return nil, contract.Fail(contract.BadArgs, "the alternatives of %q are partly of folders and partly of files; ask for them one by one", cutText(pattern, 80))
		}
		g.dirs = dirs
		if p == "" {
			return nil, contract.Fail(contract.BadArgs, "the pattern %q names nothing; ** is everything", cutText(pattern, 80))
		}
		for _, part := range strings.Split(p, "/") {
			if part == ".." {
				return nil, contract.Fail(contract.BadArgs, "the pattern leads up with ..; give the folder as path")
			}
		}
		if !rooted && !strings.Contains(p, "/") {
			p = "**/" + p
		}
		w := gitWild(p, true)
		if w.dead {
			return nil, contract.Fail(contract.BadArgs, "the pattern %q has a bracket or a backslash without its end; a backslash before [ or \\ takes it as it is", cutText(pattern, 80))
		}
		g.alts = append(g.alts, w)
	}
	return g, nil
}

// Match says whether a path below the place matches.
func (g *Glob) Match(path string) bool {
	for _, w := range g.alts {
		if w.match(path) {
			return true
		}
	}
	return false
}

// Enter says whether anything below a folder could match; path ends with a slash.
func (g *Glob) Enter(path string) bool {
	for _, w := range g.alts {
		if _, alive := w.states(path); alive {
			return true
		}
	}
	return false
}

// braces returns what a pattern with {a,b} stands for.
func braces(p string) ([]string, *contract.Failure) {
	done, todo, size := []string{}, []string{p}, 0
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		from, to, cuts := firstBrace(p)
		if from < 0 {
			done, size = append(done, p), size+len(p)
		} else {
			if to < 0 {
				return nil, contract.Fail(contract.BadArgs, "the pattern has { without }; \\{ takes it as it is")
			}
			for i := len(cuts) - 1; i > 0; i-- {
				alt := p[:from] + p[cuts[i-1]+1:cuts[i]] + p[to+1:]
				todo, size = append(todo, alt), size+len(alt)
			}
		}
		if len(done)+len(todo) > maxAlternatives || size > maxExpanded {
			return nil, contract.Fail(contract.BadArgs, "the braces stand for more than %d patterns; ask for less at a time", maxAlternatives)
		}
	}
	return done, nil
}

// firstBrace finds the first brace, its end and the bounds of its alternatives.
func firstBrace(p string) (from, to int, cuts []int) {
	from, to = -1, -1
	depth := 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '[':
			// A bracket's inside is taken as it is.
			if _, n := gitClass(p[i:]); n > 0 {
				i += n - 1
			}
		case '{':
			if depth++; depth == 1 {
				from, cuts = i, []int{i}
			}
		case ',':
			if depth == 1 {
				cuts = append(cuts, i)
			}
		case '}':
			if depth == 0 {
				continue
			}
			if depth--; depth == 0 {
				return from, i, append(cuts, i)
			}
		}
	}
	return from, to, cuts
}

// cutText shortens what a message quotes.
func cutText(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
