package cli

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outPump copies what a command writes to one of our own outputs.
type outPump struct {
	r     *os.File // non-blocking; closed by run
	dst   *os.File
	first func() // called before the first byte is written
	tally tally  // the pump's until done is closed
	err   error  // why dst could not be written; as tally
	pty   bool   // r is a pty: closing it would hang up on a command that is being asked to end
	done  chan struct{}
}

func newOutPump(r, dst *os.File, first func()) *outPump {
	return &outPump{r: r, dst: dst, first: first, done: make(chan struct{})}
}

// run copies until the end of the stream, until dst goes away, or until end was
// called and the rest is drained. Closing the read end is what tells a command
// that nobody reads any more, by SIGPIPE.
func (p *outPump) run() {
	defer close(p.done)
	defer p.r.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := p.r.Read(buf)
		if !p.pass(buf[:n]) {
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.drain(buf)
			return
		}
		if err != nil {
			return
		}
	}
}

func (p *outPump) pass(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if p.tally.n == 0 {
		p.first()
	}
	p.tally.add(b)
	if p.err == nil {
		p.err = writeAll(p.dst, b)
	}
	return p.err == nil || p.pty
}

// end says that the command has ended: what is in the pipe now is the rest.
func (p *outPump) end() { _ = p.r.SetReadDeadline(time.Unix(1, 0)) }

func (p *outPump) drain(buf []byte) {
	left, err := unix.IoctlGetInt(fdOf(p.r), unix.TIOCINQ)
	if err != nil {
		left = 0
	}
	_ = p.r.SetReadDeadline(time.Time{})
	for left > 0 {
		n, err := p.r.Read(buf[:min(left, len(buf))])
		if !p.pass(buf[:n]) || err != nil {
			return
		}
		left -= n
	}
	for bound := time.Now().Add(drainBound); time.Now().Before(bound); {
		_ = p.r.SetReadDeadline(time.Now().Add(drainSilence))
		n, err := p.r.Read(buf)
		if !p.pass(buf[:n]) || err != nil {
			return
		}
	}
}

// writeAll writes all of b, also to a file that somebody put in non-blocking mode.
func writeAll(f *os.File, b []byte) error {
	for len(b) > 0 {
		n, err := f.Write(b)
		b = b[max(n, 0):]
		if errors.Is(err, syscall.EAGAIN) {
			fds := []unix.PollFd{{Fd: int32(fdOf(f)), Events: unix.POLLOUT}}
			if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inPump copies our standard input to a command. It reads only when there is
// something, so that it can be stopped without taking input that belongs to
// whoever reads next.
type inPump struct {
	in, w   *os.File
	pipe    bool // w is a pipe of its own: closed at the end of input
	onEOF   func()
	n       atomic.Int64
	done    chan struct{}
	stopR   int
	stopW   int
	stopped sync.Once
}

func newInPump(in, w *os.File, pipe bool) *inPump {
	p := &inPump{in: in, w: w, pipe: pipe, done: make(chan struct{}), stopR: -1, stopW: -1}
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) == nil {
		p.stopR, p.stopW = fds[0], fds[1]
	}
	return p
}

func (p *inPump) run() {
	defer close(p.done)
	if p.pipe {
		defer p.w.Close()
	}
	in := fdOf(p.in)
	if in < 0 || p.stopR < 0 {
		return // no standard input: the end of it at once
	}
	tty := isTerminal(p.in)
	buf := make([]byte, 64<<10)
	fds := []unix.PollFd{{Fd: int32(p.stopR), Events: unix.POLLIN}, {Fd: int32(in), Events: unix.POLLIN}, {Fd: -1}}
	if p.pipe {
		fds[2].Fd = int32(fdOf(p.w)) // reports when the command closes its side
	}
	for {
		if _, err := unix.Poll(fds, -1); err == unix.EINTR {
			continue
		} else if err != nil {
			return
		}
		switch {
		case fds[0].Revents != 0:
			return
		case fds[2].Revents&(unix.POLLERR|unix.POLLNVAL) != 0:
			return
		case tty && !foreground(in):
			// A read from the background would stop us. Wait for our turn.
			if _, err := unix.Poll(fds[:1], 250); err != nil && err != unix.EINTR {
				return
			}
			continue
		}
		n, err := unix.Read(in, buf)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			if p.onEOF != nil {
				p.onEOF()
			}
			return
		}
		p.n.Add(int64(n))
		if _, err := p.w.Write(buf[:n]); err != nil {
			return
		}
	}
}

// stop ends the pump. A write that waits for the command ends with it, because
// the command's side is closed by then or the deadline has passed.
func (p *inPump) stop() {
	p.stopped.Do(func() {
		if p.stopW >= 0 {
			_, _ = unix.Write(p.stopW, []byte{0})
		}
		_ = p.w.SetWriteDeadline(time.Unix(1, 0))
		// A read that began between a terminal's poll and its line being taken by
		// another reader cannot be ended from here; it must not hold us.
		select {
		case <-p.done:
			if p.stopW >= 0 {
				unix.Close(p.stopW)
				unix.Close(p.stopR)
			}
		case <-time.After(200 * time.Millisecond):
		}
	})
}

// foreground reports whether we may read the terminal now.
func foreground(tty int) bool {
	pgrp, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP)
	return err != nil || pgrp == unix.Getpgrp() || pgrp == 0
}
