package sys

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Ident names one process for ever: the kernel reuses pids, and after a reboot
// all of them. It converts to and from other structs with the same fields.
type Ident struct {
	BootID string // of the running kernel
	PID    int    // as counted in the pid namespace PIDNS
	Start  uint64 // field 22 of /proc/PID/stat, in clock ticks since boot
	PIDNS  uint64 // inode of the pid namespace in which PID counts
}

// Liveness is what can be told about an Ident.
type Liveness int

// The livenesses. The zero value claims nothing.
const (
	Unknown Liveness = iota // counted in another pid namespace, or /proc cannot be read
	Living
	Dead // gone, a zombie, or of an earlier boot
)

// ErrGone says that the process of an Ident has certainly ended.
var ErrGone = errors.New("process is gone")

// ErrUnknown says that it cannot be told from here whether a process lives.
var ErrUnknown = errors.New("process cannot be identified from here")

// Alive reports whether the process of id may still run: true also where that
// cannot be told, so that nobody takes away what a living process uses.
// Look tells the two apart.
func Alive(id Ident) bool { return Look(id) != Dead }

// stat is what we read of /proc/PID/stat.
type stat struct {
	state   byte
	ppid    int
	threads int
	start   uint64
}

// parseStat reads /proc/PID/stat. The name of the program stands in
// parentheses, is chosen by the process and may hold spaces, line feeds and
// parentheses: fields are counted after the last one.
func parseStat(b []byte) (stat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return stat{}, fmt.Errorf("process status without a name")
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("process status has %d fields after the name", len(f))
	}
	ppid, err := strconv.Atoi(string(f[1]))
	if err != nil {
		return stat{}, fmt.Errorf("process status: parent %q", f[1])
	}
	threads, err := strconv.Atoi(string(f[17]))
	if err != nil {
		return stat{}, fmt.Errorf("process status: %q threads", f[17])
	}
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("process status: start time %q", f[19])
	}
	return stat{state: f[0][0], ppid: ppid, threads: threads, start: start}, nil
}

// dead reports whether the process does not run any more. The first thread of a
// process can be a zombie while others run: for a moment it is so in every exec
// that another thread calls.
func (s stat) dead() bool {
	return (s.state == 'Z' || s.state == 'X' || s.state == 'x') && s.threads <= 1
}
