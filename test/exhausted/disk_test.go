//go:build linux

package exhausted

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// disk is an ext4 file system in a file that has less room than it claims: once
// that is used up every write of a new block fails as a broken disk's does.
type disk struct {
	t                 *testing.T
	store, image, dir string
	mounted           bool
}

func (d *disk) run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		d.t.Logf("%s %q: %v\n%s", name, args, err, out)
	}
	return err
}

// newDisk mounts one at dir for the identity of w.
func newDisk(w *world, dir string) *disk {
	t := w.t
	t.Helper()
	for _, prog := range []string{"mkfs.ext4", "fsck.ext4", "losetup", "mount", "umount"} {
		if _, err := exec.LookPath(prog); err != nil {
			t.Skipf("no %s here to make a file system with", prog)
		}
	}
	d := &disk{t: t, store: w.Dir + "/store", dir: dir}
	d.image = d.store + "/image"
	for _, p := range []string{d.store, d.dir} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("tmpfs", d.store, "tmpfs", 0, "size=48m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.end)
	f, err := os.Create(d.image)
	if err == nil {
		err = f.Truncate(160 << 20)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.run("mkfs.ext4", "-q", "-F", "-m", "0", d.image); err != nil {
		t.Fatal(err)
	}
	if !d.mount() {
		t.Skip("no loop device can be mounted here")
	}
	if err := os.Chmod(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(d.dir, w.UID, w.UID); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *disk) mount() bool {
	// A write that failed must not be found out about later than by its sync.
	d.mounted = d.run("mount", "-o", "loop,errors=remount-ro,data_err=abort", d.image, d.dir) == nil
	return d.mounted
}

// breakDown takes the room that is left behind the file system.
func (d *disk) breakDown() {
	d.t.Helper()
	f, err := os.Create(d.store + "/ballast")
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	block := bytes.Repeat([]byte{1}, 64<<10)
	for {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}

// mend does what a person would after a disk error.
func (d *disk) mend() {
	d.t.Helper()
	if err := os.Remove(d.store + "/ballast"); err != nil {
		d.t.Fatal(err)
	}
	for end := time.Now().Add(harness.Limit); d.mounted; time.Sleep(50 * time.Millisecond) {
		if err := syscall.Unmount(d.dir, 0); err == nil {
			d.mounted = false
		} else if time.Now().After(end) {
			d.t.Fatalf("the broken file system is still in use: %v", err)
		}
	}
	// 1: errors were there and are mended. The loop device is let go of a moment
	// after its last user has gone.
	for end := time.Now().Add(harness.Limit); ; time.Sleep(50 * time.Millisecond) {
		out, err := exec.Command("fsck.ext4", "-f", "-y", d.image).CombinedOutput()
		if err == nil || strings.Contains(err.Error(), "exit status 1") {
			break
		}
		if time.Now().After(end) {
			d.t.Fatalf("fsck: %v\n%s", err, out)
		}
	}
	if !d.mount() {
		d.t.Fatal("the mended file system cannot be mounted")
	}
}

func (d *disk) end() {
	if d.mounted {
		_ = syscall.Unmount(d.dir, syscall.MNT_DETACH)
	}
	_ = syscall.Unmount(d.store, syscall.MNT_DETACH)
}

// TestDiskFails has the disk of the state folder fail while a task is open: what
// cannot be recorded is refused, nothing outside is touched, and once the disk
// was mended the work comes out.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	mounts(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id)
		d := newDisk(w, w.State)
		x := w.Open(t, w.repo)
		w.ok("exec", x, "--", "sh", "-c", job+"; sync")
		before := harness.TakePicture(t, w.repo)
		d.breakDown()
		// The kernel finds out with the first new block, and gives up writing.
		var r harness.Result
		for range 20 {
			w.do("exec", x, "--", "dd", "if=/dev/zero", "of=big.ignored", "bs=1M", "count=30", "conv=fsync")
			if r = w.do("exec", x, "--", "true"); r.Exit != 0 {
				break
			}
		}
		w.refused(r, 125, "disk", "evidence", "state_store")
		w.ok("ls")
		w.ok("show", x)
		for _, args := range [][]string{{"diff", "--stat", x}, {"apply", x}, {"branch", x, "result"}, {"export", x, "--patch"}, {"keep", x, "--for", "1h", "--reason", "y"}} {
			w.refused(w.do(args...), 1, "disk", "evidence", "state_store", "source")
		}
		w.refused(w.do("open"), 5, "disk", "unavailable", "state_store")
		w.refused(w.do("close", x), 1, "disk", "state_store", "evidence")
		// Its supervisor has ended its processes, and ends itself a moment later.
		for end := time.Now().Add(harness.Limit); ; time.Sleep(50 * time.Millisecond) {
			r := w.do("reap")
			if r.Exit == 1 && strings.Contains(r.Stdout+r.Stderr, x) {
				break
			}
			if r.Exit != 0 || time.Now().After(end) {
				t.Errorf("reap on a broken disk: %v", r)
				break
			}
		}
		w.same("a failed disk", before)

		d.mend()
		w.do("reap")
		if s := w.show(x); s.State != "kept" {
			t.Errorf("after the disk was mended the task is %s", s.State)
		}
		w.verified(x, "call.outcome")
		if out := w.ok("diff", "--stat", x); !strings.Contains(out, "new.txt") || !strings.Contains(out, "a.txt") {
			t.Errorf("diff: %s", out)
		}
		w.do("close", x)
		if got := w.blob(x, "heads/main", "new.txt"); got != "new\n" {
			t.Errorf("the commit: %q", got)
		}
		if got := w.blob(x, "worktree", "a.txt"); got != "a\nmore\n" {
			t.Errorf("the files: %q", got)
		}
	})
}
