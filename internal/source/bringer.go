package source

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/tree"
)

// bringer copies files of the user's checkout to the same places in the task's.
type bringer struct {
	*copier
	from    *tree.Root
	p       *preparation
	modes   map[string]uint32 // of the index, where the user's git does not look at modes
	ignored int
}

func newBringer(p *preparation) (*bringer, error) {
	c, err := newCopier(p.ws, p.in.Disk)
	if err != nil {
		return nil, err
	}
	from, err := tree.OpenUser(p.r.Ref.Repo)
	if err != nil {
		c.close()
		return nil, err
	}
	b := &bringer{copier: c, from: from, p: p, modes: map[string]uint32{}}
	if !p.r.fileMode {
		for _, e := range p.carried.entries {
			b.modes[e.path] = e.mode
		}
	}
	return b, nil
}

func (b *bringer) close() {
	b.from.Close()
	b.copier.close()
}

// all copies everything that was captured. What vanished since is deleted, as if
// it had been captured a moment later.
func (b *bringer) all(ctx context.Context) error {
	c := b.p.carried
	gone := slices.Clone(c.deleted)
	slices.Reverse(gone) // what is in a folder before the folder
	for _, n := range gone {
		if err := b.clear(n); err != nil {
			return err
		}
	}
	for _, n := range c.changed {
		if err := b.clear(n); err != nil {
			return err
		}
	}
	for _, list := range [][]string{c.changed, c.untracked} {
		for _, n := range list {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := b.one(n); err != nil {
				return err
			}
		}
	}
	for _, n := range c.ignored {
		if err := b.tree(ctx, strings.TrimSuffix(n, "/")); err != nil {
			return err
		}
	}
	for _, d := range slices.Backward(b.dirs) {
		if err := b.root.Chmod(d.path, d.mode); err != nil {
			return err
		}
		i, err := b.look.Stat(d.path)
		if err != nil {
			return err
		}
		b.newest(i)
	}
	return nil
}

// clear takes a checked out file away, and folders that it leaves empty.
func (b *bringer) clear(name string) error {
	if err := b.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		if b.root.Remove(d) != nil {
			break // something else is in it
		}
	}
	return nil
}

// one copies the file or link at name.
func (b *bringer) one(name string) error {
	i, err := b.from.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && i.Kind != tree.File && i.Kind != tree.Link {
		return nil // gone or replaced since git listed it
	}
	if err != nil {
		return unreadable(name, err)
	}
	if d := path.Dir(name); d != "." {
		if err := b.root.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	return b.copy(name, i)
}

// copy copies what is at name, which is as i says. A place that is taken is
// left: the file is there already.
func (b *bringer) copy(name string, i tree.Info) error {
	if err := b.take(name, i.Size); err != nil {
		return err
	}
	if i.Kind == tree.Link {
		target, err := b.from.Readlink(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = b.root.Symlink(target, name)
		}
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if i, err = b.look.Stat(name); err == nil {
			b.newest(i)
		}
		return err
	}
	src, i, err := b.from.Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, tree.ErrKind) {
		return nil
	}
	if err != nil {
		return unreadable(name, err)
	}
	defer src.Close()
	dst, err := b.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dst.Close()
	for try := 1; ; try++ {
		n, err := tree.Copy(dst, src, i.Size)
		if err != nil {
			return err
		}
		after, err := tree.Look(src)
		if err != nil {
			return err
		}
		if n == i.Size && sameState(i, after) {
			break
		}
		if try == copyTries {
			b.report(outMoving, name)
			break
		}
		i = after
		if err := dst.Truncate(0); err != nil {
			return err
		}
	}
	mode := i.Mode & 0o777
	if m, ok := b.modes[name]; ok && m&0o170000 == 0o100000 {
		mode = m & 0o777
	}
	if i.Mode&0o7000 != 0 {
		b.report(outSetuid, name)
	}
	if i, err = tree.Settle(dst, mode, i); err == nil {
		b.newest(i)
	}
	return err
}

// tree copies an ignored file, or a folder with everything below it.
func (b *bringer) tree(ctx context.Context, top string) error {
	i, err := b.from.Stat(top)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return unreadable(top, err)
	}
	if isDotGit(path.Base(top)) {
		b.report(outReserved, top)
		return nil
	}
	if i.Kind != tree.Dir {
		b.ignored++
		return b.one(top)
	}
	from, err := b.from.OpenDir(top)
	if err != nil {
		return unreadable(top, err)
	}
	defer from.Close()
	if err := b.root.MkdirAll(top, 0o755); err != nil {
		return err
	}
	b.dirs = append(b.dirs, settled{top, os.FileMode(i.Mode & 0o777)})
	return from.Walk(ctx, func(_ string, entries []*tree.Entry) error {
		for _, e := range entries {
			name := top + "/" + e.Path
			switch {
			case reserved(e):
				b.report(outReserved, name)
			case e.Info.OtherDevice:
				b.report(outMounted, name)
			case e.Info.Kind == tree.Special:
				b.report(outSpecial, name)
			case e.Info.Kind == tree.Dir:
				if err := b.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
					return err
				}
				b.dirs = append(b.dirs, settled{name, os.FileMode(e.Info.Mode & 0o777)})
				e.Descend = true
			default:
				b.ignored++
				if err := b.copy(name, e.Info); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
