//go:build linux

package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func list(t *testing.T, dir string) ([]string, error) {
	t.Helper()
	r, err := OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []string
	err = r.Walk(context.Background(), func(_ string, es []*Entry) error {
		for _, e := range es {
			e.Descend = true
			out = append(out, fmt.Sprintf("%d %s", e.Info.Kind, e.Path))
		}
		return nil
	})
	return out, err
}

// outside makes a folder with a secret beside a root with every way to it.
func outside(t *testing.T) (root, secret string) {
	t.Helper()
	top := t.TempDir()
	root, secret = top+"/root", top+"/secret"
	for _, d := range []string{root, root + "/dir"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for p, b := range map[string]string{secret: "secret\n", root + "/dir/file": "inside\n"} {
		if err := os.WriteFile(p, []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"abs": secret, "rel": "../secret", "updir": "..", "absdir": top, "self": "self", "magic": "/proc/self/root", "dirlink": "dir",
	} {
		if err := os.Symlink(to, root+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	return root, secret
}

func TestNoLinkIsFollowed(t *testing.T) {
	root, secret := outside(t)
	r, err := OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, p := range []string{"abs", "rel", "updir/secret", "absdir/secret", "self", "magic/etc/passwd", "dirlink/file", "../secret", "..", ".", "", "/etc/passwd", "dir/../../secret", "dir/file/", "abs/", "dir//file"} {
		if b, err := r.ReadFile(p, 1<<20); err == nil {
			t.Errorf("%q was read: %q", p, b)
		}
		if _, err := r.OpenDir(p); err == nil && p != "dir" {
			t.Errorf("%q was opened as a folder", p)
		}
	}
	// The control: an ordinary open follows.
	if b, _ := os.ReadFile(root + "/updir/secret"); string(b) != "secret\n" {
		t.Error("control: the link leads nowhere")
	}
	if b, err := r.ReadFile("dir/file", 1<<20); err != nil || string(b) != "inside\n" {
		t.Errorf("%q %v", b, err)
	}
	got, err := list(t, root)
	if err != nil || strings.Contains(strings.Join(got, "\n"), "secret") || len(got) != 9 {
		t.Errorf("walk: %q %v", got, err)
	}
	if err := Remove(context.Background(), root, ".trash"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(secret); err != nil {
		t.Error("the removal followed a link")
	}
}

func TestSpecialFilesAreNeverOpened(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mkfifo(root+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, _, err := r.Open("fifo"); !errors.Is(err, ErrKind) {
		t.Errorf("%v", err)
	}
	if got, err := list(t, root); err != nil || len(got) != 1 || got[0] != "0 fifo" {
		t.Errorf("%q %v", got, err)
	}
}

func TestMode000(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(root+"/a/b", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/a/b/f", []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"/a/b", "/a"} {
		if err := os.Chmod(root+d, 0); err != nil {
			t.Fatal(err)
		}
	}
	r, err := OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := r.ReadFile("a/b/f", 10); err != nil || string(b) != "x" {
		t.Errorf("%q %v", b, err)
	}
	if got, err := list(t, root); err != nil || len(got) != 3 {
		t.Errorf("%q %v", got, err)
	}
	if i, err := r.Stat("a"); err != nil || i.Mode&0o777 != 0 {
		t.Errorf("mode not restored: %o %v", i.Mode, err)
	}
	dst := t.TempDir()
	if err := r.Move("a/b", dst); err != nil {
		t.Errorf("move: %v", err)
	}
	for _, d := range []string{root + "/a", dst + "/a"} {
		if err := Remove(context.Background(), d, ".trash"); err != nil {
			t.Errorf("remove: %v", err)
		}
		if _, err := os.Lstat(d); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", d, err)
		}
	}
}

func TestDepth(t *testing.T) {
	top := t.TempDir()
	root := top + "/root"
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	// Far deeper than a path can be long.
	fd, err := unix.Open(root, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 200)
	for range 1500 {
		if err := unix.Mkdirat(fd, name, 0o500|0o200); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_RDONLY, 0)
		unix.Close(fd)
		if err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	unix.Close(fd)
	if _, err := list(t, root); !errors.Is(err, ErrLimit) {
		t.Errorf("walk: %v", err)
	}
	if err := Remove(context.Background(), root, ".trash"); err != nil {
		t.Fatalf("remove: %v", err)
	}
	if left, _ := os.ReadDir(top); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRemoveFinishesWhatWasInterrupted(t *testing.T) {
	top := t.TempDir()
	for _, d := range []string{"/x/a", "/.trash/b", "/.trash.3/c", "/trash-of-others/d"} {
		if err := os.MkdirAll(top+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Remove(context.Background(), top+"/x", ".trash"); err != nil {
			t.Fatal(err)
		}
	}
	entries, _ := os.ReadDir(top)
	if len(entries) != 1 || entries[0].Name() != "trash-of-others" {
		t.Errorf("left: %v", entries)
	}
	if err := Remove(context.Background(), top+"/nowhere/at/all", ".trash"); err != nil {
		t.Errorf("a missing parent: %v", err)
	}
}

func TestOtherFileSystemIsSpecial(t *testing.T) {
	r, err := OpenRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.ReadFile("proc/version", 1<<20); err == nil {
		t.Error("a mount was crossed")
	}
}
