package worker

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// maxOutstanding bounds requests that were never answered plus running calls.
const maxOutstanding = 1024

// Client is the host's end of one boundary's channel. Safe for concurrent use.
type Client struct {
	stream    net.Conn
	transport frame.Transport // over stream
	conn      *frame.Conn     // replaced while parked
	o         Options

	wmu sync.Mutex // held from taking an id to its frame being sent, and while parked

	idle chan struct{} // closed when the reader has stopped between two frames, of Park

	mu     sync.Mutex
	lastOp uint64
	ops    map[uint64]*pending
	late   lateSet
	// watchers are calls whose pidfd is being waited on
	watchers map[*Call]bool
	err      error // why the channel is given up
	closed   bool  // by the caller
	paused   bool
	parked   bool      // wmu is held until Unpark or Close
	lastOK   time.Time // when the tool space last answered anything

	assurance task.Assurance // set before Start returns

	done chan struct{} // closed once err is set
	wg   sync.WaitGroup
}

// pending is one operation that the worker may still speak about.
type pending struct {
	digest string
	reply  chan answer            // capacity 1
	call   *Call                  // of an exec
	fds    int                    // how many descriptors an OK reply may carry
	tool   bool                   // the worker's own operation
	found  chan<- json.RawMessage // of a tool that says what it found, with room for MaxFound
	told   int                    // events that came
	// forsaken: nobody waits for the reply any more
	forsaken bool
}

// answer is a reply with its descriptors.
type answer struct {
	body frame.ReplyBody
	fds  []int
}

// Start takes over conn, says hello and checks the version. On error conn is
// closed.
func Start(ctx context.Context, conn net.Conn, o Options) (*Client, error) {
	return start(ctx, conn, o, 1, frame.Dial)
}

// start begins on a stream with what dial makes of it. lastOp is the last
// operation id that was used.
func start(ctx context.Context, conn net.Conn, o Options, lastOp uint64, dial func(frame.Transport) (*frame.Conn, error)) (*Client, error) {
	const op = "worker.start"
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.Heartbeat, 5*time.Second)
	def(&o.HeartbeatLost, 30*time.Second)
	def(&o.StartTimeout, 30*time.Second)
	def(&o.WriteTimeout, 30*time.Second)
	t, assured, err := newTransport(conn, o)
	if err != nil {
		_ = conn.Close()
		return nil, task.Errorf(task.CodeChannel, op, "channel to the worker: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.StartTimeout)
	defer cancel()
	// Only closing wakes a goroutine that waits for the other side.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	fc, err := dial(t)
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, task.Errorf(task.CodeChannel, op, "hello to the worker: %w", err)
	}
	c := &Client{stream: conn, transport: t, conn: fc, o: o, lastOp: lastOp, ops: map[uint64]*pending{}, watchers: map[*Call]bool{}, done: make(chan struct{}), lastOK: time.Now(), idle: make(chan struct{})}
	c.wg.Go(func() { c.read(c.conn, c.idle) })
	body, _, err := c.request(ctx, frame.RequestBody{Op: frame.OpPing}, nil)
	if err == nil && body.Protocol != frame.Protocol {
		err = task.Errorf(task.CodeChannel, op, "the worker speaks %.20q, not %q", body.Protocol, frame.Protocol).
			WithHint("the worker program and caisson must come from one build")
	}
	if !stop() && err == nil {
		err = task.Errorf(task.CodeChannel, op, "hello to the worker: %w", context.Cause(ctx))
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	c.assurance = assured // the answer to the greeting was checked as every frame will be
	c.wg.Go(c.heartbeat)
	return c, nil
}

// Assurance says what this channel checks of every frame that it takes.
func (c *Client) Assurance() task.Assurance { return c.assurance }

// Done is closed when the channel is given up or closed.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the channel is given up, nil while it works.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the channel and with it, on the linux backend, the boundary.
// What still ran is outcome unknown. It is idempotent and waits for the
// client's goroutines.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.fail(task.Errorf(task.CodeChannel, "worker.close", "the channel was closed"))
	c.mu.Lock()
	if c.parked { // what waits to send learns of the end
		c.parked = false
		c.wmu.Unlock()
	}
	c.mu.Unlock()
	c.wg.Wait()
	return nil
}

// SetPaused tells that the boundary is frozen, so that silence is no fault.
func (c *Client) SetPaused(paused bool) {
	c.mu.Lock()
	c.paused = paused
	c.lastOK = time.Now()
	c.mu.Unlock()
}

// Ping returns nil when the tool space itself answered.
func (c *Client) Ping(ctx context.Context) error {
	_, _, err := c.request(ctx, frame.RequestBody{Op: frame.OpPing}, nil)
	return err
}

// KillAll ends every process of the tool space, also what calls left behind
// on purpose. nil means that none is left; the boundary stays usable.
func (c *Client) KillAll(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit+5*time.Second)
	defer cancel()
	_, _, err := c.request(ctx, frame.RequestBody{Op: frame.OpKillAll, LimitMS: limit.Milliseconds()}, nil)
	return err
}

// fail gives the channel up, once. Everything outstanding learns of it.
func (c *Client) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	tell := !c.closed && c.o.OnPoison != nil
	close(c.done)
	for k := range c.watchers {
		k.watch.interrupt()
	}
	conn := c.conn
	c.mu.Unlock()
	_ = conn.Close()
	if tell {
		go c.o.OnPoison(err)
	}
}

func (c *Client) poison(err error) {
	msg := "the worker's channel broke the protocol"
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, frame.ErrTruncated) {
		msg = "the worker ended"
	}
	c.fail(task.Errorf(task.CodeChannel, "worker.read", "%s: %w", msg, err).
		WithHint("the boundary is destroyed; what was running has an unknown outcome and is not repeated"))
}

// request sends one request and waits for its reply. A request that ctx ends
// stays known, so that its late reply is no violation.
func (c *Client) request(ctx context.Context, body frame.RequestBody, call *Call, fs ...*os.File) (frame.ReplyBody, []int, error) {
	const op = "worker.request"
	b := frame.Encode(body)
	if len(b) > frame.MaxBody {
		return frame.ReplyBody{}, nil, task.Errorf(task.CodeUsage, op, "arguments and environment are too long (%d bytes encoded, %d allowed)", len(b), frame.MaxBody).
			WithHint("nothing was started; pass long input in a file or on standard input")
	}
	d := frame.Digest(b)
	p := &pending{digest: hex.EncodeToString(d[:]), reply: make(chan answer, 1), call: call}
	if call != nil {
		p.fds = 1
	}
	reply := p.reply // the reader takes p.reply away once it was used
	id, err := c.send(frame.Request, p, b, fs)
	if err != nil {
		return frame.ReplyBody{}, nil, err
	}
	select {
	case a := <-reply:
		if !a.body.OK {
			return a.body, nil, refusal(a.body)
		}
		return a.body, a.fds, nil
	case <-c.done:
		return frame.ReplyBody{}, nil, unknown(op, c.Err())
	case <-ctx.Done():
		if call != nil {
			c.sendCancel(id, p.digest, 0, 10*time.Second)
		}
		return frame.ReplyBody{}, nil, unknown(op, context.Cause(ctx))
	}
}

// send assigns the id and sends, in that order under one lock: ids grow on the
// wire. fs stay the caller's.
func (c *Client) send(kind frame.Kind, p *pending, body []byte, fs []*os.File) (uint64, error) {
	const op = "worker.write"
	fds, release, err := borrow(fs)
	if err != nil {
		return 0, task.Errorf(task.CodeInternal, op, "descriptors for the call: %w", err)
	}
	defer release()
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.mu.Lock()
	switch {
	case c.err != nil:
		err := c.err
		c.mu.Unlock()
		return 0, task.Errorf(task.CodeChannel, op, "not started: %w", err)
	case len(c.ops) >= maxOutstanding:
		c.mu.Unlock()
		return 0, task.Errorf(task.CodeLimit, op, "not started: too many calls are running in this task")
	}
	c.lastOp++
	id := c.lastOp
	if p.call != nil {
		p.call.op, p.call.digest = id, p.digest
	}
	c.ops[id] = p
	c.mu.Unlock()
	if err := c.conn.Write(frame.Frame{Kind: kind, Op: id, Body: body, FDs: fds}); err != nil {
		c.poison(err)
		return 0, unknown(op, err)
	}
	return id, nil
}

// unknown is the error of an operation of which nobody knows whether it
// happened.
func unknown(op string, cause error) error {
	return task.Errorf(task.CodeOutcomeUnknown, op, "the outcome is unknown: %w", cause).
		WithHint("it may or may not have happened and is not repeated; look at the task's files before trying again")
}

// refusal maps a reply that says: not started.
func refusal(b frame.ReplyBody) error {
	const op = "worker.exec"
	msg := clean(b.Msg)
	switch b.Code {
	case frame.FailNotFound:
		return task.Errorf(task.CodeNoCommand, op, "command not found inside: %s", msg)
	case frame.FailNotExec:
		return task.Errorf(task.CodeNotExecutable, op, "command cannot be executed inside: %s", msg)
	case frame.FailDir:
		return task.Errorf(task.CodeNotFound, op, "the working directory cannot be entered inside: %s", msg)
	case frame.FailLimit:
		return task.Errorf(task.CodeLimit, op, "not started: %s", msg).
			WithHint("the task has as many processes, descriptors or bytes of memory as it may: `caisson show` lists its limits and --pids and --memory of `open` set them; end what runs in it, or close it, which brings its work out")
	case frame.FailBad:
		return task.Errorf(task.CodeUsage, op, "not started: %s", msg)
	case frame.FailNoCall:
		return task.Errorf(task.CodeState, op, "%s", msg)
	case frame.FailTTY:
		return task.Errorf(task.CodeUnavailable, op, "not started: the terminal cannot be used inside: %s", msg)
	}
	return task.Errorf(task.CodeInternal, op, "not started: %s", msg)
}

// clean makes a text of the worker safe to show: it is a claim of unknown
// origin and may hold terminal sequences.
func clean(s string) string { return cleanTo(s, 200) }

func cleanTo(s string, most int) string {
	out := make([]rune, 0, min(len(s), most))
	for _, r := range s {
		if len(out) == most {
			break
		}
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			r = '?'
		}
		out = append(out, r)
	}
	return string(out)
}

// heartbeat pings while nothing else is heard.
func (c *Client) heartbeat() {
	t := time.NewTicker(c.o.Heartbeat)
	defer t.Stop()
	var waiting bool
	answered := make(chan struct{}, 1)
	for {
		select {
		case <-c.done:
			return
		case <-answered:
			waiting = false
			continue
		case <-t.C:
		}
		c.mu.Lock()
		paused, quiet := c.paused || c.parked, time.Since(c.lastOK)
		c.mu.Unlock()
		switch {
		case paused:
		case quiet > c.o.HeartbeatLost:
			c.fail(task.Errorf(task.CodeChannel, "worker.heartbeat", "the worker has not answered for %s", quiet.Round(time.Second)).
				WithHint("the boundary is destroyed; what was running has an unknown outcome and is not repeated"))
			return
		case !waiting:
			waiting = true
			c.wg.Go(func() {
				// Ends with its reply or with the channel; a late one is waited for.
				_, _, _ = c.request(context.Background(), frame.RequestBody{Op: frame.OpPing}, nil)
				answered <- struct{}{}
			})
		}
	}
}
