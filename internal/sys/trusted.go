package sys

import (
	"errors"
	"fmt"
	"io"
)

// ErrNotTrusted says that a file is not one that only its owner decides about:
// another owner, writable by others, a folder on the way to it that is.
var ErrNotTrusted = errors.New("others may change it")

// ErrTooLong says that a file is longer than what was asked for.
var ErrTooLong = errors.New("the file is too long")

// ReadTrusted reads a file as OpenTrusted opens it, up to limit bytes; a longer
// one is ErrTooLong.
func ReadTrusted(name string, limit int64, owners ...int) ([]byte, error) {
	f, err := OpenTrusted(name, owners...)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a file", name), err)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s: %w", name, ErrTooLong)
	}
	return b, err
}
