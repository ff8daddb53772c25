package sys

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// CheckPeer refuses every peer of a Unix socket but the same user in the same user
// and pid namespace: a process of a task that somehow reached the socket lives in
// others, and a different user has no business here. Root may speak to anybody's
// processes as it may do anything else to them.
func CheckPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var pidfd = -1
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); err == nil {
			pidfd = n
		}
	})
	if err == nil {
		err = credErr
	}
	if pidfd >= 0 {
		defer unix.Close(pidfd)
	}
	if err != nil {
		return err
	}
	if uid := uint32(os.Getuid()); cred.Uid != uid && cred.Uid != 0 {
		return fmt.Errorf("user %d may not speak to a task of user %d", cred.Uid, uid)
	}
	for _, ns := range []string{"user", "pid"} {
		own, err := os.Stat("/proc/self/ns/" + ns)
		if err != nil {
			return err
		}
		peer, err := os.Stat(fmt.Sprintf("/proc/%d/ns/%s", cred.Pid, ns))
		if err != nil || !os.SameFile(own, peer) {
			return fmt.Errorf("a process in another %s namespace may not speak to this task", ns)
		}
	}
	// The pid could have been reused between connect and the look at /proc;
	// a pidfd that is still alive proves it was not.
	if pidfd >= 0 && unix.PidfdSendSignal(pidfd, 0, nil, 0) != nil {
		return errors.New("the peer ended before it could be identified")
	}
	return nil
}
