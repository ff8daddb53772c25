package sys

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrLocked says that another open file holds the lock.
var ErrLocked = errors.New("locked by another process")

// FileLock is an exclusive advisory lock on a file. The kernel drops it when
// the process dies, however it dies; it is not inherited by programs started
// with exec. Two locks on one path exclude each other within a process too.
type FileLock struct {
	f *os.File
}

// Lock waits for the lock on path, which it creates with mode 0600 if absent
// (the folder must exist). It ends with the cause of ctx when ctx ends first.
func Lock(ctx context.Context, path string) (*FileLock, error) {
	wait := time.Millisecond
	for {
		l, err := TryLock(path)
		if !errors.Is(err, ErrLocked) {
			return l, err
		}
		// Polling, because a thread blocked in flock(2) cannot be called back
		// when ctx ends.
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		case <-t.C:
		}
		wait = min(2*wait, 25*time.Millisecond)
	}
}

// TryLock takes the lock on path or returns an error that matches ErrLocked.
// A symbolic link at path is refused.
func TryLock(path string) (*FileLock, error) {
	for range 100 {
		f, err := openLockFile(path)
		if err != nil {
			return nil, err
		}
		if err := lockFile(f); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// The file may have been removed or replaced between open and lock:
		// then this lock guards nothing that others see.
		held, err1 := f.Stat()
		seen, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, seen) {
			return &FileLock{f}, nil
		}
		_ = f.Close()
		if err2 != nil && !errors.Is(err2, os.ErrNotExist) {
			return nil, err2
		}
	}
	return nil, fmt.Errorf("lock %s: the file is replaced again and again", path)
}

// Deleted returns a func that reports whether the locked file was deleted since:
// not moved, and not out of sight for a while. Safe to call also after Unlock,
// when it reports false.
func (l *FileLock) Deleted() func() bool {
	f := l.f
	return func() bool {
		fi, err := f.Stat()
		return err == nil && unlinked(fi)
	}
}

// File returns the open file that is the lock, to be handed to a program that
// this one starts: the lock is held until both have let go of it.
func (l *FileLock) File() *os.File { return l.f }

// AdoptLock takes over a lock on path that another process held and handed to
// this one as the open file f. It is an error when f is not that file, or not
// locked by it. Programs that this process starts do not inherit it.
func AdoptLock(f *os.File, path string) (*FileLock, error) {
	held, err := f.Stat()
	if err != nil {
		return nil, err
	}
	seen, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !os.SameFile(held, seen) {
		return nil, fmt.Errorf("lock %s: another file was handed over", path)
	}
	if err := adoptFile(f); err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return &FileLock{f}, nil
}

// Unlock releases the lock. The file stays: removing it would let two holders
// lock different files of the same name.
func (l *FileLock) Unlock() error {
	if l == nil || l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}
