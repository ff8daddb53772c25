//go:build unix

package sys

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks bounds links on the way to a file.
const maxLinks = 20

// OpenTrusted opens a folder or a file of which nobody but root and the users in
// owners can change the content, or put another in its place: it and every folder
// and link on the way belong to one of them and are writable by no other. Links
// are followed one by one and judged as well. What is opened is what was judged.
// An error that matches os.ErrNotExist says that it is not there, one that
// matches ErrNotTrusted says which part others may change. The caller closes.
func OpenTrusted(name string, owners ...int) (*os.File, error) {
	if !path.IsAbs(name) {
		return nil, fmt.Errorf("%q is not an absolute path", name)
	}
	// Absent is told before anything is judged: there is nothing to distrust.
	if _, err := os.Stat(name); err != nil {
		return nil, dangling(name, err)
	}
	dir, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/", Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	at, left, links := "/", parts(name), 0
	if err := judge(dir, at, owners, len(left) > 0); err != nil {
		return nil, err
	}
	for len(left) > 0 {
		part := left[0]
		left = left[1:]
		here := path.Join(at, part)
		var st unix.Stat_t
		if err := unix.Fstatat(dir, part, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, &os.PathError{Op: "look at", Path: here, Err: err}
		}
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			to, err := readLink(dir, part)
			switch {
			case err != nil:
				return nil, &os.PathError{Op: "read the link", Path: here, Err: err}
			case !owned(st.Uid, owners):
				return nil, fmt.Errorf("%s: %w: the link belongs to user %d", here, ErrNotTrusted, st.Uid)
			}
			if links++; links > maxLinks {
				return nil, &os.PathError{Op: "open", Path: name, Err: unix.ELOOP}
			}
			if path.IsAbs(to) {
				root, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				if err != nil {
					return nil, &os.PathError{Op: "open", Path: "/", Err: err}
				}
				_ = unix.Close(dir)
				dir, at = root, "/"
			}
			left = append(parts(to), left...)
			continue
		}
		// A pipe or a device is refused below; opening it must not wait.
		fd, err := unix.Openat(dir, part, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: here, Err: err}
		}
		_ = unix.Close(dir)
		dir, at = fd, here
		if err := judge(fd, here, owners, len(left) > 0); err != nil {
			return nil, err
		}
	}
	f, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(f), name), nil
}

// dangling tells a link that leads nowhere from a file that nobody made: whoever
// made the link believes that the file is there.
func dangling(name string, err error) error {
	for p := path.Clean(name); errors.Is(err, os.ErrNotExist); p = path.Dir(p) {
		fi, lerr := os.Lstat(p)
		if lerr == nil && fi.Mode()&os.ModeSymlink != 0 {
			if _, serr := os.Stat(p); serr != nil {
				return fmt.Errorf("the link %s leads nowhere", p)
			}
		}
		if lerr == nil || p == "/" {
			break
		}
	}
	return err
}

// parts are the components of a path. ".." stays: it is looked up as every
// other name, in a folder that was judged.
func parts(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(p string) bool { return p == "" || p == "." })
}

func readLink(dir int, name string) (string, error) {
	b := make([]byte, 4096)
	n, err := unix.Readlinkat(dir, name, b)
	if err != nil {
		return "", err
	}
	if n == len(b) {
		return "", unix.ENAMETOOLONG
	}
	return string(b[:n]), nil
}

func owned(uid uint32, owners []int) bool {
	return uid == 0 || slices.Contains(owners, int(uid))
}

// overflow is how the kernel shows an owner that a user namespace does not know.
const overflow = 65534

// rootHidden says that root is such an owner here: then folders on the way show
// so, and what they lead to must belong to one of the owners all the same.
func rootHidden() bool {
	var st unix.Stat_t
	return unix.Stat("/", &st) == nil && st.Uid == overflow
}

// judge looks at an open folder or file. On the way, a folder that everybody may
// write to passes where nobody may replace what is another's (the sticky bit),
// since what is taken from it is judged as well.
func judge(fd int, name string, owners []int, way bool) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "look at", Path: name, Err: err}
	}
	kind, mode := uint32(st.Mode)&unix.S_IFMT, uint32(st.Mode)
	switch {
	case kind != unix.S_IFDIR && (way || kind != unix.S_IFREG):
		return fmt.Errorf("%s is neither a file nor a folder", name)
	case !owned(st.Uid, owners) && !(way && st.Uid == overflow && rootHidden()):
		return fmt.Errorf("%s: %w: it belongs to user %d", name, ErrNotTrusted, st.Uid)
	case mode&0o022 != 0 && !(way && mode&unix.S_ISVTX != 0):
		return fmt.Errorf("%s: %w: others may write to it (mode %04o)", name, ErrNotTrusted, mode&0o7777)
	}
	return nil
}
