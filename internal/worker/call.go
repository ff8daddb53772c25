package worker

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// killLimit is how long a canceled call may take to vanish after its grace.
const killLimit = 10 * time.Second

// settled is how a call's life ended as far as its processes are concerned.
type settled int

const (
	settledNot      settled = iota
	settledEnded            // ended by itself; what it left behind belongs to the task
	settledClear            // canceled, and nothing of it is left
	settledNotClear         // canceled, and something is left
	settledLost             // its guardian is gone: nobody knows
)

// Call is one program started inside. Safe for concurrent use.
type Call struct {
	c       *Client
	begun   time.Time
	startup chan struct{} // closed when started or not

	// guarded by c.mu
	op      uint64
	digest  string
	cancels int // sent and not answered
	exited  bool
	insider int // pid as the tool space counts
	hostPID int
	watched bool // a watcher will tell, or has given up and cleared this
	state   settled
	outcome *task.Outcome

	settledCh chan struct{} // closed when state is set
	outcomeCh chan struct{} // closed when outcome is set
	lostCh    chan struct{} // closed when no outcome can come any more

	once  sync.Once // closes lostCh
	watch *watcher
}

// Exec starts cmd. files are the program's three pipe ends, or the slave of
// its pty; they stay the caller's, who closes them after Exec returned.
//
// Errors: CodeNoCommand, CodeNotExecutable, CodeNotFound (the folder),
// CodeLimit, CodeUsage, CodeUnavailable and CodeChannel say that nothing was
// started. CodeOutcomeUnknown says that nobody knows; if it did start after
// all, it is being killed.
func (c *Client) Exec(ctx context.Context, cmd Command, fs []*os.File) (*Call, error) {
	const op = "worker.exec"
	want := 3
	if cmd.TTY {
		want = 1
	}
	if len(fs) != want {
		return nil, task.Errorf(task.CodeInternal, op, "a call takes %d descriptors, not %d", want, len(fs))
	}
	call := &Call{c: c, begun: time.Now(), startup: make(chan struct{}), settledCh: make(chan struct{}), outcomeCh: make(chan struct{}), lostCh: make(chan struct{})}
	ctx, stop := context.WithTimeout(ctx, c.o.StartTimeout)
	defer stop()
	body, _, err := c.request(ctx, frame.RequestBody{
		Op: frame.OpExec, Argv: raw(cmd.Argv), Dir: []byte(cmd.Dir), Env: raw(cmd.Env),
		TTY: cmd.TTY, Builtin: cmd.Builtin, Last: cmd.Last, Rlimits: cmd.Rlimits,
	}, call, fs...)
	if err != nil {
		if body.Code == codeLost {
			return nil, unknown(op, violation("the call's guardian ended before it reported a start"))
		}
		return nil, err
	}
	return call, nil
}

func raw(l []string) [][]byte {
	out := make([][]byte, len(l))
	for i := range l {
		out[i] = []byte(l[i])
	}
	return out
}

// started is called by the reader, with c.mu held.
func (k *Call) started(pid int, fds []int) {
	k.insider = pid
	if len(fds) == 1 {
		k.watch = newWatcher(k, fds[0])
		k.watched = k.watch != nil
	}
	if k.watched {
		k.hostPID = k.watch.pid
		k.c.watchers[k] = true
		k.c.wg.Go(k.watch.run)
	}
	close(k.startup)
}

// notStarted is called by the reader, with c.mu held.
func (k *Call) notStarted() {
	close(k.startup)
	k.settle(settledEnded)
	k.once.Do(func() { close(k.lostCh) })
}

// settle is called with c.mu held.
func (k *Call) settle(s settled) {
	if k.state != settledNot {
		return
	}
	k.state = s
	close(k.settledCh)
	if s == settledLost && !k.watched && k.outcome == nil {
		k.once.Do(func() { close(k.lostCh) })
	}
}

// claimed takes the exit as the worker tells it. The kernel's word is
// preferred: the guardian had reaped the program before it spoke, so the
// kernel knows by now. Called with c.mu held.
func (k *Call) claimed(status uint32) {
	if k.outcome != nil {
		return
	}
	if k.watched {
		if st, ok := k.watch.status(); ok {
			k.setOutcome(st, true)
			return
		}
	}
	k.setOutcome(status, false)
}

// setOutcome is called with c.mu held. The first one counts.
func (k *Call) setOutcome(status uint32, observed bool) {
	if k.outcome != nil {
		return
	}
	ws := syscallStatus(status)
	o := task.Outcome{Exit: ws.exit, Signal: ws.signal, Observed: observed, Duration: time.Since(k.begun)}
	k.outcome = &o
	close(k.outcomeCh)
}

// waitStatus is a decoded wait status.
type waitStatus struct{ exit, signal int }

// syscallStatus decodes the kernel's wait status by hand: it is the same on
// every Linux, and this file also builds elsewhere.
func syscallStatus(s uint32) waitStatus {
	if sig := int(s & 0x7f); sig != 0 && sig != 0x7f {
		return waitStatus{exit: 128 + sig, signal: sig}
	}
	return waitStatus{exit: int(s>>8) & 0xff}
}

// watchEnded is called by the watcher when it can learn nothing any more.
func (k *Call) watchEnded(status uint32, ok bool) {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	delete(k.c.watchers, k)
	k.watched = false
	if ok {
		k.setOutcome(status, true)
	} else if k.state == settledLost && k.outcome == nil {
		k.once.Do(func() { close(k.lostCh) })
	}
}

// PID returns the program's pid in the caller's pid namespace as the kernel
// said it, 0 where it did not. It is for display; it may be reused any time.
func (k *Call) PID() int {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	return k.hostPID
}

// Signal sends sig to the program's process group, as a terminal would. A
// program that has ended is CodeState.
func (k *Call) Signal(sig os.Signal) error {
	n, ok := sig.(syscall.Signal)
	if !ok {
		return task.Errorf(task.CodeUsage, "worker.signal", "signal %v has no number", sig)
	}
	select {
	case <-k.outcomeCh:
		// The kernel told us, perhaps before it told the worker.
		return task.Errorf(task.CodeState, "worker.signal", "the call has ended")
	default:
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	_, _, err := k.c.request(ctx, frame.RequestBody{Op: frame.OpSignal, Call: k.op, Signal: int(n)}, nil)
	return err
}

// Cancel ends the call: SIGTERM to everything it started (SIGHUP too with a
// terminal), after the grace SIGKILL. A grace of 0 kills at once; a later
// Cancel with a shorter grace shortens an earlier one.
//
// nil means that no process of the call is left, or that it had ended by itself
// before the cancel arrived: what it left behind then belongs to the task.
// Every error means: not confirmed, the caller destroys the boundary.
func (k *Call) Cancel(ctx context.Context, grace time.Duration) error {
	const op = "worker.cancel"
	k.c.mu.Lock()
	digest, pending := k.digest, k.state == settledNot
	k.c.mu.Unlock()
	if pending {
		k.c.sendCancel(k.op, digest, grace, killLimit)
	}
	t := time.NewTimer(grace + killLimit + 5*time.Second)
	defer t.Stop()
	not := func(why string) error {
		return task.Errorf(task.CodeStuck, op, "the call is not confirmed dead: %s", why).
			WithHint("the whole boundary is destroyed")
	}
	select {
	case <-k.settledCh:
	default:
		select {
		case <-k.settledCh:
		case <-k.c.done:
			return not("the channel is gone")
		case <-ctx.Done():
			return not(context.Cause(ctx).Error())
		case <-t.C:
			return not("the worker did not answer")
		}
	}
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	switch k.state {
	case settledEnded, settledClear:
		return nil
	case settledNotClear:
		return not("processes are left that could not be killed")
	}
	return not("its guardian is gone")
}

// sendCancel sends one cancel frame for an operation that is still known.
func (c *Client) sendCancel(op uint64, digest string, grace, limit time.Duration) {
	body := frame.Encode(frame.CancelBody{Req: digest, GraceMS: max(0, grace.Milliseconds()), LimitMS: limit.Milliseconds()})
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.mu.Lock()
	p := c.ops[op]
	if p == nil || c.err != nil || p.call.cancels >= 16 {
		c.mu.Unlock()
		return
	}
	p.call.cancels++
	c.mu.Unlock()
	if err := c.conn.Write(frame.Frame{Kind: frame.Cancel, Op: op, Body: body}); err != nil {
		c.poison(err)
	}
}

// Wait returns how the program ended. ctx ends the waiting, not the call.
// CodeOutcomeUnknown: the channel or the guardian was lost first.
func (k *Call) Wait(ctx context.Context) (task.Outcome, error) {
	const op = "worker.wait"
	select {
	case <-k.outcomeCh:
		return *k.outcome, nil
	default:
	}
	select {
	case <-k.outcomeCh:
		return *k.outcome, nil
	case <-k.lostCh:
		return task.Outcome{}, unknown(op, violation("the call's guardian is gone"))
	case <-k.c.done:
		k.c.mu.Lock()
		defer k.c.mu.Unlock()
		if k.outcome != nil {
			return *k.outcome, nil
		}
		return task.Outcome{}, unknown(op, k.c.err)
	case <-ctx.Done():
		return task.Outcome{}, task.Errorf(task.CodeCanceled, op, "no longer waiting for the command: %w", context.Cause(ctx))
	}
}
