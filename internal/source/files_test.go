//go:build linux

package source

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/detect"
	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

func (l *lab) baseFiles() *Files {
	l.t.Helper()
	r, err := Inspect(context.Background(), Options{Dir: l.repo, Env: l.env})
	if err != nil {
		l.t.Fatal(err)
	}
	return r.Files()
}

// TestFilesAtBase reads what the base has, not what the checkout has, and runs
// nothing of what the repository names.
func TestFilesAtBase(t *testing.T) {
	l := newLab(t)
	l.git("init", "-q")
	l.git("config", "filter.f.smudge", "touch "+l.top+"/ran; cat")
	l.git("config", "filter.f.clean", "cat")
	l.write(".gitattributes", "* filter=f\n")
	l.write("a.txt", "one\n")
	l.write("with\nline", "two\n")
	l.write("empty", "")
	l.write("large", strings.Repeat("x", 5000))
	l.write("dir/deep/x", "three")
	if err := os.Symlink("/etc/passwd", l.repo+"/link"); err != nil {
		t.Fatal(err)
	}
	l.git("add", "-A")
	l.git("commit", "-qm", "base")
	_ = os.Remove(l.top + "/ran")
	l.write("a.txt", "changed\n")
	l.write("new", "new\n")

	b := l.baseFiles()
	modes := map[string]uint32{}
	before := git.Spawns.Load()
	if err := b.Each(context.Background(), func(p string, mode uint32) bool { modes[p] = mode; return true }); err != nil {
		t.Fatal(err)
	}
	want := map[string]uint32{".gitattributes": 0o100644, "a.txt": 0o100644, "with\nline": 0o100644, "empty": 0o100644, "large": 0o100644, "dir/deep/x": 0o100644, "link": 0o120000}
	if fmt.Sprint(modes) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", modes, want)
	}
	var got []string
	err := b.Read(context.Background(), []string{"a.txt", "with\nline", "empty", "large", "dir/deep/x", "link", "new", "gone"}, 1000, func(p string, size int64, content []byte) {
		got = append(got, fmt.Sprintf("%q %d %q %v", p, size, content, content == nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	text := strings.Join(got, "\n")
	if want := strings.Join([]string{`"a.txt" 4 "one\n" false`, `"dir/deep/x" 5 "three" false`, `"empty" 0 "" false`, `"large" 5000 "" true`, `"link" 11 "/etc/passwd" false`, `"with\nline" 4 "two\n" false`}, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if n := git.Spawns.Load() - before; n > 3 {
		t.Errorf("%d starts of git, at most 3", n)
	}
	for name, want := range map[string]string{"a.txt": "one\n", "new": "", "gone": "", "dir": "", "with\nline": ""} {
		if got := b.File(context.Background(), name); string(got) != want {
			t.Errorf("File(%q) = %q, want %q", name, got, want)
		}
	}
	if _, err := os.Stat(l.top + "/ran"); err == nil {
		t.Error("a filter of the repository ran")
	}
	// Before Each, too.
	if got := l.baseFiles().File(context.Background(), "a.txt"); string(got) != "one\n" {
		t.Errorf("got %q", got)
	}
	stopped := 0
	if err := b.Each(context.Background(), func(string, uint32) bool { stopped++; return false }); err != nil || stopped != 1 {
		t.Errorf("stopped after %d: %v", stopped, err)
	}
}

// TestFilesScanned: a detector's look at a hostile repository starts git three
// times and nothing else.
func TestFilesScanned(t *testing.T) {
	l := newLab(t)
	l.git("init", "-q")
	l.git("config", "filter.f.smudge", "touch "+l.top+"/ran; cat")
	l.git("config", "filter.f.clean", "cat")
	l.git("config", "core.fsmonitor", "touch "+l.top+"/ran")
	l.write(".gitattributes", "* filter=f\n")
	l.write("a\nb/compose.yaml", "services:\n  db:\n    image: postgres:16\n")
	l.write("package.json", `{"scripts":{"db:migrate":"prisma migrate deploy"}}`)
	l.write(".envrc", "touch "+l.top+"/ran\n")
	l.write("big/package.json", strings.Repeat(" ", 10<<20))
	l.write(".devcontainer/devcontainer.json", `{"initializeCommand":"touch `+l.top+`/ran"}`)
	if err := os.Symlink("/etc/passwd", l.repo+"/docker-compose.yml"); err != nil {
		t.Fatal(err)
	}
	l.plain(l.repo, "-c", "core.fsmonitor=false", "add", "-A")
	l.plain(l.repo, "-c", "core.fsmonitor=false", "commit", "-qm", "base")
	_ = os.Remove(l.top + "/ran")

	b := l.baseFiles()
	before := git.Spawns.Load()
	facts, _, err := detect.Scan(context.Background(), b)
	if err != nil {
		t.Fatal(err)
	}
	if n := git.Spawns.Load() - before; n > 3 {
		t.Errorf("%d starts of git, at most 3", n)
	}
	var got []string
	for _, f := range facts {
		got = append(got, f.Rule+" "+f.Value+" "+f.Evidence)
	}
	for _, want := range []string{`SVC-01 db "a\nb/compose.yaml":3`, "SVC-01 unknown docker-compose.yml", "SCR-15 schema package.json:1", "INS-02 unknown big/package.json", "HST-01 repo-defined .devcontainer/devcontainer.json:1", "HST-04 repo-defined .gitattributes:1"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	for _, b := range []*Files{b, l.baseFiles()} { // listed before, and not
		before := git.Spawns.Load()
		for _, argv := range [][]string{{"make", "x"}, {"just", "x"}, {"npm", "run", "db:migrate"}} {
			a := detect.Command(argv, func(name string) []byte { return b.File(context.Background(), name) })
			if n := len(a.Simple); argv[0] == "npm" && (n != 2 || a.Simple[1].Program != "prisma") {
				t.Errorf("got %+v", a.Simple)
			}
		}
		if n := git.Spawns.Load() - before; n > 1 {
			t.Errorf("%d starts of git for the scripts of three commands, at most one", n)
		}
	}
	for name, want := range map[string]int{"big/package.json": 0, "package.json": 50, ".devcontainer": 0, "Makefile": 0} {
		if got := l.baseFiles().File(context.Background(), name); len(got) != want {
			t.Errorf("File(%q) has %d bytes, want %d", name, len(got), want)
		}
	}
	if _, err := os.Stat(l.top + "/ran"); err == nil {
		t.Error("something of the repository ran")
	}
}

// TestFilesInFolder: a folder without git is looked at as it is, without
// following a link.
func TestFilesInFolder(t *testing.T) {
	l := newLab(t)
	l.write("a.txt", "one")
	l.write("dir/b", strings.Repeat("x", 2000))
	l.write("node_modules/x/package.json", "{}")
	l.write("outside", "secret")
	for _, to := range []string{"/etc/passwd", "a.txt"} {
		if err := os.Symlink(to, l.repo+"/link"+strings.ReplaceAll(to, "/", "_")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("dir", l.repo+"/ld"); err != nil {
		t.Fatal(err)
	}
	r, err := Inspect(context.Background(), Options{Dir: l.repo, Strategy: task.StrategyCopy, Env: l.env})
	if err != nil {
		t.Fatal(err)
	}
	b := r.Files()
	var got []string
	if err := b.Each(context.Background(), func(p string, mode uint32) bool {
		got = append(got, fmt.Sprintf("%s %o", p, mode))
		return true
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if want := "a.txt 100644|dir/b 100644|ld 120000|link_etc_passwd 120000|linka.txt 120000|outside 100644"; strings.Join(got, "|") != want {
		t.Errorf("got %v", got)
	}
	got = nil
	if err := b.Read(context.Background(), []string{"a.txt", "dir/b", "ld/b", "linka.txt", "../outside", "gone"}, 1000, func(p string, size int64, c []byte) {
		got = append(got, fmt.Sprintf("%s %d %s", p, size, c))
	}); err != nil {
		t.Fatal(err)
	}
	if want := "a.txt 3 one|dir/b 2000 "; strings.Join(got, "|") != want {
		t.Errorf("got %v", got)
	}
	for name, want := range map[string]string{"a.txt": "one", "ld/b": "", "link_etc_passwd": "", "../repo/a.txt": "", "dir": ""} {
		if c := b.File(context.Background(), name); string(c) != want {
			t.Errorf("File(%q) = %q", name, c)
		}
	}
}

// TestFilesNone: a repository without a commit has no files, and a folder
// without git no base.
func TestFilesNone(t *testing.T) {
	l := newLab(t)
	l.git("init", "-q")
	b := l.baseFiles()
	if err := b.Each(context.Background(), func(p string, _ uint32) bool { t.Errorf("file %q", p); return true }); err != nil {
		t.Error(err)
	}
	if got := b.File(context.Background(), "x"); got != nil {
		t.Errorf("got %q", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.write("a", "x")
	l.git("add", "a")
	l.git("commit", "-qm", "x")
	b = l.baseFiles()
	cancel()
	if err := b.Each(ctx, func(string, uint32) bool { return true }); err == nil {
		t.Error("a cancelled look succeeded")
	}
}
