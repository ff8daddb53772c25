package worker

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watcher waits on a program's pidfd and asks the kernel how it ended. The
// number it returns is the host's own observation (Linux 6.15 and later).
type watcher struct {
	k   *Call
	f   *os.File
	pid int
}

// newWatcher takes over fd. It returns nil, and closes fd, where fd is no
// pidfd or the kernel tells nothing about one: then the exit stays a claim.
func newWatcher(k *Call, fd int) *watcher {
	info, err := pidfdInfo(fd, unix.PIDFD_INFO_PID|unix.PIDFD_INFO_EXIT)
	if err != nil || unix.SetNonblock(fd, true) != nil {
		_ = unix.Close(fd)
		return nil
	}
	return &watcher{k: k, f: os.NewFile(uintptr(fd), "pidfd"), pid: int(info.Pid)}
}

// status returns the wait status once the program was reaped.
func (w *watcher) status() (status uint32, ok bool) {
	raw, err := w.f.SyscallConn()
	if err != nil {
		return 0, false
	}
	_ = raw.Control(func(fd uintptr) { status, ok, _ = pidfdStatus(int(fd)) })
	return status, ok
}

// pidfdStatus returns how the process ended. untold says that it was reaped
// and this kernel (before 6.15) does not keep what it knew.
func pidfdStatus(fd int) (status uint32, ok, untold bool) {
	info, err := pidfdInfo(fd, unix.PIDFD_INFO_EXIT)
	if err != nil {
		return 0, false, true
	}
	return uint32(info.Exit_code), info.Mask&unix.PIDFD_INFO_EXIT != 0, false
}

// pidfdInfo looks again when the kernel says "no such process": one that was
// reaped between the two lookups of a single call is reported so although its
// status was kept.
func pidfdInfo(fd int, mask uint64) (info unix.PidfdInfo, err error) {
	for range 3 {
		info = unix.PidfdInfo{Mask: mask}
		if err = unix.IoctlPidfdInfo(fd, &info); err != unix.ESRCH {
			break
		}
	}
	return info, err
}

// run ends with the program, or when interrupted.
func (w *watcher) run() {
	var status uint32
	var ok, untold bool
	raw, err := w.f.SyscallConn()
	for err == nil && !ok && !untold {
		err = raw.Read(func(fd uintptr) bool {
			if status, ok, untold = pidfdStatus(int(fd)); ok || untold {
				return true
			}
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, _ := unix.Poll(p, 0)
			return n > 0
		})
		if err != nil || ok || untold {
			break
		}
		// Ended but not reaped: the kernel tells only afterwards, and need not
		// wake us a second time.
		t := time.NewTimer(5 * time.Millisecond)
		select {
		case <-t.C:
		case <-w.k.c.done:
			err = os.ErrClosed
		}
		t.Stop()
	}
	w.k.watchEnded(status, ok)
	_ = w.f.Close()
}

// interrupt makes run return soon.
func (w *watcher) interrupt() { _ = w.f.SetReadDeadline(time.Now()) }
