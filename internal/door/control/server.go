package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Server answers on one task's control socket.
type Server struct {
	Engine door.Engine // the manager that holds the live boundary
	Task   task.ID
	// Means reports whether ref, in the installation of that state folder, means
	// the task. When it is nil, a command that asks is for another one.
	Means func(ref, state string) bool
	// Closed is called once after a close that ended the task, when the answer
	// has been sent: the supervisor then exits.
	Closed func()
}

// Serve accepts until ctx ends or the listener is closed, and returns when
// every connection's work is done. It closes the listener.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// Out of descriptors or the like: the peers that are connected go on.
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		wg.Go(func() { s.handle(ctx, c) })
	}
}

func (s *Server) handle(ctx context.Context, uc *net.UnixConn) {
	defer uc.Close()
	c := &conn{c: uc}
	if err := sys.CheckPeer(uc); err != nil {
		_ = c.send(step{Error: task.FormOf(task.Errorf(task.CodeDenied, "control", "%v", err)), Done: true})
		return
	}
	// A peer that connects and says nothing must not hold a goroutine for ever.
	_ = uc.SetReadDeadline(time.Now().Add(10 * time.Second))
	m, files, err := recv[request](c)
	if err != nil {
		return
	}
	_ = uc.SetReadDeadline(time.Time{})
	switch m.Op {
	case "exec", "check":
		s.exec(ctx, c, m, files)
		return
	case "close":
		s.close(ctx, c, m)
	case "keep", "ports", "allow", "apply", "branch", "export", "tool", "questions", "answer", "output":
		s.operate(ctx, c, m, files)
		return
	case "ping":
		_ = c.send(step{Done: true})
	default:
		_ = c.send(step{Error: task.FormOf(task.Errorf(task.CodeUnsupported, "control", "no operation %q here", m.Op)), Done: true})
	}
	closeAll(files)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func (s *Server) exec(ctx context.Context, c *conn, m request, files []*os.File) {
	if m.Command == nil || (m.Op == "check") != (m.Check != nil) || (!m.Command.TTY && len(files) != 3) || (m.Command.TTY && len(files) != 0) {
		closeAll(files)
		_ = c.send(step{Error: task.FormOf(task.Errorf(task.CodeUsage, "control", "malformed %s request", m.Op)), Done: true})
		return
	}
	if w := m.Meant; w != nil && (s.Means == nil || !s.Means(string(w.Ref), string(w.State))) {
		closeAll(files)
		_ = c.send(step{Else: true, Done: true})
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := m.Command.command()
	signals := make(chan os.Signal, 16)
	cancels := make(chan struct{}, 3)
	summary := make(chan *door.IOSummary, 1)
	after := newLeftovers(files)
	defer after.drain()
	eio := &door.ExecIO{
		Signals: signals, Cancels: cancels,
		OnPTY: func(master *os.File) {
			_ = c.send(step{PTY: true}, master)
			_ = master.Close()
		},
		Started:  func(task.ID) { _ = c.send(step{Started: true}) },
		Progress: func(text string) { _ = c.send(step{Progress: text}) },
		Summary: func() door.IOSummary {
			// From here the caller may close its read ends at any moment.
			after.open()
			_ = c.send(step{Exited: true})
			select {
			case sum := <-summary:
				if sum != nil {
					return *sum
				}
			case <-ctx.Done():
			case <-time.After(30 * time.Second):
			}
			return door.IOSummary{}
		},
	}
	if !cmd.TTY {
		eio.Files = [3]*os.File(files)
	}
	// The caller's wishes arrive on the same connection; its end is a wish too.
	go func() {
		defer close(summary)
		for {
			m, extra, err := recv[request](c)
			closeAll(extra)
			if err != nil {
				cancel(task.Errorf(task.CodeCanceled, "control", "the caller of the command went away"))
				return
			}
			switch {
			case m.Signal != 0:
				select {
				case signals <- syscall.Signal(m.Signal):
				default: // a flood of signals coalesces as the kernel's own would
				}
			case m.Cancel:
				select {
				case cancels <- struct{}{}:
				default:
				}
			case m.Summary != nil:
				summary <- m.Summary
				return
			}
		}
	}()
	if m.Check != nil {
		check, out, err := s.Engine.Check(ctx, string(s.Task), door.CheckOptions{Name: string(m.Check.Name), Command: cmd, Named: m.Check.Named}, eio)
		last := step{Outcome: &out, Error: task.FormOf(err), Done: true}
		if check != nil {
			last.Check, _ = json.Marshal(check) // plain values of ours
		}
		_ = c.send(last)
		return
	}
	out, err := s.Engine.Exec(ctx, string(s.Task), cmd, eio)
	_ = c.send(step{Outcome: &out, Error: task.FormOf(err), Done: true})
}

func (s *Server) close(ctx context.Context, c *conn, m request) {
	o := door.CloseOptions{Progress: func(text string) { _ = c.send(message{Progress: text}) }}
	if m.Close != nil {
		o.DryRun, o.Discard, o.Keep = m.Close.DryRun, m.Close.Discard, m.Close.Keep
	}
	// A close that has begun is finished even when the asker goes away.
	rep, err := s.Engine.Close(context.WithoutCancel(ctx), string(s.Task), o)
	_ = c.send(message{Closed: rep, Error: task.FormOf(err), Done: true})
	if rep != nil && !o.DryRun && s.Closed != nil && !rep.State.Live() {
		s.Closed()
	}
}

// leftovers keeps what a command left running in the background alive: a server
// that still writes to the command's output would get a broken pipe once the
// caller is gone. What it writes from then on is dropped.
type leftovers struct {
	mu      sync.Mutex
	refs    []*os.File // of standard output and error
	readers []*os.File
}

func newLeftovers(files []*os.File) *leftovers {
	l := &leftovers{}
	if len(files) == 3 {
		for _, f := range files[1:] {
			if r := reference(f); r != nil {
				l.refs = append(l.refs, r)
			}
		}
	}
	return l
}

// open takes read ends while the caller still has its own.
func (l *leftovers) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.refs {
		if f := reader(r); f != nil {
			l.readers = append(l.readers, f)
		}
	}
	closeAll(l.refs)
	l.refs = nil
}

// drain reads until the last writer is gone; each goroutine ends with the
// boundary at the latest, which takes every writer with it.
func (l *leftovers) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	closeAll(l.refs)
	for _, f := range l.readers {
		go func() {
			_, _ = io.Copy(io.Discard, f)
			_ = f.Close()
		}()
	}
	l.refs, l.readers = nil, nil
}
