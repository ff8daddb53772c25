package oci

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var (
	_ backend.Listeners = (*instance)(nil)
	_ backend.Locals    = (*instance)(nil)
	_ backend.Inward    = (*instance)(nil)
)

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
	const op = "oci.listening"
	in.mu.Lock()
	id, gone := in.ident, in.gone
	in.mu.Unlock()
	if id == nil || gone {
		return nil, task.Errorf(task.CodeState, op, "the boundary is gone")
	}
	out, err := in.crossings.Listening(strconv.Itoa(id.PID))
	if err == nil && sys.Look(*id) != sys.Living {
		return nil, task.Errorf(task.CodeState, op, "the boundary is gone") // what was read may be another's
	}
	return out, err
}
