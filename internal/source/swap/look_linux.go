package swap

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/source/tree"
)

// openat2 resolves path below dir without leaving it, following a link or
// crossing a mount.
func openat2(dir int, path string, flags uint64) (int, error) {
	fd, err := tree.Openat2(dir, path, flags|unix.O_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return -1, fmt.Errorf("%w: %s", ErrUnsafe, strconv.QuoteToGraphic(path))
	case errors.Is(err, unix.ENOSYS):
		return -1, fmt.Errorf("%w: the kernel has no openat2", ErrUnsupported)
	}
	return fd, err
}

// parent opens the folder that path is in and returns the last component.
func parent(root int, path string) (fd int, name string, err error) {
	if !Valid(path) {
		return -1, "", unix.EINVAL
	}
	dir := "."
	name = path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, name = path[:i], path[i+1:]
	}
	fd, err = openat2(root, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	return fd, name, err
}

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// look pins one entry of an open folder, looks at it and, where asked, hashes
// it. A missing one is nil. For a file the descriptor for reading comes back
// too, when hash is set; the caller closes it.
func look(dir int, name string, hash bool) (*Seen, *os.File, error) {
	p, err := openat2(dir, name, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(p)
	var st unix.Stat_t
	if err := unix.Fstat(p, &st); err != nil {
		return nil, nil, err
	}
	s := &Seen{
		Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mode: st.Mode, UID: st.Uid, GID: st.Gid,
		MtimeS: st.Mtim.Sec, MtimeN: st.Mtim.Nsec, CtimeS: st.Ctim.Sec, CtimeN: st.Ctim.Nsec,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.Kind = File
	case unix.S_IFDIR:
		s.Kind = Dir
	case unix.S_IFLNK:
		s.Kind = Link
		if hash {
			target, err := readlink(p)
			if err != nil {
				return nil, nil, err
			}
			s.Hash = sha256.Sum256([]byte(target))
		}
	}
	if !hash || s.Kind != File {
		return s, nil, nil
	}
	// Through the pinned descriptor: what was looked at is what is read. It is
	// a regular file, so that opening it cannot block or act.
	fd, err := unix.Open(procPath(p), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return s, nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		f.Close()
		return s, nil, err
	}
	h.Sum(s.Hash[:0])
	return s, f, nil
}

func readlink(p int) (string, error) {
	buf := make([]byte, unix.PathMax+1)
	n, err := unix.Readlinkat(p, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// Look looks at a path below root, with its hash where asked. What is not
// there is nil, also when a parent is missing or a file.
func Look(root *os.File, path string, hash bool) (*Seen, error) {
	if path == "." {
		s, _, err := look(int(root.Fd()), ".", false)
		return s, err
	}
	dir, name, err := parent(int(root.Fd()), path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	s, f, err := look(dir, name, hash)
	if f != nil {
		f.Close()
	}
	return s, err
}

// Open opens a regular file below root for reading; nil when it is not there
// or is something else.
func Open(root *os.File, path string) (*os.File, error) {
	p, err := openat2(int(root.Fd()), path, unix.O_PATH)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(p)
	var st unix.Stat_t
	if err := unix.Fstat(p, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, err
	}
	fd, err := unix.Open(procPath(p), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Readlink returns the target of a link below root.
func Readlink(root *os.File, path string) (string, error) {
	p, err := openat2(int(root.Fd()), path, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(p)
	return readlink(p)
}

// Names lists a folder below root.
func Names(root *os.File, path string) ([]string, error) {
	fd, err := openat2(int(root.Fd()), path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return f.Readdirnames(-1)
}

// hasWriter reports whether a program has the file open for writing. The kernel
// gives a read lease only on a file that nobody can write to; where it gives
// none at all, the answer is no, and the hash alone decides.
func hasWriter(f *os.File) bool {
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if err == nil {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	}
	return errors.Is(err, unix.EAGAIN)
}

// settled reports whether an entry of our own folder is want, with the same
// content, and that no program can still be writing to it.
func settled(dir int, name string, want *Seen) (bool, error) {
	s, _, err := look(dir, name, want.Kind == Link)
	if err != nil || s == nil || !s.same(want, false) {
		return false, err
	}
	if s.Kind != File {
		return s.Kind == Dir || s.Kind == Link && s.Hash == want.Hash, nil
	}
	fd, err := openat2(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	// First the writers, then the content: nobody can open it in this folder,
	// so what was written is written.
	if hasWriter(f) {
		return false, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return false, err
	}
	return [sha256.Size]byte(h.Sum(nil)) == want.Hash, nil
}
