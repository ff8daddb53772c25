//go:build linux

package exact

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) {
	harness.Beside(4)
	os.Exit(harness.Main(m))
}

// long reports whether a nightly run was asked for.
func long() bool { return os.Getenv("CAISSON_TEST_FULL") != "" }

// count raises a number to what one waits for in a nightly run.
func count(short, full int) int {
	if long() {
		return full
	}
	return short
}

// world is one identity with a repository and, beside it, a plain clone in which
// plain git does what the task does.
type world struct {
	*harness.Identity
	t     *testing.T
	repo  string
	plain string
	home  harness.Picture
}

// newWorld gives an identity the configuration of an ordinary user.
func newWorld(t *testing.T, id *harness.Identity, config string) *world {
	t.Helper()
	w := &world{Identity: id, t: t, repo: id.Dir + "/repo", plain: id.Dir + "/plain"}
	id.Write(t, id.Home+"/.gitconfig", "[user]\n\tname = Tester\n\temail = t@example.org\n[advice]\n\tdetachedHead = false\n[gc]\n\tauto = 0\n"+config, 0o644)
	w.home = harness.TakePicture(t, id.Home)
	return w
}

// each runs f as every identity, beside other tests.
func each(t *testing.T, config string, f func(*world)) {
	t.Helper()
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) { f(newWorld(t, id, config)) })
}

// one runs f as the ordinary user alone, where the identity makes no difference;
// in a nightly run as every one.
func one(t *testing.T, config string, f func(*world)) {
	t.Helper()
	if long() {
		each(t, config, f)
		return
	}
	t.Parallel()
	f(newWorld(t, harness.NewIdentity(t, "user", harness.UserOf()), config))
}

// sh runs a shell script of the user's on the host; it must succeed.
func (w *world) sh(dir, script string) string {
	w.t.Helper()
	r := w.shell(dir, nil, script)
	if r.Exit != 0 {
		w.t.Fatal(r)
	}
	return r.Stdout
}

// shell is sh with an input and whatever comes of it.
func (w *world) shell(dir string, in []byte, script string) harness.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*harness.Limit)
	defer cancel()
	cmd := w.Command(ctx, dir, "/bin/sh", "-ec", script)
	cmd.Stdin = bytes.NewReader(in)
	return harness.Run(w.t, cmd)
}

// do runs the product in the repository; ok is do that must succeed.
func (w *world) do(args ...string) harness.Result {
	w.t.Helper()
	return w.Caisson(w.t, w.repo, args...)
}
func (w *world) ok(args ...string) string { w.t.Helper(); return w.OK(w.t, w.repo, args...) }

// slow is ok for what takes long with very much content.
func (w *world) slow(args ...string) string {
	w.t.Helper()
	r := w.Within(w.t, 5*harness.Limit, w.repo, args...)
	if r.Exit != 0 {
		w.t.Fatal(r)
	}
	return r.Stdout
}

// open opens a task on the repository.
func (w *world) open(flags ...string) string { w.t.Helper(); return w.Open(w.t, w.repo, flags...) }

// in runs a shell script in an open task.
func (w *world) in(id, script string) string {
	w.t.Helper()
	return w.OK(w.t, w.Dir, "exec", id, "--", "sh", "-ec", script)
}

// exec runs a program in an open task with an input, whatever comes of it.
func (w *world) exec(id string, in []byte, argv ...string) harness.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*harness.Limit)
	defer cancel()
	cmd := w.Command(ctx, w.Dir, harness.Bin(), append([]string{"exec", id, "--"}, argv...)...)
	cmd.Stdin = bytes.NewReader(in)
	return harness.Run(w.t, cmd)
}

// git runs the user's git in the user's repository.
func (w *world) git(args ...string) string { w.t.Helper(); return w.Git(w.t, w.repo, args...) }

// clone makes a plain clone of the repository, at base when that is not empty.
func (w *world) clone(dir, base string) {
	w.t.Helper()
	w.sh(w.Dir, "git clone -q --no-hardlinks '"+w.repo+"' '"+dir+"'")
	if base != "" {
		w.sh(dir, "git checkout -q '"+base+"'")
	}
}

// refused checks that a command ended with a typed error and a next step, and
// that neither says that it is our fault.
func (w *world) refused(r harness.Result, code string) {
	w.t.Helper()
	switch {
	case r.Exit == 0 || r.Exit == 7 || !strings.Contains(r.Stderr, "caisson: error: "):
		w.t.Errorf("not refused: %v", r)
	case code != "" && !strings.Contains(r.Stderr, "("+code+")"):
		w.t.Errorf("refused without %q: %v", code, r)
	case strings.Contains(r.Stderr, "(internal)"):
		w.t.Errorf("refused as a fault of ours: %v", r)
	case !strings.Contains(r.Stderr, "caisson: hint: "):
		w.t.Errorf("refused without a next step: %v", r)
	}
}

// clear checks that nothing in a command's output acts on a terminal.
func (w *world) clear(r harness.Result) {
	w.t.Helper()
	for _, c := range []string{"\x1b[2J", "\x1b]", "\x07", "\r", "\u202e", "\u200b", "\u2066", "\x9b"} {
		if strings.Contains(r.Stdout+r.Stderr, c) {
			w.t.Errorf("%q reaches the terminal: %q", c, r.Args[1:])
		}
	}
}

// homeUntouched checks that nothing of the user's settings changed.
func (w *world) homeUntouched() {
	w.t.Helper()
	for _, d := range w.home.Changed(harness.TakePicture(w.t, w.Home)) {
		w.t.Error("home: " + d)
	}
}

// inside returns a task's files as they are inside.
func (w *world) inside(id string) map[string]string {
	w.t.Helper()
	dir, err := os.MkdirTemp(w.Tmp, "inside-")
	if err != nil {
		w.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Lchown(dir, w.UID, w.UID); err != nil {
		w.t.Fatal(err)
	}
	packed := w.in(id, "tar --exclude=./.git -cf - .")
	if r := w.shell(dir, []byte(packed), "tar -xf -"); r.Exit != 0 {
		w.t.Fatal(r)
	}
	return harness.Files(w.t, dir)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// first shows where two texts begin to differ.
func first(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	from := max(0, i-200)
	return fmt.Sprintf("at byte %d of %d and %d:\n%q\n%q", i, len(a), len(b), a[from:min(len(a), i+200)], b[from:min(len(b), i+200)])
}

func itoa(n int) string { return strconv.Itoa(n) }
