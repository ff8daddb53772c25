package linux

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
)

const (
	defaultPids = 4096
	minMemory   = 256 << 20
	maxTmpfs    = 8 << 30
)

// Defaults fills in what l leaves open: three quarters of the machine's
// memory, 4096 processes and threads, every processor. DiskBytes bounds HOME,
// /tmp, /var/tmp and /dev/shm together; by default half of the memory limit, at
// most 8 GiB.
func Defaults(l task.Limits) task.Limits {
	if l.MemoryBytes == 0 {
		l.MemoryBytes = max(totalMemory()/4*3, minMemory)
	}
	l.MemoryBytes = l.MemoryBytes / int64(os.Getpagesize()) * int64(os.Getpagesize())
	if l.Pids == 0 {
		l.Pids = defaultPids
	}
	if l.CPUs == 0 {
		l.CPUs = float64(runtime.NumCPU())
	}
	return l
}

func totalMemory() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 1 << 30
	}
	return int64(si.Totalram) * int64(si.Unit)
}

// tmpfsSize bounds what is in memory as files. It counts as the boundary's memory
// too, and no end of a process gives it back: the other half stays for programs.
func tmpfsSize(l task.Limits) int64 {
	size := min(l.MemoryBytes/2, maxTmpfs)
	if l.DiskBytes > 0 {
		size = min(size, l.DiskBytes)
	}
	return max(size, 1<<20)
}
