//go:build linux

package attack

import "golang.org/x/sys/unix"

// int80 makes a system call by the gate of 32-bit programs, whose numbers and
// filters are others. It returns the kernel's answer: negative is an error.
func int80(nr, a, b, c, d, e uint32) int32

const x32 = 0x40000000

// archCalls are those that only this architecture has.
var archCalls = []sysCall{
	{"P29", "iopl", unix.SYS_IOPL, []uintptr{99}, false, true},
	{"P29", "ioperm", unix.SYS_IOPERM, []uintptr{1 << 20, 1, 1}, false, true},
	{"P29", "modify_ldt", unix.SYS_MODIFY_LDT, []uintptr{1, 0, 0}, false, true},
}
