package control

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// toolDoor is the door of a tool call that came over the socket. It is another
// one than that of answers: who asks is not who answers.
const (
	toolDoor   = "tool"
	answerDoor = "control"
)

// tools carries out what is about tool calls.
func (s *Server) tools(ctx context.Context, c *conn, m request, progress func(string)) (any, error) {
	id := string(s.Task)
	switch m.Op {
	case "tool":
		var call task.ToolCall
		if json.Unmarshal(m.In, &call) != nil {
			return nil, task.Errorf(task.CodeUsage, "control", "malformed %s request", m.Op)
		}
		return s.Engine.Tool(ctx, id, call, door.ToolOptions{
			By: door.Actor{Door: toolDoor, Role: door.RoleAgent}, Progress: progress,
			Output: func(stream string, p []byte) { _ = c.send(message{Output: &output{stream, p}}) },
			Asked:  func(q task.Question) { _ = c.send(message{Asked: &q}) },
		})
	case "output":
		var name string
		e, ok := s.Engine.(outputs)
		if json.Unmarshal(m.In, &name) != nil || !ok {
			return nil, task.Errorf(task.CodeUsage, "control", "malformed %s request", m.Op)
		}
		r, err := e.OpenOutput(ctx, id, name)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		f, ok := r.(*os.File)
		if !ok {
			return nil, task.Errorf(task.CodeInternal, "control", "the output %q is no file", name)
		}
		return nil, c.send(message{File: true}, f)
	case "questions":
		return s.Engine.Questions(ctx, id)
	case "answer":
		var a task.Answer
		if json.Unmarshal(m.In, &a) != nil {
			return nil, task.Errorf(task.CodeUsage, "control", "malformed %s request", m.Op)
		}
		if !strings.HasPrefix(a.ID, id+".") {
			return nil, task.Errorf(task.CodeNotFound, "control", "no question %q waits in task %s", a.ID, id)
		}
		return s.Engine.Answer(ctx, door.Actor{Door: answerDoor, Role: door.RolePerson}, a)
	}
	return nil, task.Errorf(task.CodeUnsupported, "control", "no operation %q here", m.Op)
}

// outputs is an engine that keeps what calls left beside their results.
type outputs interface {
	OpenOutput(ctx context.Context, ref, name string) (io.ReadCloser, error)
}

// OpenOutput opens an output of a call by its name; the supervisor has looked
// that it is the file that it made. The caller closes it.
func (c *Client) OpenOutput(ctx context.Context, name string) (io.ReadCloser, error) {
	cn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer cn.c.Close()
	defer context.AfterFunc(ctx, func() { _ = cn.c.Close() })()
	in, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	if err := cn.send(request{Op: "output", In: in}); err != nil {
		return nil, c.silent(err)
	}
	var f *os.File
	for {
		m, extra, err := recv[message](cn)
		if err == nil && m.File && len(extra) == 1 && f == nil {
			f, extra = extra[0], nil
		}
		closeAll(extra)
		if err == nil && !m.Done {
			continue
		}
		if err != nil {
			err = c.silent(err) // nothing but the reading is lost
		} else {
			err = m.Error.Err()
		}
		if err == nil && f == nil {
			err = task.Errorf(task.CodeNotFound, "output", "the task has no output %q", name)
		}
		if err != nil {
			if f != nil {
				_ = f.Close()
			}
			return nil, err
		}
		return f, nil
	}
}

// Tool makes one tool call. See door.Engine.
func (c *Client) Tool(ctx context.Context, call task.ToolCall, o door.ToolOptions) (*task.ToolResult, error) {
	var r *task.ToolResult
	err := c.operate(ctx, asking{op: "tool", in: call, progress: o.Progress, output: o.Output, asked: o.Asked}, &r)
	return r, err
}

// Questions lists what waits for a person in the task. See door.Engine.
func (c *Client) Questions(ctx context.Context) ([]task.Question, error) {
	var qs []task.Question
	err := c.operate(ctx, asking{op: "questions", reads: true}, &qs)
	return qs, err
}

// Answer answers a question of the task. See door.Engine.
func (c *Client) Answer(ctx context.Context, a task.Answer) (*task.Question, error) {
	var q *task.Question
	err := c.operate(ctx, asking{op: "answer", in: a}, &q)
	return q, err
}
