package task

import (
	"errors"
	"io/fs"
	"syscall"
)

// shortages says, for what a machine can be out of or refuse, what to do about
// it. The first that an error matches counts.
var shortages = []struct {
	errno syscall.Errno
	hint  string
}{
	{syscall.ENOSPC, "that file system is full: make room on it (`df -h` and `df -i`: it may be out of inodes with bytes to spare), then run the command again"},
	{syscall.EDQUOT, "your disk quota there is used up: remove something or have it raised, then run the command again"},
	{syscall.EROFS, "that file system is mounted read-only, perhaps after a disk error (`dmesg`): mount it writable, then run the command again"},
	{syscall.EMFILE, "a process may not open that few files: raise `ulimit -n` to 256 or more, then run the command again"},
	{syscall.ENFILE, "this machine has too many open files: end some programs, or raise the sysctl fs.file-max, then run the command again"},
	{syscall.ENOMEM, "there is no memory left for this: end some programs, or raise the memory limit of the group that caisson runs in, then run the command again"},
	{syscall.ENOLCK, "that file system gives no locks, as a network file system without its lock service: use a folder on a local disk"},
	{syscall.ESTALE, "the server of that network file system no longer knows the file: mount it again, then run the command again"},
	{syscall.EIO, "the disk or the server behind that file system reports errors: look at `dmesg` before anything else is written to it"},
}

// Shortage returns the next step when err came about because the machine is out
// of something (space, inodes, descriptors, processes, memory) or a file system
// takes no writes or fails; "" otherwise.
func Shortage(err error) string {
	if err == nil {
		return ""
	}
	for _, s := range shortages {
		if errors.Is(err, s.errno) {
			return s.hint
		}
	}
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if e.shortage != "" {
			return e.shortage
		}
		if e.Err == nil {
			break
		}
	}
	var pe *fs.PathError
	if !errors.As(err, &pe) {
		return ""
	}
	switch {
	case pe.Op == "fork/exec" && errors.Is(err, syscall.EAGAIN):
		// Of anything else EAGAIN means "not yet".
		return "no further process may be started: end some, or raise `ulimit -u` or the process limit of the group that caisson runs in, then run the command again"
	case errors.Is(err, syscall.ENOTCONN):
		return "the program that serves that file system is gone: mount it again, then run the command again"
	}
	return ""
}

// OutOf is an error whose cause is known although its text came from a program
// or library that does not say it: it reads as Err and matches Errno too.
type OutOf struct {
	Err   error
	Errno syscall.Errno
}

// Error returns the text of Err alone.
func (s *OutOf) Error() string { return s.Err.Error() }

// Unwrap returns both.
func (s *OutOf) Unwrap() []error { return []error{s.Err, s.Errno} }
