package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// handle is an open folder.
type handle struct {
	fd int
	// restore is the mode to put back when it had to be made readable.
	restore int
	// keep says that the folder is the user's: no mode in it is changed.
	keep bool
}

// Root is an open folder below which everything is untrusted.
type Root struct {
	h   handle
	dev uint64
}

// OpenRoot opens a folder whose own path is trusted. The caller closes it.
func OpenRoot(path string) (*Root, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	restore := -1
	if errors.Is(err, unix.EACCES) {
		fd, restore, err = forceDir(unix.AT_FDCWD, path, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return &Root{h: handle{fd: fd, restore: restore}, dev: st.Dev}, nil
}

// OpenUser opens a folder of the user's for reading. It is as careful as
// OpenRoot, and never changes a mode to read what its mode forbids. The caller
// closes it.
func OpenUser(path string) (*Root, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return &Root{h: handle{fd: fd, restore: -1, keep: true}, dev: st.Dev}, nil
}

// OpenDir opens a folder below the root as a root of its own. The caller
// closes it.
func (r *Root) OpenDir(path string) (*Root, error) {
	h, name, err := r.parent(path)
	if err != nil {
		return nil, wrap("open", path, err)
	}
	defer h.close()
	sub, err := h.openDir(name)
	if err != nil {
		return nil, wrap("open", path, err)
	}
	return &Root{h: *sub, dev: r.dev}, nil
}

// Close releases the folder.
func (r *Root) Close() error { return r.h.close() }

func (h *handle) close() error {
	if h.restore >= 0 {
		_ = unix.Fchmod(h.fd, uint32(h.restore))
	}
	return unix.Close(h.fd)
}

// Openat2 opens name relative to an open folder under the rules of this package:
// never above it, over a link or onto another mount. Errors are the kernel's.
func Openat2(dir int, name string, flags uint64) (int, error) {
	if name == "" || strings.HasSuffix(name, "/") {
		// A trailing slash makes O_NOFOLLOW follow the last link (T-A11).
		return -1, unix.EINVAL
	}
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve})
		// EAGAIN: something was renamed during the resolution.
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return fd, err
	}
}

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// forceDir opens a folder of ours whose mode forbids it: the mode is widened
// through a descriptor that pins the folder, so no other one can be meant.
func forceDir(dir int, name string, extra uint64) (fd, restore int, err error) {
	var p int
	if dir == unix.AT_FDCWD {
		p, err = unix.Open(name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	} else {
		p, err = Openat2(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_DIRECTORY|extra)
	}
	if err != nil {
		return -1, -1, err
	}
	defer unix.Close(p)
	var st unix.Stat_t
	if err := unix.Fstat(p, &st); err != nil {
		return -1, -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != unix.Geteuid() {
		return -1, -1, unix.EACCES
	}
	if err := unix.Chmod(procPath(p), st.Mode&0o7777|0o700); err != nil {
		return -1, -1, err
	}
	fd, err = unix.Open(procPath(p), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return fd, int(st.Mode & 0o7777), err
}

// openDir opens one folder below h. Its rights are put back by close.
func (h *handle) openDir(name string) (*handle, error) {
	fd, err := Openat2(h.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if h.keep {
		if err != nil {
			return nil, err
		}
		return &handle{fd: fd, restore: -1, keep: true}, nil
	}
	if err == nil {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return nil, err
		}
		// Readable is not enough: without the search bit no entry can be seen.
		if st.Mode&0o100 != 0 || unix.Geteuid() == 0 {
			return &handle{fd: fd, restore: -1}, nil
		}
		unix.Close(fd)
		err = unix.EACCES
	}
	if errors.Is(err, unix.EACCES) {
		fd, restore, err := forceDir(h.fd, name, 0)
		if err != nil {
			return nil, err
		}
		return &handle{fd: fd, restore: restore}, nil
	}
	return nil, err
}

// parent opens the folder that path is in and returns the last component.
func (r *Root) parent(path string) (*handle, string, error) {
	parts := strings.Split(path, "/")
	h := &handle{fd: -1, restore: -1, keep: r.h.keep}
	fd, err := unix.FcntlInt(uintptr(r.h.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	h.fd = fd
	for _, p := range parts {
		if p == "" || p == "." || p == ".." {
			h.close()
			return nil, "", unix.EINVAL
		}
	}
	for _, p := range parts[:len(parts)-1] {
		next, err := h.openDir(p)
		h.close()
		if err != nil {
			return nil, "", err
		}
		h = next
	}
	return h, parts[len(parts)-1], nil
}

func (h *handle) stat(name string, dev uint64) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(h.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Info{}, err
	}
	return info(&st, dev), nil
}

func info(st *unix.Stat_t, dev uint64) Info {
	i := Info{
		Mode: st.Mode, Size: st.Size, Dev: st.Dev, Ino: st.Ino, UID: st.Uid, GID: st.Gid,
		MtimeS: st.Mtim.Sec, MtimeN: uint32(st.Mtim.Nsec), CtimeS: st.Ctim.Sec, CtimeN: uint32(st.Ctim.Nsec),
		OtherDevice: st.Dev != dev,
	}
	if i.OtherDevice {
		return i
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		i.Kind = File
	case unix.S_IFDIR:
		i.Kind = Dir
	case unix.S_IFLNK:
		i.Kind = Link
	}
	return i
}

// Stat looks at path without following it.
func (r *Root) Stat(path string) (Info, error) {
	h, name, err := r.parent(path)
	if err != nil {
		return Info{}, wrap("stat", path, err)
	}
	defer h.close()
	i, err := h.stat(name, r.dev)
	return i, wrap("stat", path, err)
}

// Open opens a regular file for reading, also one whose mode forbids it to
// its owner. The caller closes it.
func (r *Root) Open(path string) (*os.File, Info, error) {
	h, name, err := r.parent(path)
	if err != nil {
		return nil, Info{}, wrap("open", path, err)
	}
	defer h.close()
	f, i, err := h.open(name, r.dev)
	return f, i, wrap("open", path, err)
}

func (h *handle) open(name string, dev uint64) (*os.File, Info, error) {
	p, err := Openat2(h.fd, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, Info{}, err
	}
	defer unix.Close(p)
	var st unix.Stat_t
	if err := unix.Fstat(p, &st); err != nil {
		return nil, Info{}, err
	}
	i := info(&st, dev)
	if i.Kind != File {
		return nil, i, ErrKind
	}
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Open(procPath(p), flags, 0)
	if errors.Is(err, unix.EACCES) && int(st.Uid) == unix.Geteuid() && !h.keep {
		if err := unix.Chmod(procPath(p), st.Mode&0o7777|0o400); err != nil {
			return nil, i, err
		}
		fd, err = unix.Open(procPath(p), flags, 0)
		_ = unix.Chmod(procPath(p), st.Mode&0o7777)
	}
	if err != nil {
		return nil, i, err
	}
	return os.NewFile(uintptr(fd), "file of a task"), i, nil
}

// ReadFile reads a regular file of at most max bytes.
func (r *Root) ReadFile(path string, max int64) ([]byte, error) {
	f, _, err := r.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err != nil {
		return nil, wrap("read", path, err)
	}
	if int64(len(b)) > max {
		return nil, wrap("read", path, ErrLimit)
	}
	return b, nil
}

// Open opens the entry, which must be a regular file.
func (e *Entry) Open() (*os.File, error) {
	f, _, err := e.dir.open(e.Name, e.Info.Dev)
	return f, wrap("open", e.Path, err)
}

// Readlink returns the target of the entry, which must be a link.
func (e *Entry) Readlink() (string, error) {
	target, err := e.dir.readlink(e.Name)
	return target, wrap("readlink", e.Path, err)
}

// Readlink returns the target of the link at path.
func (r *Root) Readlink(path string) (string, error) {
	h, name, err := r.parent(path)
	if err != nil {
		return "", wrap("readlink", path, err)
	}
	defer h.close()
	target, err := h.readlink(name)
	return target, wrap("readlink", path, err)
}

func (h *handle) readlink(name string) (string, error) {
	p, err := Openat2(h.fd, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer unix.Close(p)
	buf := make([]byte, unix.PathMax+1)
	n, err := unix.Readlinkat(p, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// Names lists a folder below the root.
func (e *Entry) Names() ([]string, error) {
	h, err := e.dir.openDir(e.Name)
	if err != nil {
		return nil, wrap("open", e.Path, err)
	}
	defer h.close()
	return h.names()
}

func (h *handle) names() ([]string, error) {
	// A second description, so that reading does not move a shared offset.
	fd, err := unix.Openat(h.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "folder of a task")
	defer f.Close()
	var all []string
	for {
		names, err := f.Readdirnames(4096)
		all = append(all, names...)
		if len(all) > MaxCount {
			return nil, ErrLimit
		}
		if errors.Is(err, io.EOF) || err == nil && len(names) == 0 {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// wrap adds a path; names are chosen by the task, so they are quoted.
func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %q: %w", op, path, err)
}
