//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"

	"golang.org/x/sys/unix"
)

// thread is an operating system thread of ours in a mount namespace of its
// own. What is started from it sees the host's files without the unified
// control group tree beside the old ones, which crun refuses to work with, and
// whatever engines mount there is gone with their last process.
type thread struct{ jobs chan func() }

func newThread() (*thread, error) {
	t := &thread{jobs: make(chan func())}
	ready := make(chan error)
	go func() {
		// Never unlocked: a thread that was changed ends with its goroutine.
		runtime.LockOSThread()
		err := privateMounts()
		ready <- err
		if err != nil {
			return
		}
		for f := range t.jobs {
			f()
		}
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	return t, nil
}

func privateMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("own mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	err := unix.Unmount("/sys/fs/cgroup/unified", unix.MNT_DETACH)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EINVAL) { // there is none
		return fmt.Errorf("unified control groups: %w", err)
	}
	return nil
}

// on runs f on the thread and waits for it.
func (t *thread) on(f func()) {
	done := make(chan struct{})
	t.jobs <- func() { defer close(done); f() }
	<-done
}

// end lets the thread go. A process that asked to be ended with its parent is
// ended by this.
func (t *thread) end() { close(t.jobs) }
