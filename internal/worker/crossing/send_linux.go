package crossing

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// MaxSockets is the most that goes over at once: the kernel takes no more
// descriptors with one message.
const MaxSockets = 250

// Send hands descriptors over at the Unix socket at path, where the host listens.
func Send(path string, fds []int) error {
	if len(fds) > MaxSockets {
		return fmt.Errorf("%d sockets are more than go over at once", len(fds))
	}
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	if err := unix.Connect(s, &unix.SockaddrUnix{Name: path}); err != nil {
		return fmt.Errorf("connect to the host at %s: %w", path, err)
	}
	if err := unix.Sendmsg(s, []byte{byte(len(fds))}, unix.UnixRights(fds...), nil, 0); err != nil {
		return fmt.Errorf("hand sockets over: %w", err)
	}
	return nil
}
