package search

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"unicode/utf16"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// placeAt opens a folder of the test.
func placeAt(t testing.TB, dir string) Place {
	t.Helper()
	return Place{Root: openAt(t, dir, unix.O_PATH)}
}

func mustGrep(t testing.TB, dir string, a contract.GrepArgs) *contract.GrepResult {
	t.Helper()
	r, err := grepWith(context.Background(), placeAt(t, dir), &a, limits{matches: 1 << 20, text: 1 << 30})
	if err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	return r
}

// hit is one line of a result in a form that programs can be compared in.
type hit struct {
	path  string
	line  int
	match bool
	text  string
}

func (h hit) String() string {
	if strings.Contains(h.text, "orem ipsum") {
		h.text = "" // of a long line the result has a part
	}
	sign := "-"
	if h.match {
		sign = ":"
	}
	return fmt.Sprintf("%q%s%d%s%q", h.path, sign, h.line, sign, h.text)
}

func rawText(s string, b []byte) string {
	if b != nil {
		return string(b)
	}
	return s
}

func hits(r *contract.GrepResult) []string {
	var out []string
	for _, f := range r.Files {
		for _, l := range f.Lines {
			out = append(out, hit{rawText(f.Path, f.PathBytes), l.Number, l.Match, rawText(l.Text, l.TextBytes)}.String())
		}
	}
	sort.Strings(out)
	return out
}

// rgHits asks ripgrep. Its exit status 1 says that nothing matched.
func rgHits(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "rg", append([]string{"--json", "--no-config", "--no-ignore-global", "--no-messages", "--crlf"}, args...)...)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	b, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); err != nil && code != 1 && len(b) == 0 {
		t.Fatalf("rg %q: %v", args, err)
	}
	type text struct {
		Text  *string `json:"text"`
		Bytes []byte  `json:"bytes"`
	}
	str := func(x text) string {
		if x.Text != nil {
			return *x.Text
		}
		return string(x.Bytes)
	}
	var out []string
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var e struct {
			Type string `json:"type"`
			Data struct {
				Path  text `json:"path"`
				Lines text `json:"lines"`
				Line  int  `json:"line_number"`
			} `json:"data"`
		}
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type != "match" && e.Type != "context" {
			continue
		}
		lines := strings.TrimSuffix(str(e.Data.Lines), "\n")
		for i, l := range strings.Split(lines, "\n") {
			out = append(out, hit{strings.TrimPrefix(str(e.Data.Path), "./"), e.Data.Line + i, e.Type == "match", strings.TrimSuffix(l, "\r")}.String())
		}
	}
	sort.Strings(out)
	return out
}

// needProgram skips where another implementation to compare with is missing.
func needProgram(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not on this machine, and it is what is compared with", name)
	}
}

// difference shows the first lines that only one side has.
func difference(mine, other []string) string {
	var b strings.Builder
	n := 0
	show := func(title string, a, b2 []string) {
		for _, s := range a {
			if _, ok := slices.BinarySearch(b2, s); !ok && n < 12 {
				n++
				fmt.Fprintf(&b, "%s %s\n", title, s)
			}
		}
	}
	show("only ours:  ", mine, other)
	show("only theirs:", other, mine)
	return b.String()
}

var words = []string{"foo", "Foo", "FOO", "bar", "foobar", "barfoo", "x", "", " ", "\t", "func", "return", "err", "kelvin", "K", "ſ", "é", "Straße", "foo.bar", "(foo)", "foo-bar", "12", "123", "_foo", "日本", "a+b", "[x]", "$", "^", "\\n"}

// randomText is lines from few words with everything that files of the world have.
func randomText(r *rand.Rand, ends string) []byte {
	var b bytes.Buffer
	for range r.IntN(40) {
		for range r.IntN(6) {
			b.WriteString(words[r.IntN(len(words))])
			if r.IntN(2) == 0 {
				b.WriteByte(' ')
			}
		}
		if ends == "mixed" {
			b.WriteString([]string{"\n", "\r\n"}[r.IntN(2)])
		} else {
			b.WriteString(ends)
		}
	}
	if r.IntN(3) == 0 {
		b.WriteString("foo at the end")
	}
	return b.Bytes()
}

// randomTree makes files of every kind below dir. It returns how many special
// ones there are.
func randomTree(t *testing.T, r *rand.Rand, dir string, ends ...string) {
	write := func(name string, b []byte) {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	exts := []string{".go", ".txt", ".c", ""}
	for i := range 60 {
		parts := make([]string, r.IntN(4))
		for k := range parts {
			parts[k] = []string{"a", "b", "vendor", ".hid", "deep"}[r.IntN(5)]
		}
		name := filepath.Join(append(parts, fmt.Sprintf("f%d%s", i, exts[r.IntN(len(exts))]))...)
		write(name, randomText(r, ends[r.IntN(len(ends))]))
	}
	write("empty", nil)
	write("one-newline", []byte("\n"))
	write("no-end", []byte("foo"))
	write("bin-early", []byte("foo\nbar\x00foo\n"))
	write("bom.txt", []byte("\xef\xbb\xbffoo first\nfoo\n"))
	long := bytes.Repeat([]byte("lorem ipsum "), 3000)
	write("long-line", append(append(slices.Clone(long), "foo "...), long...))
	big := bytes.Repeat([]byte("nothing to see on this line, which is long enough to fill more than a buffer with few of them"+strings.Repeat(" -", 200)+"\n"), 600)
	write("big.txt", slices.Concat(big, []byte("here is foo\nand bar\n"), big, []byte("foo again")))
	write("sp ace/ü/ñ.txt", []byte("foo\n"))
	write("bad\xff\xfename", []byte("foo in a file with a bad name\n"))
	for _, enc := range []string{"le", "be"} {
		var b []byte
		for _, u := range utf16.Encode([]rune("\ufefffoo in UTF-16\nbar 日本 𝒳 foo\n")) {
			if enc == "le" {
				b = append(b, byte(u), byte(u>>8))
			} else {
				b = append(b, byte(u>>8), byte(u))
			}
		}
		write("utf16-"+enc, b)
	}
	for from, to := range map[string]string{"loop": ".", "a/up": "..", "broken": "nowhere", "link.go": "no-end", "a/root": "/"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(from)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Skipf("no socket can be made in the test's folder: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

var patterns = []contract.GrepArgs{
	{Pattern: "foo"}, {Pattern: "foo", IgnoreCase: true}, {Pattern: "foo", Word: true}, {Pattern: "foo", Word: true, IgnoreCase: true},
	{Pattern: "^foo"}, {Pattern: "foo$"}, {Pattern: "^foo$"}, {Pattern: "^$"}, {Pattern: "fo+ ?bar"}, {Pattern: "foo|bar|kelvin"}, {Pattern: "(?i)k"},
	{Pattern: "s", IgnoreCase: true}, {Pattern: "stra.e", IgnoreCase: true}, {Pattern: "日"}, {Pattern: "a+b", Fixed: true}, {Pattern: "(foo)", Fixed: true}, {Pattern: "[x]", Fixed: true, Word: true},
	{Pattern: `\(foo\)`}, {Pattern: `[0-9]{2,3}`}, {Pattern: `\w+\s+\w+$`}, {Pattern: `\bfoo\b`}, {Pattern: `[A-Z]+`}, {Pattern: `.`}, {Pattern: `x*`}, {Pattern: `f.o`}, {Pattern: `(foo|x)+b`},
	{Pattern: `[^ -~]`}, {Pattern: `foo.*bar`}, {Pattern: `é`, IgnoreCase: true}, {Pattern: "again$"}, {Pattern: "nothing"}, {Pattern: "foobar|barfoo|12|func"}, {Pattern: `err\b.*return`},
	{Pattern: "foo", Before: 1}, {Pattern: "foo", After: 2}, {Pattern: "bar", Before: 2, After: 1}, {Pattern: "foo|here", Before: 5, After: 5}, {Pattern: "^$", Before: 1, After: 1},
	{Pattern: "foo", Glob: "*.go"}, {Pattern: "foo", Glob: "a/**"}, {Pattern: "foo", Glob: "**/*.{go,c}"}, {Pattern: "foo", Hidden: true}, {Pattern: "foo", NoIgnore: true},
	{Pattern: "foo", NoIgnore: true, Hidden: true}, {Pattern: "no such thing at all"},
	{Pattern: `foo\nbar`, Multiline: true}, {Pattern: `func.*?return`, Multiline: true}, {Pattern: `bar\s+foo`, Multiline: true}, {Pattern: `foo[^x]*?bar`, Multiline: true}, {Pattern: "^bar$", Multiline: true},
	{Pattern: `foo\s`, Multiline: true, Before: 1, After: 1},
}

// rgFiles are all files whose path matches, in the form that a hit begins with.
func rgFiles(t *testing.T, dir, glob string) []string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), "rg", "--no-config", "--files", "-uu", "-0", "-g", glob)
	cmd.Dir = dir
	b, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for f := range strings.SplitSeq(strings.TrimSuffix(string(b), "\x00"), "\x00") {
		out = append(out, fmt.Sprintf("%q", f))
	}
	return out
}

func anyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

func rgArgs(a contract.GrepArgs) []string {
	var args []string
	for _, f := range []struct {
		on   bool
		flag string
	}{{a.Fixed, "-F"}, {a.IgnoreCase, "-i"}, {a.Word, "-w"}, {a.Multiline, "-U"}, {a.Multiline, "--multiline-dotall"}, {a.NoIgnore, "--no-ignore"}, {a.Hidden, "--hidden"}} {
		if f.on {
			args = append(args, f.flag)
		}
	}
	if strings.Contains(a.Pattern, `\b`) || strings.Contains(a.Pattern, `\w`) {
		a.Pattern = "(?-u)" + a.Pattern // RE2's classes with a backslash are of ASCII
	}
	return append(args, fmt.Sprintf("-B%d", a.Before), fmt.Sprintf("-A%d", a.After), "-e", a.Pattern, ".")
}

func TestGrepLikeRipgrep(t *testing.T) {
	t.Parallel()
	needProgram(t, "rg")
	r := newRand(t)
	for round := range rounds(2, 40) {
		dir := t.TempDir()
		// Over lines, a line's end is one byte for us and may be two for ripgrep.
		over := round%2 == 0
		if over {
			randomTree(t, r, dir, "\n")
		} else {
			randomTree(t, r, dir, "\n", "\r\n", "mixed")
		}
		gitIn(t, dir, nil, "init", "-q", ".")
		for name, text := range map[string]string{
			".gitignore": "/vendor/\nf1*.c\n!f12.c\ndeep/*.txt\n", "a/.gitignore": "*.txt\n!f2*.txt\n", "b/.ignore": "f3*\n", ".rgignore": "f4*\n", ".git/info/exclude": "f5*\n",
		} {
			if os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755) != nil || os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644) != nil {
				t.Fatal("the rules could not be written")
			}
		}
		for i, a := range patterns {
			if a.Multiline && !over || !a.Multiline && i%rounds(2, 1) != round%rounds(2, 1) {
				continue
			}
			want := rgHits(t, dir, append([]string{"-g", "!.git"}, rgArgs(a)...)...)
			if a.Glob != "" {
				// Our glob narrows what the rules leave; ripgrep's overrides them.
				want = slices.DeleteFunc(want, func(s string) bool { return !anyPrefix(s, rgFiles(t, dir, a.Glob)) })
			}
			res := mustGrep(t, dir, a)
			got := hits(res)
			if !slices.Equal(got, want) {
				t.Errorf("%+v: %d lines, ripgrep has %d\n%s", a, len(got), len(want), difference(got, want))
			}
			if res.Truncated {
				t.Errorf("%+v: truncated", a)
			}
		}
	}
}
