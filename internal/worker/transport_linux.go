package worker

import (
	"net"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/frame"
	"github.com/caisson-dev/caisson/internal/worker/mux"
)

// newTransport picks what conn can do. Only a unix socket carries descriptors
// and names the sender.
func newTransport(conn net.Conn, o Options) (frame.Transport, task.Assurance, error) {
	if m, ok := conn.(Multiplexed); ok {
		return mux.Host(conn, mux.WriteDeadline(o.WriteTimeout, conn.SetWriteDeadline)), m.Multiplexed(), nil
	}
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return &stream{conn: conn, timeout: o.WriteTimeout}, task.MACOnly, nil
	}
	assured := task.MACOnly
	if o.WorkerPID != 0 {
		raw, err := u.SyscallConn()
		if err != nil {
			return nil, "", err
		}
		var serr error
		if err := raw.Control(func(fd uintptr) {
			if serr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1); serr == nil && nameless(int(fd)) {
				assured = task.KernelObject
			}
		}); err != nil {
			return nil, "", err
		}
		if serr != nil {
			return nil, "", serr
		}
	}
	return &unixSocket{conn: u, peer: int32(o.WorkerPID), timeout: o.WriteTimeout}, assured, nil
}

// OpenPTY opens a terminal on this machine for a call over a channel that carries no
// descriptors: it stands in for one inside. The caller closes both.
func OpenPTY(rows, cols uint16) (master, slave *os.File, err error) {
	return mux.OpenPTY(rows, cols)
}

// nameless reports whether fd is a connected stream that has no name at either
// end, so that nobody ever could connect to it, and tells its senders.
func nameless(fd int) bool {
	// Asked for the length alone: as a text, no name looks like an abstract one.
	unnamed := func(call uintptr) bool {
		var addr unix.RawSockaddrUnix
		size := uint32(unix.SizeofSockaddrUnix)
		_, _, e := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&addr)), uintptr(unsafe.Pointer(&size)))
		return e == 0 && addr.Family == unix.AF_UNIX && size == 2
	}
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	cred, cerr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED)
	listens, lerr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err == nil && cerr == nil && lerr == nil && typ == unix.SOCK_STREAM && cred == 1 && listens == 0 &&
		unnamed(unix.SYS_GETSOCKNAME) && unnamed(unix.SYS_GETPEERNAME)
}

// unixSocket is a frame.Transport over the host's end of a socketpair.
type unixSocket struct {
	conn    *net.UnixConn
	peer    int32
	timeout time.Duration
}

func (s *unixSocket) Recv(p []byte) (int, []int, error) {
	oob := make([]byte, frame.OOBSize)
	n, oobn, flags, _, err := s.conn.ReadMsgUnix(p, oob) // CLOEXEC is set by package net
	if err != nil {
		return 0, nil, err
	}
	fds, err := frame.ParseOOB(n, oob[:oobn], flags, s.peer)
	return n, fds, err
}

func (s *unixSocket) Send(p []byte, fds []int) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	n, _, err := s.conn.WriteMsgUnix(p, oob, nil)
	if err != nil || n == len(p) {
		return err
	}
	_, err = s.conn.Write(p[n:])
	return err
}

func (s *unixSocket) Close() error { return s.conn.Close() }

// borrow duplicates fs for one send. The copies are in blocking mode, and so
// then are the originals, because a program expects that of its stdio and the
// mode belongs to the open file, not to the descriptor.
func borrow(fs []*os.File) (fds []int, release func(), err error) {
	release = func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
	for _, f := range fs {
		raw, err := f.SyscallConn()
		if err == nil {
			var derr error
			err = raw.Control(func(fd uintptr) {
				if derr = unix.SetNonblock(int(fd), false); derr != nil {
					return
				}
				var d int
				if d, derr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); derr == nil {
					fds = append(fds, d)
				}
			})
			if err == nil {
				err = derr
			}
		}
		if err != nil {
			release()
			return nil, nil, err
		}
	}
	return fds, release, nil
}

// hold puts b into memory that has a descriptor. The caller closes it.
func hold(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("arguments", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "arguments")
	if _, err := f.Write(b); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
