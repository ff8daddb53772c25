package search

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// makeTree writes files; a name with a slash at its end is a folder.
func makeTree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// GNU grep knows no rules; with all of ours off the results are the same, on
// text that both take as bytes.
func TestGrepLikeGNU(t *testing.T) {
	t.Parallel()
	needProgram(t, "grep")
	r := newRand(t)
	for range rounds(2, 30) {
		dir := t.TempDir()
		randomTree(t, r, dir, "\n")
		_ = os.Remove(filepath.Join(dir, "utf16-le"))
		_ = os.Remove(filepath.Join(dir, "utf16-be"))
		_ = os.Remove(filepath.Join(dir, "bom.txt"))
		for _, c := range []struct {
			args []string
			a    contract.GrepArgs
		}{
			{[]string{"-E", "foo"}, contract.GrepArgs{Pattern: "foo"}},
			{[]string{"-E", "^foo$|bar$"}, contract.GrepArgs{Pattern: "^foo$|bar$"}},
			{[]string{"-F", "a+b"}, contract.GrepArgs{Pattern: "a+b", Fixed: true}},
			{[]string{"-E", "-w", "foo|x"}, contract.GrepArgs{Pattern: "foo|x", Word: true}},
			{[]string{"-E", "-i", "foo +bar"}, contract.GrepArgs{Pattern: "foo +bar", IgnoreCase: true}},
			{[]string{"-P", `\bfoo\b.{2,5}\d`}, contract.GrepArgs{Pattern: `\bfoo\b.{2,5}\d`}},
			{[]string{"-P", `(?:foo|bar)\s+[a-z]+?$`}, contract.GrepArgs{Pattern: `(?:foo|bar)\s+[a-z]+?$`}},
			{[]string{"-E", "-B2", "-A1", "func"}, contract.GrepArgs{Pattern: "func", Before: 2, After: 1}},
			{[]string{"-E", ""}, contract.GrepArgs{Pattern: "x*"}},
		} {
			cmd := exec.CommandContext(context.Background(), "grep", append(append([]string{"-rnIZ", "-D", "skip", "--no-messages", "--no-group-separator"}, c.args...), ".")...)
			cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
			b, err := cmd.Output()
			if err != nil && cmd.ProcessState.ExitCode() > 1 && len(b) == 0 {
				t.Fatalf("grep %q: %v", c.args, err)
			}
			var want []string
			for line := range bytes.Lines(b) {
				name, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\x00")
				i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
				n, err := strconv.Atoi(rest[:i])
				if err != nil {
					t.Fatalf("%q", line)
				}
				want = append(want, hit{strings.TrimPrefix(name, "./"), n, rest[i] == ':', rest[i+1:]}.String())
			}
			sort.Strings(want)
			c.a.Hidden, c.a.NoIgnore = true, true
			if got := hits(mustGrep(t, dir, c.a)); !slices.Equal(got, want) {
				t.Errorf("%q: %d lines, grep has %d\n%s", c.args, len(got), len(want), difference(got, want))
			}
		}
	}
}

// What stands in a tree and is no file neither stops a search nor is read.
func TestGrepSpecial(t *testing.T) {
	t.Parallel()
	dir := makeTree(t, map[string]string{"a.txt": "foo\n", "sub/b.txt": "foo\n", "bin": "foo\x00\n", "late": "foo\n" + strings.Repeat("x\n", 50000) + "\x00foo\n", "closed": "foo\n", "shut/c": "foo\n"})
	for _, name := range []string{"fifo", "sub/fifo"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// A pipe with a writer that never ends.
	w, err := os.OpenFile(filepath.Join(dir, "fifo"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, l := range [][2]string{{"/dev/zero", "zero"}, {"..", "sub/up"}, {"/proc/self/fd/0", "magic"}, {"a.txt", "link"}} {
		if err := os.Symlink(l[0], filepath.Join(dir, l[1])); err != nil {
			t.Fatal(err)
		}
	}
	root := os.Geteuid() == 0
	if err := os.Chmod(filepath.Join(dir, "closed"), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "shut"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(filepath.Join(dir, "shut"), 0o755)
	r := mustGrep(t, dir, contract.GrepArgs{Pattern: "foo"})
	want := []string{"a.txt", "late", "sub/b.txt"}
	skipped := contract.Skipped{Special: 2, Binary: 1, Unreadable: 2}
	if root {
		want, skipped.Unreadable = []string{"a.txt", "closed", "late", "shut/c", "sub/b.txt"}, 0
	}
	var got []string
	for _, f := range r.Files {
		got = append(got, f.Path)
		if f.Binary != (f.Path == "late") || f.Count != 1 {
			t.Errorf("%+v", f)
		}
	}
	if !slices.Equal(got, want) || r.Skipped != skipped {
		t.Errorf("found %q, skipped %+v; want %q, %+v", got, r.Skipped, want, skipped)
	}
}

// The file that a call names is searched also when it is binary; no text of it is shown.
func TestGrepFile(t *testing.T) {
	t.Parallel()
	dir := makeTree(t, map[string]string{"bin": "foo\x00\nfoo\nbar\n", "text": "a\r\nfoo\r\n", "invalid": "x\xff foo\n"})
	for name, want := range map[string]contract.GrepFile{
		"bin":     {Count: 2, Binary: true},
		"text":    {Count: 1, Lines: []contract.GrepLine{{Number: 2, Match: true, Column: 1, Text: "foo"}}},
		"invalid": {Count: 1, Lines: []contract.GrepLine{{Number: 1, Match: true, Column: 4, Text: "x\uFFFD foo", TextBytes: []byte("x\xff foo")}}},
	} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		r, err := GrepFile(context.Background(), int(f.Fd()), name, &contract.GrepArgs{Pattern: "foo$|foo"})
		_ = f.Close()
		want.Path = name
		if err != nil || len(r.Files) != 1 || fmt.Sprint(r.Files[0]) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, %v; want %+v", name, r, err, want)
		}
	}
}

// Whatever the number of helpers and the moment, the same part of the matches comes back.
func TestGrepLimits(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 2000 {
		files[fmt.Sprintf("d%02d/f%03d", i%40, i)] = strings.Repeat("some text\n", i%50) + "foo 1\nfoo 2\nend\n"
	}
	dir := makeTree(t, files)
	all := mustGrep(t, dir, contract.GrepArgs{Pattern: "foo"})
	if all.Matches != 4000 || len(all.Files) != 2000 || all.Searched != 2000 || all.Truncated {
		t.Fatalf("%d matches in %d of %d files", all.Matches, len(all.Files), all.Searched)
	}
	sorted := slices.IsSortedFunc(all.Files, func(a, b contract.GrepFile) int { return strings.Compare(a.Path, b.Path) })
	if !sorted {
		t.Error("not in order")
	}
	for _, limit := range []int{1, 999, 4000} {
		for _, output := range []string{"lines", "files", "count"} {
			a := contract.GrepArgs{Pattern: "foo", Limit: limit, Output: output, After: 1}
			var first *contract.GrepResult
			for range 3 {
				r, err := Grep(context.Background(), placeAt(t, dir), &a)
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = r
				}
				if fmt.Sprint(*first) != fmt.Sprint(*r) {
					t.Fatalf("%+v: two results", a)
				}
			}
			n, most := len(first.Files), 2000
			if output == "lines" {
				n, most = first.Matches, 4000
			}
			if n != min(limit, most) || first.Truncated != (limit < most) {
				t.Errorf("%+v: %d, truncated %v", a, n, first.Truncated)
			}
			for i, f := range first.Files {
				if f.Path != all.Files[i].Path {
					t.Fatalf("%+v: file %d is %s, not %s", a, i, f.Path, all.Files[i].Path)
				}
			}
			if output == "lines" {
				last := first.Files[len(first.Files)-1]
				if end := last.Lines[len(last.Lines)-1]; end.Match != (last.Count == 1) || last.Count == 2 && end.Text != "end" {
					t.Errorf("%+v: ends with %+v", a, end)
				}
			}
		}
	}
}

// A result has a bound also in bytes, and so has a line.
func TestGrepText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 3000) + "needle" + strings.Repeat("ü", 3000)
	files := map[string]string{"long": long + "\n" + long}
	for i := range 20 {
		files[fmt.Sprintf("m%02d", i)] = strings.Repeat(strings.Repeat("needle ", 150)+"\n", 100)
	}
	files["pieces"] = strings.Repeat("x", 3<<20) + "needle\nneedle\n"
	r, err := Grep(context.Background(), placeAt(t, makeTree(t, files)), &contract.GrepArgs{Pattern: "needle", Limit: contract.GrepMax})
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, f := range r.Files {
		for _, l := range f.Lines {
			size += len(l.Text)
			if !l.Cut || len(l.Text) > contract.GrepLineMax || !strings.Contains(l.Text, "needle") || l.TextBytes != nil {
				t.Fatalf("%+v", l)
			}
		}
	}
	if !r.Truncated || size > contract.GrepText || size < contract.GrepText/2 {
		t.Errorf("%d bytes, truncated %v", size, r.Truncated)
	}
	if r.Files[0].Lines[0].Column != 6001 || r.Files[0].Lines[1].Number != 2 {
		t.Errorf("%+v", r.Files[0])
	}
	dir := makeTree(t, map[string]string{"pieces": files["pieces"]})
	if r := mustGrep(t, dir, contract.GrepArgs{Pattern: "needle"}); r.Matches != 2 || r.Skipped.LongLines != 1 || r.Files[0].Lines[1].Number != 2 {
		t.Errorf("%d matches, %+v", r.Matches, r.Skipped)
	}
}

// A search ends soon after its call, whatever it is at: a long walk, a pattern
// that takes seconds on a long line.
func TestGrepCancel(t *testing.T) {
	t.Parallel()
	slow := makeTree(t, map[string]string{"x": strings.Repeat("a", 900<<10) + "b"})
	for name, a := range map[string]contract.GrepArgs{
		"pattern":   {Pattern: `(?:a?){300}a{300}\bb`},
		"multiline": {Pattern: `(?:a?){300}a{300}\bb`, Multiline: true},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		_, err := Grep(ctx, placeAt(t, slow), &a)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Grep(ctx, placeAt(t, slow), &contract.GrepArgs{Pattern: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestGrepRefusals(t *testing.T) {
	t.Parallel()
	place := placeAt(t, t.TempDir())
	for _, a := range []contract.GrepArgs{
		{Pattern: "("}, {Pattern: "a)(b"}, {Pattern: "a)|(b"}, {Pattern: `\n`}, {Pattern: "a\nb"}, {Pattern: "a\nb", Fixed: true}, {Pattern: `(?=x)`}, {Pattern: `(\w{500}){20}`}, {Pattern: `(((a{100}){100}){100})`},
		{Pattern: strings.Repeat("a", 1<<20)}, {Pattern: "a", Glob: "["}, {Pattern: "a", Glob: "{a"}, {Pattern: "a", Glob: "../b"}, {Pattern: "a", Glob: strings.Repeat("{a,b}", 20)},
	} {
		_, err := Grep(context.Background(), place, &a)
		if f := (*contract.Failure)(nil); !errors.As(err, &f) || f.Code != contract.BadArgs {
			t.Errorf("%.60q %q: %v", a.Pattern, a.Glob, err)
		}
	}
}

// Nothing stays open, and no goroutine stays, however a search ended.
func TestGrepLeavesNothing(t *testing.T) {
	files := map[string]string{}
	for i := range 2000 {
		files[fmt.Sprintf("d%d/f%d", i%300, i)] = "foo\n"
	}
	dir := makeTree(t, files)
	open := func() int {
		d, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skipf("no /proc to count open files in: %v", err)
		}
		return len(d)
	}
	place := placeAt(t, dir)
	before, routines := open(), runtime.NumGoroutine()
	for i := range 60 {
		ctx, cancel := context.WithCancel(context.Background())
		if i%3 == 0 {
			time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
		}
		_, _ = Grep(ctx, place, &contract.GrepArgs{Pattern: "foo", Limit: 1 + i*40})
		cancel()
	}
	if after := open(); after > before {
		t.Errorf("%d files open, %d before", after, before)
	}
	for range 100 {
		if runtime.NumGoroutine() <= routines {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), routines)
}
