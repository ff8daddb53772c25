package control

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// The operations on a task's results that its supervisor carries out for
// another process: it alone may write the record of an open task, and its own
// end is what undoes them when it is killed. See docs/adr/0021.

// partSize is how much of an answer one message carries: reports can be larger
// than a message may be.
const partSize = 1 << 20

// cancelTime bounds the wait for the answer of an operation that was canceled:
// it may be putting files back.
const cancelTime = 2 * time.Minute

// keepOptions are door.KeepOptions as they travel.
type keepOptions struct {
	For    time.Duration `json:"for_ns"`
	Reason string        `json:"reason"`
}

// operate carries out one operation with one answer.
func (s *Server) operate(ctx context.Context, c *conn, m message, files []*os.File) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The caller's wish to end it arrives on the same connection, and so does its
	// death. What has begun to change files is finished or undone all the same.
	go func() {
		for {
			m, extra, err := c.recv()
			closeAll(extra)
			if err != nil {
				cancel(task.Errorf(task.CodeCanceled, "control", "the caller went away"))
				return
			}
			if m.Cancel {
				cancel(task.Errorf(task.CodeCanceled, "control", "canceled"))
			}
		}
	}()
	progress := func(text string) { _ = c.send(message{Progress: text}) }
	out, err := s.result(ctx, m, files, progress)
	closeAll(files)
	body, jerr := json.Marshal(out)
	if jerr != nil {
		err = errors.Join(err, jerr)
	}
	for len(body) > 0 {
		n := min(len(body), partSize)
		if c.send(message{Part: body[:n]}) != nil {
			return
		}
		body = body[n:]
	}
	_ = c.send(message{Error: task.FormOf(err), Done: true})
}

// result calls the engine. Which task it is comes from the socket, never from
// the message.
func (s *Server) result(ctx context.Context, m message, files []*os.File, progress func(string)) (any, error) {
	id := string(s.Task)
	bad := task.Errorf(task.CodeUsage, "control", "malformed %s request", m.Op)
	switch m.Op {
	case "keep":
		var o keepOptions
		if json.Unmarshal(m.In, &o) != nil {
			return nil, bad
		}
		return s.Engine.Keep(ctx, id, door.KeepOptions{For: o.For, Reason: o.Reason})
	}
	return nil, task.Errorf(task.CodeUnsupported, "control", "no operation %q here", m.Op)
}

// operate asks for one operation and decodes its answer into out, which is left
// alone when there is none. Descriptors in files stay the caller's.
func (c *Client) operate(ctx context.Context, op string, in, out any, progress func(string), files ...*os.File) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	cn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer cn.c.Close()
	stop := context.AfterFunc(ctx, func() {
		if cn.send(message{Cancel: true}) != nil {
			_ = cn.c.Close()
		}
		_ = cn.c.SetReadDeadline(time.Now().Add(cancelTime))
	})
	defer stop()
	if err := cn.send(message{Op: op, In: body}, files...); err != nil {
		return c.lost(err)
	}
	var answer []byte
	for {
		m, extra, err := cn.recv()
		closeAll(extra)
		switch {
		case err != nil:
			return c.lost(err)
		case m.Progress != "" && progress != nil:
			progress(m.Progress)
		case m.Part != nil:
			answer = append(answer, m.Part...)
		case m.Done:
			if len(answer) > 0 {
				if err := json.Unmarshal(answer, out); err != nil {
					return c.lost(err)
				}
			}
			return m.Error.Err()
		}
	}
}

// Keep records a retention. See door.Engine.
func (c *Client) Keep(ctx context.Context, o door.KeepOptions) (*task.View, error) {
	var v *task.View
	err := c.operate(ctx, "keep", keepOptions{o.For, o.Reason}, &v, nil)
	return v, err
}
