package tree

import (
	"context"
	"errors"
	"sort"

	"golang.org/x/sys/unix"
)

// Walk calls fn for every folder below the root and the root itself, parents
// first, with its entries in byte order. It goes into those folders whose
// Descend fn has set. What vanishes meanwhile is left out; a folder that cannot
// be read is an error, never an absence.
func (r *Root) Walk(ctx context.Context, fn func(dir string, entries []*Entry) error) error {
	w := walker{ctx: ctx, dev: r.dev, fn: fn}
	return w.dir(&r.h, "", 0)
}

type walker struct {
	ctx   context.Context
	dev   uint64
	fn    func(string, []*Entry) error
	count int
}

func (w *walker) dir(h *handle, path string, depth int) error {
	if depth > MaxDepth {
		return wrap("walk", path, ErrLimit)
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	names, err := h.names()
	if err != nil {
		return wrap("list", path, err)
	}
	if w.count += len(names); w.count > MaxCount {
		return wrap("walk", path, ErrLimit)
	}
	sort.Strings(names)
	prefix := path
	if prefix != "" {
		prefix += "/"
	}
	entries := make([]*Entry, 0, len(names))
	for _, name := range names {
		i, err := h.stat(name, w.dev)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return wrap("stat", prefix+name, err)
		}
		entries = append(entries, &Entry{Path: prefix + name, Name: name, Info: i, dir: h})
	}
	if err := w.fn(path, entries); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Info.Kind != Dir || !e.Descend {
			continue
		}
		sub, err := h.openDir(e.Name)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue // gone, or replaced since it was looked at
		}
		if err != nil {
			return wrap("open", e.Path, err)
		}
		err = w.dir(sub, e.Path, depth+1)
		if cerr := sub.close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Move renames path out of r to the same path below dst, a folder of ours on
// the same file system, making parents there. It never replaces anything.
func (r *Root) Move(path, dst string) error {
	h, name, err := r.parent(path)
	if err != nil {
		return wrap("move", path, err)
	}
	defer h.close()
	to, err := OpenRoot(dst)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := to.mkdirs(path); err != nil {
		return wrap("move", path, err)
	}
	th, tname, err := to.parent(path)
	if err != nil {
		return wrap("move", path, err)
	}
	defer th.close()
	err = unix.Renameat2(h.fd, name, th.fd, tname, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EACCES) {
		// A folder without write permission cannot change its parent, and one
		// without it does not give up its entries. Both are ours.
		h.unlock()
		if sub, e := h.openDir(name); e == nil {
			restore := sub.unlock()
			err = unix.Renameat2(h.fd, name, th.fd, tname, unix.RENAME_NOREPLACE)
			if restore >= 0 && sub.restore < 0 {
				sub.restore = restore
			}
			sub.close()
		} else {
			err = unix.Renameat2(h.fd, name, th.fd, tname, unix.RENAME_NOREPLACE)
		}
	}
	return wrap("move", path, err)
}

// unlock makes an open folder of ours writable and returns its former mode,
// or -1 when nothing was changed.
func (h *handle) unlock() int {
	var st unix.Stat_t
	if unix.Fstat(h.fd, &st) != nil || st.Mode&0o700 == 0o700 {
		return -1
	}
	if unix.Fchmod(h.fd, st.Mode&0o7777|0o700) != nil {
		return -1
	}
	return int(st.Mode & 0o7777)
}

// mkdirs makes the parents of path.
func (r *Root) mkdirs(path string) error {
	for i := 0; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		h, name, err := r.parent(path[:i])
		if err != nil {
			return err
		}
		err = unix.Mkdirat(h.fd, name, 0o700)
		h.close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}
