package inside

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/internal/worker/frame"
	"github.com/caisson-dev/caisson/internal/worker/tools"
)

// How many tools run at once. Each may hold a thread in a system call, and all
// threads were made before anything untrusted ran: later there may be none to
// be had. Tools that walk trees have places of their own.
const (
	quickTools = 3
	slowTools  = 2
	// maxTools is how many may wait or run.
	maxTools = 256
)

// How long one may take, so that no fault holds a place for ever.
const (
	quickLimit = time.Minute
	slowLimit  = 5 * time.Minute
)

// toolbox carries out Tool frames. W answers them itself.
type toolbox struct {
	host  *frame.Conn
	root  *tools.Root
	quick chan struct{}
	slow  chan struct{}

	mu      sync.Mutex
	running map[uint64]context.CancelFunc
}

func newToolbox(host *frame.Conn, dir string) *toolbox {
	return &toolbox{
		host: host, root: tools.NewRoot(dir),
		quick: make(chan struct{}, quickTools), slow: make(chan struct{}, slowTools), running: map[uint64]context.CancelFunc{},
	}
}

// take begins one operation and owns the frame's descriptors from then on. What
// it returns does the work and answers; nil: the host broke the protocol.
func (b *toolbox) take(f frame.Frame) (work func()) {
	var body frame.ToolBody
	if frame.Decode(f.Body, &body) != nil || !fits(&body, len(f.FDs)) {
		f.CloseFDs()
		return nil
	}
	d := frame.Digest(f.Body)
	req := hex.EncodeToString(d[:])
	f.Body = nil
	places, limit := b.quick, quickLimit
	if tools.Slow(body.Tool) {
		places, limit = b.slow, slowLimit
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	b.mu.Lock()
	_, twice := b.running[f.Op]
	full := len(b.running) >= maxTools
	if !twice && !full {
		b.running[f.Op] = cancel
	}
	b.mu.Unlock()
	if twice || full {
		cancel()
		f.CloseFDs()
		if twice {
			return nil
		}
		return func() {
			b.answer(f.Op, frame.ReplyBody{Req: req, Code: string(contract.Limit), Msg: "too many file tools run or wait; try again"})
		}
	}
	return func() {
		defer cancel()
		var r frame.ReplyBody
		var fds []int
		var found func(json.RawMessage) bool
		select {
		case places <- struct{}{}:
			if body.Found {
				found = b.found(f.Op, req)
			}
			r, fds = b.run(ctx, &body, f.FDs, found)
			<-places
		case <-ctx.Done():
			r = refused(contract.Fail(contract.Canceled, "the call was canceled before it began"))
		}
		f.CloseFDs()
		b.mu.Lock()
		delete(b.running, f.Op)
		b.mu.Unlock()
		r.Req = req
		b.answer(f.Op, r, fds...)
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

// stop ends an operation soon. One that is not known has been answered.
func (b *toolbox) stop(op uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cancel := b.running[op]; cancel != nil {
		cancel()
	}
}

func fits(b *frame.ToolBody, fds int) bool {
	want := 0
	if b.Size != 0 {
		want++
	}
	if b.In {
		want++
	}
	return fds == want && b.Size >= 0 && b.Size <= frame.ToolMax && (b.Size == 0 || b.Args == nil)
}

// found tells the host what a search found, as often as a call may.
func (b *toolbox) found(op uint64, req string) func(json.RawMessage) bool {
	left := frame.MaxFound
	return func(part json.RawMessage) bool {
		left--
		return left >= 0 && b.host.Write(frame.Frame{Kind: frame.Event, Op: op, Body: frame.Encode(frame.ReplyBody{Req: req, Event: frame.EventFound, Result: part})}) == nil
	}
}

func (b *toolbox) answer(op uint64, r frame.ReplyBody, fds ...int) {
	// A failed write is seen by the reader of this channel, which ends W.
	_ = b.host.Write(frame.Frame{Kind: frame.Reply, Op: op, Body: frame.Encode(r), FDs: fds})
}

func refused(f *contract.Failure) frame.ReplyBody {
	msg := f.Msg
	if len(msg) > 2000 {
		msg = msg[:2000]
	}
	return frame.ReplyBody{Code: string(f.Code), Msg: msg}
}

// run does one call in its place. The descriptors are the caller's to close
// once they are sent.
func (b *toolbox) run(ctx context.Context, body *frame.ToolBody, fds []int, found func(json.RawMessage) bool) (frame.ReplyBody, []int) {
	args := []byte(body.Args)
	if body.Size > 0 {
		var err error
		if args, err = content(fds[0], body.Size); err != nil {
			return refused(contract.Fail(contract.Internal, "the arguments could not be read: %v", err)), nil
		}
		fds = fds[1:]
	}
	c := &tools.Call{Root: b.root, In: -1, Out: -1, Found: found}
	if body.In {
		c.In = fds[0]
	}
	res, fail := tools.Run(ctx, c, body.Tool, args)
	if fail != nil {
		return refused(fail), nil
	}
	r := frame.ReplyBody{OK: true}
	var out []int
	if len(res) <= frame.ToolInline {
		r.Result = res
	} else {
		fd, err := store(res)
		if err != nil {
			if c.Out >= 0 {
				_ = unix.Close(c.Out)
			}
			return refused(contract.Fail(contract.Limit, "no memory is left for the result: %v", err)), nil
		}
		r.Size, out = int64(len(res)), append(out, fd)
	}
	if c.Out >= 0 {
		r.Out, out = true, append(out, c.Out)
	}
	return r, out
}

// content reads what the host put into a descriptor.
func content(fd int, size int64) ([]byte, error) {
	b := make([]byte, size)
	for off := 0; off < len(b); {
		n, err := unix.Pread(fd, b[off:], int64(off))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n == 0:
			return nil, unix.EIO
		default:
			off += n
		}
	}
	return b, nil
}

// store puts a long result into a descriptor.
func store(b json.RawMessage) (int, error) {
	fd, err := unix.MemfdCreate("result", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for off := 0; off < len(b); {
		n, err := unix.Pwrite(fd, b[off:], int64(off))
		switch {
		case err == unix.EINTR:
		case err != nil:
			_ = unix.Close(fd)
			return -1, err
		default:
			off += n
		}
	}
	return fd, nil
}
