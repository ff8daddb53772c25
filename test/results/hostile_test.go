//go:build linux

package results

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/test/harness"
)

// brief runs the commands of ours that touch a result, each once.
func (p *place) brief(id string) (all []harness.Result) {
	p.t.Helper()
	out := fmt.Sprintf("%s/%s.%d.", p.Dir, id, time.Now().UnixNano())
	for _, args := range [][]string{
		{"diff", id}, {"apply", "--dry-run", id}, {"branch", id, "got-" + id}, {"export", "--bundle", "-o", out + "b", id}, {"export", "--dir", out + "d", id}, {"log", id},
	} {
		all = append(all, p.do(args...))
	}
	return all
}

// clear checks that every answer is one: done, or a typed error that is no bug.
func (p *place) clear(what string, all []harness.Result) {
	p.t.Helper()
	for _, r := range all {
		if r.Exit != 0 && r.Exit != 7 && (!strings.Contains(r.Stderr, "caisson: error: ") || strings.Contains(r.Stderr, "(internal)")) || strings.Contains(r.Stderr, "panic") || r.Exit == 2 {
			p.t.Errorf("%s: not a clear answer: %v", what, r)
		}
		if steering.MatchString(r.Stderr) {
			p.t.Errorf("%s: control characters in messages: %q", what, r.Stderr)
		}
	}
}

// swaps are what a task puts in the place of its git directory (P09, A1, A3,
// A16). $M leaves the mark when git runs it on the host, $OUT is a folder of the
// host outside of the task, with a repository of the user's and a secret.
var swaps = []struct{ name, make string }{
	{"missing", "rm -rf .git"},
	{"pointer to a folder inside", "mv .git evil; git -C evil config core.fsmonitor \"$M\" || :; git --git-dir=evil config core.worktree \"$PWD\"; printf 'gitdir: evil\\n' >.git"},
	{"pointer out", "rm -rf .git; printf 'gitdir: %s\\n' \"$OUT/.git\" >.git"},
	{"link inside", "mv .git evil; ln -s evil .git"},
	{"link out", "rm -rf .git; ln -s \"$OUT/.git\" .git"},
	{"fifo", "rm -rf .git; mkfifo .git"},
	{"commondir out", "printf '%s\\n' \"$OUT/.git\" >.git/commondir"},
	{"worktree out", "git config core.worktree \"$OUT\""},
	{"objects out", "rm -rf .git/objects; ln -s \"$OUT/.git/objects\" .git/objects"},
	{"HEAD out", "rm .git/HEAD; ln -s \"$OUT/.secret/f\" .git/HEAD"},
	{"alternates out", "mkdir -p .git/objects/info; printf '%s\\n' \"$OUT/.git/objects\" >>.git/objects/info/alternates"},
	{"grafts and shallow", "mkdir -p .git/info; c=$(git rev-parse HEAD); printf '%s\\n' $c >.git/shallow; printf '%s\\n' $c >.git/info/grafts"},
	{"replace", "c=$(git rev-parse HEAD); n=$(git commit-tree -m evil $(git rev-parse HEAD^{tree})); git replace -f $c $n"},
	{"objects cut", "git commit -qm c --allow-empty; git repack -dq; for f in .git/objects/pack/*.pack; do chmod u+w $f; truncate -s 50 $f; done"},
	{"objects damaged", "git commit -qm c --allow-empty; for f in $(find .git/objects -type f -path '*/??/*'); do chmod u+w $f; printf 'xxxxxxxx' >$f; done"},
	{"refs of nonsense", "printf '%s\\n' ../../../x >.git/refs/heads/a; printf 'ref: refs/heads/b\\n' >.git/refs/heads/b; printf '%040d\\n' 0 >.git/refs/heads/c; printf '%040d\\n' 1 >.git/refs/heads/d; printf 'ref: ../../x' >.git/refs/heads/e; head -c 3000000 /dev/zero >.git/packed-refs"},
	{"sha256", "rm -rf .git; git init -q --object-format=sha256; git add a.txt; git commit -qm c"},
}

// moreSwaps are further forms of the same, for a nightly run.
var moreSwaps = []struct{ name, make string }{
	{"empty", "rm -rf .git; mkdir .git"},
	{"pointer to itself", "rm -rf .git; printf 'gitdir: .git\\n' >.git"},
	{"garbage file", "rm -rf .git; head -c 100000 /dev/urandom >.git"},
	{"link in a circle", "rm -rf .git; ln -s .git .git"},
	{"bare in its place", "rm -rf .git; git init -q --bare x; mv x .git; git --git-dir=.git config core.fsmonitor \"$M\""},
	{"refs out", "rm -rf .git/refs; ln -s \"$OUT/.git/refs\" .git/refs"},
	{"config out", "rm .git/config; ln -s \"$OUT/.git/config\" .git/config"},
	{"index out", "rm .git/index; ln -s \"$OUT/.git/index\" .git/index"},
	{"objects gone", "git commit -qm c --allow-empty; rm -rf .git/objects; mkdir -p .git/objects/info .git/objects/pack"},
	{"HEAD of nonsense", "printf 'ref: refs/heads/--upload-pack=x\\n' >.git/HEAD"},
	{"index of nonsense", "head -c 100000 /dev/urandom >.git/index"},
	{"sparse and split", "git config core.sparseCheckout true; mkdir -p .git/info; echo nothing >.git/info/sparse-checkout; git update-index --split-index"},
	{"reftable claimed", "git config core.repositoryFormatVersion 1; git config extensions.refStorage reftable"},
	{"format 99", "git config core.repositoryFormatVersion 99"},
}

// TestSwapped gives every form of a swapped git directory to every command.
// The files that the task changed come back exactly, nothing is executed,
// nothing outside is read or written.
func TestSwapped(t *testing.T) {
	each(t, map[string]string{"a.txt": "a\n", "b.txt": "b\n"}, func(p *place) {
		out := p.Repo(p.t, map[string]string{"stolen.txt": "STOLEN\n"})
		p.Write(p.t, out+"/.secret/f", secret, 0o600)
		victim := harness.TakePicture(p.t, out)
		all := swaps
		if count(0, 1) == 1 {
			all = slices.Concat(swaps, moreSwaps)
		}
		for i, s := range all {
			if !p.mine(i) {
				continue
			}
			id := p.open()
			p.in(id, fmt.Sprintf("M='%s'; OUT='%s'\necho new >new.txt; echo more >>a.txt; rm b.txt\n%s", p.mark("swap"), out, s.make))
			var all []harness.Result
			if i/2%3 == 0 || count(0, 1) == 1 {
				all = p.brief(id)
			}
			got := p.do("diff", "--name-status", "-z", id)
			if f := strings.Split(got.Stdout, "\x00"); got.Exit != 0 || !slices.Contains(f, "a.txt") || !slices.Contains(f, "new.txt") || !slices.Contains(f, "b.txt") {
				p.t.Errorf("%s: the change set is %v", s.name, got)
			}
			for _, r := range all {
				if strings.Contains(r.Stdout, "STOLEN") || strings.Contains(r.Stdout, secret) {
					p.t.Errorf("%s: content from outside in %v", s.name, r)
				}
			}
			all = append(all, p.do("apply", "--allow-risky", "--yes", id))
			if r := all[len(all)-1]; r.Exit != 0 || read(p.t, p.repo+"/a.txt") != "a\nmore\n" || exists(p.repo+"/b.txt") || exists(p.repo+"/stolen.txt") {
				p.t.Errorf("%s: apply: %v", s.name, r)
			}
			end := p.do("close", id)
			all = append(all, end)
			p.clear(s.name, all)
			if b := p.shell(p.repo, "git cat-file -p 'refs/caisson/"+id+"/worktree:new.txt'"); b.Stdout != "new\n" && end.Exit == 0 {
				p.t.Errorf("%s: closed, and the new file is not in a ref: %v %v", s.name, b, end)
			}
			if end.Exit != 0 && end.Exit != 7 {
				p.t.Logf("%s: close: %v", s.name, end)
				p.ok("close", "--discard", id)
			}
			p.sh(p.repo, "git reset -q --hard; git clean -qfdx")
		}
		for _, d := range victim.Changed(harness.TakePicture(p.t, out)) {
			p.t.Errorf("a repository outside: %s", d)
		}
		p.clear("swapped", []harness.Result{p.do("reap")})
		p.unmarked("swapped")
		p.git("fsck", "--strict", "--no-dangling")
		if refs := p.git("for-each-ref", "--format=%(refname)"); strings.Contains(strings.ReplaceAll(refs, "refs/heads/got-", ""), "refs/heads/got") || strings.Contains(refs, "evil") {
			p.t.Errorf("refs: %s", refs)
		}
	})
}

// TestUnfit fills a task with what no tree holds or a checkout must never get:
// forms of .git, special files, links where git has its own files (P06, A2).
func TestUnfit(t *testing.T) {
	forms := []string{".GIT", ".Git", ".git ", ".git.", ".git...", "git~1", "GIT~1", ".git\u200c", ".g\u200cit", "\ufeff.git", ".git::$INDEX_ALLOCATION", ".git\\x", "sub/.git", "sub/.GIT", "sub/.g\u200ciT"}
	harmless := []string{".gıt", "git", ".gitx", ".git-x", "x.git", "sub/git~2", ".gitk"}
	each(t, map[string]string{"a.txt": "a\n"}, func(p *place) {
		id := p.open()
		script := "import os, socket\ndef w(p, n='config'):\n    try:\n        os.makedirs(p, exist_ok=True); open(p+'/'+n, 'w').write('[core]\\n\\tfsmonitor = " + p.mark("unfit") + "\\n')\n    except OSError as e: print(p, e)\n"
		for _, f := range append(forms, harmless...) {
			script += fmt.Sprintf("w(%s); w(%s, 'HEAD')\n", pyquote("f/"+f), pyquote("f/"+f))
			if f != ".git" {
				script += fmt.Sprintf("w(%s)\n", pyquote(f))
			}
		}
		script += `
os.mkfifo('fifo'); socket.socket(socket.AF_UNIX).bind('sock')
open('hard1','w').write('hard'); os.link('hard1','hard2'); os.link('a.txt', 'hard3')
os.symlink('.git/config', 'm/.gitmodules') if os.makedirs('m') is None else 0
os.symlink('/etc/passwd', 'abs'); os.symlink('` + p.Home + `/.secret/f', 'in.txt'); os.symlink('../../../../../../../../etc', 'up'); os.symlink('loop', 'loop'); os.symlink('.git', 'gitlink')
try: os.mknod('dev', 0o020666, os.makedev(1, 3))
except OSError: pass
os.mkdir('suid'); open('suid/x','w').write('x'); os.chmod('suid/x', 0o6755); os.chmod('suid', 0o2777)
try: os.setxattr('a.txt', 'user.x', b'evil')
except OSError: pass
`
		p.python(id, script)
		p.remember()
		stop := p.watch(p.Home + "/.secret")
		all := []harness.Result{p.do("diff", id)}
		if diff := all[0].Stdout; strings.Contains(diff, secret) || strings.Contains(diff, "root:x:0") {
			p.t.Error("a link was followed (P02)")
		}
		all = append(append(all, p.brief(id)...), p.do("diff", "--json", id))
		seen := stop()
		p.untouched("looking", afterPaths...)
		stop = p.watch(p.Home + "/.secret")
		all = append(all, p.do("apply", "--yes", "--allow-risky", id))
		seen = append(seen, stop()...)
		p.clear("unfit", all)
		p.unfit("the checkout", p.repo)
		dirs, _ := filepath.Glob(p.Dir + "/" + id + ".*.d")
		for _, d := range dirs {
			p.unfit("export --dir", d)
		}
		if out := p.shell(p.repo, "git ls-tree -r -z --name-only got-"+id); out.Exit == 0 {
			for _, n := range strings.Split(out.Stdout, "\x00") {
				for _, part := range strings.Split(n, "/") {
					if slices.Contains(forms, part) {
						p.t.Errorf("the branch has %q", n)
					}
				}
			}
		}
		p.outside("unfit")
		if len(seen) > 0 {
			p.t.Errorf("touched outside: %v", seen)
		}
		r := p.do("close", id)
		if r.Exit != 0 && r.Exit != 7 {
			p.t.Error(r)
		}
		p.unmarked("unfit")
		// What no tree holds is not lost either.
		kept := p.sh(p.State, "find tasks/"+id+" -name '*IT*' -o -name fifo | head")
		if !strings.Contains(kept, "GIT") {
			p.t.Errorf("what no tree can hold was not kept: %q; %v", kept, r)
		}
	})
}

// unfit checks a folder that a result was written to: nothing special, no
// form of .git, no set-id bits, no hard links, no attributes.
func (p *place) unfit(what, dir string) {
	p.t.Helper()
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err != nil {
			p.t.Error(err)
			return nil
		}
		if rel == ".git" {
			return filepath.SkipDir
		}
		plain := strings.ToLower(strings.NewReplacer("\u200c", "", "\ufeff", "").Replace(d.Name()))
		plain, _, _ = strings.Cut(plain, ":")
		plain, _, _ = strings.Cut(plain, "\\")
		if plain = strings.TrimRight(plain, ". "); plain == ".git" || plain == "git~1" {
			p.t.Errorf("%s has %q", what, rel)
		}
		i, err := d.Info()
		if err != nil {
			return nil
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && st.Nlink > 1 && !i.IsDir() {
			p.t.Errorf("%s: %q has %d names", what, rel, st.Nlink)
		}
		if i.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeDevice|os.ModeNamedPipe|os.ModeSocket) != 0 || i.Mode().IsDir() && i.Mode().Perm()&0o002 != 0 {
			p.t.Errorf("%s: %q is %v", what, rel, i.Mode())
		}
		return nil
	})
}

func pyquote(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, "\\x%02x", c)
	}
	return "os.fsdecode(b'" + b.String() + "')"
}

// watch tells what was opened or read in a folder of the host until stop is called.
func (p *place) watch(dir string) (stop func() []string) {
	p.t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		_, err = unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|unix.IN_ACCESS|unix.IN_MODIFY|unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVE|unix.IN_ATTRIB)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return func() (seen []string) {
		defer unix.Close(fd)
		buf := make([]byte, 64<<10)
		for {
			n, err := unix.Read(fd, buf)
			if err != nil || n <= 0 {
				return seen
			}
			seen = append(seen, fmt.Sprintf("%d bytes of events", n))
		}
	}
}

// swapper swaps d between a folder and a link out, without pause, and tells
// now and then how often it did.
const swapper = `
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.makedirs('d', exist_ok=True); open('d/f', 'w').write('inside\n'); os.symlink(sys.argv[1], 'l')
n = 0
while not os.path.exists('stop'):
    for i in range(1000):
        if libc.renameat2(-100, b'd', -100, b'l', 2) != 0: raise OSError('renameat2')
    n += 1000
print(n)
`

// TestSwapRace is P03: while a program inside swaps a folder with a link out,
// at least 10,000 times, every host path reads the task's files; nothing of
// what the link leads to is opened. The control does the same with plain tools.
func TestSwapRace(t *testing.T) {
	each(t, map[string]string{"a.txt": "a\n", "swap.py": swapper}, func(p *place) {
		id := p.open()
		target := p.Home + "/.secret"
		cmd := p.Command(p.t.Context(), p.Dir, harness.Bin(), "exec", id, "--", "python3", "swap.py", target)
		var out strings.Builder
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			p.t.Fatal(err)
		}
		src := p.State + "/tasks/" + id + "/source"
		for end := time.Now().Add(harness.Limit); !exists(src+"/l") && !exists(src+"/d") && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		stop := p.watch(target)
		var all []harness.Result
		for range count(3, 30) {
			all = append(all, p.brief(id)...)
			all = append(all, p.do("diff", id, "--", "d/f"), p.do("diff", id, "--", "d/"))
		}
		seen := stop()
		// The control: what a program does that opens by path.
		stop = p.watch(target)
		followed := false
		for end := time.Now().Add(harness.Limit); !followed && time.Now().Before(end); {
			b, _ := os.ReadFile(src + "/d/f")
			followed = string(b) == secret
		}
		if control := stop(); !followed || len(control) == 0 {
			p.t.Error("the control does not follow the link: a dead test")
		}
		p.in(id, "touch stop")
		if err := cmd.Wait(); err != nil {
			p.t.Error(err)
		}
		var n int
		if _, _ = fmt.Sscan(out.String(), &n); n < 10_000 {
			p.t.Errorf("only %d swaps", n)
		}
		p.t.Logf("%d swaps while %d commands ran", n, len(all))
		if len(seen) > 0 {
			p.t.Errorf("outside was touched: %v", seen)
		}
		for _, r := range all {
			if strings.Contains(r.Stdout, secret) {
				p.t.Errorf("outside was read: %v", r)
			}
		}
		p.clear("swaps", all)
		exported, _ := filepath.Glob(p.Dir + "/" + id + ".*.d")
		for _, dir := range exported {
			for name, text := range harness.Files(p.t, dir) {
				if strings.Contains(text, secret) {
					p.t.Errorf("outside was exported: %s in %s", name, dir)
				}
			}
		}
	})
}
