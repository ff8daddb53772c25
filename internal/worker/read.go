package worker

import (
	"time"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// lateSet remembers operations that ended while a cancel of them was still on
// its way: the worker answers that cancel too. It is bounded.
type lateSet struct {
	left  map[uint64]lateOp
	order []uint64
}

type lateOp struct {
	digest string
	n      int // answers that may still come
}

const maxLate = 4096

func (l *lateSet) add(op uint64, digest string, n int) {
	if n == 0 {
		return
	}
	if l.left == nil {
		l.left = map[uint64]lateOp{}
	}
	l.left[op] = lateOp{digest, n}
	l.order = append(l.order, op)
	if len(l.order) > maxLate {
		delete(l.left, l.order[0])
		l.order = l.order[1:]
	}
}

func (l *lateSet) take(op uint64, digest string) bool {
	o, ok := l.left[op]
	if !ok || o.digest != digest {
		return false
	}
	if o.n--; o.n == 0 {
		delete(l.left, op)
	} else {
		l.left[op] = o
	}
	return true
}

// read is the only reader. It never waits for anything but the next frame, and
// closes idle when it stops without one.
func (c *Client) read(conn *frame.Conn, idle chan<- struct{}) {
	for {
		f, err := conn.Read()
		if err == frame.ErrIdle {
			close(idle)
			return
		}
		if err == nil {
			err = c.dispatch(&f)
		}
		if err != nil {
			f.CloseFDs()
			c.poison(err)
			return
		}
	}
}

// violation is a reason found above the framing.
type violation string

func (v violation) Error() string { return "worker: " + string(v) }

func (c *Client) dispatch(f *frame.Frame) error {
	if f.Kind != frame.Reply && f.Kind != frame.Event {
		return violation("a frame of the host's kind came back")
	}
	var body frame.ReplyBody
	if err := frame.Decode(f.Body, &body); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastOK = time.Now()
	p := c.ops[f.Op]
	if p == nil {
		if f.Kind == frame.Event && body.Event == frame.EventEnded && len(f.FDs) == 0 && c.late.take(f.Op, body.Req) {
			return nil
		}
		return violation("an unknown operation was answered")
	}
	if body.Req != p.digest {
		return violation("an answer names another request")
	}
	if f.Kind == frame.Event && p.tool {
		if !foundFits(&body, len(f.FDs)) || p.found == nil || p.told == frame.MaxFound {
			return violation("an event that a tool may not have")
		}
		p.told++
		p.found <- body.Result // has room
		return nil
	}
	if f.Kind == frame.Event {
		if p.call == nil || len(f.FDs) != 0 {
			return violation("an event for what is no call")
		}
		return c.eventLocked(f.Op, p, &body)
	}
	if body.Event != "" || p.reply == nil || len(f.FDs) > p.fds || (!body.OK && len(f.FDs) > 0) {
		return violation("a reply that does not fit its request")
	}
	if p.tool && !toolFits(&body, len(f.FDs)) || !p.tool && (body.Result != nil || body.Size != 0 || body.Out) {
		return violation("a reply of another kind than its request")
	}
	if p.forsaken {
		f.CloseFDs()
	}
	fds := f.FDs
	f.FDs = nil
	if p.tool {
		delete(c.ops, f.Op)
		p.reply <- answer{body: body, fds: fds}
		p.reply = nil
		return nil
	}
	if p.call == nil {
		delete(c.ops, f.Op)
	} else if !body.OK {
		c.forgetLocked(f.Op, p)
		p.call.notStarted()
	} else {
		p.call.started(body.PID, fds)
	}
	p.reply <- answer{body: body}
	p.reply = nil // a second reply is a violation
	return nil
}

// forgetLocked ends the time in which the worker may speak about op, except
// for answers to cancels that it may not have read yet.
func (c *Client) forgetLocked(op uint64, p *pending) {
	delete(c.ops, op)
	c.late.add(op, p.digest, p.call.cancels)
}

// eventLocked moves a call along: exit, then — only if it was canceled — one
// of clear, not clear, ended; or lost at any point.
func (c *Client) eventLocked(op uint64, p *pending, body *frame.ReplyBody) error {
	call := p.call
	var delivered <-chan struct{}
	if d, ok := c.transport.(delivering); ok {
		delivered = d.Delivered(op)
	}
	if p.reply != nil && body.Event != frame.EventLost {
		return violation("an event before the reply")
	}
	switch body.Event {
	case frame.EventExit:
		if call.exited {
			return violation("a second exit of one call")
		}
		call.exited = true
		if delivered == nil {
			call.claimed(body.Status)
		} else {
			status := body.Status
			c.wg.Go(func() {
				select {
				case <-delivered:
				case <-c.done:
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				call.claimed(status)
			})
		}
		if call.cancels == 0 {
			c.forgetLocked(op, p)
			call.settle(settledEnded)
		}
	case frame.EventClear, frame.EventNotClear:
		if call.cancels == 0 {
			return violation("an answer to a cancel that was not sent")
		}
		call.cancels--
		c.forgetLocked(op, p)
		if body.Event == frame.EventClear {
			call.settle(settledClear)
		} else {
			call.settle(settledNotClear)
		}
	case frame.EventEnded:
		if call.cancels == 0 || !call.exited {
			return violation("a call is said to have ended that has not")
		}
		call.cancels--
		c.forgetLocked(op, p)
		call.settle(settledEnded)
	case frame.EventLost:
		if p.reply != nil {
			p.reply <- answer{body: frame.ReplyBody{Code: codeLost}}
			p.reply = nil
		}
		c.forgetLocked(op, p)
		call.settle(settledLost)
	default:
		return violation("an unknown event")
	}
	return nil
}

// codeLost is the host's own: the guardian ended before it reported a start.
const codeLost = "lost"
