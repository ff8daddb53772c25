// Package inside is the half of the worker that runs in a boundary: pid 1 of
// it (W), pid 1 of the tool space nested in it (I), and one small guardian per
// call (C). docs/DESIGN.md names who starts whom.
//
// Its limit: it obeys the host's frames and nothing else. It holds no policy,
// parses no tool output and knows no mount: what shapes the boundary is handed
// in as functions. Every doubt ends the process, and with W or I the boundary.
package inside

import (
	"syscall"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// Roles, the first argument of the worker program.
const (
	RoleInit  = "init"
	RoleSpace = "space"
	RoleCall  = "call"
	RoleProbe = "probe"
)

// Exit statuses of W and I. They are for the host's log: a boundary whose
// worker ended is gone whatever the number.
const (
	ExitOK       = 0   // the host closed the channel
	ExitUsage    = 110 // not started as a worker
	ExitInherit  = 111 // a descriptor above the channel was open
	ExitSetup    = 112 // the boundary could not be built or sealed
	ExitChannel  = 113 // a bad frame or a broken channel
	ExitSpace    = 114 // the tool space ended
	ExitInternal = 115
)

// ChannelFD is the channel's descriptor in W and I and the control socket in C.
const ChannelFD = 3

// Hooks are the parts that another room provides. Each runs once.
type Hooks struct {
	// Build receives the plan on fd and builds the root (in W). It returns how
	// the tool space is to be cloned and the plan for SealSpace.
	Build func(fd int) (attr *syscall.SysProcAttr, plan []byte, err error)
	// SealSpace finishes the tool space and drops everything (in I). It runs on
	// the one thread that starts every guardian afterwards.
	SealSpace func(plan []byte) (Space, error)
	// SealWorker drops what W does not need any more (in W).
	SealWorker func() error
	// Report ends the set-up dialogue on fd; a nil err says: ready. space is I's
	// pid as W counts.
	Report func(fd, space int, err error) error
	// Probe measures from where tools are; spec and report are opaque.
	Probe func(spec []byte) (report []byte, err error)
}

// Space is what I must know of the plan.
type Space struct {
	Env     []string       // of tools, complete
	Dir     string         // where a call starts that names no folder
	Rlimits []frame.Rlimit // of tools
}
