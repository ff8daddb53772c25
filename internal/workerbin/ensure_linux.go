package workerbin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// Ensure puts the embedded worker at dir/worker-<sha256> (with Readable at
// dir/worker-<sha256>-r) and returns that path. dir is made (0700) when absent and must belong to the effective user
// and be writable by nobody else. A file that is already there is used only
// when it is the very file that was written and checked: owner, mode, link
// count, size, inode and change time are those on record beside it (nobody can
// read it, so its bytes are not compared again, and a change time cannot be set
// back). Otherwise it is replaced. Any number of processes may call it at once.
// It returns ErrAbsent when there is nothing to put there.
func Ensure(dir string, mode Mode) (string, error) {
	im := open()
	if im == nil {
		return "", ErrAbsent
	}
	return ensure(dir, "worker-"+SHA256(), im, mode)
}

// EnsureCopy does the same with a copy of the program at path, for a build that
// carries no worker and plays it itself.
func EnsureCopy(dir, path string, mode Mode) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(identity(&st)))
	return ensure(dir, "self-"+hex.EncodeToString(sum[:16]), &image{ReaderAt: f, size: st.Size}, mode)
}

// identity names one state of one file: any write, chmod or link changes it.
func identity(st *unix.Stat_t) string {
	return fmt.Sprintf("%d %d %d %d.%09d\n", st.Dev, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec)
}

func ensure(dir, name string, im *image, mode Mode) (string, error) {
	name += suffix[mode]
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
	path := filepath.Join(dir, name)
	if same(dfd, name, im, mode) {
		return path, nil
	}
	// The lock is on the folder itself: no further file, gone with the process.
	if err := flock(dfd); err != nil {
		return fail("lock the folder", err)
	}
	if same(dfd, name, im, mode) {
		return path, nil
	}
	err = write(dfd, name, im, uint32(mode))
	if err == nil {
		err = note(dfd, name)
	}
	if err != nil {
		return fail("write the worker", err)
	}
	if err := d.Sync(); err != nil {
		return fail("sync the folder", err)
	}
	if !same(dfd, name, im, mode) {
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

// same reports whether name in dfd is exactly the file that was put there.
func same(dfd int, name string, im *image, mode Mode) bool {
	fd, err := unix.Openat(dfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil ||
		st.Mode != unix.S_IFREG|uint32(mode) || int(st.Uid) != os.Geteuid() || st.Nlink != 1 || st.Size != im.size {
		return false
	}
	return record(dfd, name) == identity(&st)
}

// record reads what was noted about name when it was written.
func record(dfd int, name string) string {
	// O_NONBLOCK: a FIFO of that name must not hold us.
	fd, err := unix.Openat(dfd, name+".ok", unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode != unix.S_IFREG|0o600 || int(st.Uid) != os.Geteuid() {
		return ""
	}
	b := make([]byte, 128)
	n, _ := io.ReadFull(f, b)
	return string(b[:n])
}

// note writes the record of name, after its last change.
func note(dfd int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	text := identity(&st)
	return write(dfd, name+".ok", &image{ReaderAt: strings.NewReader(text), size: int64(len(text))}, 0o600)
}

// write makes name in dfd from im by way of a file that is renamed. The
// caller holds the folder's lock, so one fixed name serves and a crash leaves
// at most that one file, which the next call takes away.
func write(dfd int, name string, im *image, mode uint32) error {
	tmp := name + ".new"
	if err := unix.Unlinkat(dfd, tmp, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A fork in another goroutine would inherit the descriptor that writes and
	// make exec of the finished file fail with ETXTBSY for a moment.
	syscall.ForkLock.RLock()
	err := fill(dfd, tmp, im, mode)
	syscall.ForkLock.RUnlock()
	if err == nil {
		err = unix.Renameat(dfd, tmp, dfd, name)
	}
	if err != nil {
		_ = unix.Unlinkat(dfd, tmp, 0)
	}
	return err
}

func fill(dfd int, name string, im *image, mode uint32) error {
	fd, err := unix.Openat(dfd, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = io.Copy(f, io.NewSectionReader(im, 0, im.size))
	if err == nil {
		err = unix.Fchmod(fd, mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
