package workerbin

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/caisson-dev/caisson/internal/task"
)

// fixture is a stand-in for the worker: a script large enough to need several
// reads, so that tests run in a tree where nothing was built.
func fixture(t *testing.T) *image {
	t.Helper()
	body := "#!/bin/sh\necho worker\nexit\n" + strings.Repeat("#", 700<<10)
	im := imageIn(fstest.MapFS{"bin/caisson-worker": {Data: []byte(body)}})
	if im == nil {
		t.Fatal("the fixture cannot be read by offset")
	}
	return im
}

func TestMain(m *testing.M) {
	// A child of TestTwentyProcesses.
	if len(os.Args) > 2 && os.Args[1] == "ensure-child" {
		im := imageIn(fstest.MapFS{"bin/caisson-worker": {Data: bytes.Repeat([]byte("child"), 200_000)}})
		p, err := ensure(os.Args[2], "worker-"+im.sha256(), im, Unread)
		if err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Stdout.WriteString(p)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestEnsureWritesAndReuses(t *testing.T) {
	dir, im := filepath.Join(t.TempDir(), "state", "bin"), fixture(t)
	p, err := ensure(dir, "worker-"+im.sha256(), im, Unread)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(p)
	if err != nil || st.Mode() != fs.FileMode(Unread) {
		t.Fatalf("%v, mode %v, want %v", err, st.Mode(), fs.FileMode(Unread))
	}
	if os.Geteuid() != 0 { // root reads everything
		if f, err := os.Open(p); err == nil {
			f.Close()
			t.Error("its owner can read it: the kernel would let a process of the same user look into it")
		}
	}
	again, err := ensure(dir, "worker-"+im.sha256(), im, Unread)
	st2, _ := os.Lstat(again)
	if err != nil || !os.SameFile(st, st2) {
		t.Errorf("a good file was replaced (%v)", err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*.new"))
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Every way in which the file can be wrong leads to a fresh one, and what an
// attacker's link points at is not touched.
func TestEnsureRepairs(t *testing.T) {
	im := fixture(t)
	decoy := filepath.Join(t.TempDir(), "decoy")
	if err := os.WriteFile(decoy, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	good := make([]byte, im.size)
	_, _ = im.ReadAt(good, 0)
	bad := bytes.Clone(good)
	bad[len(bad)-1] ^= 1
	for name, spoil := range map[string]func(p string) error{
		"one byte changed": func(p string) error { return replace(p, bad, fs.FileMode(Unread)) },
		"shortened":        func(p string) error { return replace(p, good[:100], fs.FileMode(Unread)) },
		"empty":            func(p string) error { return replace(p, nil, fs.FileMode(Unread)) },
		"writable":         func(p string) error { return os.Chmod(p, 0o755) },
		"setuid":           func(p string) error { return os.Chmod(p, fs.FileMode(Unread)|fs.ModeSetuid) },
		"symlink":          func(p string) error { return errors.Join(os.Remove(p), os.Symlink(decoy, p)) },
		"dangling symlink": func(p string) error { return errors.Join(os.Remove(p), os.Symlink(decoy+"-none", p)) },
		"fifo":             func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o511)) },
		"record changed":   func(p string) error { return os.WriteFile(p+".ok", []byte("1 2 3 4.5\n"), 0o600) },
		"record is a fifo": func(p string) error { return errors.Join(os.Remove(p+".ok"), syscall.Mkfifo(p+".ok", 0o600)) },
		"record is a link": func(p string) error { return errors.Join(os.Remove(p+".ok"), os.Symlink(decoy, p+".ok")) },
		"bytes kept, read": func(p string) error { return errors.Join(os.Chmod(p, 0o400), os.Chmod(p, fs.FileMode(Unread))) },
		"second link":      func(p string) error { return os.Link(p, p+"-other") },
		"crash left .new":  func(p string) error { return errors.Join(os.WriteFile(p+".new", bad, 0o600), os.Remove(p)) },
		".new is a link":   func(p string) error { return errors.Join(os.Symlink(decoy, p+".new"), os.Remove(p)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "bin")
			p, err := ensure(dir, "worker-"+im.sha256(), im, Unread)
			if err != nil {
				t.Fatal(err)
			}
			if err := spoil(p); err != nil {
				t.Fatal(err)
			}
			if _, err := ensure(dir, "worker-"+im.sha256(), im, Unread); err != nil {
				t.Fatal(err)
			}
			st, err := os.Lstat(p)
			merr := st.Mode()
			_ = os.Chmod(p, 0o400)
			got, rerr := os.ReadFile(p)
			if err != nil || merr != fs.FileMode(Unread) || rerr != nil || !bytes.Equal(got, good) {
				t.Errorf("not repaired: %v %v mode %v, %d bytes", err, rerr, st.Mode(), len(got))
			}
			if b, _ := os.ReadFile(decoy); string(b) != "theirs" {
				t.Errorf("wrote through a link: decoy now holds %q", b)
			}
		})
	}
}

func replace(p string, b []byte, mode fs.FileMode) error {
	return errors.Join(os.Remove(p), os.WriteFile(p, b, 0o600), os.Chmod(p, mode))
}

// A folder that another user could change is refused, not used.
func TestEnsureRefusesFolder(t *testing.T) {
	im := fixture(t)
	open := filepath.Join(t.TempDir(), "open")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := ensure(open, "worker-"+im.sha256(), im, Unread); task.CodeOf(err) != task.CodeUnsafePath {
		t.Errorf("a folder everybody may write: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	if _, err := ensure(link, "worker-"+im.sha256(), im, Unread); task.CodeOf(err) != task.CodeStateStore {
		t.Errorf("a symlink as folder: %v", err)
	}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(t.TempDir(), "foreign")
		if err := errors.Join(os.Mkdir(foreign, 0o700), os.Chown(foreign, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		if _, err := ensure(foreign, "worker-"+im.sha256(), im, Unread); task.CodeOf(err) != task.CodeUnsafePath {
			t.Errorf("another user's folder: %v", err)
		}
	}
}

func TestTwentyProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	paths := make([]string, 20)
	for i := range paths {
		wg.Go(func() {
			out, err := exec.Command(self, "ensure-child", dir).CombinedOutput()
			if err != nil {
				t.Errorf("process %d: %v: %s", i, err, out)
			}
			paths[i] = string(out)
		})
	}
	wg.Wait()
	for i, p := range paths {
		if p != paths[0] {
			t.Errorf("process "+strconv.Itoa(i)+" got %q, the first %q", p, paths[0])
		}
	}
	ents, _ := os.ReadDir(dir)
	if len(ents) != 2 {
		t.Errorf("%d files, want the worker and its record: %v", len(ents), ents)
	}
}

// What is embedded, where something is: the stamp must be its digest.
func TestEmbedded(t *testing.T) {
	if !Present() {
		if _, err := Ensure(t.TempDir(), Unread); !errors.Is(err, ErrAbsent) {
			t.Errorf("a build without a worker: %v, want ErrAbsent", err)
		}
		if SHA256() != "" || Bytes() != nil {
			t.Error("a build without a worker has bytes or a digest")
		}
		return
	}
	if SHA256() != open().sha256() {
		t.Errorf("stamped digest %s, embedded %s", SHA256(), open().sha256())
	}
	if p, err := Ensure(filepath.Join(t.TempDir(), "bin"), Unread); err != nil || !strings.HasSuffix(p, SHA256()) {
		t.Errorf("Ensure: %q, %v", p, err)
	}
}
