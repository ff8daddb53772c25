package git

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

func host(t *testing.T) *Git {
	t.Helper()
	g, err := Find(context.Background(), os.Getenv("PATH"))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestVersions(t *testing.T) {
	for s, want := range map[string][3]int{
		"git version 2.39.5":                    {2, 39, 5},
		"git version 2.50.1 (Apple Git-155)":    {2, 50, 1},
		"git version 2.45.0.windows.1":          {2, 45, 0},
		"git version 2.31.0-rc1":                {2, 31, 0},
		"git version 2.49.GIT":                  {2, 49, 0},
		"git version 3.0.0.123.gabcdef\n":       {3, 0, 0},
		"git version 2.40.1.521.gf1e218fcd8abc": {2, 40, 1},
	} {
		if v, ok := ParseVersion(s); !ok || v != want {
			t.Errorf("%q: %v %v", s, v, ok)
		}
	}
	for _, s := range []string{"", "hub version 2.39", "git version", "git version x.y"} {
		if v, ok := ParseVersion(s); ok {
			t.Errorf("%q: %v", s, v)
		}
	}
}

func TestFindTakesNoRelativeEntryAndNoOldGit(t *testing.T) {
	saved, dirs := found.git, systemDirs
	defer func() { found.git, systemDirs = saved, dirs }()
	found.git, systemDirs = nil, nil
	top := t.TempDir()
	mark := top + "/fired"
	if err := os.WriteFile(top+"/git", []byte("#!/bin/sh\ntouch "+mark+"\necho git version 9.9.9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(top)
	for _, path := range []string{"", ".", ":", "..", "./", "bin:."} {
		if _, err := Find(context.Background(), path); task.CodeOf(err) != task.CodeUnavailable {
			t.Errorf("PATH=%q: %v", path, err)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Fatal("a git of the working directory was run")
	}
	// The control: as an absolute entry it counts.
	if g, err := Find(context.Background(), top); err != nil || g.Path() != top+"/git" {
		t.Errorf("%v %v", g, err)
	}
	found.git = nil
	if err := os.WriteFile(top+"/git", []byte("#!/bin/sh\necho git version 2.30.9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(context.Background(), top); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("%v", err)
	}
}

// The version is asked for once, and again when the file is another one.
func TestFindRemembersTheVersion(t *testing.T) {
	saved, dirs := found.git, systemDirs
	defer func() { found.git, systemDirs = saved, dirs; RememberIn("") }()
	host(t)
	real, state, bin := found.git.path, t.TempDir(), t.TempDir()
	copied, err := os.ReadFile(real)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(bin+"/new", b, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(bin+"/new", bin+"/git"); err != nil {
			t.Fatal(err)
		}
	}
	put(copied)
	find := func(asks int64) {
		t.Helper()
		found.git, systemDirs = nil, nil
		before := Spawns.Load()
		g, err := Find(context.Background(), bin)
		if err != nil {
			t.Fatal(err)
		}
		if n := Spawns.Load() - before; n != asks && runtime.GOOS == "linux" {
			t.Errorf("git was started %d times, not %d", n, asks)
		}
		if !g.AtLeast(MinVersion[0], MinVersion[1], MinVersion[2]) {
			t.Errorf("version %s", g.Version())
		}
	}
	find(1) // nobody has said where
	find(1)
	RememberIn(state)
	find(1)
	find(0)
	put(append(copied, 0)) // replaced, as by an upgrade
	find(1)
	find(0)
	if err := os.WriteFile(state+"/git.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	find(1)
	find(0)
	put([]byte("#!/bin/sh\nexec " + real + ` "$@"` + "\n"))
	find(1)
	find(1) // what a script starts may change without it
}

func TestValidRefAgreesWithGit(t *testing.T) {
	for _, n := range []string{
		"refs/heads/a", "refs/heads/a/b", "refs/heads/日本", "refs/heads/v1+build", "refs/heads/feat#12", "refs/heads/-x", "refs/heads/@",
		"refs/heads/a..b", "refs/heads/a.lock", "refs/heads/a.lock/b", "refs/heads/.a", "refs/heads/a.", "refs/heads/a b", "refs/heads/a~b",
		"refs/heads/a^b", "refs/heads/a:b", "refs/heads/a?b", "refs/heads/a*b", "refs/heads/a[b", "refs/heads/a\\b", "refs/heads/a@{b",
		"refs/heads//a", "refs/heads/a/", "/refs/heads/a", "refs/heads/a\x01", "refs/heads/a\x7f", "refs/heads/\xff", "refs/heads/a\nb", "refs/heads/x.lock.y",
	} {
		want := exec.Command("git", "check-ref-format", n).Run() == nil
		if got := ValidRef(n); got != want {
			t.Errorf("%q: %v, git says %v", n, got, want)
		}
	}
	for _, n := range []string{"HEAD", "heads/x", "refs", "refs/", "", "config", "refs/heads/" + strings.Repeat("x", 256)} {
		if ValidRef(n) {
			t.Errorf("%q was accepted", n)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	g := host(t)
	_, err := g.Run(context.Background(), Cmd{Args: []string{"help", "-a"}, Max: 100})
	if task.CodeOf(err) != task.CodeLimit {
		t.Errorf("%v", err)
	}
}

// TestCancelLeavesNoLock cancels a transaction that holds the lock of a ref.
func TestCancelLeavesNoLock(t *testing.T) {
	g := host(t)
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(g.Path(), append([]string{"--git-dir=" + dir}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("init", "-q", "--bare")
	oid := run("hash-object", "-w", "-t", "tree", os.DevNull)
	ctx, cancel := context.WithCancelCause(context.Background())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	done := make(chan error, 1)
	locked := &waitFor{want: "prepare: ok", ch: make(chan struct{})}
	go func() {
		_, err := g.Run(ctx, Cmd{GitDir: dir, Args: []string{"update-ref", "--stdin"}, Stdin: r, Stdout: locked})
		done <- err
	}()
	if _, err := w.WriteString("start\nupdate refs/x/y " + oid + "\nprepare\n"); err != nil {
		t.Fatal(err)
	}
	<-locked.ch
	if _, err := os.Stat(dir + "/refs/x/y.lock"); err != nil {
		t.Fatalf("the control: no lock is held: %v", err)
	}
	cancel(errors.New("because"))
	if err := <-done; task.CodeOf(err) != task.CodeCanceled {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/refs/x/y.lock"); err == nil {
		t.Error("the lock of the ref is left: nobody can write it any more")
	}
}

// waitFor closes ch when want was written.
type waitFor struct {
	want string
	got  strings.Builder
	ch   chan struct{}
}

func (w *waitFor) Write(b []byte) (int, error) {
	before := strings.Contains(w.got.String(), w.want)
	w.got.Write(b)
	if !before && strings.Contains(w.got.String(), w.want) {
		close(w.ch)
	}
	return len(b), nil
}

func TestCancelKillsWhatGitStarted(t *testing.T) {
	g := host(t)
	dir := t.TempDir()
	if out, err := exec.Command(g.Path(), "init", "-q", "--bare", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("because")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	ready := &signalWriter{ch: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		_, err := g.Run(ctx, Cmd{GitDir: dir, Args: []string{"cat-file", "--batch-check"}, Stdin: r, Stdout: ready})
		done <- err
	}()
	if _, err := w.WriteString("HEAD\n"); err != nil {
		t.Fatal(err)
	}
	<-ready.ch
	cancel(why)
	select {
	case err := <-done:
		if !errors.Is(err, why) || task.CodeOf(err) != task.CodeCanceled {
			t.Errorf("%v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("git was not stopped")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type signalWriter struct {
	ch   chan struct{}
	done bool
}

func (s *signalWriter) Write(b []byte) (int, error) {
	if !s.done {
		s.done = true
		close(s.ch)
	}
	return len(b), nil
}

func TestEnvironmentIsClosed(t *testing.T) {
	t.Setenv("GIT_DIR", "/nowhere")
	t.Setenv("GIT_EXTERNAL_DIFF", "/bin/false")
	t.Setenv("GIT_CONFIG_PARAMETERS", "'alias.x=!false'")
	t.Setenv("SECRET_TOKEN", "s3cr3t")
	for _, kv := range environment(Cmd{}) {
		if strings.Contains(kv, "s3cr3t") || strings.HasPrefix(kv, "GIT_DIR=") || strings.HasPrefix(kv, "GIT_EXTERNAL_DIFF") || strings.HasPrefix(kv, "GIT_CONFIG_PARAMETERS") {
			t.Errorf("inherited: %s", kv)
		}
	}
	out, err := host(t).Run(context.Background(), Cmd{Args: []string{"config", "--list", "--show-scope"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(out), []byte("\n")) {
		if !bytes.HasPrefix(line, []byte("command\t")) {
			t.Errorf("configuration from elsewhere: %s", line)
		}
	}
}

func TestNoTransport(t *testing.T) {
	g := host(t)
	dir := t.TempDir()
	mark := dir + "/fired"
	for _, a := range []string{dir + "/x", dir + "/y"} {
		if out, err := exec.Command(g.Path(), "init", "-q", "--bare", a).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	// The repository's own configuration allows everything.
	for _, kv := range [][2]string{{"protocol.allow", "always"}, {"protocol.ext.allow", "always"}, {"protocol.file.allow", "always"}} {
		if out, err := exec.Command(g.Path(), "--git-dir="+dir+"/x", "config", kv[0], kv[1]).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	for _, url := range []string{"ext::touch " + mark, "file://" + dir + "/y", dir + "/y", "https://example.invalid/x", "ssh://example.invalid/x"} {
		if _, err := g.Run(context.Background(), Cmd{GitDir: dir + "/x", Args: []string{"ls-remote", "--", url}}); Status(err) <= 0 {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a transport program was run")
	}
	// The control.
	_ = exec.Command(g.Path(), "--git-dir="+dir+"/x", "ls-remote", "ext::touch "+mark).Run()
	if _, err := os.Stat(mark); err != nil {
		t.Error("control: a plain git did not run it either")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("a\x00b\x00"), "refs/heads/x")
	f.Fuzz(func(t *testing.T, b []byte, s string) {
		if parts, ok := SplitZ(b); ok && len(b) > 0 && strings.Join(parts, "\x00")+"\x00" != string(b) {
			t.Errorf("%q: %q", b, parts)
		}
		if ValidRef(s) && (strings.Contains(s, "..") || !strings.HasPrefix(s, "refs/")) {
			t.Errorf("%q", s)
		}
		ParseVersion(s)
	})
}

// TestThreadsThatEnd runs git while threads of this process end: the kernel
// takes the end of the thread that started a program for the parent's.
func TestThreadsThatEnd(t *testing.T) {
	g := host(t)
	const n = 8
	errs := make(chan error, n)
	var held []*io.PipeWriter
	for range n {
		r, w := io.Pipe()
		held = append(held, w)
		go func() {
			_, err := g.Run(t.Context(), Cmd{Args: []string{"hash-object", "--stdin"}, Stdin: r})
			errs <- err
		}()
	}
	for range 200 {
		done := make(chan struct{})
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			close(done)
		}()
		<-done
	}
	for _, w := range held {
		w.Close()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
