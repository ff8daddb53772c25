//go:build linux

package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// copied prepares a task from a folder or archive.
func copied(t *testing.T, from string, disk int64) (*Prepared, Workspace, error) {
	t.Helper()
	r, err := Inspect(context.Background(), Options{Dir: from, Strategy: task.StrategyCopy})
	if err != nil {
		return nil, Workspace{}, err
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws := Workspace{Task: task.NewID(), Dir: dir}
	p, err := Prepare(context.Background(), r, ws, Inside{ObjectsDir: "/run/objects", UID: 1000, GID: 1000, Disk: disk})
	return p, ws, err
}

// The copy is what it was made of, its record is what git itself would have
// written, and nothing of git was started for it.
func TestCopyFolder(t *testing.T) {
	l := newLab(t)
	r := rand.New(rand.NewSource(7))
	l.write("plain", "one\r\ntwo\n")
	l.write(".gitattributes", "* text=auto eol=crlf\n*.lfs filter=lfs\n")
	l.write(".gitignore", "ignored\n")
	l.write("ignored", "counts all the same\n")
	l.write("a.b/x", "sorts before a/\n")
	l.write("a/x", "same\n")
	l.write("a/deep/er/y", "same\n")
	l.write("bytes \xff\n\"name", "any name\n")
	big := make([]byte, 3<<20)
	r.Read(big[:2<<20])
	l.write("big.bin", string(big))
	l.write("text.big", strings.Repeat("all work and no play\n", 1<<17))
	for i := range 300 {
		l.write(fmt.Sprintf("many/%d/%d", i%7, i), fmt.Sprint(i))
	}
	for _, link := range [][2]string{{"plain", "link"}, {"/etc/passwd", "absolute"}, {"../../x", "up"}} {
		if err := os.Symlink(link[0], l.repo+"/"+link[1]); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"plain": 0o640, "a/x": 0o755, "a": 0o750} {
		if err := os.Chmod(l.repo+"/"+name, mode); err != nil {
			t.Fatal(err)
		}
	}
	sparse, err := os.Create(l.repo + "/sparse")
	if err == nil {
		_, err = sparse.WriteAt([]byte("end"), 24<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	sparse.Close()
	tree := func() string { // what plain git makes of the same bytes
		gd := l.top + "/plain.git"
		l.plain(l.top, "init", "-q", "--bare", gd)
		if err := os.WriteFile(gd+"/info/attributes", []byte(rawAttributes), 0o644); err != nil {
			t.Fatal(err)
		}
		l.plain(l.repo, "--git-dir="+gd, "--work-tree="+l.repo, "add", "-Af", ".")
		return strings.TrimSpace(l.plain(l.repo, "--git-dir="+gd, "write-tree"))
	}()
	// What is not copied comes after.
	l.write("nested/.git/config", "[core]\n\tfsmonitor = touch "+l.top+"/canary\n")
	l.write("nested/.GIT", "x")
	if err := syscall.Mkfifo(l.repo+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	before := picture(t, l.repo, nil)
	spawns := git.Spawns.Load()
	p, ws, err := copied(t, l.repo, 0)
	if err != nil {
		t.Fatal(err)
	}
	w, err := Work(context.Background(), ws)
	if err != nil || !w.Empty() {
		t.Errorf("an untouched copy has work: %+v, %v", w, err)
	}
	if n := git.Spawns.Load() - spawns; n != 0 {
		t.Errorf("%d git processes were started", n)
	}
	skip := func(rel string) bool {
		return rel == "fifo" || strings.HasPrefix(rel, "nested/") || rel == "nested" || rel == "."
	}
	if a, b := picture(t, l.repo, skip), picture(t, p.Source, skip); a != b {
		t.Errorf("the copy differs:\n%s\n---\n%s", a, b)
	}
	if picture(t, l.repo, nil) != before {
		t.Error("the folder was changed")
	}
	if got := strings.Join(p.Ref.Notes, "\n"); !strings.Contains(got, "nested/.git") || !strings.Contains(got, "fifo") || strings.Contains(got, "ignored") {
		t.Errorf("notes: %s", got)
	}
	s, err := ws.loadState()
	if err != nil {
		t.Fatal(err)
	}
	if s.StartTree != tree {
		t.Errorf("the tree is %s, plain git says %s", s.StartTree, tree)
	}
	l.plain(l.top, "--git-dir="+ws.shadow(), "fsck", "--full", "--strict")
	l.plain(l.top, "--git-dir="+ws.shadow(), "ls-tree", "-r", s.StartTree)
	// On a tmpfs whoever reads through a mapping, as git does, fills the holes of the user's own file.
	var st, own syscall.Stat_t
	if err := errors.Join(syscall.Stat(l.repo+"/sparse", &own), syscall.Stat(p.Source+"/sparse", &st)); err != nil || st.Blocks > own.Blocks+(1<<20)/512 {
		t.Errorf("a sparse file takes %d bytes (%v)", st.Blocks*512, err)
	}

	// Changes: all of them, ignored or not, and as bytes.
	change := func(name, text string) {
		if err := os.WriteFile(p.Source+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	change("plain", "one\ntwo\n")
	change("new ignored\xfe", "x")
	change("ignored", "other\n")
	if err := os.Remove(p.Source + "/a/x"); err != nil {
		t.Fatal(err)
	}
	cs, err := Changes(context.Background(), ws, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cs {
		got = append(got, string(c.Status)+" "+string(c.Path))
	}
	has(t, "changes", got, "M plain", "M ignored", "D a/x", "A new ignored\xfe")

	// The bundle holds the changes, old and new, and nothing else.
	snap, err := MakeSnapshot(context.Background(), ws)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := PublishSnapshot(context.Background(), ws, snap)
	if err != nil || len(rs) != 1 || rs[0].Kind != "bundle" {
		t.Fatalf("%+v %v", rs, err)
	}
	if fi, err := os.Stat(rs[0].Name); err != nil || fi.Size() > 64<<10 {
		t.Errorf("the bundle of a few small changes has %d bytes (%v)", fi.Size(), err)
	}
	l.plain(l.top, "init", "-q", "other")
	l.plain(l.top+"/other", "fetch", "-q", rs[0].Name, "refs/caisson/*:refs/caisson/*")
	ref := refPrefix(ws.Task) + "worktree"
	names := l.plain(l.top+"/other", "diff", "--name-status", "-z", "--no-renames", ref+"^", ref)
	if want := "D\x00a/x\x00M\x00ignored\x00A\x00new ignored\xfe\x00M\x00plain\x00"; names != want {
		t.Errorf("the bundle's change is %q, want %q", names, want)
	}
}

func TestCopyEmptyFolder(t *testing.T) {
	l := newLab(t)
	spawns := git.Spawns.Load()
	_, ws, err := copied(t, l.repo, 0)
	if err != nil {
		t.Fatal(err)
	}
	if w, err := Work(context.Background(), ws); err != nil || !w.Empty() {
		t.Errorf("%+v %v", w, err)
	}
	if n := git.Spawns.Load() - spawns; n != 0 {
		t.Errorf("%d git processes were started", n)
	}
	if err := os.WriteFile(ws.source()+"/x", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Diff(context.Background(), ws, &out, DiffOptions{NameStatus: true}); err != nil || out.String() != "A\tx\n" {
		t.Errorf("%q %v", out.String(), err)
	}
}

// What cannot be read stops the copy by its name, and nothing of the user's is
// made readable for it.
func TestCopyUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything; the program's own test runs this as a user")
	}
	l := newLab(t)
	l.write("sub/secret", "x")
	if err := os.Chmod(l.repo+"/sub/secret", 0); err != nil {
		t.Fatal(err)
	}
	_, _, err := copied(t, l.repo, 0)
	if err == nil || !strings.Contains(err.Error(), "sub/secret") || task.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	if st, err := os.Stat(l.repo + "/sub/secret"); err != nil || st.Mode().Perm() != 0 {
		t.Errorf("its mode is %v now (%v)", st.Mode(), err)
	}
}

func TestCopyDiskLimit(t *testing.T) {
	l := newLab(t)
	l.write("one", strings.Repeat("x", 100<<10))
	if _, _, err := copied(t, l.repo, 64<<10); task.CodeOf(err) != task.CodeLimit || !strings.Contains(task.HintOf(err), "--disk") {
		t.Errorf("%v", err)
	}
	if _, _, err := copied(t, l.repo, 256<<10); err != nil {
		t.Errorf("control: %v", err)
	}
}

// A file that is written while it is copied has one state that it had: a prefix
// of what was appended, never a mixture or a hole.
func TestCopyMovingFile(t *testing.T) {
	l := newLab(t)
	l.write("log", strings.Repeat("0123456789abcde\n", 1<<17))
	f, err := os.OpenFile(l.repo+"/log", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stop, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = f.WriteString("0123456789abcde\n")
			}
		}
	}()
	p, ws, err := copied(t, l.repo, 0)
	close(stop)
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(p.Source + "/log")
	if err != nil || len(b)%16 != 0 && !strings.HasPrefix("0123456789abcde\n", string(b[len(b)/16*16:])) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	for i := 0; i+16 <= len(b); i += 16 {
		if string(b[i:i+16]) != "0123456789abcde\n" {
			t.Fatalf("a mixture at %d", i)
		}
	}
	if w, err := Work(context.Background(), ws); err != nil || !w.Empty() {
		t.Errorf("the record is not of what was copied: %+v %v", w, err)
	}
}
