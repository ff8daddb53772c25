package cli

import (
	"context"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// dropTyped forgets what was typed at a terminal and is not read yet.
func dropTyped(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.IoctlSetInt(int(fd), unix.TCFLSH, unix.TCIFLUSH) })
	}
}

// givesUp says that typedLine can.
const givesUp = true

// typedLine reads one line of a terminal. When ctx ends first it gives up, and has
// taken nothing of what is typed from then on.
func typedLine(ctx context.Context, f *os.File) (line string, ok bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return "", true
	}
	buf := make([]byte, 4096)
	for ctx.Err() == nil {
		n := 0
		err = nil
		cerr := raw.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if k, perr := unix.Poll(fds, 50); perr != nil || k == 0 {
				err = unix.EAGAIN
				return
			}
			n, err = unix.Read(int(fd), buf)
		})
		switch {
		case cerr == nil && (err == unix.EAGAIN || err == unix.EINTR):
			continue
		case cerr != nil || err != nil || n == 0:
			return line, true // the terminal is gone, or said that this is all
		}
		line += string(buf[:n])
		if strings.HasSuffix(line, "\n") || len(line) > 64<<10 {
			return line, true
		}
	}
	return "", false
}
