// Package worker is the host's half of the one channel into a boundary: it
// starts calls there, signals and cancels them, and learns how they ended.
//
// Its limit: what comes back is a claim. It decides nothing from a reply, opens
// no path that a reply names, never reconnects and never sends a request
// twice. A violation ends the channel for good, and it is the caller who then
// destroys the boundary.
package worker

import (
	"context"
	"time"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// Options of a Client. The zero value of every duration is its default.
type Options struct {
	// WorkerPID is W as the caller's pid namespace counts it; the kernel must
	// name it as sender of every frame. 0 only for streams whose kernel names
	// nobody (engines, VMs): then the keys alone authenticate.
	WorkerPID int
	// OnPoison is called once, from a goroutine of its own, when the channel is
	// given up: not after Close. The boundary must be destroyed then.
	OnPoison func(error)

	Heartbeat     time.Duration // between pings; 5 s
	HeartbeatLost time.Duration // unanswered this long: poison; 30 s
	StartTimeout  time.Duration // of hello and of one exec's answer; 30 s
	WriteTimeout  time.Duration // of one frame; 30 s
}

// Command is a program to start inside.
type Command struct {
	Argv    []string
	Dir     string         // absolute path inside; empty: the plan's
	Env     []string       // K=V on top of the plan's
	TTY     bool           // files is the one slave of a pty from the boundary's devpts
	Builtin string         // "probe" instead of Argv
	Rlimits []frame.Rlimit // on top of the plan's
	Last    bool           // probably no other call follows; one that does begins later
}

// detached returns a context that outlives ctx's end but not limit.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
