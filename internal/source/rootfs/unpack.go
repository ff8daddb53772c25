package rootfs

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// bounds are how much is unpacked of one archive.
type bounds struct {
	bytes   int64
	entries int
}

// most is more than a root of a large system needs, and less than fills a disk
// without anybody having asked for it.
var most = bounds{bytes: 32 << 30, entries: 2_000_000}

func errEntries(b bounds) error {
	return task.Errorf(task.CodeLimit, op, "it holds more than %d files", b.entries).WithHint("unpack it yourself and name the folder with --rootfs")
}

func errBytes(b bounds) error {
	return task.Errorf(task.CodeLimit, op, "it holds more than %d MiB", b.bytes>>20).WithHint("unpack it yourself and name the folder with --rootfs")
}

// maxLinks bounds the links that one name leads through, as a kernel does.
const maxLinks = 40

// maxName bounds a name, as a kernel does.
const maxName = 4095

// unpacking is one archive on its way into root. All names are taken as they would
// be by a program whose root that is: no link and no ".." leads out of it, which
// os.Root sees to once more.
type unpacking struct {
	ctx  context.Context
	root *os.Root
	most bounds
	done Unpacked
	seen int

	// The folder of the last entry: archives hold a folder's files in a row.
	name  string   // as the archive had it
	where string   // as it is, without links
	at    *os.Root // nil: none

	fresh map[string]bool // made by this layer
}

// held is r, until the context ends.
func (u *unpacking) held(r io.Reader) io.Reader { return heldReader{u.ctx, r} }

type heldReader struct {
	ctx context.Context
	r   io.Reader
}

func (h heldReader) Read(p []byte) (int, error) {
	if h.ctx.Err() != nil {
		return 0, context.Cause(h.ctx)
	}
	return h.r.Read(p)
}

// layer unpacks one archive over what is there. With whiteouts, names say too what
// of it is to go.
func (u *unpacking) layer(r io.Reader, whiteouts bool) error {
	r, err := plain(u.held(r))
	if err != nil {
		return err
	}
	u.fresh = map[string]bool{}
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if u.seen++; u.seen > u.most.entries {
			return errEntries(u.most)
		}
		if err := u.entry(h, t, whiteouts); err != nil {
			var te *task.Error
			if errors.As(err, &te) {
				return err
			}
			return fmt.Errorf("%s: %w", short(h.Name), err)
		}
	}
}

func (u *unpacking) entry(h *tar.Header, r io.Reader, whiteouts bool) error {
	if len(h.Name) > maxName || len(h.Linkname) > maxName || strings.ContainsRune(h.Name+h.Linkname, 0) {
		return errors.New("its name is none")
	}
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	if name == "" || h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
	default:
		u.done.LeftOut++
		return nil
	}
	where, at, err := u.enter(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	if gone, ok := strings.CutPrefix(base, ".wh."); ok && whiteouts {
		return u.without(at, where, gone)
	}
	full := path.Join(where, base)
	if err := u.clear(at, base, h.Typeflag); err != nil {
		return err
	}
	u.fresh[full] = true
	switch h.Typeflag {
	case tar.TypeDir:
		err := at.Mkdir(base, 0o755)
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
		return err
	case tar.TypeSymlink:
		if h.Linkname == "" {
			return errors.New("its link leads nowhere")
		}
		u.leave() // what it is in the way of is another place now
		return u.root.Symlink(h.Linkname, full)
	case tar.TypeLink:
		to := strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
		from, _, err := u.enter(path.Dir(to))
		if err != nil {
			return err
		}
		old := path.Join(from, path.Base(to))
		if st, err := u.root.Lstat(old); err != nil || st.IsDir() {
			return fmt.Errorf("it is another name of %s, which is no file here", short(h.Linkname))
		}
		return u.root.Link(old, full)
	}
	return u.file(at, base, h, r)
}

func (u *unpacking) file(at *os.Root, base string, h *tar.Header, r io.Reader) error {
	if h.Size > u.most.bytes-u.done.Bytes {
		return errBytes(u.most)
	}
	f, err := at.OpenFile(base, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(r, h.Size))
	u.done.Bytes += n
	u.done.Files++
	if err == nil && n != h.Size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		// Whoever runs inside is nobody whom the archive knows, and reads it all; it is
		// shown read-only. No bit that lends an owner's rights.
		mode := fs.FileMode(0o644)
		if h.Mode&0o111 != 0 {
			mode = 0o755
		}
		err = f.Chmod(mode)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil && !h.ModTime.IsZero() {
		err = at.Chtimes(base, h.ModTime, h.ModTime) // programs compare the times of files that they compiled
	}
	return err
}

// clear takes away what is in the way of an entry; a folder stays for a folder.
func (u *unpacking) clear(at *os.Root, base string, kind byte) error {
	st, err := at.Lstat(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || st.IsDir() && kind == tar.TypeDir {
		return err
	}
	if st.IsDir() || st.Mode()&fs.ModeSymlink != 0 {
		defer u.forget()
	}
	return at.RemoveAll(base)
}

// without takes away what a layer says is gone: one name, or all of a folder that
// the layer did not make itself.
func (u *unpacking) without(at *os.Root, where, gone string) error {
	if gone != ".wh..opq" {
		if gone == "" || gone == "." || gone == ".." {
			return errors.New("it takes away what has no name")
		}
		defer u.forget()
		return at.RemoveAll(gone)
	}
	d, err := at.Open(".")
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	for _, n := range names {
		if err == nil && !u.fresh[path.Join(where, n)] {
			err = at.RemoveAll(n)
		}
	}
	u.forget()
	return err
}

// enter finds or makes the folder of that name, in which the next entry lies.
func (u *unpacking) enter(name string) (string, *os.Root, error) {
	if u.at != nil && u.name == name {
		return u.where, u.at, nil
	}
	u.leave()
	where, err := u.resolve(name)
	if err != nil {
		return "", nil, err
	}
	at, err := u.root.OpenRoot(where)
	if err != nil {
		return "", nil, err
	}
	u.name, u.where, u.at = name, where, at
	return where, at, nil
}

// forget has the next entry look where it lies: a folder may have gone.
func (u *unpacking) forget() { u.name = "\x00" }

// leave gives the last folder up.
func (u *unpacking) leave() {
	if u.at != nil {
		_ = u.at.Close()
	}
	u.at, u.name = nil, ""
}

// resolve follows the links of a folder's name inside the root, and makes what is
// missing of it.
func (u *unpacking) resolve(name string) (string, error) {
	cur, rest, links := ".", strings.Split(name, "/"), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			cur = path.Dir(cur)
			continue
		}
		next := path.Join(cur, part)
		st, err := u.root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if u.seen++; u.seen > u.most.entries {
				return "", errEntries(u.most)
			}
			if err := u.root.Mkdir(next, 0o755); err != nil {
				return "", err
			}
			u.fresh[next] = true
			cur = next
		case err != nil:
			return "", err
		case st.IsDir():
			cur = next
		case st.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", errors.New("its links lead in a circle")
			}
			to, err := u.root.Readlink(next)
			if err != nil {
				return "", err
			}
			if strings.HasPrefix(to, "/") {
				cur = "."
			}
			rest = append(strings.Split(to, "/"), rest...)
			if len(rest) > 4096 {
				return "", errors.New("its links lead too far")
			}
		default:
			return "", fmt.Errorf("%s is a file, and no folder", short(next))
		}
	}
	return cur, nil
}
