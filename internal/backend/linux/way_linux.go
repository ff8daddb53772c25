package linux

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
	"github.com/caisson-dev/caisson/internal/task"
)

var (
	_ backend.Listeners = (*instance)(nil)
	_ backend.Locals    = (*instance)(nil)
)

// wayOf is what of a spec the stage makes.
func wayOf(w *backend.Way) *stage.Way {
	if w == nil {
		return nil
	}
	return &stage.Way{Proxy: w.Proxy, Ports: w.Ports, Six: w.Six, At: w.At}
}

// spot is what a socket of the way out listens for.
type spot struct {
	kind int // SOCK_STREAM or SOCK_DGRAM
	at   netip.AddrPort
}

// spots are those that a way has; those of IPv6 may be missing.
func spots(w *stage.Way) []spot {
	out := []spot{{unix.SOCK_STREAM, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), w.Proxy)}}
	for a, ports := range map[netip.Addr][]uint16{netip.IPv4Unspecified(): w.Ports, netip.IPv6Unspecified(): w.Six} {
		out = append(out, spot{unix.SOCK_DGRAM, netip.AddrPortFrom(a, stage.DNSPort)})
		for _, p := range ports {
			out = append(out, spot{unix.SOCK_STREAM, netip.AddrPortFrom(a, p)})
		}
	}
	for _, s := range w.At {
		if at, err := netip.ParseAddrPort(s); err == nil {
			out = append(out, spot{unix.SOCK_STREAM, at})
		}
	}
	return out
}

// spotOf looks at what a descriptor is.
func spotOf(fd int) (spot, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return spot{}, err
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return spot{}, err
	}
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return spot{kind, netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))}, nil
	case *unix.SockaddrInet6:
		return spot{kind, netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))}, nil
	}
	return spot{}, fmt.Errorf("it is no socket of the internet")
}

// keepSockets takes what W sent as the host's sockets, once they are seen to be
// that.
func (in *instance) keepSockets(p *process, plan *stage.Plan, got []int, cred *unix.Ucred) (err error) {
	no := func(format string, args ...any) error {
		return &stage.Error{Step: "set-up", Op: "receive the way out", Detail: fmt.Sprintf(format, args...)}
	}
	defer func() {
		if err != nil {
			closeSockets(got)
		}
	}()
	if cred == nil || int(cred.Pid) != p.pid {
		return no("it was not sent by the worker")
	}
	var want []spot
	if plan.Way != nil {
		want = spots(plan.Way)
	}
	inner := len(got) - plan.Inward
	out := inner - len(plan.Local)
	if out < 0 {
		return no("%d sockets came, and %d are to lead inside or have names", len(got), plan.Inward+len(plan.Local))
	}
	for i, n := range plan.Local {
		if err := isLocal(got[out+i], n); err != nil {
			return no("the socket %s: %v", n, err)
		}
	}
	for _, fd := range got[inner:] {
		if at, err := spotOf(fd); err != nil || at.kind != unix.SOCK_STREAM || at.at.Port() != 0 {
			return no("a socket that is to lead inside is bound to %v: %v", at.at, err)
		}
	}
	for _, fd := range got[:out] {
		at, err := spotOf(fd)
		i := slices.Index(want, at)
		if err != nil || i < 0 {
			return no("a socket is none that was asked for: %v %v", at.at, err)
		}
		if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || (n == 1) != (at.kind == unix.SOCK_STREAM) {
			return no("the socket at %v does not listen", at.at)
		}
		want = slices.Delete(want, i, i+1)
	}
	for _, p := range want {
		if p.at.Addr().Is4() {
			return no("the socket at %v is missing", p.at)
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.sockets, in.local = got[:out:out], got[out:inner:inner]
	in.inward.begin(got[inner:])
	return nil
}

// isLocal looks whether a descriptor is a Unix socket that listens at a name.
func isLocal(fd int, name string) error {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return fmt.Errorf("it is no stream: %v", err)
	}
	sa, err := unix.Getsockname(fd)
	if a, ok := sa.(*unix.SockaddrUnix); err != nil || !ok || a.Name != stage.LocalDir+"/"+name {
		return fmt.Errorf("it is not at that name: %v", err)
	}
	if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || n != 1 {
		return fmt.Errorf("it does not listen: %v", err)
	}
	return nil
}

// LocalSockets implements backend.Locals.
func (in *instance) LocalSockets() (_ map[string]net.Listener, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := map[string]net.Listener{}
	defer func() {
		if err != nil {
			for _, l := range out {
				_ = l.Close()
			}
			err = task.Errorf(task.CodeUnavailable, "linux.local", "what programs inside were lent cannot be answered: %w", err)
		}
	}()
	for _, fd := range in.local {
		sa, err := unix.Getsockname(fd)
		if err != nil {
			return nil, err
		}
		a, ok := sa.(*unix.SockaddrUnix)
		if !ok {
			return nil, fmt.Errorf("it is no Unix socket")
		}
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(own), a.Name)
		l, err := net.FileListener(f)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
		out[filepath.Base(a.Name)] = l
	}
	return out, nil
}

func closeSockets(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Sockets implements backend.Listeners.
func (in *instance) Sockets() (s backend.Sockets, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	defer func() {
		if err != nil {
			_ = s.Close()
			s, err = backend.Sockets{}, task.Errorf(task.CodeUnavailable, "linux.way", "the way out of the boundary cannot be opened: %w", err)
		}
	}()
	for _, fd := range in.sockets {
		at, err := spotOf(fd)
		if err != nil {
			return s, err
		}
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return s, err
		}
		f := os.NewFile(uintptr(own), at.at.String())
		if at.kind == unix.SOCK_DGRAM {
			var c net.PacketConn
			if c, err = net.FilePacketConn(f); err == nil {
				s.Names = append(s.Names, c)
			}
		} else {
			var l net.Listener
			if l, err = net.FileListener(f); err == nil {
				if s.Proxy == nil { // the first one, as it was made
					s.Proxy = l
				} else {
					s.Direct = append(s.Direct, l)
				}
			}
		}
		_ = f.Close()
		if err != nil {
			return s, err
		}
	}
	if s.Proxy == nil {
		return s, task.Errorf(task.CodeUnsupported, "linux.way", "this boundary has no way out")
	}
	return s, nil
}
