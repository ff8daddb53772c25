package search

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noLinks resolves below the given folder without any link.
const noLinks = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openBelow opens what lies below root at path, which contains no link.
func openBelow(root int, path string, flags uint64) (int, error) {
	if path == "" {
		path = "."
	}
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: noLinks}
	if flags&unix.O_PATH == 0 {
		how.Flags |= unix.O_NONBLOCK | unix.O_NOCTTY
	}
	for {
		fd, err := unix.Openat2(root, path, &how)
		// EAGAIN: a rename elsewhere made the kernel unsure; nothing was opened.
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// An openFolder is closed by the last that uses it.
type openFolder struct {
	fd   int
	used atomic.Int32
}

func (o *openFolder) release() {
	if o.used.Add(-1) == 0 {
		_ = unix.Close(o.fd)
	}
}

// openIn opens a file of a folder for reading, never through a link and never
// waiting. name ends with a zero byte, so that no copy is made per file.
func openIn(dir int, name []byte) (int, unix.Errno) {
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	for {
		fd, _, e := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&name[0])), flags|unix.O_LARGEFILE, 0, 0, 0)
		if e != unix.EINTR {
			return int(fd), e
		}
	}
}

// readFD reads once.
func readFD(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// dents calls f for each entry that one read of the folder brought; name is valid
// during the call only and has a zero byte behind it.
func dents(b []byte, f func(name []byte, typ byte)) {
	for len(b) >= 19 {
		size := int(binary.NativeEndian.Uint16(b[16:]))
		if size < 20 || size > len(b) {
			return
		}
		name := b[19:size]
		for i, c := range name {
			if c == 0 {
				name = name[: i : size-19]
				break
			}
		}
		if s := string(name); s != "." && s != ".." {
			f(name, b[18])
		}
		b = b[size:]
	}
}

// typeOf asks for the kind of an entry where the file system did not tell.
func typeOf(dir int, name string) (byte, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, err
	}
	return byte(st.Mode & unix.S_IFMT >> 12), nil // DT_* are these bits
}

// view is b as a string that is used only while b stays as it is.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
