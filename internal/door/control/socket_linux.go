package control

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxFiles is how many descriptors one message may carry: three pipe ends.
const maxFiles = 3

func sendWithFiles(c *net.UnixConn, b []byte, files []*os.File) error {
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	n, _, err := c.WriteMsgUnix(b, oob, nil)
	if err == nil && n < len(b) {
		_, err = c.Write(b[n:])
	}
	return err
}

func recvWithFiles(c *net.UnixConn, head []byte) ([]*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, oobn, flags, _, err := c.ReadMsgUnix(head, oob)
	var files []*os.File
	if oobn > 0 {
		files = parseRights(oob[:oobn])
	}
	switch {
	case err != nil:
	case n == 0:
		err = io.EOF
	case flags&unix.MSG_CTRUNC != 0:
		err = errors.New("control: too many descriptors in one message")
	case n < len(head):
		_, err = io.ReadFull(c, head[n:])
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, err
	}
	return files, nil
}

func parseRights(oob []byte) []*os.File {
	var files []*os.File
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd) // ReadMsgUnix asks for it already; harmless twice
			files = append(files, os.NewFile(uintptr(fd), "control"))
		}
	}
	return files
}

// stopped reports whether the process that listens was stopped (kill -STOP): it
// takes connections and answers none. In doubt it was not.
func stopped(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	_ = raw.Control(func(fd uintptr) { cred, _ = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if cred == nil || cred.Pid <= 0 {
		return false
	}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cred.Pid))
	_, after, ok := bytes.Cut(b, []byte(") "))
	return ok && len(after) > 0 && (after[0] == 'T' || after[0] == 't')
}

// reader returns a fresh read end of the pipe that f writes to, nil when f is no
// pipe. It holds no write end, so it still ends when the last writer does.
func reader(f *os.File) *os.File {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "output")
}

// reference returns a handle of f that neither reads nor writes, from which
// reader can be called later.
func reference(f *os.File) *os.File {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "reference")
}
