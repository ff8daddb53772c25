package docker

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

var (
	_ backend.Listeners = (*instance)(nil)
	_ backend.Locals    = (*instance)(nil)
	_ backend.Inward    = (*instance)(nil)
)

// takeSockets takes what the worker handed over. pid is its number by the engine, why
// is what it said where it handed nothing over.
func (in *instance) takeSockets(pid int, why string) error {
	if !in.here(pid) {
		pid = 0
	}
	if err := in.crossings.Take(in.spec, pid, why); err != nil && !in.trial {
		return err
	}
	return nil
}

// Sockets implements backend.Listeners.
func (in *instance) Sockets() (backend.Sockets, error) { return in.crossings.Sockets() }

// LocalSockets implements backend.Locals.
func (in *instance) LocalSockets() (map[string]net.Listener, error) {
	return in.crossings.LocalSockets()
}

// DialInside implements backend.Inward.
func (in *instance) DialInside(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
	return in.crossings.DialInside(ctx, at)
}

// Listening implements backend.Inward.
func (in *instance) Listening() ([]netip.AddrPort, error) {
	const op = "docker.listening"
	in.mu.Lock()
	e, id, gone := in.engine, in.id, in.gone
	in.mu.Unlock()
	if e == nil || gone {
		return nil, task.Errorf(task.CodeState, op, "the boundary is gone")
	}
	c, err := e.inspect(context.Background(), id)
	if err != nil {
		return nil, in.driver.noAnswer(e.at, err)
	}
	if !c.State.Running || !in.here(c.State.Pid) {
		return nil, task.Errorf(task.CodeState, op, "the boundary is gone")
	}
	out, err := in.crossings.Listening(strconv.Itoa(c.State.Pid))
	if err == nil && !in.here(c.State.Pid) {
		return nil, task.Errorf(task.CodeState, op, "the boundary is gone") // what was read may be another's
	}
	return out, err
}
