//go:build linux

package source

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// sh runs a script in the user's checkout with everything that is configured.
func (l *lab) sh(script string) {
	l.t.Helper()
	c := exec.Command("sh", "-ec", script)
	c.Dir, c.Env = l.repo, append(append([]string(nil), l.env...), "TOP="+l.top)
	if out, err := c.CombinedOutput(); err != nil {
		l.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// stats is the whole of a git directory as stat sees it, without times of
// reading and without what caisson may add.
func stats(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(p string, fi os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if strings.HasPrefix(rel, "refs/caisson") || rel == "refs" || rel == "." {
			return nil
		}
		st := fi.Sys().(*syscall.Stat_t)
		if strings.HasPrefix(rel, "objects/") {
			// git notes at an object that it found instead of writing it again
			// that it is still in use: its time, never its bytes.
			st.Mtim, st.Ctim = syscall.Timespec{}, syscall.Timespec{}
		}
		fmt.Fprintf(&b, "%q %d %o %d %d %v %v\n", rel, st.Ino, st.Mode, st.Uid, st.Size, st.Mtim, st.Ctim)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// lineDiff shows the lines of one text that the other does not have.
func lineDiff(a, b string) string {
	var out strings.Builder
	for _, p := range []struct{ sign, x, y string }{{"-", a, b}, {"+", b, a}} {
		for _, line := range strings.Split(p.x, "\n") {
			if !strings.Contains(p.y+"\n", line+"\n") {
				out.WriteString("\n" + p.sign + line)
			}
		}
	}
	return out.String()
}

// carrySetups are states of a checkout, made by plain git.
var carrySetups = []struct{ name, script string }{
	{"clean", `:`},
	{"unstaged", `echo more >>README`},
	{"staged", `echo more >>README; git add README`},
	{"staged and changed again", `echo more >>README; git add README; echo again >>README`},
	{"staged and changed back", `cp README ../old; echo more >>README; git add README; cat ../old >README`},
	{"deleted", `rm README dir/a.txt`},
	{"deleted, staged", `git rm -q README`},
	{"taken out of the index only", `git rm -q --cached README`},
	{"new, staged", `echo n >new; git add new`},
	{"new, staged, gone", `echo n >new; git add new; rm new`},
	{"untracked", `mkdir -p u/v; echo n >u/v/new; echo x >"s p a c e"; printf x >'quote"new
line'`},
	{"any bytes", `printf x >"$(printf 'a\377b')"; printf y >"$(printf 'c\\d')"; git add "$(printf 'c\\d')"`},
	{"untracked and ignored", `echo l >x.log; mkdir build; echo b >build/out; echo n >n`},
	{"renamed", `git mv README LIESMICH; echo more >>LIESMICH`},
	{"mode", `chmod +x README; chmod -x run.sh; git add run.sh`},
	{"link changed", `ln -sf dir/b.txt link`},
	{"link to file", `rm link; echo f >link`},
	{"file to link", `rm README; ln -s link README`},
	{"file to folder", `rm README; mkdir README; echo f >README/f`},
	{"folder to file", `rm -r dir; echo f >dir`},
	{"folder to file, staged", `git rm -rq dir; echo f >dir; git add dir`},
	{"intended to be added", `echo n >later; git add -N later; echo m >>later`},
	{"intended and gone", `echo n >later; git add -N later; rm later`},
	{"assumed unchanged", `git update-index --assume-unchanged README; echo hidden >>README`},
	{"skipped by hand", `git update-index --skip-worktree README; echo hidden >>README`},
	{"ignore rules changed", `echo '*.tmp' >>.gitignore; echo x >a.tmp; echo y >a.other`},
	{"own excludes", `echo '*.mine' >>.git/info/exclude; echo x >a.mine; echo y >a.other`},
	{"line ends", `printf '*.txt text eol=crlf\n' >.gitattributes; git add .gitattributes; printf 'one\r\ntwo\r\n' >dir/a.txt; printf 'x\r\n' >n.txt; git add n.txt`},
	{"line ends by configuration", `git config core.autocrlf true; printf 'one\r\ntwo\r\n' >dir/a.txt; printf 'x\r\n' >n.txt`},
	{"another encoding", `printf '*.u working-tree-encoding=UTF-16LE\n' >.gitattributes; printf 'a\0b\0' >x.u; git add .; printf 'a\0c\0' >x.u`},
	{"encoding that is not", `printf '*.u working-tree-encoding=UTF-16LE\n' >.gitattributes; printf 'odd' >x.u`},
	{"mode is not looked at", `git config core.fileMode false; chmod +x README; echo more >>dir/a.txt; chmod +x dir/a.txt`},
	{"split index", `git config core.splitIndex true; git update-index --split-index; echo n >new; git add new; echo m >>README`},
	{"compressed index", `git update-index --index-version 4; echo n >dir/new; git add dir/new`},
	{"detached", `git checkout -q --detach; echo more >>README; git add README`},
	{"merge in progress", `git checkout -qb other side; echo o >o; git add o; git commit -qm o; git merge -q --no-commit --no-ff main`},
	{"everything", `echo a >>README; git add README; echo b >>README; rm dir/a.txt; git mv run.sh go.sh; mkdir n; echo n >n/n; git add -N n/n; ln -s n k; git add k; rm k`},
}

// The story that git tells inside is the one it tells in the user's checkout;
// the user's is not touched; and what the task began with is no work of its own.
func TestCarryMatrix(t *testing.T) {
	for i, c := range carrySetups {
		if testing.Short() && i%4 != 0 {
			continue
		}
		for _, h := range []task.History{task.HistoryFull, task.HistoryBase, task.HistoryNone} {
			if h != task.HistoryFull && c.name != "everything" && c.name != "staged" {
				continue
			}
			t.Run(c.name+" "+string(h), func(t *testing.T) {
				l := basic(t)
				l.sh(c.script)
				files, meta := picture(t, l.repo, func(p string) bool { return p == ".git" || strings.HasPrefix(p, ".git/") }), stats(t, l.repo+"/.git")
				o := l.open(Options{Dirty: task.DirtyChanged, History: h})
				if picture(t, l.repo, func(p string) bool { return p == ".git" || strings.HasPrefix(p, ".git/") }) != files {
					t.Error("the user's files were changed")
				}
				if got := stats(t, l.repo+"/.git"); got != meta {
					t.Errorf("the user's repository was touched: %s", lineDiff(meta, got))
				}
				o.sameStory(c.name)
				if w := o.work(); !w.Empty() {
					t.Errorf("an untouched task has work: %+v", w)
				}
				var diff bytes.Buffer
				if err := Diff(context.Background(), o.ws, &diff, DiffOptions{}); err != nil || diff.Len() > 0 {
					t.Errorf("diff of an untouched task: %v\n%s", err, diff.String())
				}
				o.in("fsck", "--strict")
			})
		}
	}
}

// TestCarryRacy carries a file that was changed in the very moment in which the
// index was written: its times, size and number are those that the index has, and
// only the age of the index tells git to look at it. The same goes for what is
// said of a checkout that is not carried.
func TestCarryRacy(t *testing.T) {
	for _, c := range []struct {
		name        string
		flags, more uint16
	}{
		{"plain", 0, 0},
		{"assumed unchanged", assumedValid, 0},
		{"skipped", 0, skipWorktree},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := basic(t)
			l.racy("README", "two\n", c.flags, c.more)
			hidden := c.flags|c.more != 0
			if got := l.git("diff-files", "--name-only"); (got == "") != hidden {
				t.Fatalf("control: plain git sees %q", got)
			}
			said := l.open(Options{})
			text, err := Uncommitted(context.Background(), said.r, said.ws)
			if err != nil || !hidden && !strings.Contains(text, "README") {
				t.Errorf("what is said of the checkout: %q %v", text, err)
			}
			o := l.open(Options{Dirty: task.DirtyChanged})
			o.sameStory(c.name)
			if w := o.work(); !w.Empty() {
				t.Errorf("an untouched task has work: %+v", w)
			}
		})
	}
}

// racy writes a file, and the index as if it had said so of the content before,
// in the same moment.
func (l *lab) racy(name, text string, flags, more uint16) {
	l.t.Helper()
	l.git("update-index", "--index-version", "2")
	l.write(name, text)
	then := time.Now().Add(-time.Hour) // long before any copy of the index
	if err := os.Chtimes(l.repo+"/"+name, then, then); err != nil {
		l.t.Fatal(err)
	}
	index := l.repo + "/.git/index"
	raw, err := os.ReadFile(index)
	if err != nil {
		l.t.Fatal(err)
	}
	entries, err := parseIndex(raw, "sha1")
	if err != nil {
		l.t.Fatal(err)
	}
	fi, err := os.Lstat(l.repo + "/" + name)
	if err != nil {
		l.t.Fatal(err)
	}
	st := fi.Sys().(*syscall.Stat_t)
	for i := range entries {
		e := &entries[i]
		if e.path != name {
			continue
		}
		if int64(e.size) != fi.Size() {
			l.t.Fatalf("%q has another size than %q had", name, text)
		}
		e.mtimeS, e.mtimeN = uint32(st.Mtim.Sec), uint32(st.Mtim.Nsec)
		e.ctimeS, e.ctimeN = uint32(st.Ctim.Sec), uint32(st.Ctim.Nsec)
		e.flags, e.more = e.flags|flags, e.more|more
	}
	if err := os.WriteFile(index, writeIndex(entries, "sha1"), 0o644); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Chtimes(index, fi.ModTime(), fi.ModTime()); err != nil {
		l.t.Fatal(err)
	}
}

// sameStory compares status, index and files of the user's checkout and the
// task's.
func (o *opened) sameStory(name string) {
	t := o.t
	t.Helper()
	args := []string{"status", "--porcelain=v2", "-z", "--untracked-files=all"}
	want, got := o.plain(o.repo, args...), o.plain(o.p.Source, args...)
	if got != want {
		t.Errorf("status differs:\nuser %q\ntask %q", want, got)
	}
	want, got = o.plain(o.repo, "ls-files", "-s", "-z"), o.plain(o.p.Source, "ls-files", "-s", "-z")
	if got != want {
		t.Errorf("index differs:\nuser %q\ntask %q", want, got)
	}
	if strings.HasPrefix(name, "line ends") || name == "another encoding" {
		return // what is unchanged was checked out anew, as git does it
	}
	for _, f := range strings.Split(strings.TrimSuffix(o.plain(o.repo, "ls-files", "-z", "-c", "-o", "--exclude-standard"), "\x00"), "\x00") {
		a, e1 := os.Lstat(o.repo + "/" + f)
		b, e2 := os.Lstat(o.p.Source + "/" + f)
		if (e1 == nil) != (e2 == nil) {
			t.Errorf("%q: %v, %v", f, e1, e2)
			continue
		}
		if e1 != nil || name == "mode is not looked at" {
			continue
		}
		if a.Mode() != b.Mode() {
			t.Errorf("%q: mode %v, inside %v", f, a.Mode(), b.Mode())
		}
		if a.Mode().IsRegular() {
			x, _ := os.ReadFile(o.repo + "/" + f)
			y, _ := os.ReadFile(o.p.Source + "/" + f)
			if !bytes.Equal(x, y) {
				t.Errorf("%q: other content inside", f)
			}
		}
	}
}
