//go:build !linux

package workerbin

// Ensure returns ErrAbsent: the worker is a Linux program, and the embedded
// backend that launches it exists on Linux only.
func Ensure(string, Mode) (string, error) { return "", ErrAbsent }

// EnsureCopy returns ErrAbsent.
func EnsureCopy(string, string, Mode) (string, error) { return "", ErrAbsent }
