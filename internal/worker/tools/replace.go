//go:build linux

package tools

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// maxLinks is how many links one name may lead through, as in the kernel.
const maxLinks = 40

// spot is where a file is or will be: an open folder and a name in it that is
// no link.
type spot struct {
	root  *Root
	dir   int
	name  string
	shown string // the path as it was asked for
	old   *File  // what is there, open for reading; nil: nothing
}

// close frees what the spot holds.
func (s *spot) close() {
	if s.old != nil {
		s.old.Close()
	}
	_ = unix.Close(s.dir)
}

// spot finds where p leads. A link at its end is followed, so that writing to
// it changes the file that it names and leaves the link; where that does not
// exist, it is what will be made. makeDirs makes the folders above.
func (r *Root) spot(p string, makeDirs bool) (*spot, *contract.Failure) {
	abs, fail := r.Abs(p)
	if fail != nil {
		return nil, fail
	}
	s := &spot{root: r, dir: unix.AT_FDCWD, shown: path.Clean(abs)}
	for range maxLinks {
		link, fail := s.step(abs, makeDirs)
		if fail != nil {
			if s.dir != unix.AT_FDCWD {
				s.close()
			}
			return nil, fail
		}
		if link == "" {
			return s, nil
		}
		abs, makeDirs = link, false
	}
	s.close()
	return nil, failure(unix.ELOOP, s.shown)
}

// step goes to the folder of p, which is relative to the one reached so far,
// and looks at the name there. It returns where that leads, if it is a link.
func (s *spot) step(p string, makeDirs bool) (link string, fail *contract.Failure) {
	i := strings.LastIndexByte(p, '/')
	folder, name := p[:i+1], p[i+1:]
	if name == "" || name == "." || name == ".." {
		return "", contract.Fail(contract.IsDir, "%s is the name of a folder", s.shown)
	}
	if folder == "" {
		folder = "."
	}
	dir, err := s.root.open(s.dir, folder, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == unix.ENOENT && makeDirs {
		dir, err = s.root.makeDir(strings.TrimRight(folder, "/"))
	}
	if err != nil {
		return "", failure(err, path.Dir(s.shown))
	}
	if s.dir != unix.AT_FDCWD {
		_ = unix.Close(s.dir)
	}
	s.dir, s.name = dir, name
	if fail := (&File{FD: dir, Path: s.shown}).kernel(); fail != nil {
		return "", fail
	}
	var st unix.Stat_t
	switch err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == unix.ENOENT:
		return "", nil
	case err != nil:
		return "", failure(err, s.shown)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		buf := make([]byte, contract.MaxPath+1)
		n, err := unix.Readlinkat(dir, name, buf)
		if err == unix.EINVAL { // it is no link any more
			return "", contract.Fail(contract.Changed, "%s was changed by another program at the same moment; read it again", s.shown)
		}
		if err != nil {
			return "", failure(err, s.shown)
		}
		to := string(buf[:n])
		if strings.HasPrefix(to, "/") {
			if to, fail = s.root.Abs(to); fail != nil {
				return "", fail
			}
		}
		return to, nil
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return "", contract.Fail(contract.IsDir, "%s is a folder", s.shown)
	default:
		return "", contract.Fail(contract.NotRegular, "%s is no regular file", s.shown)
	}
	// Renaming over a file asks for no right on it, but a file that is protected
	// from writing is so for a reason.
	if err := unix.Faccessat(dir, name, unix.W_OK, 0); err != nil {
		if err == unix.EACCES {
			return "", contract.Fail(contract.Permission, "%s is protected from writing; change its mode first", s.shown)
		}
		return "", failure(err, s.shown)
	}
	fd, err := s.root.open(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", failure(err, s.shown)
	}
	s.old = &File{FD: fd, Path: s.shown}
	return "", s.old.check(unix.S_IFREG)
}

// makeDir makes a folder and those above it, and opens it.
func (r *Root) makeDir(p string) (int, error) {
	fd, err := r.open(unix.AT_FDCWD, p, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != unix.ENOENT {
		return fd, err
	}
	i := strings.LastIndexByte(p, '/')
	name := p[i+1:]
	if i < 0 || name == ".." || name == "." {
		return -1, unix.ENOENT
	}
	parent := strings.TrimRight(p[:i], "/")
	if parent == "" {
		parent = "/"
	}
	above, err := r.makeDir(parent)
	if err != nil {
		return -1, err
	}
	defer unix.Close(above)
	if fail := (&File{FD: above}).kernel(); fail != nil {
		return -1, unix.EACCES
	}
	if err := unix.Mkdirat(above, name, 0o777); err != nil && err != unix.EEXIST {
		return -1, err
	}
	return r.open(above, name, unix.O_PATH|unix.O_DIRECTORY, 0)
}

// expect holds what is there against the digest that the caller knows. before
// is the digest of what is there.
func (s *spot) expect(want, before string) *contract.Failure {
	switch {
	case want == "" || want == before:
		return nil
	case s.old == nil:
		return contract.Fail(contract.Changed, "%s does not exist any more", s.shown)
	}
	return contract.Fail(contract.Changed, "%s has changed: its sha256 is %s now; read it again", s.shown, before)
}

// mode of the file as it will be.
func (s *spot) mode(executable *bool) uint32 {
	mode := uint32(0o644)
	if s.old != nil {
		mode = s.old.Stat.Mode & 0o777
	}
	if executable != nil {
		if mode &^= 0o111; *executable {
			mode |= mode & 0o444 >> 2
		}
	}
	return mode
}

// source writes a new file's content.
type source func(fd int) *contract.Failure

// replace puts a new file in the place of what is there, in one step: whoever
// opens it sees either the one or the other, whole. What somebody else put there
// since it was looked at is not lost: then nothing is done, with Changed.
//
// It is not flushed to the disk: what a task holds is taken out of it by the
// host, which sees to that.
func (s *spot) replace(mode uint32, write source) *contract.Failure {
	var random [8]byte
	_, _ = rand.Read(random[:])
	temp := ".caisson-" + hex.EncodeToString(random[:]) + "~"
	fd, err := s.root.open(s.dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, uint64(mode))
	if err != nil {
		return failure(err, s.shown)
	}
	fail := s.fill(fd, mode, write)
	if err := unix.Close(fd); err != nil && fail == nil {
		fail = failure(err, s.shown) // some file systems tell of a full disk only here
	}
	if fail == nil {
		return s.swap(temp)
	}
	_ = unix.Unlinkat(s.dir, temp, 0)
	return fail
}

func (s *spot) fill(fd int, mode uint32, write source) *contract.Failure {
	if s.old != nil {
		keepAttributes(s.old.FD, fd)
		if err := unix.Fchmod(fd, mode); err != nil {
			return failure(err, s.shown)
		}
	}
	return write(fd)
}

// swapping lets one call at a time look once more and rename, so that of two
// calls that saw the same file just one is done. Against other programs the
// exchange of names below does the same, as long as only one interferes.
var swapping sync.Mutex

// swap gives the new file its name and takes the other one away.
func (s *spot) swap(temp string) *contract.Failure {
	swapping.Lock()
	defer swapping.Unlock()
	fail, theirs := s.exchange(temp)
	if !theirs {
		_ = unix.Unlinkat(s.dir, temp, 0)
	}
	return fail
}

// exchange gives the new file its name. Afterwards temp is the former file, or
// after a failure ours; or theirs: what somebody else wrote and must not vanish.
func (s *spot) exchange(temp string) (fail *contract.Failure, theirs bool) {
	changed := contract.Fail(contract.Changed, "%s was changed by another program at the same moment; read it again", s.shown)
	var err error
	if s.old == nil {
		err = unix.Renameat2(s.dir, temp, s.dir, s.name, unix.RENAME_NOREPLACE)
		if err == unix.EINVAL { // a file system that cannot
			var st unix.Stat_t
			if unix.Fstatat(s.dir, s.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
				return changed, false
			}
			err = unix.Renameat2(s.dir, temp, s.dir, s.name, 0)
		}
		if err == unix.EEXIST {
			return changed, false
		}
	} else {
		if !s.same(s.name) {
			return changed, false
		}
		err = unix.Renameat2(s.dir, temp, s.dir, s.name, unix.RENAME_EXCHANGE)
		switch {
		case err == nil && !s.same(temp):
			if unix.Renameat2(s.dir, temp, s.dir, s.name, unix.RENAME_EXCHANGE) != nil {
				return contract.Fail(contract.Changed, "%s was changed by another program at the same moment; what that wrote is in %s beside it", s.shown, temp), true
			}
			return changed, false
		case err == unix.ENOENT:
			return changed, false
		case err == unix.EINVAL:
			err = unix.Renameat2(s.dir, temp, s.dir, s.name, 0)
		}
	}
	if err != nil {
		return failure(err, s.shown), false
	}
	return nil, false
}

// same reports whether name in the folder is the file that was looked at, as it
// was then.
func (s *spot) same(name string) bool {
	var st unix.Stat_t
	if unix.Fstatat(s.dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	o := &s.old.Stat
	return st.Dev == o.Dev && st.Ino == o.Ino && st.Size == o.Size && st.Mtim == o.Mtim && st.Mode == o.Mode
}

// otherNames is how many hard links will keep the former content.
func (s *spot) otherNames() int {
	if s.old == nil || s.old.Stat.Nlink < 1 {
		return 0
	}
	return int(s.old.Stat.Nlink - 1)
}

// keepAttributes copies what a person or a program put on the file: its own
// attributes and access lists. What cannot be copied is left.
func keepAttributes(from, to int) {
	var buf [4096]byte
	n, err := unix.Flistxattr(from, buf[:])
	if err != nil || n == 0 {
		return
	}
	for _, name := range strings.Split(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		if !strings.HasPrefix(name, "user.") && name != "system.posix_acl_access" {
			continue
		}
		val := make([]byte, 64<<10)
		if n, err := unix.Fgetxattr(from, name, val); err == nil {
			_ = unix.Fsetxattr(to, name, val[:n], 0)
		}
	}
}

// bytesSource writes b.
func bytesSource(ctx context.Context, b []byte, shown string) source {
	return func(fd int) *contract.Failure { return writeAll(ctx, fd, b, shown) }
}

func writeAll(ctx context.Context, fd int, b []byte, shown string) *contract.Failure {
	for len(b) > 0 {
		if fail := ended(ctx); fail != nil {
			return fail
		}
		n, err := unix.Write(fd, b[:min(len(b), 1<<20)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return failure(err, shown)
		default:
			b = b[n:]
		}
	}
	return nil
}
