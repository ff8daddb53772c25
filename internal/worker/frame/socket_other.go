//go:build !linux

package frame

import "os"

// closeFD closes a descriptor. Transports of other systems carry none.
func closeFD(fd int) { _ = os.NewFile(uintptr(fd), "").Close() }
