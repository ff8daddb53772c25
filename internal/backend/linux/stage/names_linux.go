package stage

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"
)

// open opens a path below the root, following no link on the way: a link in
// a folder that was mounted must not lead a later mount astray.
func (b *builder) open(name string, flags uint64) (int, error) {
	rel := path.Clean("/" + name)[1:]
	if rel == "" {
		rel = "."
	}
	return unix.Openat2(b.root, rel, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW | flags,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// mkdir makes sure that a folder exists. Missing parents get mode 0755. In a
// read-only mount nothing can be made, so there it must exist already.
func (b *builder) mkdir(name string, mode uint32) error {
	fd, err := b.open(name, unix.O_DIRECTORY)
	if err == nil {
		unix.Close(fd)
		return nil
	}
	if !errors.Is(err, unix.ENOENT) {
		return fail(b.step, "open "+name, err)
	}
	if err := b.mkdir(path.Dir(path.Clean(name)), 0o755); err != nil {
		return err
	}
	parent, err := b.open(path.Dir(path.Clean(name)), unix.O_DIRECTORY)
	if err != nil {
		return fail(b.step, "open the parent of "+name, err)
	}
	defer unix.Close(parent)
	return fail(b.step, "make the folder "+name, unix.Mkdirat(parent, path.Base(name), mode))
}

// file makes sure that a file exists; a new one gets the given content.
func (b *builder) file(name string, mode uint32, data string) error {
	fd, err := b.open(name, 0)
	if err == nil {
		unix.Close(fd)
		return nil
	}
	if !errors.Is(err, unix.ENOENT) {
		return fail(b.step, "open "+name, err)
	}
	dir, err := b.openParent(name)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	f, err := unix.Openat(dir, path.Base(name), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, mode)
	if err != nil {
		return fail(b.step, "make the file "+name, err)
	}
	defer unix.Close(f)
	for d := []byte(data); len(d) > 0; {
		n, err := unix.Write(f, d)
		if err != nil {
			return fail(b.step, "write the file "+name, err)
		}
		d = d[n:]
	}
	return nil
}

func (b *builder) link(name, dest string) error {
	dir, err := b.openParent(name)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return fail(b.step, "make the link "+name, unix.Symlinkat(dest, dir, path.Base(name)))
}

func (b *builder) openParent(name string) (int, error) {
	parent := path.Dir(path.Clean(name))
	if err := b.mkdir(parent, 0o755); err != nil {
		return -1, err
	}
	fd, err := b.open(parent, unix.O_DIRECTORY)
	return fd, fail(b.step, "open "+parent, err)
}
