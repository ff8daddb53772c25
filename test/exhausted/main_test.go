//go:build linux

package exhausted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/test/harness"
)

// inside marks the process that has a mount namespace of its own.
const inside = "CAISSON_TEST_OWN_MOUNTS"

// TestMain, as root, runs the tests in a mount namespace of their own: what they
// mount is seen by nobody else and goes with the last process that uses it.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		os.Exit(harness.Main(m))
	}
	if os.Getenv(inside) != "" {
		if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			fmt.Fprintln(os.Stderr, "private mounts:", err)
			os.Exit(1)
		}
		os.Exit(harness.Main(m))
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var ee *exec.ExitError
	switch {
	case errors.Is(err, syscall.EPERM):
		os.Exit(harness.Main(m)) // and what mounts is skipped
	case errors.As(err, &ee):
		os.Exit(max(ee.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// mounts skips a test that needs a small file system where none can be mounted.
func mounts(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root; the run as root takes this identity too")
	}
	if os.Getenv(inside) == "" {
		t.Skip("no private mount namespace can be had here")
	}
}

// world is one installation and a repository.
type world struct {
	*harness.Identity
	t    *testing.T
	repo string
}

func newWorld(t *testing.T, id *harness.Identity) *world {
	t.Helper()
	return &world{id, t, id.Repo(t, map[string]string{"a.txt": "a\n", "d/b.txt": "b\n", ".gitignore": "*.ignored\n"})}
}

// small mounts a tmpfs of this many bytes and inodes, for the identity alone.
func (w *world) small(dir string, bytes, inodes int) {
	w.t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,nr_inodes=%d,mode=700,uid=%d,gid=%d", bytes, inodes, w.UID, w.UID)); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// readOnly makes a folder read-only until the returned func is called.
func (w *world) readOnly(dir string) func() {
	w.t.Helper()
	err := syscall.Mount(dir, dir, "", syscall.MS_BIND, "")
	if err == nil {
		err = syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, "")
	}
	if err != nil {
		w.t.Fatal(err)
	}
	done := false
	end := func() {
		if !done {
			done = true
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				w.t.Error(err)
			}
		}
	}
	w.t.Cleanup(end)
	return end
}

// fill takes every byte that is left in the file system of dir.
func (w *world) fill(dir string) func() {
	w.t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		n, err := f.Write(make([]byte, size))
		switch {
		case errors.Is(err, syscall.ENOSPC) && n == 0:
			size /= 2
		case err != nil && !errors.Is(err, syscall.ENOSPC):
			w.t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			w.t.Error(err)
		}
	}
}

// do runs the product in the repository.
func (w *world) do(args ...string) harness.Result {
	w.t.Helper()
	return w.Caisson(w.t, w.repo, args...)
}

// ok is do that must succeed.
func (w *world) ok(args ...string) string { w.t.Helper(); return w.OK(w.t, w.repo, args...) }

// shell runs a shell script as the identity, with the product as $CAISSON.
func (w *world) shell(script string) harness.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	cmd := w.Command(ctx, w.repo, "/bin/sh", "-c", script)
	cmd.Env = append(cmd.Env, "CAISSON="+harness.Bin())
	return harness.Run(w.t, cmd)
}

// typed is how the product names an error's code.
var typed = regexp.MustCompile(`(?m)^caisson: error: .*\(([a-z_]+)\)$`)

// refused fails unless a command ended with this status, one of these codes and
// a hint that contains next.
func (w *world) refused(r harness.Result, exit int, next string, codes ...string) {
	w.t.Helper()
	m := typed.FindStringSubmatch(r.Stderr)
	_, hint, _ := strings.Cut(r.Stderr, "caisson: hint: ")
	if r.Exit != exit || m == nil || !strings.Contains(hint, next) || strings.Contains(r.Stderr, "goroutine ") {
		w.t.Errorf("expected exit %d and a hint with %q: %v", exit, next, r)
		return
	}
	for _, c := range codes {
		if m[1] == c {
			return
		}
	}
	w.t.Errorf("expected one of %q: %v", codes, r)
}

// view is what these tests read of a task.
type view struct {
	ID, State, Problem string
	Supervisor         *struct{ PID int }
	Results            []struct{ Kind, Name string }
}

func (w *world) show(id string) view {
	w.t.Helper()
	var v view
	if err := json.Unmarshal([]byte(w.ok("show", "--json", id)), &v); err != nil {
		w.t.Fatal(err)
	}
	return v
}

// verified fails unless the task's record is a whole chain that has these events.
func (w *world) verified(id string, types ...string) {
	w.t.Helper()
	dir := w.State + "/tasks/" + id + "/evidence"
	if _, err := evidence.Verify(dir, evidence.Head{}); err != nil {
		w.t.Errorf("the record of %s: %v", id, err)
	}
	text, _ := os.ReadFile(dir + "/" + evidence.FileName)
	for _, typ := range types {
		if !strings.Contains(string(text), `"type":"`+typ+`"`) {
			w.t.Errorf("the record of %s has no %s:\n%s", id, typ, text)
		}
	}
}

// blob returns a file of a ref of the task in the user's repository.
func (w *world) blob(id, ref, path string) string {
	w.t.Helper()
	out, err := w.Command(context.Background(), w.repo, "git", "cat-file", "blob", "refs/caisson/"+id+"/"+ref+":"+path).CombinedOutput()
	if err != nil {
		w.t.Errorf("%s of %s/%s: %s", path, id, ref, out)
	}
	return string(out)
}

// same fails when the repository is not as it was.
func (w *world) same(what string, before harness.Picture) {
	w.t.Helper()
	for _, d := range before.Changed(harness.TakePicture(w.t, w.repo)) {
		w.t.Errorf("after %s, the repository: %s", what, d)
	}
}

// job is work in a task: a commit and an uncommitted file.
const job = `echo new >new.txt && git add new.txt && git commit -qm inside && echo more >>a.txt`
