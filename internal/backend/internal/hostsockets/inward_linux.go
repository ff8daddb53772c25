package hostsockets

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

// dialTime bounds one connection to a server inside: loopback answers at once,
// a server that takes nobody lets wait.
const dialTime = 10 * time.Second

// DialInside fulfils backend.Inward. A socket stays in the namespace in which it was
// made, so the host connects to servers inside with them, without a process there and
// without a privilege. Each is one connection at a time; ended, it is set back and
// used again.
func (s *Set) DialInside(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
	const op = "sockets.dial-inside"
	if !at.Addr().IsLoopback() {
		return nil, task.Errorf(task.CodeInternal, op, "%s is no address of the loopback interface", at)
	}
	s.mu.Lock()
	free, some := s.free, len(s.inward) > 0
	s.mu.Unlock()
	if !some {
		return nil, task.Errorf(task.CodeState, op, "the host has no way into this boundary, or it is gone")
	}
	ctx, done := context.WithTimeout(ctx, dialTime)
	defer done()
	var fd int
	select {
	case fd = <-free:
	case <-ctx.Done():
		return nil, task.Errorf(task.CodeLimit, op, "all %d connections into the task are in use", cap(free))
	}
	c, err := s.connect(fd, at)
	if err != nil {
		s.giveBack(fd, free)
		return nil, task.Errorf(task.CodeUnavailable, op, "nobody answers at %s inside: %w", at, err)
	}
	return &inwardConn{TCPConn: c, back: func() { s.giveBack(fd, free) }}, nil
}

// giveBack takes a socket back to before it was connected, unless it went with
// the boundary.
func (s *Set) giveBack(fd int, free chan int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.inward, fd) {
		return
	}
	_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, _ = unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none))
	free <- fd
}

// connect connects the socket and returns another descriptor of it.
func (s *Set) connect(fd int, at netip.AddrPort) (*net.TCPConn, error) {
	own, err := s.begun(fd, at)
	if err != nil {
		return nil, err
	}
	// On loopback it is decided at once, but for a server whose queue is full.
	p := []unix.PollFd{{Fd: int32(own), Events: unix.POLLOUT}}
	for until := time.Now().Add(time.Second); ; {
		n, perr := unix.Poll(p, int(max(0, time.Until(until).Milliseconds())))
		if errors.Is(perr, unix.EINTR) {
			continue
		}
		if err = perr; err == nil && n == 0 {
			err = unix.ETIMEDOUT
		}
		break
	}
	if err == nil {
		var e int
		if e, err = unix.GetsockoptInt(own, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && e != 0 {
			err = unix.Errno(e)
		}
	}
	f := os.NewFile(uintptr(own), at.String())
	defer f.Close()
	if err != nil {
		return nil, err
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("it is no TCP connection")
	}
	return t, nil
}

// begun begins to connect, while the boundary stands.
func (s *Set) begun(fd int, at netip.AddrPort) (own int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.inward, fd) {
		return -1, errors.New("the boundary is gone")
	}
	have, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return -1, err
	}
	var sa unix.Sockaddr
	switch {
	case have == unix.AF_INET6:
		sa = &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
	case at.Addr().Is4():
		sa = &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	default:
		return -1, unix.EAFNOSUPPORT
	}
	if err := unix.Connect(fd, sa); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return -1, err
	}
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
}

// inwardConn gives its socket back when it is closed.
type inwardConn struct {
	*net.TCPConn
	back  func()
	ended sync.Once
}

// Close implements net.Conn.
func (c *inwardConn) Close() error {
	err := net.ErrClosed
	c.ended.Do(func() {
		_ = c.TCPConn.CloseWrite() // what was written arrives before the end does
		err = c.TCPConn.Close()
		c.back()
	})
	return err
}
