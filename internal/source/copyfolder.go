package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Why something of a folder is not in the task, or not as it is.
const (
	outReserved = "not copied, names that belong to git"
	outSpecial  = "not copied, sockets, FIFOs and devices"
	outMounted  = "not copied, on another file system"
	outSetuid   = "copied without their setuid, setgid or sticky bit"
	outMoving   = "changed while they were copied, the task has one state of each"
)

// copyTries is how often a file that changes while it is copied is begun anew.
const copyTries = 3

// folder copies everything below top that can be copied. The user's folder is
// only read: through the safe resolver, and without changing a mode.
func (c *copier) folder(ctx context.Context, top string) error {
	from, err := tree.OpenUser(top)
	if err != nil {
		return unreadable(".", err)
	}
	defer from.Close()
	err = from.Walk(ctx, func(dir string, entries []*tree.Entry) error {
		to := c.root
		if dir != "" {
			sub, err := c.root.OpenRoot(dir)
			if err != nil {
				return err
			}
			defer sub.Close()
			to = sub
		}
		for _, e := range entries {
			if err := c.entry(to, e); err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, tree.ErrLimit):
		return task.Errorf(task.CodeLimit, "source.copy", "the folder has too many files or is too deep: %v", err).WithHint("name a smaller folder with --repo")
	case errors.Is(err, fs.ErrPermission) && task.CodeOf(err) == task.CodeInternal:
		return unreadable("", err)
	case ctx.Err() != nil:
		return task.Errorf(task.CodeCanceled, "source.copy", "copying was cancelled: %w", context.Cause(ctx))
	}
	return err
}

func unreadable(path string, err error) error {
	name := ""
	if path != "" {
		name = " " + quote(path)
	}
	return task.Errorf(task.CodeSource, "source.copy", "the file or folder%s cannot be read: %v", name, err).
		WithHint("make it readable, or name a folder without it with --repo; nothing was started")
}

// entry copies one entry. e.Path is where it goes, to the folder it goes into.
func (c *copier) entry(to *os.Root, e *tree.Entry) error {
	if len(e.Path) > maxPath {
		return task.Errorf(task.CodeLimit, "source.copy", "a path is longer than %d bytes: %s…", maxPath, quote(e.Path[:100])).WithHint("name a folder further down with --repo")
	}
	switch i := e.Info; {
	case reserved(e):
		c.report(outReserved, e.Path)
	case i.OtherDevice:
		c.report(outMounted, e.Path)
	case i.Kind == tree.Special:
		c.report(outSpecial, e.Path)
	case i.Kind == tree.Dir:
		if err := c.take(e.Path, 0); err != nil {
			return err
		}
		if err := to.Mkdir(e.Name, 0o700); err != nil {
			return err
		}
		c.dirs = append(c.dirs, settled{e.Path, os.FileMode(i.Mode & 0o777)})
		e.Descend = true
	case i.Kind == tree.Link:
		target, err := e.Readlink()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone since the folder was listed
		}
		if err != nil {
			return unreadable(e.Path, err)
		}
		if err := c.take(e.Path, 0); err != nil {
			return err
		}
		return c.link(e.Path, target)
	default:
		return c.file(to, e)
	}
	return nil
}

// file copies a regular file: one state of it, whole where it stands still.
func (c *copier) file(to *os.Root, e *tree.Entry) error {
	src, err := e.Open()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrKind) {
		return nil // gone or replaced since the folder was listed
	}
	if err != nil {
		return unreadable(e.Path, err)
	}
	defer src.Close()
	dst, err := to.OpenFile(e.Name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer dst.Close()
	p, err := c.packer()
	if err != nil {
		return err
	}
	before := e.Info
	var oid string
	for try := 1; ; try++ {
		if before, err = tree.Look(src); err != nil {
			return err
		}
		var size int64
		if size, oid, err = c.once(p, dst, src, before.Size, e.Path); err != nil && !errors.Is(err, errSize) {
			return err
		}
		after, lerr := tree.Look(src)
		if lerr != nil {
			return lerr
		}
		if err == nil && size == before.Size && sameState(before, after) {
			break
		}
		if try == copyTries {
			if err != nil || size < before.Size {
				return task.Errorf(task.CodeSource, "source.copy", "%s becomes shorter again and again while it is copied", quote(e.Path)).
					WithHint("stop what writes to it, then try again")
			}
			c.report(outMoving, e.Path)
			break
		}
		if err := dst.Truncate(0); err != nil {
			return err
		}
	}
	if before.Mode&0o7000 != 0 {
		c.report(outSetuid, e.Path)
	}
	i, err := tree.Settle(dst, before.Mode&0o777, before)
	if err != nil {
		return err
	}
	if err := c.take(e.Path, i.Size); err != nil {
		return err
	}
	c.add(e.Path, oid, i)
	return nil
}

func sameState(a, b tree.Info) bool {
	return a.Size == b.Size && a.MtimeS == b.MtimeS && a.MtimeN == b.MtimeN && a.CtimeS == b.CtimeS && a.CtimeN == b.CtimeN
}

// once copies the first size bytes, or what there is of them, and packs what
// it wrote.
func (c *copier) once(p *packer, dst, src *os.File, size int64, path string) (int64, string, error) {
	if size > c.left {
		return 0, "", c.full(path) // before the copy
	}
	if size > packWhole {
		n, err := tree.Copy(dst, src, size)
		if err != nil {
			return n, "", err
		}
		if _, err := dst.Seek(0, 0); err != nil {
			return n, "", err
		}
		oid, err := p.blob(n, dst)
		return n, oid, err
	}
	// A small file is read once, for both.
	if cap(c.buf) < packWhole {
		c.buf = make([]byte, packWhole)
	}
	n, err := src.ReadAt(c.buf[:size], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, "", unreadable(path, err)
	}
	b := c.buf[:n]
	if n >= 4*blockSize {
		if _, err := sys.CopySparse(dst, bytes.NewReader(b)); err != nil {
			return 0, "", err
		}
	} else if _, err := dst.WriteAt(b, 0); err != nil {
		return 0, "", err
	}
	oid, err := p.put(packBlob, b)
	return int64(n), oid, err
}
