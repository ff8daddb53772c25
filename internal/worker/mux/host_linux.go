package mux

import (
	"encoding/binary"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// hostEnd is a descriptor of a caller's. Its file is shared with others, whose
// programs expect it to block, so it is waited for beside something that wakes.
type hostEnd struct {
	fd   int
	wake int // eventfd: readable once it is to end
	pipe bool

	once  sync.Once
	state sync.Mutex
	more  *sync.Cond
	told  bool // something was queued
	gone  bool
}

// look says what a caller's descriptor is to a program. One for both directions,
// such as /dev/null, is what it is at its place: input at the first.
func look(fd, nth int) (what byte, body []byte, err error) {
	if ws, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
		return passTTY, size(ws), nil
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return 0, nil, err
	}
	if mode := flags & unix.O_ACCMODE; mode == unix.O_RDONLY || mode == unix.O_RDWR && nth == 0 {
		return passIn, []byte{passIn}, nil
	}
	return passOut, []byte{passOut}, nil
}

func size(ws *unix.Winsize) []byte {
	b := []byte{passTTY, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(b[1:], ws.Row)
	binary.BigEndian.PutUint16(b[3:], ws.Col)
	return b
}

// newHostEnd takes over fd.
func newHostEnd(fd int) *hostEnd {
	e := &hostEnd{fd: fd, wake: -1}
	e.more = sync.NewCond(&e.state)
	var st unix.Stat_t
	e.pipe = unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		e.gone = true
	} else {
		e.wake = wake
	}
	return e
}

// serveHost begins to move bytes from and to e.
func (s *stream) serveHost(e *hostEnd) {
	s.serve(s.what != passOut, s.what != passIn)
	if s.what == passTTY {
		go s.follow(e)
	}
}

// follow tells the inside when the terminal's size changes. The kernel tells only
// programs of the terminal, and this is none.
func (s *stream) follow(e *hostEnd) {
	var last unix.Winsize
	t := time.NewTicker(200 * time.Millisecond)
	defer t.Stop()
	for range t.C {
		e.state.Lock()
		gone := e.gone
		var ws *unix.Winsize
		err := error(unix.EBADF)
		if !gone {
			ws, err = unix.IoctlGetWinsize(e.fd, unix.TIOCGWINSZ)
		}
		e.state.Unlock()
		if err != nil {
			return
		}
		if *ws != last {
			if last = *ws; s.c.write(sizeChunk, s.id, size(ws)[1:]) != nil {
				return
			}
		}
	}
}

// wait waits until fd is ready for events. False: it is to end.
func (e *hostEnd) wait(events int16) bool {
	for {
		p := []unix.PollFd{{Fd: int32(e.fd), Events: events}, {Fd: int32(e.wake), Events: unix.POLLIN}}
		if e.wake < 0 {
			return false
		}
		_, err := unix.Poll(p, -1)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil || p[1].Revents != 0:
			return false
		case p[0].Revents != 0:
			return true
		}
	}
}

func (e *hostEnd) read(p []byte) (int, error) {
	for e.wait(unix.POLLIN) {
		n, err := unix.Read(e.fd, p)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
	return 0, errAborted
}

func (e *hostEnd) write(p []byte) (int, error) {
	if p == nil {
		e.state.Lock()
		defer e.state.Unlock()
		for !e.told && !e.gone {
			e.more.Wait()
		}
		if e.told = false; e.gone {
			return 0, errAborted
		}
		return 0, errNudged
	}
	if e.pipe {
		p = p[:min(len(p), 4096)] // as much as is taken at once by a pipe that is ready
	}
	for e.wait(unix.POLLOUT) {
		n, err := unix.Write(e.fd, p)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil:
			return 0, err
		default:
			return n, nil
		}
	}
	return 0, errAborted
}

func (e *hostEnd) nudge() {
	e.state.Lock()
	e.told = true
	e.more.Broadcast()
	e.state.Unlock()
}

func (e *hostEnd) count() uint64         { return 0 }
func (e *hostEnd) resize(uint16, uint16) {}

func (e *hostEnd) abort() {
	e.once.Do(func() {
		e.state.Lock()
		defer e.state.Unlock()
		e.gone = true
		e.more.Broadcast()
		if e.wake >= 0 {
			_, _ = unix.Write(e.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		}
	})
}

func (e *hostEnd) close() {
	e.abort()
	e.state.Lock()
	defer e.state.Unlock()
	_ = unix.Close(e.fd)
	if e.wake >= 0 {
		_ = unix.Close(e.wake)
	}
}

// OpenPTY opens a terminal on this machine that passes everything through as it
// is: the one inside is where lines are edited. The caller closes both.
func OpenPTY(rows, cols uint16) (master, slave *os.File, err error) {
	m, s, err := openPTY(rows, cols)
	if err != nil {
		return nil, nil, err
	}
	t, err := unix.IoctlGetTermios(s, unix.TCGETS)
	if err == nil {
		t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
		t.Cflag = t.Cflag&^unix.CSIZE | unix.CS8
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
		err = unix.IoctlSetTermios(s, unix.TCSETS, t)
	}
	if err == nil {
		err = unix.SetNonblock(m, true)
	}
	if err != nil {
		_ = unix.Close(m)
		_ = unix.Close(s)
		return nil, nil, err
	}
	return os.NewFile(uintptr(m), "pty"), os.NewFile(uintptr(s), "tty"), nil
}
