package inside

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// maxCalls bounds how many calls run at once; each costs a guardian.
const maxCalls = 512

// call is I's view of one call. Its guardian is reached over ctl only.
type call struct {
	s    *space
	op   uint64
	name string    // digest of the request
	ctl  *guardian // set before open

	mu       sync.Mutex
	open     bool     // the command was written: orders may follow
	queue    []record // orders that came before
	canceled bool
	bye      bool // the guardian was let go
	last     bool // no guardian need be ready for another call
}

// exec starts a guardian for the command. false is a bad frame.
func (s *space) exec(f frame.Frame, req *frame.RequestBody, name string) bool {
	want := 3
	if req.TTY {
		want = 1
	}
	if len(f.FDs) != want {
		return false
	}
	refuse := func(code, msg string) bool {
		f.CloseFDs()
		return s.write(frame.Reply, f.Op, frame.ReplyBody{Req: name, Code: code, Msg: msg})
	}
	if (len(req.Argv) == 0) == (req.Builtin == "") || (req.Builtin != "" && req.Builtin != RoleProbe) {
		return refuse(frame.FailBad, "a call needs a program or a known builtin")
	}
	s.mu.Lock()
	full := len(s.calls) >= maxCalls || s.killing
	s.mu.Unlock()
	if full {
		return refuse(frame.FailLimit, "no further call can be started now")
	}
	cmd := command{tty: req.TTY, builtin: req.Builtin, dir: string(req.Dir), argv: texts(req.Argv), rlimits: append(s.about.Rlimits[:len(s.about.Rlimits):len(s.about.Rlimits)], req.Rlimits...)}
	cmd.env = mergeEnv(s.about.Env, texts(req.Env))
	if cmd.dir == "" {
		cmd.dir = s.about.Dir
	}
	c := &call{s: s, op: f.Op, name: name, last: req.Last}
	s.mu.Lock()
	s.calls[f.Op] = c
	s.mu.Unlock()
	go c.run(&cmd, f)
	return true
}

func texts(b [][]byte) []string {
	out := make([]string, len(b))
	for i := range b {
		out[i] = string(b[i])
	}
	return out
}

// mergeEnv returns base with over on top; a name appears once.
func mergeEnv(base, over []string) []string {
	last := map[string]string{}
	var order []string
	for _, l := range [][]string{base, over} {
		for _, kv := range l {
			k := kv
			for i := range len(kv) {
				if kv[i] == '=' {
					k = kv[:i]
					break
				}
			}
			if _, ok := last[k]; !ok {
				order = append(order, k)
			}
			last[k] = kv
		}
	}
	out := make([]string, 0, len(order))
	for _, k := range order {
		out = append(out, last[k])
	}
	return out
}

// run is the life of one call, in order: guardian, reply, events.
func (c *call) run(cmd *command, f frame.Frame) {
	defer func() {
		if c.ctl != nil {
			_ = c.ctl.Close()
		}
		c.s.mu.Lock()
		delete(c.s.calls, c.op)
		c.s.mu.Unlock()
		c.s.garbage.rest()
	}()
	text := cmd.bytes()
	for try := 0; ; try++ {
		g, err := c.s.takeSpare(), error(nil)
		if g == nil || try > 0 {
			if g != nil {
				_ = g.Close()
			}
			g, err = c.s.startGuardian()
		}
		if err != nil {
			f.CloseFDs()
			c.reply(frame.ReplyBody{Code: frame.FailLimit, Msg: "the call's guardian could not be started: " + err.Error()})
			return
		}
		c.ctl = g
		if hand(g, text, f.FDs) {
			if r, _, err := c.next(); err == nil && r.kind == recTaken {
				break
			}
		}
		// It ended before it had read the command, so nothing was started: a tool
		// killed it, or there was no memory or thread for it.
		_ = g.Close()
		if try == 3 {
			f.CloseFDs()
			c.reply(frame.ReplyBody{Code: frame.FailLimit, Msg: "the call's guardian ended before the start: nothing is left for it, or a program of the task ends it"})
			return
		}
	}
	f.CloseFDs()
	c.mu.Lock()
	c.open = true
	for _, r := range c.queue {
		c.orderLocked(r)
	}
	c.queue = nil
	c.mu.Unlock()
	c.follow()
}

// follow passes on what the guardian reports. One that says what cannot be,
// twice or out of its order, is no longer believed: it is let go, and nobody
// knows about its call.
func (c *call) follow() {
	started, exited := false, false
	for {
		r, pidfd, err := c.next()
		canceled := c.wasCanceled()
		if err == nil && !possible(r.kind, started, exited, canceled) {
			err = errCommand
		}
		if err != nil {
			if pidfd >= 0 {
				_ = unix.Close(pidfd)
			}
			// One that died between its start and its first word may have started
			// the program.
			if !started || !exited || canceled {
				c.event(frame.ReplyBody{Event: frame.EventLost})
			}
			return
		}
		switch r.kind {
		case recFailed:
			code := frame.FailInternal
			if int(r.a) < len(whyCode) {
				code = whyCode[r.a]
			}
			c.reply(frame.ReplyBody{Code: code, Msg: syscall.Errno(r.b).Error()})
			return
		case recStarted:
			started = true
			if !c.last {
				go c.s.refill()
			}
			if pidfd >= 0 {
				c.reply(frame.ReplyBody{OK: true, PID: int(r.b)}, pidfd)
				_ = unix.Close(pidfd)
			} else {
				c.reply(frame.ReplyBody{OK: true, PID: int(r.b)})
			}
		case recExit:
			exited = true
			c.event(frame.ReplyBody{Event: frame.EventExit, Status: r.a})
			c.mu.Lock()
			if !c.canceled {
				c.bye = true
				c.orderLocked(record{kind: recBye})
			}
			gone := c.bye
			c.mu.Unlock()
			if gone {
				return
			}
		case recClear:
			c.event(frame.ReplyBody{Event: frame.EventClear})
			return
		case recNotClear:
			c.event(frame.ReplyBody{Event: frame.EventNotClear, Left: int(r.b)})
			return
		}
	}
}

// possible reports whether a guardian may say kind now.
func possible(kind uint32, started, exited, canceled bool) bool {
	switch kind {
	case recStarted, recFailed:
		return !started
	case recExit:
		return started && !exited
	case recClear, recNotClear:
		return started && canceled
	}
	return false
}

func (c *call) wasCanceled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.canceled
}

func (c *call) reply(r frame.ReplyBody, fds ...int) {
	r.Req = c.name
	c.s.write(frame.Reply, c.op, r, fds...)
}

func (c *call) event(r frame.ReplyBody) {
	r.Req = c.name
	c.s.write(frame.Event, c.op, r)
}

// next reads one record and the pidfd that may come with it (else -1).
func (c *call) next() (r record, pidfd int, err error) {
	raw, err := c.ctl.SyscallConn()
	if err != nil {
		return r, -1, err
	}
	var b [recordSize]byte
	var oob [128]byte
	n, got := 0, -1
	for n < recordSize {
		var m, on, flags int
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			for {
				m, on, flags, _, rerr = unix.Recvmsg(int(fd), b[n:], oob[:], msgClosing|unix.MSG_DONTWAIT)
				if rerr != unix.EINTR {
					return rerr != unix.EAGAIN
				}
			}
		})
		if err == nil {
			err = rerr
		}
		if err != nil {
			if got >= 0 {
				_ = unix.Close(got)
			}
			return r, -1, err
		}
		n += m
		fds, perr := frame.ParseOOB(m, oob[:on], flags, c.ctl.pid)
		for _, fd := range fds {
			if got < 0 {
				got = fd
			} else {
				_ = unix.Close(fd)
			}
		}
		if perr != nil {
			if got >= 0 {
				_ = unix.Close(got)
			}
			return r, -1, perr
		}
	}
	if sys.Canary {
		sys.Mirror("guardian took", pidBytes(int(c.ctl.pid)), b[:])
	}
	return parseRecord(b[:]), got, nil
}

// orderLocked sends one order. It does not wait: a guardian that was stopped
// must not hold up the others; the host's deadline deals with it.
func (c *call) orderLocked(r record) bool {
	if !c.open {
		c.queue = append(c.queue, r)
		return true
	}
	raw, err := c.ctl.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.SendmsgN(int(fd), r.bytes(), nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		ok = err == nil && n == recordSize
	})
	return ok
}

// signal answers a signal request.
func (s *space) signal(op uint64, req *frame.RequestBody, name string) bool {
	r := frame.ReplyBody{Req: name}
	s.mu.Lock()
	c := s.calls[req.Call]
	s.mu.Unlock()
	switch {
	case req.Signal < 1 || req.Signal > 64:
		r.Code, r.Msg = frame.FailBad, "no such signal"
	case c == nil:
		r.Code, r.Msg = frame.FailNoCall, "the call is not running"
	default:
		c.mu.Lock()
		r.OK = c.orderLocked(record{kind: recSignal, a: uint32(req.Signal)})
		c.mu.Unlock()
		if !r.OK {
			r.Code, r.Msg = frame.FailNoCall, "the call is ending"
		}
	}
	return s.write(frame.Reply, op, r)
}

// cancel passes a cancel on. One that comes too late is answered as such: what
// the program left behind by then belongs to the task.
func (s *space) cancel(op uint64, b frame.CancelBody) {
	s.mu.Lock()
	c := s.calls[op]
	s.mu.Unlock()
	if c != nil {
		c.mu.Lock()
		late := c.bye
		if !late {
			c.canceled = true
			c.orderLocked(record{kind: recCancel, b: uint64(b.GraceMS), c: uint64(b.LimitMS)})
		}
		c.mu.Unlock()
		if !late {
			return
		}
	}
	s.write(frame.Event, op, frame.ReplyBody{Req: b.Req, Event: frame.EventEnded})
}
