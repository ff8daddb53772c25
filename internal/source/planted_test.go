//go:build linux

package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

const plantedSecret = "-----BEGIN PRIVATE KEY-----"

// below reports whether any file below dir holds text.
func holds(t *testing.T, dir, text string) string {
	t.Helper()
	where := ""
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		if err == nil && strings.Contains(string(b), text) {
			where = p
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return where
}

// TestPlantedGitDirectoryReadsNothing: what a repository's .git says must not
// bring a file of the host into the task. The control is what is the user's own
// to say: the same file, named in their configuration, does get in.
func TestPlantedGitDirectoryReadsNothing(t *testing.T) {
	link := func(name string) func(*lab, string) {
		return func(l *lab, secret string) {
			p := filepath.Join(l.repo, ".git", name)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				l.t.Fatal(err)
			}
			_ = os.Remove(p)
			if err := os.Symlink(secret, p); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		plant func(l *lab, secret string)
		gets  bool
	}{
		"own configuration (control)": {func(l *lab, secret string) { l.git("config", "--global", "core.excludesFile", secret) }, true},
		"repository configuration":    {func(l *lab, secret string) { l.git("config", "core.excludesFile", secret) }, false},
		"included configuration": {func(l *lab, secret string) {
			l.write(".git/more", "[core]\n\texcludesFile = "+secret+"\n")
			l.git("config", "include.path", "more")
		}, false},
		"exclude is a link":    {link("info/exclude"), false},
		"attributes is a link": {link("info/attributes"), false},
	} {
		t.Run(name, func(t *testing.T) {
			l := basic(t)
			secret := filepath.Join(l.top, "home", "id_key")
			if err := os.WriteFile(secret, []byte(plantedSecret+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c.plant(l, secret)
			o := l.open(Options{Env: []string{"HOME=" + l.top + "/home", "GIT_CONFIG_NOSYSTEM=1"}})
			if got := holds(t, o.ws.source(), plantedSecret); (got != "") != c.gets {
				t.Errorf("the host's file is in the task: %q, want it there: %v", got, c.gets)
			}
		})
	}
}

// TestLinkedObjectStoreIsNotShown: a store that is a link may lead anywhere.
func TestLinkedObjectStoreIsNotShown(t *testing.T) {
	l := newLab(t)
	l.git("init", "-q")
	dir := filepath.Join(l.top, "private")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(l.repo, ".git/objects")
	if r, err := l.inspect(Options{}); err != nil || len(r.Objects) != 1 || r.Objects[0] != store {
		t.Fatalf("control: the real store is not shared: %v %v", r, err)
	}
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, store); err != nil {
		t.Fatal(err)
	}
	r, err := l.inspect(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Objects) != 0 || r.Ref.Shared {
		t.Errorf("the task would see %v", r.Objects)
	}
}

// TestPlantedPointers: a .git that leads to another checkout's repository would
// show that one and take the task's results into it.
func TestPlantedPointers(t *testing.T) {
	for name, plant := range map[string]func(l *lab, other string){
		"gitdir": func(l *lab, other string) { l.write("../other/.git", "gitdir: "+l.repo+"/.git\n") },
		"commondir": func(l *lab, other string) {
			l.plain(other, "init", "-q")
			l.write("../other/.git/commondir", l.repo+"/.git\n")
			l.write("../other/.git/gitdir", other+"/.git\n")
		},
		"submodule of another": func(l *lab, other string) {
			if err := os.Mkdir(l.repo+"/.git/modules", 0o755); err != nil {
				l.t.Fatal(err)
			}
			l.plain(l.top, "init", "-q", "--separate-git-dir", l.repo+"/.git/modules/sub", l.repo+"/sub")
			l.plain(l.repo+"/sub", "commit", "-q", "--allow-empty", "-m", "private")
			l.plain(l.repo+"/sub", "config", "core.worktree", l.repo+"/sub")
			if _, err := l.inspect(Options{Dir: l.repo + "/sub"}); err != nil {
				l.t.Fatalf("control: a submodule: %v", err)
			}
			l.write("../other/.git", "gitdir: "+l.repo+"/.git/modules/sub\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := basic(t)
			other := filepath.Join(l.top, "other")
			if err := os.Mkdir(other, 0o755); err != nil {
				t.Fatal(err)
			}
			plant(l, other)
			_, err := l.inspect(Options{Dir: other})
			if task.CodeOf(err) != task.CodeSource {
				t.Errorf("not refused: %v", err)
			}
		})
	}
	t.Run("separate git directory (control)", func(t *testing.T) {
		l := newLab(t)
		l.plain(l.top, "init", "-q", "--separate-git-dir", l.top+"/elsewhere", l.repo)
		if _, err := l.inspect(Options{}); err != nil {
			t.Error(err)
		}
	})
}

// TestIgnoreBomb: a pattern with many stars takes git for ever. The look ends
// with an error, by its own limit and by cancellation, and nothing hangs.
func TestIgnoreBomb(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file(".gitignore", strings.Repeat("*a", 12)+"*b\n")
	o.file(strings.Repeat("a", 240)+"1", "x")

	old := askTime
	askTime = 300 * time.Millisecond
	defer func() { askTime = old }()
	if _, err := Work(context.Background(), o.ws); task.CodeOf(err) != task.CodeLimit {
		t.Errorf("own limit: %v", err)
	}
	askTime = old
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := Work(ctx, o.ws); err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("cancelled: %v", err)
	}
	// Control: without the pattern the same look succeeds.
	o.file(".gitignore", "*b\n")
	if w, err := Work(context.Background(), o.ws); err != nil || len(w.Untracked) != 1 {
		t.Errorf("control: %v %v", w, err)
	}
}

// TestSparseFiles: what costs nothing inside must cost nothing outside.
func TestSparseFiles(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	p := filepath.Join(o.ws.source(), "sparse")
	o.file("sparse", "")
	if err := os.Truncate(p, 64<<20); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("end"), 40<<20); err != nil {
		t.Fatal(err)
	}
	f.Close()
	src, err := os.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.Create(filepath.Join(t.TempDir(), "copy"))
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if n, err := sys.CopySparse(dst, src); err != nil || n != 64<<20 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	a, _ := os.ReadFile(p)
	b, _ := os.ReadFile(dst.Name())
	if string(a) != string(b) {
		t.Error("the copy differs")
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(dst.Fd()), &st); err != nil || st.Blocks*512 > 8<<20 {
		t.Errorf("the copy takes %d bytes, %v", st.Blocks*512, err)
	}
	if err := os.Truncate(p, maxStaged+1); err != nil {
		t.Skip("the file system has no files of " + strconv.FormatInt(maxStaged, 10) + " bytes: " + err.Error())
	}
	if _, err := Work(context.Background(), o.ws); task.CodeOf(err) != task.CodeLimit {
		t.Errorf("too large: %v", err)
	}
}

// TestUsageOfHugeFiles: sizes are chosen inside; their sum must not turn negative.
func TestUsageOfHugeFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/source", 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		f, err := os.Create(dir + "/source/" + strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		size := int64(1) << 62
		for ; size > 0 && f.Truncate(size) != nil; size /= 2 {
		}
		f.Close()
		if size == 0 {
			t.Fatal("no size was taken")
		}
	}
	n, err := Usage(context.Background(), dir)
	if err != nil || n <= 0 {
		t.Errorf("Usage = %d, %v", n, err)
	}
}

// TestWorkInSubmodulesIsKept: a commit in a submodule lives in .git/modules; the
// task's own commit only names it.
func TestWorkInSubmodulesIsKept(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	if w := o.work(); len(w.Special) != 0 {
		t.Fatalf("control: an untouched task has %q", w.Special)
	}
	l.plain(l.top, "init", "-q", "other")
	l.plain(l.top+"/other", "commit", "-q", "--allow-empty", "-m", "first")
	o.in("-c", "protocol.file.allow=always", "submodule", "add", "-q", l.top+"/other", "sub")
	o.file("sub/work", "work\n")
	l.plain(o.ws.source()+"/sub", "add", "work")
	l.plain(o.ws.source()+"/sub", "commit", "-q", "-m", "work of the submodule")
	oid := strings.TrimSpace(l.plain(o.ws.source()+"/sub", "rev-parse", "HEAD"))
	o.in("add", "-A")
	o.in("commit", "-q", "-m", "names it")
	has(t, "special", o.work().Special, ".git/modules", "sub/.git")
	if _, err := KeepIgnored(context.Background(), o.ws); err != nil {
		t.Fatal(err)
	}
	got := l.plain(l.top, "--git-dir="+o.ws.kept()+"/files/.git/modules/sub", "-c", "core.worktree=/", "log", "--format=%s", oid)
	if !strings.HasPrefix(got, "work of the submodule\n") {
		t.Errorf("the submodule's commit is not kept: %q", got)
	}
}

// TestFIFOsInTheGitDirectory: git would wait for ever at them.
func TestFIFOsInTheGitDirectory(t *testing.T) {
	for _, name := range []string{"HEAD", "config", "packed-refs", "index", "shallow", "objects/info/alternates", "objects/info/commit-graph",
		"info/grafts", "info/attributes", "info/exclude", "info/sparse-checkout"} {
		l := basic(t)
		if _, err := l.inspect(Options{}); err != nil {
			t.Fatalf("control: %v", err)
		}
		p := filepath.Join(l.repo, ".git", name)
		_ = os.Remove(p)
		if err := unix.Mkfifo(p, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := l.inspect(Options{}); task.CodeOf(err) != task.CodeSource {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFIFOsThatGitOpensByItself: an include of the configuration, and ignore
// rules in the checkout. What waits for them ends, and says so.
func TestFIFOsThatGitOpensByItself(t *testing.T) {
	oldConfig, oldNote := configTime, noteTime
	defer func() { configTime, noteTime = oldConfig, oldNote }()
	configTime, noteTime = time.Second, time.Second

	l := basic(t)
	fifo := filepath.Join(l.repo, "dir", ".gitignore")
	if err := errors.Join(os.MkdirAll(filepath.Dir(fifo), 0o755), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	o := l.open(Options{})
	_, err := Uncommitted(context.Background(), o.r, o.ws)
	if task.CodeOf(err) != task.CodeLimit {
		t.Errorf("ignore rules: %v", err)
	}

	l.sh("git config include.path " + fifo)
	_, err = l.inspect(Options{})
	if task.CodeOf(err) != task.CodeSource || !strings.Contains(task.HintOf(err), "git config") {
		t.Errorf("include: %v (%s)", err, task.HintOf(err))
	}
}
