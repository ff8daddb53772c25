package search

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// openAt opens a folder for as long as the test runs.
func openAt(t testing.TB, dir string, flags int) int {
	t.Helper()
	fd, err := unix.Open(dir, flags|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func openDir(t testing.TB, dir string) int {
	t.Helper()
	return openAt(t, dir, unix.O_RDONLY)
}

func TestList(t *testing.T) {
	t.Parallel()
	dir := makeTree(t, map[string]string{"b.txt": "12345", "a dir/": "", "Z": "", ".hidden": "x", "bad\xffname": "", "ü": ""})
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, l := range [][2]string{{"b.txt", "link"}, {"gone\xfe", "badlink"}} {
		if err := os.Symlink(l[0], filepath.Join(dir, l[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "b.txt"), 0o751|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	r, err := List(context.Background(), openDir(t, dir), &contract.ListDirArgs{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range r.Entries {
		got = append(got, fmt.Sprintf("%s %q %q %d %q %q", e.Kind, e.Name, e.NameBytes, e.Size, e.Target, e.TargetBytes))
		if e.Modified == "" || len(e.Mode) != 4 || e.Name == "b.txt" && e.Mode != "2751" {
			t.Errorf("%+v", e)
		}
	}
	want := []string{
		`file ".hidden" "" 1 "" ""`, `file "Z" "" 0 "" ""`, `dir "a dir" "" 0 "" ""`, `file "b.txt" "" 5 "" ""`, `link "badlink" "" 0 "gone` + "\uFFFD" + `" "gone\xfe"`,
		`file "bad` + "\uFFFD" + `name" "bad\xffname" 0 "" ""`, `link "link" "" 0 "b.txt" ""`, `fifo "pipe" "" 0 "" ""`, `file "ü" "" 0 "" ""`,
	}
	if !slices.Equal(got, want) || r.Total != 9 || r.Truncated {
		t.Errorf("%d, truncated %v\n%s\nwant\n%s", r.Total, r.Truncated, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Of a folder with many entries only the first by name are held.
func TestListMany(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := rounds(5000, 300000)
	for i := range n {
		fd, err := unix.Open(fmt.Sprintf("%s/%06d", dir, i*7919%n), unix.O_CREAT|unix.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
	}
	r, err := List(context.Background(), openDir(t, dir), &contract.ListDirArgs{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Entries) != 100 || r.Entries[0].Name != "000000" || r.Entries[99].Name != "000099" || !r.Truncated {
		t.Errorf("%d entries from %q, truncated %v", len(r.Entries), r.Entries[0].Name, r.Truncated)
	}
	if r.Total != n {
		t.Errorf("total %d, not %d", r.Total, n)
	}
	if r, err := List(context.Background(), openDir(t, dir), &contract.ListDirArgs{}); err != nil || len(r.Entries) != contract.ListDefault {
		t.Errorf("%d entries, %v", len(r.Entries), err)
	}
}

func find(t testing.TB, dir string, a contract.GlobArgs) []string {
	t.Helper()
	r, err := Find(context.Background(), placeAt(t, dir), &a)
	if err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	var out []string
	for _, f := range r.Files {
		out = append(out, rawText(f.Path, f.PathBytes))
	}
	return out
}

func TestGlob(t *testing.T) {
	t.Parallel()
	dir := makeTree(t, map[string]string{
		"a.go": "", "b.txt": "", "src/a.go": "", "src/a_test.go": "", "src/deep/er/x.go": "", "src/deep/y.c": "", "web/index.html": "", "web/app.tsx": "", "web/app.ts": "",
		"[odd].go": "", "{x}": "", "sp ace.go": "", ".hid.go": "", ".cfg/z.go": "", "src/.h/q.go": "", "a\\b": "",
	})
	if err := os.Symlink("..", filepath.Join(dir, "src/up")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ pattern, want string }{
		{"/*.go", "[odd].go a.go sp ace.go"}, {"*.c", "src/deep/y.c"}, {"{a,y}.*", "a.go src/a.go src/deep/y.c"},
		{"**/*.go", "[odd].go a.go sp ace.go src/a.go src/a_test.go src/deep/er/x.go"},
		{"src/*.go", "src/a.go src/a_test.go"},
		{"src/**", "src/a.go src/a_test.go src/up src/deep/y.c src/deep/er/x.go"},
		{"src/**/*.go", "src/a.go src/a_test.go src/deep/er/x.go"},
		{"src/**/er/*", "src/deep/er/x.go"},
		{"**/er/**", "src/deep/er/x.go"},
		{"*/a.go", "src/a.go"},
		{"./src/a.go", "src/a.go"}, {"/src/a.go", "src/a.go"},
		{"web/*.{ts,tsx}", "web/app.ts web/app.tsx"},
		{"{src,web}/a*", "src/a.go src/a_test.go web/app.ts web/app.tsx"},
		{"/{a,{b,c}}.{go,txt}", "a.go b.txt"},
		{"web/app.ts{,x}", "web/app.ts web/app.tsx"},
		{"/[ab].*", "a.go b.txt"}, {"/[!a].*", "b.txt"}, {"/[[:alpha:]].*", "a.go b.txt"}, {"/?.go", "a.go"},
		{`\[odd\].go`, "[odd].go"}, {`\{x\}`, "{x}"}, {`a\\b`, `a\b`},
		{"src/*/", "src/deep"}, {"**/er/", "src/deep/er"},
		{"nothing/**", ""}, {"*.GO", ""},
	} {
		if got := strings.Join(find(t, dir, contract.GlobArgs{Pattern: c.pattern}), " "); got != c.want {
			t.Errorf("%s: %q, not %q", c.pattern, got, c.want)
		}
	}
	if got := find(t, dir, contract.GlobArgs{Pattern: "**/*.go", Hidden: true}); len(got) != 9 {
		t.Errorf("hidden: %q", got)
	}
	r, err := Find(context.Background(), placeAt(t, dir), &contract.GlobArgs{Pattern: "**", Limit: 3})
	if err != nil || len(r.Files) != 3 || !r.Truncated {
		t.Errorf("%+v, %v", r, err)
	}
	for _, p := range []string{"", "/", "[", "a[", "{a", `a\`, "../x", "a/../b", "{a,b/}", strings.Repeat("{a,b}", 9)} {
		_, err := Find(context.Background(), placeAt(t, dir), &contract.GlobArgs{Pattern: p})
		if f := (*contract.Failure)(nil); !errors.As(err, &f) || f.Code != contract.BadArgs {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// Everything is what ripgrep lists, and links besides.
func TestFindLikeRipgrep(t *testing.T) {
	t.Parallel()
	needProgram(t, "rg")
	r := newRand(t)
	for range rounds(5, 200) {
		dir := t.TempDir()
		randomTree(t, r, dir, "\n")
		gitIn(t, dir, nil, "init", "-q", ".")
		plain := []string{"a/", "b", "/vendor", "deep/*.txt", "*.go", "!f1*", "**/a/*.c", "a/**", "!a/", "f[0-3]*", "/*.txt", "**/deep", "!deep/", ".hid", "!.hid/", "!.hid", "f?.go", "vendor/**/b", "*.txt", "a/b/"}
		for _, name := range []string{".gitignore", "a/.gitignore", "b/.ignore", ".rgignore", ".ignore", "a/b/.gitignore", ".git/info/exclude", "deep/.rgignore"} {
			if r.IntN(2) == 0 {
				continue
			}
			var text strings.Builder
			for range 1 + r.IntN(5) {
				text.WriteString(plain[r.IntN(len(plain))] + "\n")
			}
			if os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755) != nil || os.WriteFile(filepath.Join(dir, name), []byte(text.String()), 0o644) != nil {
				t.Fatal("the rules could not be written")
			}
		}
		for _, sub := range []string{"", "a", "a/b"} {
			if fi, err := os.Stat(filepath.Join(dir, sub)); err != nil || !fi.IsDir() {
				continue
			}
			for _, hidden := range []bool{false, true} {
				args := []string{"--no-config", "--files", "-0", "-g", "!.git", "--no-ignore-global"}
				if hidden {
					args = append(args, "--hidden")
				}
				cmd := exec.CommandContext(context.Background(), "rg", args...)
				cmd.Dir, cmd.Env = filepath.Join(dir, sub), []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
				b, err := cmd.Output()
				if err != nil && cmd.ProcessState.ExitCode() != 1 {
					t.Fatal(err)
				}
				want := strings.FieldsFunc(string(b), func(r rune) bool { return r == 0 })
				sort.Strings(want)
				p := placeAt(t, dir)
				p.Path = sub
				res, err := Find(context.Background(), p, &contract.GlobArgs{Pattern: "**", Hidden: hidden, Limit: contract.GlobMax})
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, f := range res.Files {
					if f.Kind == "file" {
						got = append(got, rawText(f.Path, f.PathBytes))
					}
				}
				sort.Strings(got)
				// A pipe or socket is no file for us.
				want = slices.DeleteFunc(want, func(s string) bool { return s == "fifo" || s == "s" })
				if !slices.Equal(got, want) {
					var rules strings.Builder
					for _, name := range []string{".gitignore", "a/.gitignore", "b/.ignore", ".rgignore", ".ignore", "a/b/.gitignore", ".git/info/exclude", "deep/.rgignore"} {
						if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
							fmt.Fprintf(&rules, "%s: %q\n", name, b)
						}
					}
					t.Fatalf("in %q, hidden %v:\n%s%s", sub, hidden, difference(got, want), rules.String())
				}
			}
		}
	}
}
