package tree

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Remove deletes the folder or file at path and everything below it, without
// following links and whatever its modes, depth and names are. The folder that
// path is in must be ours. What is not there is no error. It can be repeated
// after a crash: a half-removed folder keeps the name trash with the former
// name, which Remove finds again.
func Remove(ctx context.Context, path string, trash string) error {
	return RemoveSome(ctx, path, trash, nil)
}

// RemoveSome is Remove that stops with ErrLimit once it has removed *left
// entries, and counts *left down. What is left of the folder then no longer has
// its name; the next removal goes on with it. nil is without a limit.
func RemoveSome(ctx context.Context, path, trash string, left *int) error {
	dir, name := filepath.Split(filepath.Clean(path))
	r, err := OpenRoot(filepath.Clean(dir))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	r.h.unlock()
	// Out of its name first: from here nobody takes it for a usable folder.
	err = unix.Renameat(r.h.fd, name, r.h.fd, trash)
	if errors.Is(err, unix.EACCES) {
		if sub, e := r.h.openDir(name); e == nil {
			sub.unlock()
			sub.restore = -1
			sub.close()
			err = unix.Renameat(r.h.fd, name, r.h.fd, trash)
		}
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		// An earlier removal was cut short; finish that one first.
		if err := removeBelow(ctx, &r.h, trash, left); err != nil {
			return wrap("remove", trash, err)
		}
		if err := unix.Renameat(r.h.fd, name, r.h.fd, trash); err != nil && !errors.Is(err, unix.ENOENT) {
			return wrap("remove", name, err)
		}
	default:
		return wrap("remove", name, err)
	}
	if err := removeBelow(ctx, &r.h, trash, left); err != nil {
		return wrap("remove", name, err)
	}
	// What an interrupted removal had lifted out of its depth.
	names, err := r.h.names()
	if err != nil {
		return wrap("remove", name, err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, trash+".") {
			if err := removeBelow(ctx, &r.h, n, left); err != nil {
				return wrap("remove", n, err)
			}
		}
	}
	return nil
}

// removeBelow removes name below h. Folders deeper than a few levels are moved
// up beside name, so that depth costs neither descriptors nor stack.
func removeBelow(ctx context.Context, h *handle, name string, left *int) error {
	x := remover{ctx: ctx, top: h, name: name, left: left}
	todo := []string{name}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		x.lifted = nil
		if err := x.remove(h, n, 0); err != nil {
			return err
		}
		todo = append(todo, x.lifted...)
	}
	return nil
}

type remover struct {
	ctx    context.Context
	top    *handle
	name   string
	lifted []string
	n      int
	left   *int // entries that may still be removed; nil: any number
}

func (x *remover) remove(h *handle, name string, depth int) error {
	if err := x.ctx.Err(); err != nil {
		return err
	}
	if x.left != nil {
		if *x.left <= 0 {
			return ErrLimit
		}
		*x.left--
	}
	err := unix.Unlinkat(h.fd, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if errors.Is(err, unix.EACCES) {
		h.unlock()
		if err = unix.Unlinkat(h.fd, name, 0); err == nil {
			return nil
		}
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	d, err := h.openDir(name)
	if err != nil {
		return err
	}
	d.unlock()
	d.restore = -1
	defer d.close()
	if depth > 64 {
		// A crash here leaves a folder with this name beside the trash; its
		// name begins with it, and the next removal of the parent takes it.
		var up string
		for {
			x.n++
			up = x.name + "." + strconv.Itoa(x.n)
			err := unix.Renameat2(h.fd, name, x.top.fd, up, unix.RENAME_NOREPLACE)
			if errors.Is(err, unix.EEXIST) {
				continue
			}
			if err != nil {
				return err
			}
			break
		}
		x.lifted = append(x.lifted, up)
		return nil
	}
	names, err := d.names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := x.remove(d, n, depth+1); err != nil {
			return inside(n, err)
		}
	}
	err = unix.Unlinkat(h.fd, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// placed is an error with the place below the removed folder where it happened.
type placed struct {
	path string
	err  error
}

func (p *placed) Error() string { return strconv.QuoteToGraphic(p.path) + ": " + p.err.Error() }
func (p *placed) Unwrap() error { return p.err }

// inside adds name to the place of err.
func inside(name string, err error) error {
	if p, ok := err.(*placed); ok { // made here, wrapped by nobody on the way
		p.path = name + "/" + p.path
		return p
	}
	return &placed{name, err}
}
