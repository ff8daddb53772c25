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

// Roles, the first argument of the worker program. W and I each begin as a
// builder, which sheds on one thread what the rest must not have, and then exec
// themselves: a program inherits that on every thread it ever makes, which no
// running one can be made to have as surely or as fast.
const (
	RoleInit  = "init"  // W, the builder
	RoleRelay = "relay" // W from then on; a second argument is I's pid
	RoleSpace = "space" // I, the builder
	RoleTools = "tools" // I from then on
	RoleCall  = "call"
	RoleProbe = "probe"
	// Where another program made the root, W and I are one process, apart from the
	// tools by its user id: see RunGuest.
	RoleGuest     = "guest"
	RoleGuestCall = "guestcall" // C there
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

// Places are where a builder leaves descriptors to what it becomes: above whatever
// the Go runtime opens for itself, so that neither is taken for the other.
const (
	firstPlace = 60
	lastPlace  = firstPlace + 1
)

// Descriptors that W's builder leaves.
const (
	spaceFD  = firstPlace // W's end of I's channel
	reportFD = lastPlace  // what Report hands to the host
)

// Descriptors that I's builder leaves.
const (
	ownFD      = firstPlace // Scores.Own
	leftTreeFD = lastPlace  // Scores.Tree
)

// treeFD is Scores.Tree in C.
const treeFD = 4

// Hooks are the parts that another room provides. Each runs once. Build and
// DropWorker run on one thread of W's builder, DropSpace on one of I's; what is
// shed there is inherited through the exec that follows.
type Hooks struct {
	// Build receives the plan on fd and builds the root. The tool space is cloned
	// with Attr.
	Build func(fd int) (Built, error)
	// DropWorker drops what W does not need any more.
	DropWorker func() error
	// SealWorker receives the rest of the plan on fd, forbids W to start a
	// program, and verifies every thread. dir is where the task's source is: file
	// tools take relative paths from there.
	SealWorker func(fd int) (dir string, err error)
	// DropSpace receives what Tell sent on fd, finishes the tool space and drops
	// everything. I owns the descriptors that it returns.
	DropSpace func(fd int) (Scores, error)
	// SealSpace receives the rest of it and verifies every thread.
	SealSpace func(fd int) (Space, error)
	// Report ends the set-up dialogue on fd; a nil err says: ready. space is I's
	// pid as W counts, file the descriptor that Build returned.
	Report func(fd, space, file int, err error) error
	// Probe measures from where tools are; spec and report are opaque.
	Probe func(spec []byte) (report []byte, err error)
}

// Built is what W's builder has after Build.
type Built struct {
	Attr *syscall.SysProcAttr // how the tool space is to be cloned
	Tell func(fd int) error   // sends I, on its channel, what DropSpace and SealSpace receive
	File int                  // for Report; negative: none. Build's caller owns it
}

// Scores are descriptors by which I and its guardians say whom the kernel ends
// first where memory is used up: programs before guardians, and these before I
// and W. Negative: it cannot be said here.
type Scores struct {
	Own  int // I's own oom_score_adj; a process that is not dumpable cannot open it
	Tree int // a /proc of the tool space in which those of programs can be written
}

// Space is what I must know of the plan.
type Space struct {
	Env     []string       // of tools, complete
	Dir     string         // where a call starts that names no folder
	Rlimits []frame.Rlimit // of tools
}
