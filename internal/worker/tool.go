package worker

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"os"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/internal/worker/frame"
)

const (
	// toolLimit bounds a tool of which the worker says nothing. Its own limits are
	// shorter.
	toolLimit = 6 * time.Minute
	// stopLimit is how long a canceled tool may take to say how it ended.
	stopLimit = 5 * time.Second
	maxClaim  = 2000 // characters of a refusal's text
)

// ToolReply is what came back of one tool: all of it is claimed.
type ToolReply struct {
	// Result is one JSON object; nil with a Failure. Whether it is of the tool's
	// result type was not looked at.
	Result json.RawMessage
	// File is a regular file that the worker opened for the host to read, or nil.
	// What is in it and how long it is may change at any time. The caller closes
	// it.
	File *os.File
	// Failure is the tool's own refusal.
	Failure *task.ToolFailure
}

// Close closes the file, if there is one.
func (r *ToolReply) Close() {
	if r.File != nil {
		_ = r.File.Close()
		r.File = nil
	}
}

// Tool has the worker itself carry out a tool that works on files. args is one
// JSON object in the contract's form. in, a regular file or nil, is content
// that the tool takes from its beginning; it stays the caller's.
//
// A tool that refuses is no error: see ToolReply. When ctx ends the worker is
// told, and its answer is waited for: that is either the result, of a tool that
// was done before, or the Failure "canceled".
//
// Errors: CodeUsage, CodeLimit, CodeUnavailable and CodeChannel say that
// nothing was begun; CodeOutcomeUnknown, that nobody knows.
func (c *Client) Tool(ctx context.Context, name string, args []byte, in *os.File) (ToolReply, error) {
	return c.ToolFound(ctx, name, args, in, nil)
}

// ToolFound is Tool that hands on what a search finds while it goes on, as
// objects of the tool's result type: the files of all of them are those that the
// result begins with. found is not called any more once ToolFound returned.
func (c *Client) ToolFound(ctx context.Context, name string, args []byte, in *os.File, found func(json.RawMessage)) (ToolReply, error) {
	const op = "worker.tool"
	if len(args) == 0 {
		args = []byte("{}")
	}
	if !json.Valid(args) {
		return ToolReply{}, task.Errorf(task.CodeUsage, op, "the arguments of %s are no JSON", name)
	}
	if int64(len(args)) > frame.ToolMax {
		return ToolReply{}, task.Errorf(task.CodeUsage, op, "the arguments of %s are longer than %d bytes", name, frame.ToolMax)
	}
	if err := context.Cause(ctx); err != nil {
		return ToolReply{Failure: &task.ToolFailure{Code: string(contract.Canceled), Message: "the call was canceled before it began"}}, nil
	}
	body := frame.ToolBody{Tool: name, In: in != nil, Found: found != nil}
	var fs []*os.File
	if len(args) <= frame.ToolInline {
		body.Args = args
	} else {
		f, err := hold(args)
		if err != nil {
			return ToolReply{}, task.Errorf(task.CodeUnavailable, op, "memory for the arguments of %s: %w", name, err)
		}
		defer f.Close()
		body.Size, fs = int64(len(args)), append(fs, f)
	}
	if in != nil {
		fs = append(fs, in)
	}
	b := frame.Encode(body)
	d := frame.Digest(b)
	p := &pending{digest: hex.EncodeToString(d[:]), reply: make(chan answer, 1), tool: true, fds: 2}
	reply := p.reply
	var parts chan json.RawMessage
	if found != nil {
		parts = make(chan json.RawMessage, frame.MaxFound)
		p.found = parts
	}
	id, err := c.send(frame.Tool, p, b, fs)
	if err != nil {
		return ToolReply{}, err
	}
	limit := time.NewTimer(toolLimit)
	defer limit.Stop()
	// What is handed on is of the tool's type, or nothing is believed any more.
	hand := func(part json.RawMessage) error {
		if t, ok := contract.Lookup(name); !ok || frame.Decode(part, t.Result()) != nil {
			err := violation("what a tool found is not of its type")
			c.poison(err)
			return unknown(op, err)
		}
		found(part)
		return nil
	}
	answered := func(a answer) (ToolReply, error) {
		var err error
		for len(parts) > 0 && err == nil { // they came before it
			err = hand(<-parts)
		}
		r, rerr := c.toolReply(a)
		if err != nil {
			r.Close()
			return ToolReply{}, err
		}
		return r, rerr
	}
	for {
		select {
		case part := <-parts:
			if err := hand(part); err != nil {
				return ToolReply{}, err
			}
			continue
		case a := <-reply:
			return answered(a)
		case <-c.done:
		case <-ctx.Done():
			c.sendStop(id)
			limit.Reset(stopLimit)
			select {
			case a := <-reply:
				return answered(a)
			case <-c.done:
			case <-limit.C:
			}
		case <-limit.C:
		}
		break
	}
	// Nobody reads the answer any more; if it comes after all, the reader closes
	// what comes with it.
	c.mu.Lock()
	p.forsaken = true
	cause := c.err
	c.mu.Unlock()
	select {
	case a := <-reply:
		return c.toolReply(a)
	default:
	}
	if cause == nil {
		if cause = context.Cause(ctx); cause == nil {
			cause = violation("the worker did not answer in time")
		}
	}
	return ToolReply{}, unknown(op, cause)
}

// sendStop asks for the answer of an operation soon.
func (c *Client) sendStop(op uint64) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.mu.Lock()
	p, dead := c.ops[op], c.err != nil
	c.mu.Unlock()
	if p == nil || dead {
		return
	}
	if err := c.conn.Write(frame.Frame{Kind: frame.Stop, Op: op}); err != nil {
		c.poison(err)
	}
}

// foundFits says whether an event is one that a tool may have.
func foundFits(b *frame.ReplyBody, fds int) bool {
	return fds == 0 && b.Event == frame.EventFound && len(b.Result) > 0 && b.Result[0] == '{' && len(b.Result) <= frame.ToolInline &&
		!b.OK && b.Size == 0 && !b.Out && b.Code == "" && b.PID == 0 && b.Status == 0
}

// toolFits says whether a reply is one that a tool may have.
func toolFits(b *frame.ReplyBody, fds int) bool {
	want := 0
	if b.Size != 0 {
		want++
	}
	if b.Out {
		want++
	}
	if !b.OK {
		return want == 0 && fds == 0 && b.Result == nil
	}
	return fds == want && b.Size >= 0 && b.Size <= frame.ToolMax && (b.Size == 0) == (b.Result != nil)
}

func (c *Client) toolReply(a answer) (ToolReply, error) {
	if !a.body.OK {
		code := contract.Code(a.body.Code)
		if !code.Known() {
			code = contract.Internal
		}
		return ToolReply{Failure: &task.ToolFailure{Code: string(code), Message: cleanTo(a.body.Msg, maxClaim)}}, nil
	}
	var files []*os.File
	for _, fd := range a.fds {
		files = append(files, os.NewFile(uintptr(fd), "from the worker"))
	}
	r := ToolReply{Result: a.body.Result}
	bad := func(why string) (ToolReply, error) {
		for _, f := range files {
			_ = f.Close()
		}
		err := violation(why)
		c.poison(err)
		return ToolReply{}, unknown("worker.tool", err)
	}
	for _, f := range files {
		// Reading another kind of file may wait for ever.
		if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
			return bad("a descriptor that is no regular file came with a result")
		}
	}
	if a.body.Size > 0 {
		r.Result = make([]byte, a.body.Size)
		if n, _ := files[0].ReadAt(r.Result, 0); n != len(r.Result) {
			return bad("a result is shorter than was said")
		}
		_ = files[0].Close()
		files = files[1:]
	}
	if len(r.Result) == 0 || r.Result[0] != '{' || a.body.Size > 0 && !json.Valid(r.Result) {
		return bad("a result is no JSON object")
	}
	if a.body.Out {
		r.File = files[0]
	}
	return r, nil
}
