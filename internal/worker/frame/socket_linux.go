package frame

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
)

// Socket is a Transport over a blocking stream socket that this process owns.
// It is what the inside uses: no poller, no goroutine, no package net.
type Socket struct {
	fd   int
	peer int32
}

// NewSocket takes over fd. When peer is not 0, every byte must have been sent
// by that process, as the kernel says it.
func NewSocket(fd, peer int) (*Socket, error) {
	if !sys.Without("cloexec") {
		unix.CloseOnExec(fd)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		return nil, err
	}
	if peer != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
			return nil, err
		}
	}
	return &Socket{fd: fd, peer: int32(peer)}, nil
}

// closing makes descriptors that come with a frame close on exec.
var closing = func() int {
	if sys.Without("cloexec") {
		return 0
	}
	return unix.MSG_CMSG_CLOEXEC
}()

// OOBSize is the room for the descriptors of one frame and the sender. More
// than that is cut off by the kernel, which is reported as a bad frame.
var OOBSize = unix.CmsgSpace(4*MaxFDs) + unix.CmsgSpace(unix.SizeofUcred)

// Recv implements Transport.
func (s *Socket) Recv(p []byte) (int, []int, error) {
	var oob [128]byte
	for {
		n, oobn, flags, _, err := unix.Recvmsg(s.fd, p, oob[:OOBSize], closing)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		fds, err := ParseOOB(n, oob[:oobn], flags, s.peer)
		return n, fds, err
	}
}

// ParseOOB reads what came beside the bytes: descriptors, and the sender when
// peer is not 0. n is the number of bytes; none is io.EOF, which the kernel
// attributes to nobody. The descriptors are returned also with an error.
func ParseOOB(n int, oob []byte, flags int, peer int32) (fds []int, err error) {
	sender, names := int32(0), 0
	if len(oob) > 0 {
		msgs, perr := unix.ParseSocketControlMessage(oob)
		if perr != nil {
			err = ErrFDs
		}
		for i := range msgs {
			m := &msgs[i]
			switch {
			case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_RIGHTS && len(m.Data)%4 == 0: // others make the parser panic
				got, rerr := unix.ParseUnixRights(m)
				if rerr != nil {
					err = ErrFDs
				}
				fds = append(fds, got...)
			case m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_CREDENTIALS:
				names++
				if u, uerr := unix.ParseUnixCredentials(m); uerr == nil {
					sender = u.Pid
				}
			default:
				err = ErrFDs
			}
		}
	}
	switch {
	case err != nil:
	case flags&unix.MSG_CTRUNC != 0:
		err = ErrFDs
	case n == 0 && len(fds) == 0:
		err = io.EOF
	case n == 0:
		err = ErrFDs
	case peer != 0 && !sys.Without("sender") && (sender != peer || names != 1):
		err = ErrSender
	}
	return fds, err
}

// Send implements Transport.
func (s *Socket) Send(p []byte, fds []int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for len(p) > 0 {
		n, err := unix.SendmsgN(s.fd, p, oob, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p, oob = p[n:], nil
	}
	return nil
}

// Close implements Transport. A reader that is blocked is woken.
func (s *Socket) Close() error {
	_ = unix.Shutdown(s.fd, unix.SHUT_RDWR)
	return unix.Close(s.fd)
}

func closeFD(fd int) { _ = unix.Close(fd) }
