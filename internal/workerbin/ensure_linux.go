package workerbin

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// fileMode lets everybody execute and only the owner read. Execute for others
// because the worker runs under another kernel id when caisson runs as root;
// not readable because the kernel then makes the process non-dumpable.
const fileMode = 0o511

// Ensure puts the embedded worker at dir/worker-<sha256> and returns that
// path. dir is made (0700) when absent and must belong to the effective user
// and be writable by nobody else. A file that is already there is used only
// when its owner, mode, link count and every byte are right, otherwise it is
// replaced. Any number of processes may call it at once. It returns ErrAbsent
// when there is nothing to put there.
func Ensure(dir string) (string, error) {
	im := open()
	if im == nil {
		return "", ErrAbsent
	}
	return ensure(dir, im, SHA256())
}

func ensure(dir string, im *image, sum string) (string, error) {
	const op = "workerbin.ensure"
	fail := func(what string, err error) (string, error) {
		return "", task.Errorf(task.CodeStateStore, op, "%s in %s: %w", what, dir, err).
			WithHint("the state directory must be writable, on a file system without noexec; CAISSON_STATE_DIR names another")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail("make the folder", err)
	}
	dfd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail("open the folder", err)
	}
	d := os.NewFile(uintptr(dfd), dir)
	defer d.Close()
	var st unix.Stat_t
	if err := unix.Fstat(dfd, &st); err != nil {
		return fail("look at the folder", err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return "", task.Errorf(task.CodeUnsafePath, op, "%s belongs to uid %d with mode %04o: another user could replace the worker", dir, st.Uid, st.Mode&0o7777).
			WithHint("make it yours alone: chmod 700, chown, or set CAISSON_STATE_DIR")
	}
	name := "worker-" + sum
	path := filepath.Join(dir, name)
	if same(dfd, name, im) {
		return path, nil
	}
	// The lock is on the folder itself: no further file, gone with the process.
	if err := flock(dfd); err != nil {
		return fail("lock the folder", err)
	}
	if same(dfd, name, im) {
		return path, nil
	}
	if err := write(dfd, name, im); err != nil {
		return fail("write the worker", err)
	}
	if err := d.Sync(); err != nil {
		return fail("sync the folder", err)
	}
	if !same(dfd, name, im) {
		return fail("check the worker", errors.New("what was written is not what is there"))
	}
	return path, nil
}

func flock(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// same reports whether name in dfd is exactly our worker.
func same(dfd int, name string, im *image) bool {
	// O_NONBLOCK: a FIFO of that name must not hold us.
	fd, err := unix.Openat(dfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil ||
		st.Mode != unix.S_IFREG|fileMode || int(st.Uid) != os.Geteuid() || st.Nlink != 1 || st.Size != im.size {
		return false
	}
	const chunk = 256 << 10
	have, want := make([]byte, chunk), make([]byte, chunk)
	for off := int64(0); off < im.size; off += chunk {
		n := int(min(chunk, im.size-off))
		if _, err := io.ReadFull(f, have[:n]); err != nil {
			return false
		}
		if _, err := im.ReadAt(want[:n], off); err != nil && err != io.EOF {
			return false
		}
		if !bytes.Equal(have[:n], want[:n]) {
			return false
		}
	}
	return true
}

// write makes name in dfd from im by way of a file that is renamed. The
// caller holds the folder's lock, so one fixed name serves and a crash leaves
// at most that one file, which the next call takes away.
func write(dfd int, name string, im *image) error {
	tmp := name + ".new"
	if err := unix.Unlinkat(dfd, tmp, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A fork in another goroutine would inherit the descriptor that writes and
	// make exec of the finished file fail with ETXTBSY for a moment.
	syscall.ForkLock.RLock()
	err := fill(dfd, tmp, im)
	syscall.ForkLock.RUnlock()
	if err == nil {
		err = unix.Renameat(dfd, tmp, dfd, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dfd, tmp, 0)
	}
	return err
}

func fill(dfd int, name string, im *image) error {
	fd, err := unix.Openat(dfd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = io.Copy(f, io.NewSectionReader(im, 0, im.size))
	if err == nil {
		err = unix.Fchmod(fd, fileMode)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
