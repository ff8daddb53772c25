package tree

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// cloneMin is the least size for which sharing blocks pays: below, the call
// costs more than the bytes.
const cloneMin = 64 << 10

// Copy writes the first size bytes of src, or what there is of them, into the
// empty file dst, and returns the size that dst has then. Where the file system
// can, both share their blocks; holes stay holes.
func Copy(dst, src *os.File, size int64) (int64, error) {
	if size >= cloneMin && unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		st, err := dst.Stat()
		if err != nil {
			return 0, err
		}
		if st.Size() > size {
			return size, dst.Truncate(size)
		}
		return st.Size(), nil
	}
	in := int(src.Fd())
	var at int64
	for at < size {
		from, err := unix.Seek(in, at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO): // a hole up to the end, or the end
			st, err := src.Stat()
			if err != nil {
				return 0, err
			}
			size = min(size, st.Size())
			return size, dst.Truncate(size)
		case err != nil:
			from = at // the file system knows no holes
		}
		if from >= size {
			break
		}
		to, err := unix.Seek(in, from, unix.SEEK_HOLE)
		if err != nil || to > size || to <= from {
			to = size
		}
		n, err := copyRange(dst, src, from, to-from)
		at = from + n
		if err != nil {
			return at, err
		}
		if n < to-from { // it became shorter
			return at, dst.Truncate(at)
		}
	}
	return size, dst.Truncate(size)
}

// copyRange copies n bytes at the same place in both files, in the kernel where
// it can.
func copyRange(dst, src *os.File, at, n int64) (done int64, err error) {
	for done < n {
		from, to := at+done, at+done
		m, err := unix.CopyFileRange(int(src.Fd()), &from, int(dst.Fd()), &to, int(min(n-done, 1<<30)), 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil && done == 0 {
			return io.Copy(io.NewOffsetWriter(dst, at), io.NewSectionReader(src, at, n))
		}
		if err != nil || m == 0 {
			return done, err
		}
		done += int64(m)
	}
	return done, nil
}

// Look says what the kernel knows of an open file.
func Look(f *os.File) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Info{}, err
	}
	return info(&st, st.Dev), nil
}

// Settle gives an open file of ours its mode and the modification time of like,
// and returns what it is then.
func Settle(f *os.File, mode uint32, like Info) (Info, error) {
	fd := int(f.Fd())
	if err := unix.Fchmod(fd, mode); err != nil {
		return Info{}, err
	}
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: like.MtimeS, Nsec: int64(like.MtimeN)}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, procPath(fd), ts, 0); err != nil {
		return Info{}, err
	}
	return Look(f)
}

// Leads reports whether following the link at path stays below the root. One
// that leads nowhere stays.
func (r *Root) Leads(path string) (bool, error) {
	fd, err := unix.Openat2(r.h.fd, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	switch {
	case err == nil:
		return true, unix.Close(fd)
	case errors.Is(err, unix.EXDEV):
		return false, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EACCES), errors.Is(err, unix.ELOOP):
		return true, nil
	}
	return false, wrap("follow", path, err)
}
