package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/door/control"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// servers remembers the control sockets that this process serves.
type servers struct {
	mu   sync.Mutex
	done []<-chan struct{}
}

func (h *house) socket(id task.ID) string { return filepath.Join(h.dirs.Runtime, string(id)+".sock") }

// maxSocketPath is what a sockaddr_un holds on Linux, less the final NUL.
const maxSocketPath = 107

// serve listens on the task's control socket. The folder is 0700, so that there
// is no moment at which another user could connect.
func (h *house) serve(id task.ID, name string) (func(), error) {
	path := h.socket(id)
	l := h.front.l // of the program that this process was
	if l == nil {
		var err error
		if l, err = listen(path); err != nil {
			return nil, task.Errorf(task.CodeStateStore, "wire.serve", "the control socket cannot be made: %w", err).
				WithHint("CAISSON_RUNTIME_DIR names another folder")
		}
		if err := os.Chmod(path, 0o600); err != nil {
			l.SetUnlinkOnClose(false)
			_ = l.Close()
			return nil, task.Errorf(task.CodeStateStore, "wire.serve", "the control socket cannot be closed to others: %w", err)
		}
	}
	l.SetUnlinkOnClose(false) // the task's end removes it, on record
	ctx, cancel := context.WithCancel(context.Background())
	s := &control.Server{Engine: h.manager, Task: id, Means: func(ref, state string) bool {
		return state == h.dirs.State && h.manager.Answers(id, ref)
	}}
	h.name(id, name)
	watching := make(chan struct{})
	begin := func() {
		h.answer(ctx, s, l)
		go func() {
			defer close(watching)
			h.stay(ctx, s, path, name)
		}()
	}
	if h.front.closed {
		h.front.l, h.front.begin = l, begin
	} else {
		begin()
	}
	return func() {
		cancel()
		if h.front.begin != nil { // it never answered
			_ = l.Close()
			return
		}
		<-watching // else it could make the socket again after its removal
	}, nil
}

// front is the control socket of a supervisor on its way to another program.
// Until it has arrived nobody is answered: who connects waits.
type front struct {
	closed bool
	l      *net.UnixListener
	begin  func() // nil once it answers
}

// open begins to answer.
func (f *front) open() {
	begin := f.begin
	*f = front{}
	if begin != nil {
		begin()
	}
}

// answer serves one listener until ctx ends or the listener is closed.
func (h *house) answer(ctx context.Context, s *control.Server, l *net.UnixListener) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ctx, l)
	}()
	h.servers.mu.Lock()
	h.servers.done = append(h.servers.done, done)
	h.servers.mu.Unlock()
}

// stayInterval is how often a supervisor looks whether its socket is there. It
// is below the time that a command waits for a supervisor that does not answer.
const stayInterval = 2 * time.Second

// stay makes the control socket again when it went away: a logout or a cleaner
// of temporary files may take the whole runtime folder from a task that lives.
// What somebody else put in its place is left alone.
func (h *house) stay(ctx context.Context, s *control.Server, path, name string) {
	t := time.NewTicker(stayInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		if sys.PrivateDir(filepath.Dir(path)) != nil {
			continue
		}
		l, err := listen(path)
		if err != nil {
			continue
		}
		l.SetUnlinkOnClose(false)
		if os.Chmod(path, 0o600) != nil || ctx.Err() != nil {
			_ = os.Remove(path)
			_ = l.Close()
			continue
		}
		h.answer(ctx, s, l)
		h.name(s.Task, name)
	}
}

// listen binds path, also one that is too long for a socket address.
func listen(path string) (*net.UnixListener, error) {
	addr := path
	if len(path) > maxSocketPath {
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		addr = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path))
	}
	return net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
}

// drain waits until what the control sockets were doing is answered.
func (h *house) drain(limit time.Duration) {
	h.servers.mu.Lock()
	defer h.servers.mu.Unlock()
	t := time.After(limit)
	for _, d := range h.servers.done {
		select {
		case <-d:
		case <-t:
			return
		}
	}
}
