package callfilter

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	X32Bit    = 0
)

// allowedArch are calls under names that only this architecture has.
var allowedArch = []int{unix.SYS_NEWFSTATAT, unix.SYS_RENAMEAT}

// workerAllowedArch are what only this architecture has among W's own.
var workerAllowedArch = []int{unix.SYS_NEWFSTATAT}
