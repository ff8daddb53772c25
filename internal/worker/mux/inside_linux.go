package mux

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// insideEnd is this side's end of a pipe or terminal that was made in place of
// what the host passed. It needs no thread of its own: when tools have used up
// the boundary's processes there may be none to be had.
type insideEnd struct {
	f     *os.File
	raw   syscall.RawConn
	input bool // a pipe that a program reads

	mu    sync.Mutex // held while reading, so that count is exact
	total uint64
}

// make makes the pair and returns the descriptor for the frame.
func (s *stream) make(about []byte) (given int, err error) {
	var own int
	switch s.what {
	case passIn, passOut:
		if len(about) != 0 {
			return -1, ErrChunk
		}
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return -1, err
		}
		if own, given = p[1], p[0]; s.what == passOut {
			own, given = p[0], p[1]
		}
	case passTTY:
		if len(about) != 4 {
			return -1, ErrChunk
		}
		if own, given, err = openPTY(binary.BigEndian.Uint16(about), binary.BigEndian.Uint16(about[2:])); err != nil {
			return -1, err
		}
	default:
		return -1, ErrChunk
	}
	e := &insideEnd{input: s.what == passIn}
	if err = unix.SetNonblock(own, true); err == nil {
		e.f = os.NewFile(uintptr(own), "passed")
		e.raw, err = e.f.SyscallConn()
	}
	if err != nil {
		_ = unix.Close(own)
		_ = unix.Close(given)
		return -1, err
	}
	s.end = e
	return given, nil
}

func (s *stream) serveInside() { s.serve(s.what != passIn, s.what != passOut) }

// openPTY opens a terminal of the file system that is mounted here.
func openPTY(rows, cols uint16) (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err == nil && rows > 0 && cols > 0 {
		err = unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	}
	if err == nil {
		s, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, uintptr(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC))
		if errno == 0 {
			return master, int(s), nil
		}
		err = errno
	}
	_ = unix.Close(master)
	return -1, -1, err
}

func (e *insideEnd) read(p []byte) (n int, err error) {
	rerr := e.raw.Read(func(fd uintptr) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		for {
			n, err = unix.Read(int(fd), p)
			if err == unix.EINTR {
				continue
			}
			if err == unix.EAGAIN {
				return false
			}
			if n > 0 {
				e.total += uint64(n)
			}
			return true
		}
	})
	switch {
	case rerr != nil:
		return 0, rerr
	case err != nil:
		return 0, err
	case n <= 0:
		return 0, io.EOF
	}
	return n, nil
}

func (e *insideEnd) write(p []byte) (n int, err error) {
	rerr := e.raw.Write(func(fd uintptr) bool {
		if p == nil {
			if e.input && unread(int(fd)) {
				err = unix.EPIPE
				return true
			}
			return false
		}
		for {
			n, err = unix.Write(int(fd), p)
			if err == unix.EINTR {
				continue
			}
			return err != unix.EAGAIN
		}
	})
	if errors.Is(rerr, os.ErrDeadlineExceeded) {
		_ = e.f.SetWriteDeadline(time.Time{})
		return 0, errNudged
	}
	if rerr != nil {
		return 0, rerr
	}
	return max(n, 0), err
}

// unread reports whether nobody can read what is written.
func unread(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&unix.POLLERR != 0
}

// nudge makes a write that has nothing to write, or begins to wait, look again.
func (e *insideEnd) nudge() { _ = e.f.SetWriteDeadline(time.Unix(1, 0)) }

func (e *insideEnd) count() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	ready := 0
	_ = e.raw.Control(func(fd uintptr) { ready, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return e.total + uint64(max(ready, 0))
}

func (e *insideEnd) resize(rows, cols uint16) {
	_ = e.raw.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
}

func (e *insideEnd) abort() { _ = e.f.Close() }
func (e *insideEnd) close() { _ = e.f.Close() }
