//go:build linux

package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// lab is a user with a home, a repository and a state folder.
type lab struct {
	t     *testing.T
	top   string // everything is below
	repo  string
	env   []string
	state string
}

// newLab makes a user without a repository.
func newLab(t *testing.T) *lab {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, top: top, repo: top + "/repo", state: top + "/state"}
	for _, d := range []string{l.repo, l.state, top + "/home"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.env = []string{
		"HOME=" + top + "/home", "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org",
	}
	l.write("../home/.gitconfig", "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n[maintenance]\n\tauto = false\n")
	return l
}

// plain runs the user's own git, with everything it would honour.
func (l *lab) plain(dir string, args ...string) string {
	l.t.Helper()
	out, err := l.tryGit(dir, nil, args...)
	if err != nil {
		l.t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return out
}

func (l *lab) tryGit(dir string, env []string, args ...string) (string, error) {
	c := exec.Command("git", args...)
	c.Dir, c.Env = dir, append(append([]string(nil), l.env...), env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func (l *lab) git(args ...string) string { return strings.TrimSpace(l.plain(l.repo, args...)) }

func (l *lab) write(name, text string) {
	l.t.Helper()
	p := filepath.Join(l.repo, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) commit(msg string) string {
	l.t.Helper()
	l.git("add", "-A")
	l.git("commit", "-qm", msg)
	return l.git("rev-parse", "HEAD")
}

// full asks for the whole of what is cut to a sample by default.
var full = os.Getenv("CAISSON_TEST_FULL") != ""

// count is how often or how much: a sample, or all of it.
func count(sample, all int) int {
	if full {
		return all
	}
	return sample
}

// firstBasic is what buildBasic made the first time.
var firstBasic struct {
	sync.Mutex
	entries []keptName
}

// keptName is one name of a remembered folder.
type keptName struct {
	name string // below the folder
	mode fs.FileMode
	time time.Time
	data []byte // of a file, or the target of a link
}

// remember reads a whole folder.
func remember(dir string) ([]keptName, error) {
	var out []keptName
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		e := keptName{name: p[len(dir):], mode: fi.Mode(), time: fi.ModTime()}
		switch e.mode.Type() {
		case 0:
			e.data, err = os.ReadFile(p)
		case fs.ModeSymlink:
			var to string
			to, err = os.Readlink(p)
			e.data = []byte(to)
		}
		out = append(out, e)
		return err
	})
	return out, err
}

// replay makes a remembered folder again.
func replay(dir string, entries []keptName) error {
	for _, e := range entries {
		p := dir + e.name
		var err error
		switch e.mode.Type() {
		case fs.ModeDir:
			err = os.Mkdir(p, 0o700)
		case fs.ModeSymlink:
			err = os.Symlink(string(e.data), p)
		default:
			err = os.WriteFile(p, e.data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	for _, e := range slices.Backward(entries) { // folders after what is in them
		if e.mode.Type() == fs.ModeSymlink {
			continue
		}
		if err := errors.Join(os.Chmod(dir+e.name, e.mode.Perm()), os.Chtimes(dir+e.name, e.time, e.time)); err != nil {
			return err
		}
	}
	return nil
}

// basic is a repository with two commits, a branch, a tag and a remote ref.
// Git makes it once; the others have the same bytes, and an index that git
// itself has looked over.
func basic(t *testing.T) *lab {
	t.Helper()
	firstBasic.Lock()
	defer firstBasic.Unlock()
	if firstBasic.entries == nil {
		l := buildBasic(t)
		var err error
		if firstBasic.entries, err = remember(l.repo); err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := newLab(t)
	if err := replay(l.repo, firstBasic.entries); err != nil {
		t.Fatal(err)
	}
	l.git("update-index", "-q", "--refresh")
	return l
}

func buildBasic(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	l.git("init", "-q")
	l.write("README", "one\n")
	l.write("dir/a.txt", "a\n")
	l.write(".gitignore", "*.log\n/build/\n")
	l.commit("one")
	l.write("dir/b.txt", "b\n")
	l.write("run.sh", "#!/bin/sh\n")
	if err := os.Chmod(l.repo+"/run.sh", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("dir/a.txt", l.repo+"/link"); err != nil {
		t.Fatal(err)
	}
	l.commit("two")
	l.git("branch", "side", "HEAD^")
	l.git("tag", "-a", "v1", "-m", "v1")
	l.git("update-ref", "refs/remotes/origin/main", "HEAD^")
	l.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
	return l
}

// opened is a task whose source was prepared.
type opened struct {
	*lab
	ws   Workspace
	r    *Repo
	p    *Prepared
	objs string // stands for the reserved path inside
}

func (l *lab) inspect(o Options) (*Repo, error) {
	if o.Dir == "" {
		o.Dir = l.repo
	}
	if o.Env == nil {
		o.Env = []string{"HOME=" + l.top + "/home", "GIT_CONFIG_NOSYSTEM=1"}
	}
	return Inspect(context.Background(), o)
}

// open prepares a task. The place where objects would be mounted is simulated
// by a folder of links, which real git follows as it would follow the mount.
func (l *lab) open(o Options) *opened {
	l.t.Helper()
	r, err := l.inspect(o)
	if err != nil {
		l.t.Fatalf("inspect: %v", err)
	}
	return l.prepare(r)
}

func (l *lab) prepare(r *Repo) *opened {
	l.t.Helper()
	id := task.NewID()
	op := &opened{lab: l, r: r, objs: l.top + "/objects-" + string(id), ws: Workspace{Task: id, Dir: l.state + "/" + string(id)}}
	for _, d := range []string{op.ws.Dir, op.objs} {
		if err := os.Mkdir(d, 0o700); err != nil {
			l.t.Fatal(err)
		}
	}
	for i, d := range r.Objects {
		if err := os.Symlink(d, fmt.Sprintf("%s/%d", op.objs, i)); err != nil {
			l.t.Fatal(err)
		}
	}
	p, err := Prepare(context.Background(), r, op.ws, Inside{ObjectsDir: op.objs, UID: os.Getuid() + 1000, GID: os.Getgid() + 1000})
	if err != nil {
		l.t.Fatalf("prepare: %v (hint: %s)", err, task.HintOf(err))
	}
	op.p = p
	return op
}

// in runs git as the task would.
func (o *opened) in(args ...string) string {
	o.t.Helper()
	return strings.TrimSpace(o.plain(o.p.Source, args...))
}

func (o *opened) file(name, text string) {
	o.t.Helper()
	p := filepath.Join(o.p.Source, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		o.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		o.t.Fatal(err)
	}
}

func (o *opened) work() *task.Work {
	o.t.Helper()
	w, err := Work(context.Background(), o.ws)
	if err != nil {
		o.t.Fatalf("work: %v", err)
	}
	return w
}

// bundle runs the bundle command as a throwaway boundary would.
func (o *opened) bundle() []byte {
	o.t.Helper()
	argv, env, err := BundleCommand(context.Background(), o.ws)
	if err != nil {
		o.t.Fatal(err)
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir, c.Env = o.p.Source, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/"}, env...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		o.t.Logf("bundle: %v: %s", err, errs.String())
	}
	return out.Bytes()
}

func (o *opened) imports(b []byte) []task.ResultRef {
	o.t.Helper()
	rs, err := Import(context.Background(), o.ws, bytes.NewReader(b), 64<<20)
	if err != nil {
		o.t.Fatalf("import: %v", err)
	}
	return rs
}

// picture lists every name below dir with kind, mode, size and content hash,
// without what skip says.
func picture(t *testing.T, dir string, skip func(string) bool) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if skip != nil && skip(rel) {
			return nil
		}
		st, err := os.Lstat(p)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%q %v", rel, st.Mode())
		if st.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			h := sha256.Sum256(b)
			line += fmt.Sprintf(" %d %s %d", st.Size(), hex.EncodeToString(h[:]), st.ModTime().UnixNano())
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// notOurs leaves out refs below refs/caisson and objects, which only grow.
func notOurs(rel string) bool {
	return strings.HasPrefix(rel, ".git/refs/caisson") || strings.HasPrefix(rel, ".git/objects")
}

// has fails unless got equals want as a set.
func has(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	g, w := append([]string(nil), got...), append([]string(nil), want...)
	sort.Strings(g)
	sort.Strings(w)
	if strings.Join(g, "\x00") != strings.Join(w, "\x00") {
		t.Errorf("%s: got %q, want %q", what, g, w)
	}
}

// run starts any program with the lab's environment.
func (l *lab) run(dir, prog string, args ...string) (string, error) {
	c := exec.Command(prog, args...)
	c.Dir, c.Env = dir, l.env
	out, err := c.CombinedOutput()
	return string(out), err
}
