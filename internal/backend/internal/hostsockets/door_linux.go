package hostsockets

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/crossing"
)

// DoorName is the name of the socket in the folder of a Door.
const DoorName = "s"

// Door is where a worker that another program started hands its sockets over: a Unix
// socket in a folder that is shown inside while nothing but the worker runs there.
type Door struct {
	fd   int
	path string
}

// OpenDoor listens in a folder that is this boundary's alone. Everybody inside may
// connect; who may reach the folder outside is the caller's business, who closes it.
func OpenDoor(dir string) (*Door, error) {
	fd, err := ListenLocal(dir, DoorName, unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	return &Door{fd: fd, path: filepath.Join(dir, DoorName)}, nil
}

// Close takes the door away. Nobody can connect any more, inside or outside.
func (d *Door) Close() error {
	err := os.Remove(d.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, unix.Close(d.fd))
}

// Take returns what the process pid handed over, which must have happened. Whatever
// came of others is closed. pid is as this process sees it.
func (d *Door) Take(pid int) ([]int, error) {
	var strangers error
	for {
		c, _, err := unix.Accept4(d.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			return nil, errors.Join(errors.New("nobody handed sockets over"), strangers)
		}
		if err != nil {
			return nil, err
		}
		fds, err := taken(c, pid)
		_ = unix.Close(c)
		if err == nil {
			return fds, nil
		}
		strangers = err
	}
}

func taken(c, pid int) ([]int, error) {
	who, err := unix.GetsockoptUcred(c, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	if pid <= 0 || int(who.Pid) != pid {
		return nil, fmt.Errorf("process %d came, and the worker is %d", who.Pid, pid)
	}
	b, oob := make([]byte, 2), make([]byte, unix.CmsgSpace(4*(crossing.MaxSockets+3)))
	n, oobn, flags, _, err := unix.Recvmsg(c, b, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("receive sockets: %w", err)
	}
	var fds []int
	all, err := unix.ParseSocketControlMessage(oob[:oobn])
	for _, m := range all {
		if own, perr := unix.ParseUnixRights(&m); perr == nil {
			fds = append(fds, own...)
		}
	}
	if err != nil || n != 1 || flags&unix.MSG_CTRUNC != 0 || int(b[0]) != len(fds) {
		CloseAll(fds)
		return nil, fmt.Errorf("what came is no hand-over of sockets: %d descriptors (%v)", len(fds), err)
	}
	return fds, nil
}

// backlog is how many programs may wait at a Unix socket.
const backlog = 64

// ListenLocal makes a Unix socket that everybody may connect to who reaches the
// folder, however long that one's path is. The caller closes it.
func ListenLocal(dir, name string, kind int) (int, error) {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(at)
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(at) + "/" + name}); err == nil {
		err = os.Chmod(filepath.Join(dir, name), 0o666) // whatever the mask is
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("listen at %s: %w", filepath.Join(dir, name), err)
	}
	return fd, nil
}
