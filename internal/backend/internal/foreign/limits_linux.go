package foreign

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/callfilter"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/guest"
)

// Limits fills in what l leaves open, from what the machine has.
func Limits(l task.Limits, memory int64, cpus int) task.Limits {
	if l.MemoryBytes == 0 {
		l.MemoryBytes = max(memory/4*3, 256<<20)
	}
	l.MemoryBytes = l.MemoryBytes / int64(os.Getpagesize()) * int64(os.Getpagesize())
	if l.Pids == 0 {
		l.Pids = 4096
	}
	if l.CPUs == 0 {
		l.CPUs = float64(max(cpus, 1))
	}
	l.CPUs = min(l.CPUs, float64(max(cpus, 1)))
	return l
}

// MemoryFolder bounds each folder in memory, in bytes.
func MemoryFolder(l task.Limits) int64 {
	size := min(l.MemoryBytes/2, 8<<30)
	if l.DiskBytes > 0 {
		size = min(size, l.DiskBytes)
	}
	return max(size, 1<<20)
}

// Insiders are the tools' ids inside, and the worker's where the tools' is 0.
type Insiders struct{ UID, GID, Worker int }

// Plan is what the worker of s is told.
func Plan(s backend.Spec, ids Insiders, l task.Limits) guest.Plan {
	p := guest.Plan{UID: ids.UID, GID: ids.GID, Worker: ids.Worker, Mark: MarkAt, MarkText: MarkOf(s), Workdir: s.Source.Target,
		Env: s.Env, Filter: callfilter.Tool(s.Ptrace, false), Rlimits: rlimits(l)}
	for _, m := range []backend.Mount{s.Source, s.Out} {
		if m.Source != "" {
			p.Owned = append(p.Owned, m.Target)
		}
	}
	planCrossings(&p, s)
	return p
}

func rlimits(l task.Limits) []guest.Rlimit {
	rs := []guest.Rlimit{{Resource: unix.RLIMIT_CORE}}
	if l.DiskBytes > 0 {
		// The sum of all files is watched from outside; one alone is stopped at once.
		most := uint64(l.DiskBytes) + uint64(os.Getpagesize())
		rs = append(rs, guest.Rlimit{Resource: unix.RLIMIT_FSIZE, Soft: most, Hard: most})
	}
	return rs
}
