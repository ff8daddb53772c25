//go:build linux

package tools

import (
	"context"
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/internal/worker/tools/search"
)

// Helpers is how many threads, besides the one of each call, all searches together
// may hold in system calls.
const Helpers = search.Helpers

func listDir(ctx context.Context, c *Call, args any) (any, *contract.Failure) {
	a := args.(*contract.ListDirArgs)
	dir, fail := c.Root.OpenDir(a.Path)
	if fail != nil {
		return nil, fail
	}
	defer dir.Close()
	r, err := search.List(ctx, dir.FD, a)
	if err != nil {
		return nil, searchFailure(ctx, err, dir.Path)
	}
	r.Path = dir.Path
	return r, nil
}

func glob(ctx context.Context, c *Call, args any) (any, *contract.Failure) {
	a := args.(*contract.GlobArgs)
	dir, fail := c.Root.OpenDir(a.Path)
	if fail != nil {
		return nil, fail
	}
	defer dir.Close()
	r, fail := below(ctx, c, dir, a, search.Find)
	if fail != nil {
		return nil, fail
	}
	r.Path = dir.Path
	return r, nil
}

func grep(ctx context.Context, c *Call, args any) (any, *contract.Failure) {
	a := args.(*contract.GrepArgs)
	dir, fail := c.Root.OpenDir(a.Path)
	if fail != nil && fail.Code == contract.NotDir {
		file, fail := c.Root.OpenFile(a.Path)
		if fail != nil {
			return nil, fail
		}
		defer file.Close()
		r, err := search.GrepFile(ctx, file.FD, path.Base(file.Path), a)
		if err != nil {
			return nil, searchFailure(ctx, err, file.Path)
		}
		r.Path = path.Dir(file.Path)
		return r, nil
	}
	if fail != nil {
		return nil, fail
	}
	defer dir.Close()
	r, fail := below(ctx, c, dir, a, search.Grep)
	if fail != nil {
		return nil, fail
	}
	r.Path = dir.Path
	return r, nil
}

// below has one search go through a folder.
func below[A, R any](ctx context.Context, c *Call, dir *File, args A, run func(context.Context, search.Place, A) (R, error)) (r R, fail *contract.Failure) {
	place, done, fail := c.Root.place(dir)
	if fail != nil {
		return r, fail
	}
	defer done()
	if c.Found != nil {
		place.Found = func(part any) { c.found(dir.Path, part) }
	}
	r, err := run(ctx, place, args)
	if err != nil {
		return r, searchFailure(ctx, err, dir.Path)
	}
	return r, nil
}

// place is dir as a search sees it: below the top of everything, so that the
// ignore rules of the folders above hold too. Where a link leads to dir, its
// place there is not known by name, and only the rules in it and below hold.
func (r *Root) place(dir *File) (search.Place, func(), *contract.Failure) {
	top, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return search.Place{}, nil, failure(err, "/")
	}
	rel := strings.TrimPrefix(path.Clean(dir.Path), "/")
	p := search.Place{Root: top, Path: rel}
	for _, d := range r.deny {
		p.Deny = append(p.Deny, strings.TrimPrefix(d, "/"))
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	at := rel
	if at == "" {
		at = "."
	}
	same := false
	if fd, err := unix.Openat2(top, at, &how); err == nil {
		var st unix.Stat_t
		same = unix.Fstat(fd, &st) == nil && st.Dev == dir.Stat.Dev && st.Ino == dir.Stat.Ino
		_ = unix.Close(fd)
	}
	if same {
		return p, func() { _ = unix.Close(top) }, nil
	}
	_ = unix.Close(top)
	return search.Place{Root: dir.FD}, func() {}, nil
}

func searchFailure(ctx context.Context, err error, p string) *contract.Failure {
	var f *contract.Failure
	if errors.As(err, &f) {
		return f
	}
	if f := ended(ctx); f != nil {
		return f
	}
	return failure(err, p)
}
