package search

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// A file of rules is an agent's; reading and asking it neither fails nor takes
// long, and a path is never judged by rules that say nothing of it.
func FuzzIgnore(f *testing.F) {
	f.Add("*.o\n!a.o\n/b/\n**/c/**\nd\\ \n[a-z]*[!x]\n[[:alpha:]]\n", "a/b/c.o")
	f.Add("\xef\xbb\xbf#x\r\n!\n/\n//\n[\n\\\n***\n", "x")
	f.Add(strings.Repeat("*a", 40)+"b", strings.Repeat("a", 200))
	f.Fuzz(func(t *testing.T, text, path string) {
		path = strings.Trim(path, "/")
		if path == "" || len(path) > 255 || len(text) > 1<<12 {
			return
		}
		rules := parseIgnore(text)
		base := path[strings.LastIndexByte(path, '/')+1:]
		file, dir := rules.match(path, base, false), rules.match(path, base, true)
		if len(rules.rules) == 0 && (file != unmatched || dir != unmatched) {
			t.Errorf("no rule, yet %v %v", file, dir)
		}
		// The same rules once more after themselves change nothing.
		twice := &ignoreFile{rules: append(rules.rules[:len(rules.rules):len(rules.rules)], rules.rules...)}
		if twice.match(path, base, true) != dir {
			t.Error("the rules twice say something else")
		}
	})
}

// A pattern compiles or is refused; a match implies that its folders are entered.
func FuzzGlobPattern(f *testing.F) {
	for _, p := range []string{"**/*.go", "{a,b{c,d}}/[!x]*", "a\\{b", "[]a-]", "{", "{,}{,}{,}", "/**/", strings.Repeat("*a", 60)} {
		f.Add(p, "a/b/c.go")
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		if len(pattern) > 1<<12 || len(path) > 4096 {
			return
		}
		g, fail := NewGlob(pattern)
		if fail != nil {
			if fail.Code != contract.BadArgs {
				t.Error(fail)
			}
			return
		}
		if g.Match(path) {
			for i := range len(path) {
				if path[i] == '/' && !g.Enter(path[:i+1]) {
					t.Errorf("%q matches %q, yet %q is not entered", pattern, path, path[:i+1])
				}
			}
		}
	})
}

// What is found with all the short ways is what the pattern finds line by line.
func FuzzGrep(f *testing.F) {
	f.Add("foo", false, false, false, []byte("a foo\r\nFoo\n\nfoo"))
	f.Add(`(?i)k\w+|^$`, true, false, false, []byte("\xe2\x84\xaaelvin\n\xff\nx"))
	f.Add("a+b", false, true, true, []byte("a+b\na+bc\n"))
	f.Add(`^(a|b{2,3})\b.$`, true, false, true, []byte("bb!\nbbb\xc3\xa9\n"))
	f.Fuzz(func(t *testing.T, pattern string, fold, fixed, word bool, text []byte) {
		if len(pattern) > 200 || len(text) > 1<<16 || bytes.IndexByte(text, 0) >= 0 || utf16Mark(text) != "" {
			return
		}
		a := contract.GrepArgs{Pattern: pattern, IgnoreCase: fold, Fixed: fixed, Word: word}
		m, fail := newMatcher(&a)
		if fail != nil {
			return
		}
		var want []int
		body := bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		for i, l := range bytes.Split(body, newline) {
			if i == bytes.Count(body, newline) && len(l) == 0 {
				break
			}
			if m.loc(m.re.FindSubmatchIndex(bytes.TrimSuffix(l, []byte("\r")))) != nil {
				want = append(want, i+1)
			}
		}
		name := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		a.Limit = contract.GrepMax
		r, err := GrepFile(context.Background(), fd, "f", &a)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, file := range r.Files {
			for _, l := range file.Lines {
				got = append(got, l.Number)
				if !utf8.ValidString(l.Text) {
					t.Errorf("line %d is no UTF-8", l.Number)
				}
			}
		}
		if r.Truncated {
			want = want[:min(len(want), len(got))]
		}
		if len(got) != len(want) {
			t.Fatalf("%q fold %v fixed %v word %v: lines %v, not %v", pattern, fold, fixed, word, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%q fold %v fixed %v word %v: lines %v, not %v", pattern, fold, fixed, word, got, want)
			}
		}
	})
}
