//go:build linux

package exact

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// fileNames are names that a tool loses, quotes twice, or takes for something else.
var fileNames = []string{
	"with space", " lead", "trail ", "é", "日本", "new\nline", "ta\tb", "c\rr", "x -> y", "=>", "-lead", "--output=x", "\"quoted\"", "one'quote", ":(glob)**", ":(top)x", ":!x", ":", "back\\slash", "\\", "*", "?", "[a-z]", "{a,b}",
	"\xff\xfe", "ok\xc3", "\xed\xa0\x80", "\xc0\xaf", "\x01", "\x1b[2J", "\x1b]0;x\x07", "\x7f", "\u009b31m", "\u202egnp.exe", "\u2066x", "\u200bzero", "\u2028", "\ufeffbom", "nfc\u00e9", "nfd\u0065\u0301", "Case", "case", "CASE",
	"#x", "!x", "~", "~root", "%s%n", "$(touch x)", "`x`", "a;b", "a|b", "&", "<x>", "HEAD", "refs", "con", "aux.c", "a:b", "dot.", "...", "git~2", ".gitx", "gitmodules", "a.lock", "@{-1}", strings.Repeat("n", 255), strings.Repeat("é", 127), "👩‍🚀",
}

// targets of symbolic links, odd ones. None is followed.
var targets = []string{
	"a.txt", "..", ".", "/", "/etc/passwd", "../../../../etc/shadow", "nowhere", "self", "-x", "--output=x", ":(glob)", "with space", "new\nline", "ta\tb", "\xff\xfe", "\x1b[2J", "é", "a//b", "a/", "./a.txt", "/proc/self/root", strings.Repeat("t/", 2000) + "end", ".git/config", "x -> y", "\"q\"", "\\",
}

// TestFileNames has every name as a file, a folder and a link, and changes,
// moves, adds and takes away each: every way out is what plain git says.
func TestFileNames(t *testing.T) {
	each(t, "", func(w *world) {
		t := w.t
		w.Mkdir(t, w.repo)
		w.git("init", "-q", "-b", "main")
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		link := func(dir, name, to string) {
			w.Mkdir(t, dir)
			must(os.Symlink(to, filepath.Join(dir, name)))
			must(os.Lchown(filepath.Join(dir, name), w.UID, w.UID))
		}
		w.Write(t, w.repo+"/a.txt", "a\n", 0o644)
		for i, n := range fileNames {
			w.Write(t, w.repo+"/change/"+n, fmt.Sprintf("change %d\n", i), 0o644)
			w.Write(t, w.repo+"/delete/"+n, fmt.Sprintf("delete %d\n", i), 0o755)
			w.Write(t, w.repo+"/folder/"+n+"/in", fmt.Sprintf("in %d\n", i), 0o644)
			w.Write(t, w.repo+"/kind/"+n, fmt.Sprintf("soon a link %d\n", i), 0o644)
			w.Write(t, fmt.Sprintf("%s/rename/%d", w.repo, i), strings.Repeat(fmt.Sprintf("rename %d\n", i), 9), 0o644)
			link(w.repo+"/links", n, n)
		}
		for i, to := range targets {
			link(w.repo+"/targets", fmt.Sprint(i), to)
		}
		for i := range 80 { // longer than any kernel follows, and one that bites its tail
			link(w.repo+"/chain", fmt.Sprint(i), fmt.Sprint(i+1))
		}
		link(w.repo+"/chain", "80", "0")
		for i, mode := range []os.FileMode{0o600, 0o700, 0o755, 0o444, 0o555, 0o111 | 0o400, 0o666, 0o777} {
			w.Write(t, fmt.Sprintf("%s/modes/%d", w.repo, i), "m\n", mode)
		}
		w.sh(w.repo, "git add -A; git commit -qm names")
		w.clone(w.plain, "")
		base := w.git("rev-parse", "HEAD")
		id := w.open()
		harness.Same(t, "inside against a plain clone", w.inside(id), harness.Files(t, w.plain))

		// The same program edits both; it gets the names by a file, not by a shell.
		edit := w.Dir + "/edit.py"
		w.Write(t, edit, editNames, 0o644)
		w.Write(t, w.Dir+"/names", strings.Join(fileNames, "\x00"), 0o644)
		w.Write(t, w.Dir+"/targets", strings.Join(targets, "\x00"), 0o644)
		for name, text := range map[string]string{"edit.py": editNames, "names": strings.Join(fileNames, "\x00"), "targets": strings.Join(targets, "\x00")} {
			cmd := w.exec(id, []byte(text), "sh", "-c", "mkdir -p /tmp/e; cat >/tmp/e/"+name)
			if cmd.Exit != 0 {
				t.Fatal(cmd)
			}
		}
		w.in(id, "python3 /tmp/e/edit.py /tmp/e; git add -A change rename; git commit -qm 'part of it'; git add -A kind")
		w.sh(w.plain, "python3 ../edit.py ..")
		if n := w.matches(id, base); n < 5*len(fileNames) {
			t.Errorf("only %d changes: a dead test", n)
		}
		// What a person sees of it does nothing to a terminal.
		for _, args := range [][]string{{"diff", "--stat", id}, {"diff", "--name-status", id}, {"apply", "--dry-run", id}, {"show", id}, {"show", "-v", id}, {"log", id}, {"close", "--dry-run", id}, {"diff", id, "--", "change/\x1b[2J", "nowhere\x1b[2J\n"}} {
			r := w.do(args...)
			w.clear(r)
		}
		w.applies(id, base)
		w.sh(w.repo, "git reset -q --hard; git clean -qfdx")
		r := w.do("close", "--keep", "never", id)
		w.clear(r)
		if r.Exit != 0 && r.Exit != 7 {
			t.Error(r)
		}
		// After the end: from the refs, the same.
		w.matches(id, base)
		w.homeUntouched()
	})
}

// editNames is the edit: argument 1 is the folder with the lists.
const editNames = `
import os, sys, shutil
names = open(os.path.join(sys.argv[1], 'names'), 'rb').read().split(b'\0')
targets = open(os.path.join(sys.argv[1], 'targets'), 'rb').read().split(b'\0')
os.makedirs('new'); os.makedirs('newlinks')
for i, n in enumerate(names):
    open(b'change/' + n, 'ab').write(b'more\n')
    os.remove(b'delete/' + n)
    os.rename(b'folder/' + n + b'/in', b'folder/' + n + b'/out') if i % 3 else shutil.rmtree(b'folder/' + n)
    os.remove(b'kind/' + n); os.symlink(n, b'kind/' + n) if i % 2 else (os.mkdir(b'kind/' + n), open(b'kind/' + n + b'/deep', 'w').write('x'))
    os.rename(b'rename/%d' % i, b'rename/' + n)
    os.remove(b'links/' + n); open(b'links/' + n, 'w').write('a file now\n')
    open(b'new/' + n, 'wb').write(b'new %d\n' % i)
for i, to in enumerate(targets):
    os.symlink(to, b'newlinks/%d' % i)
    p = b'targets/%d' % i; os.remove(p); os.symlink(targets[i - 1], p)
for i in range(0, 81, 2): os.remove('chain/%d' % i)
for i, m in enumerate([0o755, 0o600, 0o644, 0o555, 0o444, 0o644, 0o777, 0o4755]): os.chmod('modes/%d' % i, m)
p = b'.'
while len(p) < 3700:
    p += b'/' + b'd' * 200; os.mkdir(p)
open(p + b'/deepest', 'w').write('deep\n')
`

// TestNameLimits makes inside what no plain clone can have: paths beyond every
// limit, names of git's own. All of it is taken, moved aside or named; nothing
// disappears without a word.
func TestNameLimits(t *testing.T) {
	one(t, "", func(w *world) {
		t := w.t
		w.repo = w.Repo(t, map[string]string{"a.txt": "a\n"})
		id := w.open()
		w.exec(id, []byte(`
import os
open('good', 'w').write('good\n')
here = os.open('.', os.O_RDONLY)
os.mkdir('deep'); os.chdir('deep')
for i in range(1500): os.mkdir('d' * 20); os.chdir('d' * 20)
open('bottom', 'w').write('deep work\n')
os.fchdir(here)
os.makedirs('odd')
for n in ['.git ', '.GIT', 'git~1', '.git.', '.g\u200cit', '.git::$INDEX_ALLOCATION']:
    try: open('odd/' + n, 'w').write('odd work\n')
    except OSError: pass
os.mkfifo('odd/fifo'); os.symlink('odd', '.gitmodules'); os.mkdir('odd/empty')
for i in range(300): os.symlink('link%d' % (i + 1), 'link%d' % i)
os.symlink('l' * 4095, 'odd/longest')
`), "python3", "-")
		work := w.do("close", "--dry-run", "--json", id)
		for _, r := range []string{"diff", "branch"} {
			v := w.do(r, id)
			if v.Exit != 0 {
				w.refused(v, "")
			}
			w.clear(v)
		}
		end := w.do("close", id)
		w.clear(end)
		got := w.shell(w.repo, nil, "git cat-file -p refs/caisson/"+id+"/worktree:good").Stdout
		switch state := harness.Decode[struct{ State string }](t, w.ok("show", "--json", id)).State; {
		case end.Exit == 0 && got == "good\n", end.Exit == 7 && (got == "good\n" || state == "kept"):
		default:
			t.Errorf("exit %d, state %s, and the good file is %q: %v\n%v", end.Exit, state, got, end, work)
		}
		// What no tree can hold is somewhere, or still there.
		found := w.shell(w.State, nil, "grep -rlaE 'odd work|deep work' tasks 2>/dev/null | wc -l; find tasks -name bottom 2>/dev/null | wc -l; find tasks -name '*.tar*' -o -name kept 2>/dev/null").Stdout
		if !strings.Contains(end.Stdout+end.Stderr+work.Stdout, "odd") {
			t.Errorf("what cannot be in a tree is not named: %v", end)
		}
		t.Logf("kept: %s", found)
		w.ok("close", "--discard", id)
		var st syscall.Stat_t
		if err := syscall.Lstat(w.State+"/tasks/"+id+"/source", &st); err == nil {
			t.Error("the files are still there")
		}
	})
}
