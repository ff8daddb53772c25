//go:build linux

package tools

import (
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// Root is where relative paths begin. The top of everything is the calling
// process's own root.
type Root struct {
	dir string
	// deny are folders that no path may lead into, besides what the kernel's own
	// rules (Landlock, where there is one) keep closed.
	deny []string
}

// NewRoot returns a Root whose relative paths begin at dir, an absolute path.
func NewRoot(dir string) *Root {
	r := &Root{dir: path.Clean("/" + dir)}
	if !sys.Without("paths") {
		r.deny = []string{"/proc", "/sys", "/dev"}
	}
	return r
}

// Abs returns p as an absolute path. It is not cleaned: ".." after a link means
// what the kernel says it means. Empty is the Root's own folder.
func (r *Root) Abs(p string) (string, *contract.Failure) {
	if strings.ContainsRune(p, 0) || len(p) > contract.MaxPath {
		return "", contract.Fail(contract.BadArgs, "the path is too long or holds a NUL")
	}
	if !strings.HasPrefix(p, "/") {
		if p == "" {
			p = "."
		}
		p = r.dir + "/" + p
	}
	clean := path.Clean(p)
	for _, d := range r.deny {
		if clean == d || strings.HasPrefix(clean, d+"/") {
			return "", contract.Fail(contract.Outside, "no file tool works below %s", d)
		}
	}
	return p, nil
}

// File is an open file or folder. It is a plain descriptor without a poller:
// the worker has no thread to spare for one.
type File struct {
	FD   int
	Stat unix.Stat_t
	Path string // as a result names it
}

// Close closes the descriptor.
func (f *File) Close() { _ = unix.Close(f.FD) }

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(f.FD, p)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Size is the file's size when it was opened.
func (f *File) Size() int64 { return f.Stat.Size }

// open is the only way to a file. Links are followed as a program inside would,
// but never one of the kernel's own (magic) links. O_NONBLOCK keeps a pipe
// without a writer, or a lease that somebody holds, from stopping the worker.
func (r *Root) open(at int, p string, flags uint64, mode uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Mode: mode, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	if sys.Without("paths") {
		how.Resolve = 0
	}
	if flags&unix.O_PATH == 0 {
		how.Flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	for {
		fd, err := unix.Openat2(at, p, &how)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// OpenFile opens a regular file for reading.
func (r *Root) OpenFile(p string) (*File, *contract.Failure) {
	return r.openFor(p, unix.O_RDONLY, unix.S_IFREG)
}

// OpenDir opens a folder for reading; "" is the Root's own.
func (r *Root) OpenDir(p string) (*File, *contract.Failure) {
	return r.openFor(p, unix.O_RDONLY|unix.O_DIRECTORY, unix.S_IFDIR)
}

func (r *Root) openFor(p string, flags uint64, kind uint32) (*File, *contract.Failure) {
	abs, fail := r.Abs(p)
	if fail != nil {
		return nil, fail
	}
	shown := path.Clean(abs)
	if kind == unix.S_IFREG && strings.HasSuffix(abs, "/") {
		kind = unix.S_IFDIR // the name itself says folder
		flags |= unix.O_DIRECTORY
	}
	fd, err := r.open(unix.AT_FDCWD, abs, flags, 0)
	if err != nil {
		return nil, failure(err, shown)
	}
	f := &File{FD: fd, Path: shown}
	if fail := f.check(kind); fail != nil {
		f.Close()
		return nil, fail
	}
	return f, nil
}

// check fills Stat and refuses what is no such file.
func (f *File) check(kind uint32) *contract.Failure {
	if err := unix.Fstat(f.FD, &f.Stat); err != nil {
		return failure(err, f.Path)
	}
	switch got := f.Stat.Mode & unix.S_IFMT; {
	case got == kind:
	case got == unix.S_IFDIR:
		return contract.Fail(contract.IsDir, "%s is a folder; list_dir shows what it holds", f.Path)
	case kind == unix.S_IFDIR:
		return contract.Fail(contract.NotDir, "%s is no folder", f.Path)
	default:
		return contract.Fail(contract.NotRegular, "%s is no regular file", f.Path)
	}
	return f.kernel()
}

// kernel refuses files that the kernel makes up: a link may lead to them where
// no Landlock stands in the way, and reading some of them has effects.
func (f *File) kernel() *contract.Failure {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(f.FD, &fs); err != nil {
		return failure(err, f.Path)
	}
	if sys.Without("paths") {
		return nil
	}
	switch uint32(fs.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC,
		unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC, unix.NSFS_MAGIC, unix.SELINUX_MAGIC, unix.EFIVARFS_MAGIC, unix.PSTOREFS_MAGIC:
		return contract.Fail(contract.Outside, "%s leads into a file system of the kernel", f.Path)
	}
	return nil
}

// failure says in the contract's words what the kernel said of path p.
func failure(err error, p string) *contract.Failure {
	switch err {
	case unix.ENOENT:
		return contract.Fail(contract.NotFound, "%s does not exist", p)
	case unix.EEXIST:
		return contract.Fail(contract.Exists, "%s exists", p)
	case unix.EISDIR:
		return contract.Fail(contract.IsDir, "%s is a folder", p)
	case unix.ENOTDIR:
		return contract.Fail(contract.NotDir, "%s, or a part of it before the last, is no folder", p)
	case unix.ELOOP:
		return contract.Fail(contract.NotRegular, "%s: the links lead in a circle, or one is the kernel's own", p)
	case unix.ENXIO, unix.ENODEV, unix.EOPNOTSUPP:
		return contract.Fail(contract.NotRegular, "%s is no regular file", p)
	case unix.EACCES, unix.EPERM:
		return contract.Fail(contract.Permission, "the task may not reach %s", p)
	case unix.EROFS:
		return contract.Fail(contract.Permission, "%s is read-only in this task", p)
	case unix.EAGAIN, unix.ETXTBSY, unix.EBUSY:
		return contract.Fail(contract.Busy, "%s is held by another program; try again", p)
	case unix.ENAMETOOLONG:
		return contract.Fail(contract.BadArgs, "%s: a name in it is too long", p)
	case unix.ENOSPC, unix.EDQUOT, unix.EFBIG:
		return contract.Fail(contract.Limit, "%s: no disk space is left for it", p)
	case unix.EMFILE, unix.ENFILE, unix.ENOMEM:
		return contract.Fail(contract.Limit, "%s: no memory or descriptor is left for it; try again", p)
	}
	return contract.Fail(contract.Internal, "%s: %v", p, err)
}
