package inside

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// self is the worker's own program. No boundary mounts it, so this link is
// the only way to start it again.
const self = "/proc/self/exe"

// runInit is W. It ends, and the kernel ends everything below it, when the
// host closes the channel, sends a bad frame, or the tool space is gone.
func runInit(h Hooks) int {
	if !onlyChannel() {
		return ExitInherit
	}
	syscall.Clearenv()
	small(1)
	unignore()
	space, pid, err := setUp(h)
	if rerr := h.Report(ChannelFD, pid, err); err != nil || rerr != nil {
		return ExitSetup
	}
	setSignals(false)
	sock, err := frame.NewSocket(ChannelFD, 0)
	if err != nil {
		return ExitChannel
	}
	host, err := frame.Accept(sock)
	if err != nil {
		return ExitChannel
	}
	return relay(host, space, pid)
}

// setUp builds the boundary and starts the tool space in it.
func setUp(h Hooks) (*frame.Conn, int, error) {
	attr, plan, err := h.Build(ChannelFD)
	if err != nil {
		return nil, 0, err
	}
	// Only a dumpable process may write its child's id maps without privilege.
	// An unreadable program file made this one non-dumpable.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return nil, 0, err
	}
	space, pid, ready, err := startSpace(attr, plan)
	if err != nil {
		return nil, 0, err
	}
	// The maps of I are written: from here W needs nothing of what it drops, and
	// both seal themselves at the same time.
	if err := h.SealWorker(); err != nil {
		return nil, 0, err
	}
	// After sealing: whatever a seal does, it does once for every thread.
	prewarm(3)
	if err := ready(); err != nil {
		return nil, 0, err
	}
	if err := notDumpable(); err != nil {
		return nil, 0, err
	}
	if d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || d != 0 {
		return nil, 0, errors.New("worker stayed dumpable")
	}
	return space, pid, nil
}

// startSpace clones I and sends it the plan; ready waits until it is sealed.
func startSpace(attr *syscall.SysProcAttr, plan []byte) (c *frame.Conn, pid int, ready func() error, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, nil, err
	}
	pid, err = syscall.ForkExec(self, []string{"caisson-worker", RoleSpace}, &syscall.ProcAttr{
		Files: []uintptr{0, 1, 2, uintptr(pair[1])},
		Sys:   attr,
	})
	_ = unix.Close(pair[1])
	if err != nil {
		return nil, 0, nil, errors.New("start of the tool space: " + err.Error())
	}
	sock, err := frame.NewSocket(pair[0], pid)
	if err != nil {
		return nil, 0, nil, err
	}
	if c, err = frame.Dial(sock); err != nil {
		return nil, 0, nil, errors.New("hello to the tool space: " + err.Error())
	}
	req := frame.Encode(frame.RequestBody{Op: frame.OpSpace, Plan: plan})
	if err := c.Write(frame.Frame{Kind: frame.Request, Op: spaceOp, Body: req}); err != nil {
		return nil, 0, nil, errors.New("plan to the tool space: " + err.Error())
	}
	return c, pid, func() error { return sealed(c) }, nil
}

// sealed waits for I's word that it is sealed.
func sealed(c *frame.Conn) error {
	f, err := c.Read()
	if err != nil {
		return errors.New("the tool space ended before it was sealed: " + err.Error())
	}
	var r frame.ReplyBody
	if err := frame.Decode(f.Body, &r); err != nil || f.Op != spaceOp || f.Kind != frame.Reply || len(f.FDs) != 0 {
		f.CloseFDs()
		return frame.ErrHello
	}
	if !r.OK {
		return errors.New("the tool space could not be sealed: " + r.Msg)
	}
	return nil
}

// spaceOp is the operation id of the plan; the host's ids start above it.
const spaceOp = 1

// relay passes frames on. W understands only their direction: bodies go
// through unread, so that their digests stay what the host computed, and are
// authenticated anew for the next hop.
func relay(host, space *frame.Conn, pid int) int {
	end := make(chan int, 3)
	rest := resting()
	go func() { end <- pump(host, space, rest, frame.Request, frame.Cancel) }()
	go func() {
		code := pump(space, host, rest, frame.Reply, frame.Event)
		if code == ExitOK {
			code = ExitSpace
		}
		end <- code
	}()
	go func() {
		for {
			p, err := syscall.Wait4(-1, nil, 0, nil)
			if p == pid || (err != nil && err != syscall.EINTR) {
				end <- ExitSpace
				return
			}
		}
	}()
	return <-end
}

func pump(from, to *frame.Conn, rest func(), allowed ...frame.Kind) int {
	for {
		f, err := from.Read()
		if err != nil {
			if err == io.EOF {
				return ExitOK
			}
			return ExitChannel
		}
		ok := false
		for _, k := range allowed {
			ok = ok || f.Kind == k
		}
		if ok {
			err = to.Write(f)
		}
		f.CloseFDs()
		rest()
		if !ok || err != nil {
			return ExitChannel
		}
	}
}
