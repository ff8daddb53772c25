package linux

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/hostsockets"
	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
	"github.com/caisson-dev/caisson/internal/task"
)

var (
	_ backend.Listeners = (*instance)(nil)
	_ backend.Locals    = (*instance)(nil)
	_ backend.Inward    = (*instance)(nil)
)

// wayOf is what of a spec the stage makes.
func wayOf(w *backend.Way) *stage.Way {
	if w == nil {
		return nil
	}
	return &stage.Way{Proxy: w.Proxy, Ports: w.Ports, Six: w.Six, At: w.At}
}

// keepSockets takes what W sent as the host's sockets, once they are seen to be
// that.
func (in *instance) keepSockets(p *process, plan *stage.Plan, got []int, cred *unix.Ucred) error {
	no := func(detail string) error {
		return &stage.Error{Step: "set-up", Op: "receive the way out", Detail: detail}
	}
	if cred == nil || int(cred.Pid) != p.pid {
		hostsockets.CloseAll(got)
		return no("it was not sent by the worker")
	}
	var local []string
	for _, n := range plan.Local {
		local = append(local, stage.LocalDir+"/"+n)
	}
	set, err := hostsockets.Take(got, in.spec.Way, local, plan.Inward)
	if err != nil {
		return no(fmt.Sprint(err))
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.sockets = set
	return nil
}

func (in *instance) held() *hostsockets.Set {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.sockets == nil {
		return &hostsockets.Set{}
	}
	return in.sockets
}

// Sockets implements backend.Listeners.
func (in *instance) Sockets() (backend.Sockets, error) { return in.held().Sockets() }

// LocalSockets implements backend.Locals.
func (in *instance) LocalSockets() (map[string]net.Listener, error) { return in.held().LocalSockets() }

// DialInside implements backend.Inward.
func (in *instance) DialInside(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
	return in.held().DialInside(ctx, at)
}

// Listening implements backend.Inward.
func (in *instance) Listening() ([]netip.AddrPort, error) {
	set, pid := in.held(), 0
	in.mu.Lock()
	if in.proc != nil && !in.proc.dead() {
		pid = in.proc.pid
	}
	in.mu.Unlock()
	if pid == 0 {
		return nil, task.Errorf(task.CodeState, "linux.listening", "the boundary is gone")
	}
	return set.Listening(strconv.Itoa(pid))
}
