package detect

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/task"
)

// Tree is the files of a repository at one commit, or of a folder.
type Tree interface {
	// Each calls f for every file with its path from the top, "/" between the
	// parts, and git's mode (0100644, 0100755, 0120000 a link, 0160000 a
	// submodule), until f returns false. Names can have any bytes but NUL.
	Each(ctx context.Context, f func(path string, mode uint32) bool) error
	// Read calls f for those of the named files that exist, in any order. A file
	// of more than limit bytes has a nil content. A link is its target's name.
	Read(ctx context.Context, paths []string, limit int64, f func(path string, size int64, content []byte)) error
}

// Note says that something was not looked at, and why. It is no fact: the
// characteristics that it concerns have one of their own with the value unknown.
type Note struct {
	Path string // quoted where it has unusual characters; empty: the whole scan
	Text string
}

const (
	maxPaths   = 1_000_000
	maxFile    = 256 << 10 // bytes of one file that is read
	maxYAML    = 128 << 10 // of one in YAML, whose parser is slow
	maxFiles   = 400
	maxWanted  = 20_000  // files that would be read, of which maxFiles are
	maxBytes   = 4 << 20 // of all files
	maxPerRule = 5       // facts of one rule with the same value
)

// Scan looks at the files of a tree and says what they would need if they were
// used: a script that stands there may never run. A fact about the command that
// was given has a rule CMD-nn instead. Facts come in the order of their rules, and
// for each in the order of the tree. A file that cannot be understood is a fact with the value unknown, or
// a note; an error is one of the tree or of the context.
func Scan(ctx context.Context, tree Tree) ([]task.Fact, []Note, error) {
	s := &scan{seen: map[string]int{}, folders: map[string]bool{}}
	n := 0
	err := tree.Each(ctx, func(p string, mode uint32) bool {
		if n++; n > maxPaths {
			return false
		}
		s.name(p, mode)
		return true
	})
	if err != nil {
		return nil, nil, err
	}
	if n > maxPaths {
		s.note("", "more than %d files; the rest was not looked at", maxPaths)
		s.unknown("GEN-01", "", 0)
	}
	slices.SortStableFunc(s.wants, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(strings.Count(a.path, "/"), strings.Count(b.path, "/")), cmp.Compare(a.path, b.path))
	})
	if len(s.wants) > maxFiles {
		s.note("", "%d of %d files that tell something were read", maxFiles, len(s.wants)+s.over)
		s.unknown("GEN-01", "", 0)
		s.wants = s.wants[:maxFiles]
	}
	got := map[string]*file{}
	var total int64
	paths := make([]string, len(s.wants))
	for i, w := range s.wants {
		paths[i] = w.path
	}
	if len(paths) > 0 {
		err = tree.Read(ctx, paths, maxFile, func(p string, size int64, content []byte) {
			f := &file{path: p, size: size, b: content}
			if total += int64(len(content)); total > maxBytes {
				f.b = nil
			}
			got[p] = f
		})
		if err != nil {
			return nil, nil, err
		}
	}
	s.read = got
	for _, w := range s.wants {
		if err := ctx.Err(); err != nil {
			return nil, nil, context.Cause(ctx)
		}
		s.file(w, got[w.path])
	}
	for k, n := range s.seen {
		if n > maxPerRule {
			s.notes = append(s.notes, Note{Text: fmt.Sprintf("%s: %d more places", k, n-maxPerRule)})
		}
	}
	slices.SortStableFunc(s.facts, func(a, b task.Fact) int {
		return cmp.Compare(a.Rule, b.Rule)
	})
	slices.SortStableFunc(s.notes, func(a, b Note) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Text, b.Text)) })
	return slices.Compact(s.facts), slices.Compact(s.notes), nil
}

// scan collects what is found.
type scan struct {
	facts   []task.Fact
	notes   []Note
	seen    map[string]int  // by rule and value
	folders map[string]bool // rule and folder, of the rules that name a folder once
	wants   []want
	over    int // more of them
	read    map[string]*file
	last    folder
	quiet   bool // the file's scripts run elsewhere: that they run code says nothing
}

// file is one file that was read.
type file struct {
	path string
	size int64
	b    []byte // nil: too large
}

// want is a file to read. A smaller rank is read first.
type want struct {
	rank int
	path string
	rule string // whose characteristic is unknown when the file cannot be read
	look func(*scan, *file)
}

// file looks into one file.
func (s *scan) file(w want, f *file) {
	switch {
	case f == nil:
		s.note(w.path, "is not in the tree's objects")
	case f.b == nil:
		s.note(w.path, "is too large to be read (%d bytes)", f.size)
	case bytes.IndexByte(f.b, 0) >= 0 || !utf8.Valid(f.b):
		s.note(w.path, "is no text in UTF-8")
	default:
		s.quiet = w.rule == "SVC-02"
		w.look(s, f)
		s.quiet = false
		return
	}
	s.unknown(w.rule, w.path, 0)
}

// found adds a fact. line 0 is the file as a whole; subject is a name, never a
// value of a secret.
func (s *scan) found(rule, value, subject, p string, line int, sure task.Confidence) {
	d := detectorOf(rule)
	if d == nil {
		panic("detect: no rule " + rule)
	}
	key := rule + " " + value
	if s.seen[key]++; s.seen[key] > maxPerRule {
		return
	}
	if sample(p) && sure != task.Guess {
		sure = task.Guess
	}
	at := task.QuotePath(p)
	if line > 0 {
		at += ":" + strconv.Itoa(line)
	}
	s.facts = append(s.facts, task.Fact{What: d.What, Value: value, Subject: quoteName(subject), Source: task.SourceDetector, Rule: rule, Evidence: at, Confidence: sure})
}

// unknown says that nobody could tell.
func (s *scan) unknown(rule, p string, line int) {
	if p == "" {
		p = "."
	}
	s.found(rule, task.Unknown, "", p, line, task.Guess)
}

// once reports whether a rule meets a folder for the first time.
func (s *scan) once(rule, folder string) bool {
	k := rule + " " + folder
	if s.folders[k] {
		return false
	}
	s.folders[k] = true
	return true
}

func (s *scan) note(p, format string, args ...any) {
	if len(s.notes) < 200 {
		if p != "" {
			p = task.QuotePath(p)
		}
		s.notes = append(s.notes, Note{Path: p, Text: fmt.Sprintf(format, args...)})
	}
}

// want asks for a file's content.
func (s *scan) want(rank int, p, rule string, look func(*scan, *file)) {
	if sample(p) {
		rank += 10
	}
	if len(s.wants) >= maxWanted {
		s.over++
		return
	}
	s.wants = append(s.wants, want{rank, p, rule, look})
}

// effects turns what a script of a file does into facts.
func (s *scan) effects(a *analyser, subject, p string, line int) {
	seen := effUnknown // a repository is full of those
	if s.quiet {
		seen |= effRepo | effOpaque
	}
	for i, e := range a.effects {
		at := line
		if l := a.lines(i); l > 0 {
			at = line + l - 1
		}
		for _, f := range (e &^ seen).facts("SCR-", "", "") {
			s.found(f.Rule, f.Value, subject, p, at, f.Confidence)
		}
		seen |= e
	}
}

// script analyses a script that stands in a file.
func (s *scan) script(text, subject, p string, line int) {
	if strings.TrimSpace(text) == "" {
		return
	}
	a := &analyser{}
	a.script(text)
	s.effects(a, subject, p, line)
}

// vendored reports whether a path belongs to others' code that was checked in.
func vendored(p string) bool {
	return hasFolder(p, "node_modules") || hasFolder(p, "vendor") || hasFolder(p, "third_party") || hasFolder(p, "site-packages") || hasFolder(p, ".yarn") || hasFolder(p, "bower_components")
}

// sample reports whether a path is probably an example or a test's input: what
// is there is a guess.
func sample(p string) bool {
	for _, d := range []string{"testdata", "fixtures", "__fixtures__", "examples", "example", "samples", "templates", "docs", "doc"} {
		if hasFolder(p, d) {
			return true
		}
	}
	return vendored(p)
}

// hasFolder reports whether a folder of that name is on the way to a file.
func hasFolder(p, name string) bool {
	for from := 0; ; {
		i := strings.Index(p[from:], name)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(name)
		if (i == 0 || p[i-1] == '/') && end < len(p) && p[end] == '/' {
			return true
		}
		from = end
	}
}

// folderOf returns the path down to the first folder of that name.
func folderOf(p, name string) string {
	parts := strings.Split(p, "/")
	for i, d := range parts[:len(parts)-1] {
		if strings.EqualFold(d, name) {
			return strings.Join(parts[:i+1], "/")
		}
	}
	return path.Dir(p)
}

// quoteName is task.QuotePath for a subject, which may be empty, and bounded.
func quoteName(s string) string {
	if s == "" {
		return ""
	}
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return task.QuotePath(s)
}
