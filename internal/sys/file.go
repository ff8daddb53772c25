package sys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
