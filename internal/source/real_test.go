//go:build linux

package source

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// module copies the published source of a module from the module cache into
// the lab's repository, in two commits.
func module(t *testing.T, path string) *lab {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Skipf("the module cache does not hold %s (%v)", path, err)
	}
	l := newLab(t)
	l.git("init", "-q")
	var names []string
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		b, err := os.ReadFile(p)
		l.write(rel, string(b))
		names = append(names, rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	l.plain(l.repo, append([]string{"add", "--"}, names[:len(names)/2]...)...)
	l.git("commit", "-qm", "half")
	l.commit("all")
	return l
}

func TestRealProject(t *testing.T) {
	l := module(t, "github.com/spf13/cobra")
	before := picture(t, l.repo, notOurs)
	o := l.open(Options{})
	if o.in("status", "--porcelain", "--ignored") != "" || o.in("rev-list", "--count", "HEAD") != "2" {
		t.Error("the clone is not what the repository is")
	}
	if w := o.work(); !w.Empty() {
		t.Errorf("work: %+v", w)
	}
	o.in("mv", "command.go", "renamed.go")
	o.in("rm", "-q", "README.md")
	o.in("commit", "-qm", "rename and remove")
	o.file("args.go", "package cobra\n")
	var out bytes.Buffer
	if err := Diff(context.Background(), o.ws, &out, DiffOptions{NameStatus: true, NUL: true}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "D\x00README.md\x00M\x00args.go\x00R100\x00command.go\x00renamed.go\x00" {
		t.Errorf("%q", got)
	}
	if rs := o.imports(o.bundle()); len(rs) != 1 || rs[0].Count != 1 {
		t.Errorf("%+v", rs)
	}
	if picture(t, l.repo, notOurs) != before {
		t.Error("the user's repository changed")
	}
}

// TestIndexFitsInside shows that git inside, where files have another owner,
// takes the index as it is instead of reading every file again.
func TestIndexFitsInside(t *testing.T) {
	l := basic(t)
	r, err := l.inspect(Options{})
	if err != nil {
		t.Fatal(err)
	}
	inside := func(o *opened, args ...string) (string, error) {
		a := append([]string{"--user", "--map-user=1000", "--map-group=1000", "git"}, args...)
		out, err := l.run(o.p.Source, "unshare", a...)
		return strings.TrimSpace(out), err
	}
	for _, c := range []struct {
		uid   int
		clean bool
	}{{1000, true}, {os.Getuid() + 4321, false}} {
		o := l.prepareAs(r, c.uid)
		if out, err := inside(o, "rev-parse", "HEAD"); err != nil {
			t.Skipf("no user namespace to look from: %v %s", err, out)
		}
		out, err := inside(o, "diff-files", "--name-only")
		if err != nil || (out == "") != c.clean {
			t.Errorf("uid %d: stale entries %q, %v", c.uid, out, err)
		}
		if out, err := inside(o, "status", "--porcelain"); out != "" || err != nil {
			t.Errorf("uid %d: status %q %v", c.uid, out, err)
		}
	}
}

func (l *lab) prepareAs(r *Repo, uid int) *opened {
	l.t.Helper()
	id := task.NewID()
	o := &opened{lab: l, r: r, objs: l.top + "/objects-" + string(id), ws: Workspace{Task: id, Dir: l.state + "/" + string(id)}}
	for _, d := range []string{o.ws.Dir, o.objs} {
		if err := os.Mkdir(d, 0o700); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := os.Symlink(r.Objects[0], o.objs+"/0"); err != nil {
		l.t.Fatal(err)
	}
	p, err := Prepare(context.Background(), r, o.ws, Inside{ObjectsDir: o.objs, UID: uid, GID: uid})
	if err != nil {
		l.t.Fatal(err)
	}
	o.p = p
	return o
}

// TestTouchedIsNotChanged: a file whose time changed but not its content is
// no work; one that was changed and dated back is.
func TestTouchedIsNotChanged(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	p := o.p.Source + "/dir/a.txt"
	st, err := os.Stat(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(p, st.ModTime().Add(5e9), st.ModTime().Add(5e9)); err != nil {
		t.Fatal(err)
	}
	if w := o.work(); !w.Empty() {
		t.Errorf("touched: %+v", w)
	}
	if err := os.WriteFile(p, []byte("A\n"), 0o644); err != nil { // same size
		t.Fatal(err)
	}
	if err := os.Chtimes(p, st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	has(t, "dated back", o.work().Tracked, "dir/a.txt")
	if err := os.Chmod(o.p.Source+"/README", 0o755); err != nil {
		t.Fatal(err)
	}
	cs, err := Changes(context.Background(), o.ws, false)
	if err != nil || len(cs) != 2 || cs[0].NewMode != 0o100755 {
		t.Errorf("%+v %v", cs, err)
	}
}

func TestConversions(t *testing.T) {
	l := basic(t)
	l.git("config", "core.autocrlf", "true")
	l.write(".gitattributes", "*.dos text eol=crlf\n*.u16 text eol=lf working-tree-encoding=UTF-16LE\n")
	l.write("x.dos", "one\r\ntwo\r\n")
	l.write("x.u16", "h\x00i\x00\n\x00")
	l.commit("conversions")
	o := l.open(Options{})
	if o.in("status", "--porcelain") != "" || !o.work().Empty() {
		t.Errorf("not clean: %+v", o.work())
	}
	if b, _ := os.ReadFile(o.p.Source + "/x.u16"); string(b) != "h\x00i\x00\n\x00" {
		t.Errorf("not converted: %q", b)
	}
	o.file("y.dos", "a\r\nb\r\n")
	o.file("bad.u16", "odd") // no UTF-16: the conversion fails
	has(t, "untracked", o.work().Untracked, "y.dos", "bad.u16")
	snap, err := MakeSnapshot(context.Background(), o.ws)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := PublishSnapshot(context.Background(), o.ws, snap); err != nil {
		t.Fatal(err)
	}
	if got := l.git("cat-file", "blob", refPrefix(o.ws.Task)+"worktree:bad.u16"); got != "odd" {
		t.Errorf("bytes lost: %q", got)
	}
	if left, _ := filepath.Glob(o.ws.shadow() + "/stage-*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestIgnoreRules(t *testing.T) {
	l := basic(t)
	l.write(".git/info/exclude", "from-exclude\n")
	l.write("../home/.gitconfig", "[core]\n\texcludesFile = ~/ignore\n")
	l.write("../home/ignore", "from-global\n")
	l.write("keep/.gitignore", "*\n!.gitignore\n!wanted\n")
	l.write("build/tracked", "tracked in an ignored folder\n")
	l.git("add", "-f", "build/tracked")
	l.commit("rules")
	o := l.open(Options{})
	for _, n := range []string{"from-exclude", "from-global", "keep/x", "keep/wanted", "sub/deep/a.log", "sub/deep/b", "build/other", "new/.gitignore", "new/hidden", "node_modules/a/b/c"} {
		text := "x\n"
		if n == "new/.gitignore" {
			text = "hidden\n"
		}
		o.file(n, text)
	}
	o.file(".gitignore", "*.log\n/build/\nnode_modules/\n")
	w := o.work()
	has(t, "ignored", w.Ignored, "from-exclude", "from-global", "keep/x", "sub/deep/a.log", "build/other", "new/hidden", "node_modules")
	has(t, "untracked", w.Untracked, "keep/wanted", "sub/deep/b", "new/.gitignore")
	has(t, "tracked", w.Tracked, ".gitignore")
	// The same as git inside says, apart from the user's global file.
	st := o.in("status", "--porcelain", "--ignored", "-unormal")
	if !strings.Contains(st, "!! node_modules/") || !strings.Contains(st, "!! keep/x") {
		t.Errorf("status: %s", st)
	}
}

func TestManyFiles(t *testing.T) {
	l := newLab(t)
	l.git("init", "-q")
	for d := range 60 {
		for f := range 50 {
			l.write("d"+strconv.Itoa(d)+"/f"+strconv.Itoa(f), strconv.Itoa(d*f)+"\n")
		}
	}
	l.commit("many")
	o := l.open(Options{})
	for d := range 60 {
		for f := range 50 {
			o.file("n"+strconv.Itoa(d)+"/"+strings.Repeat("long", 20)+strconv.Itoa(f), "x\n")
		}
	}
	if w := o.work(); len(w.Untracked) != 3000 || len(w.Tracked) != 0 {
		t.Errorf("%d untracked, %d tracked", len(w.Untracked), len(w.Tracked))
	}
}
