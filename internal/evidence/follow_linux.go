package evidence

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watcher tells when a file changed: by inotify, or by the clock where no
// instance or watch of inotify is left to this user, which editors and builds use
// up. f is nil then.
type watcher struct{ f *os.File }

// pollInterval is how often is looked without inotify.
const pollInterval = 250 * time.Millisecond

func watch(f *os.File) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOMEM {
		return &watcher{}, nil
	}
	if err != nil {
		return nil, err
	}
	w := &watcher{os.NewFile(uintptr(fd), "inotify")}
	// By name: /proc/self/fd needs no /proc here, and present tells a change.
	if _, err := unix.InotifyAddWatch(fd, f.Name(), unix.IN_MODIFY|unix.IN_ATTRIB|unix.IN_MOVE_SELF|unix.IN_DELETE_SELF); err != nil {
		w.close()
		if err == unix.ENOSPC || err == unix.ENOMEM {
			return &watcher{}, nil
		}
		return nil, err
	}
	return w, nil
}

// wait returns nil when something happened since the last call.
func (w *watcher) wait(ctx context.Context) error {
	if w.f == nil {
		return pause(ctx, pollInterval)
	}
	if err := w.f.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = w.f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var buf [4096]byte
	_, err := w.f.Read(buf[:])
	return err
}

func (w *watcher) close() {
	if w.f != nil {
		_ = w.f.Close()
	}
}
