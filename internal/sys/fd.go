package sys

import "syscall"

// FD returns the descriptor of c without changing anything about it. It is
// c's: it is valid for as long as c stays open.
func FD(c syscall.Conn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	n := -1
	err = raw.Control(func(fd uintptr) { n = int(fd) })
	return n, err
}
