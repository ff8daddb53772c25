package tree

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// MakePoint makes an empty folder or file at path, whose parent must be there.
// It is made under the name temp beside path first; record is called with its
// identity before it gets its own name, so that after a crash either the name
// or the record says whose it is. ErrExists says that something is there.
func (r *Root) MakePoint(path, temp string, dir bool, record func(ident string) error) error {
	h, name, err := r.parent(path)
	if err != nil {
		return wrap("make", path, err)
	}
	defer h.close()
	if _, err := h.stat(name, r.dev); err == nil {
		return wrap("make", path, ErrExists)
	}
	if err := h.drop(temp, ""); err != nil { // of a process that was killed
		return wrap("make", path, err)
	}
	if dir {
		err = unix.Mkdirat(h.fd, temp, 0o755)
	} else {
		var fd int
		fd, err = unix.Openat(h.fd, temp, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if err == nil {
			err = unix.Close(fd)
		}
	}
	if err != nil {
		return wrap("make", path, err)
	}
	ident, err := h.ident(temp)
	if err == nil {
		err = record(ident)
	}
	if err == nil {
		err = unix.Renameat2(h.fd, temp, h.fd, name, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			err = ErrExists
		}
	}
	if err != nil {
		return errors.Join(wrap("make", path, err), wrap("make", path, h.drop(temp, "")))
	}
	return nil
}

// Ident returns the identity of what is at path, empty when nothing is.
func (r *Root) Ident(path string) (string, error) {
	h, name, err := r.parent(path)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", wrap("look at", path, err)
	}
	defer h.close()
	ident, err := h.ident(name)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	return ident, wrap("look at", path, err)
}

// RemovePoint removes what MakePoint made: under its temporary name whatever it
// is, under its own only when it has the identity and is still empty. why says
// why something stays at path.
func (r *Root) RemovePoint(path, temp, ident string) (why string, err error) {
	h, name, err := r.parent(path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return "", nil // with the folder that it was in
	}
	if err != nil {
		return "", wrap("remove", path, err)
	}
	defer h.close()
	err = h.drop(temp, "")
	if errors.Is(err, errFilled) {
		// Renamed before a crash, and filled since.
		if err = unix.Renameat2(h.fd, temp, h.fd, name, unix.RENAME_NOREPLACE); err == nil {
			return "it is not empty any more", nil
		}
	}
	if err != nil {
		return "", wrap("remove", path, err)
	}
	now, err := h.ident(name)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", wrap("remove", path, err)
	}
	if ident == "" || now != ident {
		return "somebody else's is in its place", nil
	}
	// Out of its name first, so that what is looked at is what is removed.
	if err := unix.Renameat2(h.fd, name, h.fd, temp, unix.RENAME_NOREPLACE); err != nil {
		return "", wrap("remove", path, err)
	}
	err = h.drop(temp, ident)
	if err == nil {
		return "", nil
	}
	if back := unix.Renameat2(h.fd, temp, h.fd, name, unix.RENAME_NOREPLACE); back != nil {
		return "", wrap("put back", path, back)
	}
	if errors.Is(err, errFilled) {
		return "it is not empty any more", nil
	}
	return "", wrap("remove", path, err)
}

var errFilled = errors.New("not empty, or another one")

// drop removes an empty file or folder; ident, when given, is what it must be.
func (h *handle) drop(name, ident string) error {
	p, err := Openat2(h.fd, name, unix.O_PATH|unix.O_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(p)
	var st unix.Stat_t
	if err := unix.Fstat(p, &st); err != nil {
		return err
	}
	if ident != "" {
		if now, err := identOf(p); err != nil || now != ident {
			return errors.Join(err, errFilled)
		}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		err = unix.Unlinkat(h.fd, name, unix.AT_REMOVEDIR)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return errFilled
		}
	case unix.S_IFREG:
		if st.Size != 0 {
			return errFilled
		}
		err = unix.Unlinkat(h.fd, name, 0)
	default:
		return errFilled
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// ident names what is at name: device and inode, and the time of birth where
// the file system keeps one, for numbers are used again.
func (h *handle) ident(name string) (string, error) {
	p, err := Openat2(h.fd, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return "", err
	}
	defer unix.Close(p)
	return identOf(p)
}

func identOf(fd int) (string, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return "", err
	}
	out := fmt.Sprintf("dev=%d:%d ino=%d kind=%o", st.Dev_major, st.Dev_minor, st.Ino, st.Mode&unix.S_IFMT)
	if st.Mask&unix.STATX_BTIME != 0 {
		out += fmt.Sprintf(" born=%d.%09d", st.Btime.Sec, st.Btime.Nsec)
	}
	return out, nil
}
