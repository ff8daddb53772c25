package sys

import (
	"errors"
	"os"
	"syscall"
)

// OutOfFiles returns why no further file can be opened when this process or the
// machine has too many open already, else nil: for libraries and programs that
// only say that they could not.
func OutOfFiles() error {
	f, err := os.Open(os.DevNull)
	if err == nil {
		return f.Close()
	}
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return err
	}
	return nil
}
