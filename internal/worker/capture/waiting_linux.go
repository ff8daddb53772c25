package capture

import (
	"os"

	"golang.org/x/sys/unix"
)

// waiting is how many bytes are in a pipe or terminal.
func waiting(f *os.File) int {
	n := 0
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return n
}
