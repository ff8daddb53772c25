package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// Client acts on an open task through its supervisor's socket.
type Client struct {
	Path string // of the socket
	Task task.ID
	// Ref is what a person called the task in the installation of the state folder
	// State. When it is set, Path and Task are a guess: the supervisor is asked
	// whether it is meant, and Exec returns door.ErrElsewhere when it is not, or
	// when nobody is there to ask.
	Ref, State string
}

func (c *Client) dial(ctx context.Context) (*conn, error) {
	addr, done := address(c.Path)
	defer done()
	if ctx.Err() != nil {
		return nil, c.silent(context.Cause(ctx))
	}
	// The kernel answers at once, also when nobody accepts: no need to interrupt it.
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, c.silent(err)
	}
	return &conn{c: nc}, nil
}

// silent is the error of a request that nobody has begun.
func (c *Client) silent(err error) error {
	return task.Errorf(task.CodeState, "control", "the supervisor of task %s does not answer: %w", c.Task, err).
		WithHint("`caisson reap` reconciles a task whose supervisor died; one that lives makes its socket again within seconds, if %s can be written and is the runtime folder that the task was opened with; `caisson show %s` says what is known",
			filepath.Dir(c.Path), c.Task)
}

// unread reports whether the other end closed before it had read all that was
// sent: the kernel says so by a reset, and by an ordinary end where it had. A
// supervisor at its end closes connections that it has not taken up yet.
func unread(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (c *Client) lost(err error) error {
	return task.Errorf(task.CodeOutcomeUnknown, "control", "the connection to the supervisor of task %s ended in the middle: %w", c.Task, err).
		WithHint("`caisson log %s` shows what was recorded; nothing is repeated by itself", c.Task)
}

// Exec runs cmd inside. See door.Engine.
func (c *Client) Exec(ctx context.Context, cmd task.Command, io *door.ExecIO) (task.Outcome, error) {
	last, err := c.run(ctx, request{Op: "exec", Command: toCommand(cmd)}, io)
	return last.outcome(), err
}

// Check runs a command that verifies the files inside. See door.Engine.
func (c *Client) Check(ctx context.Context, o door.CheckOptions, io *door.ExecIO) (*task.Check, task.Outcome, error) {
	last, err := c.run(ctx, request{Op: "check", Command: toCommand(o.Command), Check: &checked{[]byte(o.Name), o.Named}}, io)
	if last.Check == nil {
		return nil, last.outcome(), err
	}
	check := &task.Check{}
	if json.Unmarshal(last.Check, check) != nil {
		return nil, last.outcome(), c.lost(errors.New("the check cannot be read"))
	}
	if !o.Named {
		check.Argv = o.Command.Argv // which JSON may not have held
	}
	return check, last.outcome(), err
}

func (s *step) outcome() task.Outcome {
	if s.Outcome == nil {
		return task.Outcome{}
	}
	return *s.Outcome
}

// run has a command run and returns the supervisor's last word.
func (c *Client) run(ctx context.Context, m request, io *door.ExecIO) (last step, err error) {
	files := nonNil(io.Files[:])
	cn, err := c.dial(ctx)
	if err != nil && c.Ref != "" && ctx.Err() == nil {
		return last, door.ErrElsewhere
	}
	if err != nil {
		closeAll(files)
		return last, err
	}
	defer cn.c.Close()
	if c.Ref != "" {
		if stopped(cn.c) {
			return last, door.ErrElsewhere // it would be silent; who has the record can say why
		}
		m.Meant = &meant{Ref: []byte(c.Ref), State: []byte(c.State)}
	}
	stop := context.AfterFunc(ctx, func() { _ = cn.c.Close() })
	defer stop()
	err = cn.send(m, files...)
	// The other side has its own now. Where another task may be meant they are
	// kept for it until there is an answer.
	kept := c.Ref != ""
	defer func() {
		if kept {
			closeAll(files)
		}
	}()
	if !kept {
		closeAll(files)
	}
	if err != nil {
		return last, c.lost(err)
	}
	done := make(chan struct{})
	defer close(done)
	go forward(cn, io, done)
	for {
		m, extra, err := recv[step](cn)
		if err != nil {
			return last, c.lost(err)
		}
		if m.Else && kept {
			kept = false
			closeAll(extra)
			return last, door.ErrElsewhere
		}
		if kept {
			closeAll(files)
			kept = false
		}
		switch {
		case m.PTY && len(extra) == 1 && io.OnPTY != nil:
			io.OnPTY(extra[0])
			extra = nil
		case m.Started && io.Started != nil:
			io.Started(c.Task)
		case m.Progress != "" && io.Progress != nil:
			io.Progress(m.Progress)
		case m.Exited:
			sum := door.IOSummary{}
			if io.Summary != nil {
				sum = io.Summary()
			}
			if err := cn.send(request{Summary: &sum}); err != nil {
				closeAll(extra)
				return last, c.lost(err)
			}
		case m.Done:
			closeAll(extra)
			return m, m.Error.Err()
		}
		closeAll(extra)
	}
}

// forward passes signals and cancellations on until the command is done.
func forward(cn *conn, io *door.ExecIO, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case s, ok := <-io.Signals:
			if !ok {
				io.Signals = nil
			} else if n, isNum := s.(syscall.Signal); isNum {
				_ = cn.send(request{Signal: int(n)})
			}
		case _, ok := <-io.Cancels:
			if !ok {
				io.Cancels = nil
			} else {
				_ = cn.send(request{Cancel: true})
			}
		}
	}
}

// Close ends the task. See door.Engine.
func (c *Client) Close(ctx context.Context, o door.CloseOptions) (*task.CloseReport, error) {
	cn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer cn.c.Close()
	stop := context.AfterFunc(ctx, func() { _ = cn.c.Close() })
	defer stop()
	if err := cn.send(request{Op: "close", Close: &closeOptions{DryRun: o.DryRun, Discard: o.Discard, Keep: o.Keep}}); err != nil {
		return nil, c.lost(err)
	}
	for {
		m, extra, err := recv[message](cn)
		closeAll(extra)
		switch {
		case err != nil:
			return nil, c.lost(err)
		case m.Progress != "" && o.Progress != nil:
			o.Progress(m.Progress)
		case m.Done:
			return m.Closed, m.Error.Err()
		}
	}
}

// Ping reports whether a supervisor answers.
func (c *Client) Ping(ctx context.Context) error {
	cn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer cn.c.Close()
	_ = cn.c.SetDeadline(time.Now().Add(5 * time.Second))
	if err := cn.send(request{Op: "ping"}); err != nil {
		return err
	}
	m, extra, err := recv[step](cn)
	closeAll(extra)
	if err == nil && m.Error != nil {
		err = m.Error.Err()
	}
	if err == nil && !m.Done {
		err = errors.New("control: unexpected answer")
	}
	return err
}

func nonNil(files []*os.File) []*os.File {
	var out []*os.File
	for _, f := range files {
		if f != nil {
			out = append(out, f)
		}
	}
	return out
}

// maxPath is what a sockaddr_un holds on Linux, less the final NUL.
const maxPath = 107

// address returns a name for path that fits into a socket address, and what
// gives it back. A long path is named through an open folder.
func address(path string) (string, func()) {
	if len(path) <= maxPath {
		return path, func() {}
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return path, func() {}
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }
}
