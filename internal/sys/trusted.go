package sys

import "errors"

// ErrNotTrusted says that a file is not one that only its owner decides about:
// another owner, writable by others, a folder on the way to it that is.
var ErrNotTrusted = errors.New("others may change it")

// ErrTooLong says that a file is longer than what was asked for.
var ErrTooLong = errors.New("the file is too long")
