package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
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

// Options as they travel. Names and paths may be any bytes, which JSON strings
// cannot hold.
type (
	keepOptions struct {
		For    time.Duration `json:"for_ns"`
		Reason string        `json:"reason"`
	}
	portsOptions struct {
		Publish  []string `json:"publish"`
		Withdraw []int    `json:"withdraw"`
	}
	allowOptions struct {
		Places   []string `json:"places"`
		Withdraw []string `json:"withdraw"`
		Reason   string   `json:"reason"`
	}
	applyOptions struct {
		DryRun     bool   `json:"dry_run"`
		AllowRisky bool   `json:"allow_risky"`
		Agreed     string `json:"agreed"`
	}
	branchOptions struct {
		Name  []byte `json:"name"`
		Force bool   `json:"force"`
	}
	exportOptions struct {
		Form string `json:"form"`
		Dir  []byte `json:"dir"`
	}
)

// riskSize is how many risky files one message names: a message has a limit,
// and a path up to four kilobytes.
const riskSize = 100

// operate carries out one operation with one answer.
func (s *Server) operate(ctx context.Context, c *conn, m request, files []*os.File) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The caller's wish to end it arrives on the same connection, and so does its
	// death. What has begun to change files is finished or undone all the same.
	go func() {
		for {
			m, extra, err := recv[request](c)
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
	out, err := s.result(ctx, c, m, files)
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
func (s *Server) result(ctx context.Context, c *conn, m request, files []*os.File) (any, error) {
	id := string(s.Task)
	progress := func(text string) { _ = c.send(message{Progress: text}) }
	risky := func(rs []task.Risk) {
		for len(rs) > 0 {
			n := min(len(rs), riskSize)
			_ = c.send(message{Risky: rs[:n], More: n < len(rs)})
			rs = rs[n:]
		}
	}
	bad := task.Errorf(task.CodeUsage, "control", "malformed %s request", m.Op)
	switch m.Op {
	case "keep":
		var o keepOptions
		if json.Unmarshal(m.In, &o) != nil {
			return nil, bad
		}
		return s.Engine.Keep(ctx, id, door.KeepOptions{For: o.For, Reason: o.Reason})
	case "ports":
		var o portsOptions
		if json.Unmarshal(m.In, &o) != nil {
			return nil, bad
		}
		return s.Engine.Ports(ctx, id, door.PortsOptions{Publish: o.Publish, Withdraw: o.Withdraw})
	case "allow":
		var o allowOptions
		if json.Unmarshal(m.In, &o) != nil {
			return nil, bad
		}
		return s.Engine.Allow(ctx, id, door.AllowOptions{Places: o.Places, Withdraw: o.Withdraw, Reason: o.Reason})
	case "apply":
		var o applyOptions
		if json.Unmarshal(m.In, &o) != nil {
			return nil, bad
		}
		return s.Engine.Apply(ctx, id, door.ApplyOptions{DryRun: o.DryRun, AllowRisky: o.AllowRisky, Agreed: o.Agreed, Progress: progress})
	case "branch":
		var o branchOptions
		if json.Unmarshal(m.In, &o) != nil {
			return nil, bad
		}
		return s.Engine.Branch(ctx, id, door.BranchOptions{Name: string(o.Name), Force: o.Force, Progress: progress, Risky: risky})
	case "export":
		var o exportOptions
		if json.Unmarshal(m.In, &o) != nil || len(files) != 1 {
			return nil, bad
		}
		return s.Engine.Export(ctx, id, files[0], door.ExportOptions{Form: o.Form, Dir: string(o.Dir), Progress: progress, Risky: risky})
	}
	return s.tools(ctx, c, m, progress)
}

// asking is one operation that is asked for.
type asking struct {
	op       string
	reads    bool // it changes nothing: when ctx ends nobody waits for its end
	in       any
	progress func(string)
	risky    func([]task.Risk)
	output   func(string, []byte)
	asked    func(task.Question)
}

// operate asks for one operation and decodes its answer into out, which is left
// alone when there is none. It closes files.
func (c *Client) operate(ctx context.Context, a asking, out any, files ...*os.File) error {
	body, err := json.Marshal(a.in)
	if err != nil {
		closeAll(files)
		return err
	}
	cn, err := c.dial(ctx)
	if err != nil {
		closeAll(files)
		return err
	}
	defer cn.c.Close()
	if a.reads && stopped(cn.c) {
		closeAll(files)
		return c.silent(errors.New("it is stopped"))
	}
	stop := context.AfterFunc(ctx, func() {
		if a.reads {
			_ = cn.c.Close()
			return
		}
		if cn.send(request{Cancel: true}) != nil {
			_ = cn.c.Close()
		}
		_ = cn.c.SetReadDeadline(time.Now().Add(cancelTime))
	})
	defer stop()
	err = cn.send(request{Op: a.op, In: body}, files...)
	closeAll(files)
	if err != nil {
		if a.reads || unread(err) {
			return c.silent(heard(ctx, err))
		}
		return c.lost(err)
	}
	var answer []byte
	var risks []task.Risk
	for first := true; ; first = false {
		m, extra, err := recv[message](cn)
		closeAll(extra)
		switch {
		case err != nil && first && ctx.Err() == nil && unread(err):
			// Nothing but the request was sent, so it is what was not read.
			return c.silent(err)
		case err != nil && a.reads:
			return c.silent(heard(ctx, err)) // nothing but the reading is lost
		case err != nil:
			return c.lost(err)
		case m.Progress != "" && a.progress != nil:
			a.progress(m.Progress)
		case m.Risky != nil:
			if risks = append(risks, m.Risky...); !m.More && a.risky != nil {
				a.risky(risks)
			}
		case m.Output != nil && a.output != nil:
			a.output(m.Output.Stream, m.Output.Bytes)
		case m.Asked != nil && a.asked != nil:
			a.asked(*m.Asked)
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

// heard is why nothing more was heard: ctx ended, or else err.
func heard(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Keep records a retention. See door.Engine.
func (c *Client) Keep(ctx context.Context, o door.KeepOptions) (*task.View, error) {
	var v *task.View
	err := c.operate(ctx, asking{op: "keep", in: keepOptions{o.For, o.Reason}}, &v)
	return v, err
}

// Ports lists ports, and offers them. See door.Engine.
func (c *Client) Ports(ctx context.Context, o door.PortsOptions) (*task.PortsReport, error) {
	var r *task.PortsReport
	err := c.operate(ctx, asking{op: "ports", in: portsOptions{o.Publish, o.Withdraw}}, &r)
	return r, err
}

// Allow adds destinations. See door.Engine.
func (c *Client) Allow(ctx context.Context, o door.AllowOptions) (*task.AllowReport, error) {
	var r *task.AllowReport
	err := c.operate(ctx, asking{op: "allow", in: allowOptions{o.Places, o.Withdraw, o.Reason}}, &r)
	return r, err
}

// Apply brings the result into the checkout. See door.Engine.
func (c *Client) Apply(ctx context.Context, o door.ApplyOptions) (*task.ApplyReport, error) {
	var r *task.ApplyReport
	err := c.operate(ctx, asking{op: "apply", in: applyOptions{o.DryRun, o.AllowRisky, o.Agreed}, progress: o.Progress}, &r)
	return r, err
}

// Branch makes the result a branch. See door.Engine.
func (c *Client) Branch(ctx context.Context, o door.BranchOptions) (*task.BranchReport, error) {
	var r *task.BranchReport
	err := c.operate(ctx, asking{op: "branch", in: branchOptions{[]byte(o.Name), o.Force}, progress: o.Progress, risky: o.Risky}, &r)
	return r, err
}

// Export writes the result to w or into a folder. See door.Engine. The
// supervisor gets the end of a pipe, never a file of the caller's.
func (c *Client) Export(ctx context.Context, w io.Writer, o door.ExportOptions) (*task.ExportReport, error) {
	r, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	copied := make(chan error, 1)
	go func() {
		defer r.Close() // the supervisor stops when nobody reads any more
		var err error
		if w != nil {
			_, err = io.Copy(w, r)
		}
		copied <- err
	}()
	var rep *task.ExportReport
	err = c.operate(ctx, asking{op: "export", in: exportOptions{o.Form, []byte(o.Dir)}, progress: o.Progress, risky: o.Risky}, &rep, pw)
	if cerr := <-copied; cerr != nil {
		return rep, cerr // what the supervisor then got is only its consequence
	}
	return rep, err
}
