package sys

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

var _ = RegisterFaults("sys.write.temp", "sys.write.rename")

// WriteFile replaces path by data so that a crash at any moment leaves either
// the old or the new content, never a mixture: temporary file in the same
// folder, write, fsync, rename, fsync of the folder. Two fsyncs. A symbolic
// link at path is replaced, not followed.
func WriteFile(path string, data []byte, perm fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".tmp-"+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := f.Chmod(perm); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	n, err := f.Write(data)
	if err != nil {
		return err
	}
	if n != len(data) {
		return fmt.Errorf("%s: %w", path, io.ErrShortWrite)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := Fault("sys.write.temp"); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	if err := Fault("sys.write.rename"); err != nil {
		return err
	}
	return SyncDir(dir)
}

// Keep replaces path by data, for what only saves time when it is read again:
// nothing is synced, so after a power failure there may be anything, which its
// reader must notice. Mode 0600. On an error path is as it was.
func Keep(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-"+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// KeepIn is Keep of a file called name in dir, a private folder that is made where
// it is absent. Of more than most files there the oldest go. All of that only saves
// time, so nothing is said of what fails.
func KeepIn(dir, name string, data []byte, most int) {
	if PrivateDir(dir) != nil || Keep(filepath.Join(dir, name), data) != nil {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= most {
		return
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int {
		x, xerr := a.Info()
		y, yerr := b.Info()
		if xerr != nil || yerr != nil {
			return 0
		}
		return x.ModTime().Compare(y.ModTime())
	})
	for _, e := range entries[:len(entries)-most] {
		_ = os.Remove(filepath.Join(dir, e.Name()))
	}
}

// Rename renames and makes the change durable in both folders.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	a, b := filepath.Dir(from), filepath.Dir(to)
	if err := SyncDir(b); err != nil || a == b {
		return err
	}
	return SyncDir(a)
}

// zeros is what a hole reads as.
var zeros = make([]byte, 64<<10)

// CopySparse copies src to dst, which is empty, and leaves a hole for every block
// of zeros: a file that takes no space on the disk, whatever its size, must not
// begin to take it as a copy. It returns how many bytes there are.
func CopySparse(dst *os.File, src io.Reader) (n int64, err error) {
	buf := make([]byte, len(zeros))
	for {
		m, rerr := io.ReadFull(src, buf)
		if m > 0 && !bytes.Equal(buf[:m], zeros[:m]) {
			if _, err := dst.WriteAt(buf[:m], n); err != nil {
				return n, err
			}
		}
		n += int64(m)
		switch {
		case errors.Is(rerr, io.EOF), errors.Is(rerr, io.ErrUnexpectedEOF):
			return n, dst.Truncate(n)
		case rerr != nil:
			return n, rerr
		}
	}
}
