package worker

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// State is what a client is while nothing is under way: what Resume needs in the
// program that takes this process over. It holds the channel's secret.
type State struct {
	Frames    frame.State
	LastOp    uint64 // the last operation id that was used
	Assurance task.Assurance
	Stream    int // the descriptor, which is the client's
}

// Park stops the client between two frames and returns its state, from which
// either Unpark or, in another program, Resume goes on: never both. Until then
// whatever wants to send waits. It is refused with code state, and nothing is
// changed, while anything is under way that the worker may still speak about.
func (c *Client) Park() (State, error) {
	const op = "worker.park"
	refuse := func(err error) (State, error) {
		return State{}, task.Errorf(task.CodeState, op, "the channel cannot be put aside: %w", err)
	}
	raw, ok := c.stream.(syscall.Conn)
	if !ok {
		return refuse(errors.ErrUnsupported)
	}
	fd, err := sys.FD(raw)
	if err != nil {
		return refuse(err)
	}
	c.wmu.Lock()
	if err = c.parkLocked(); err == nil {
		var s frame.State
		if s, err = c.conn.Leave(); err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.parked = true
			return State{Frames: s, LastOp: c.lastOp, Assurance: c.assurance, Stream: fd}, nil
		}
	}
	c.wmu.Unlock()
	return refuse(err)
}

// parkLocked ends the reader between two frames. It needs wmu: nothing more is
// sent. With nothing outstanding nothing can come, so the reader reads nothing.
func (c *Client) parkLocked() error {
	c.mu.Lock()
	err := c.err
	if err == nil && (c.closed || c.paused || len(c.ops) > 0 || len(c.late.left) > 0 || len(c.watchers) > 0) {
		err = violation("something is under way")
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if err := c.stream.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	select {
	case <-c.idle:
		return c.stream.SetReadDeadline(time.Time{})
	case <-c.done:
		return c.Err()
	}
}

// Unpark goes on with what Park returned. A client that was closed meanwhile stays
// so, with code channel.
func (c *Client) Unpark(s State) error {
	conn, err := frame.Continue(c.transport, s.Frames)
	c.mu.Lock()
	if !c.parked {
		defer c.mu.Unlock()
		return task.Errorf(task.CodeChannel, "worker.unpark", "the channel is not put aside any more")
	}
	c.parked = false
	if err != nil {
		c.mu.Unlock()
		c.wmu.Unlock()
		c.poison(err)
		return err
	}
	c.conn, c.idle, c.lastOK = conn, make(chan struct{}), time.Now()
	idle := c.idle
	c.mu.Unlock()
	c.wmu.Unlock()
	c.wg.Go(func() { c.read(conn, idle) })
	return nil
}

// Resume takes over the stream that this process, as another program, parked with
// s, and has the tool space answer once before it returns. On error the stream is
// closed.
func Resume(ctx context.Context, s State, o Options) (*Client, error) {
	f := os.NewFile(uintptr(s.Stream), "channel")
	if f == nil {
		return nil, task.Errorf(task.CodeChannel, "worker.resume", "there is no channel to the worker")
	}
	conn, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, task.Errorf(task.CodeChannel, "worker.resume", "channel to the worker: %w", err)
	}
	c, err := start(ctx, conn, o, s.LastOp, func(t frame.Transport) (*frame.Conn, error) { return frame.Continue(t, s.Frames) })
	if err == nil && c.Assurance() != s.Assurance {
		_ = c.Close()
		return nil, task.Errorf(task.CodeChannel, "worker.resume", "the channel is not what it was: %s, not %s", c.Assurance(), s.Assurance)
	}
	return c, err
}
