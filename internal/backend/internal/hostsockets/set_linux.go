package hostsockets

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/crossing"
)

// Set are the sockets of one boundary. Safe for concurrent use; the zero value has
// none.
type Set struct {
	mu     sync.Mutex
	way    []int
	local  []int // Unix sockets, bound at names whose last parts are theirs
	inward []int
	free   chan int

	carried *Carried // instead of way; nil: none is
}

// spot is what a socket of the way out listens for.
type spot struct {
	kind int // SOCK_STREAM or SOCK_DGRAM
	at   netip.AddrPort
}

// spots are those that a way has; those of IPv6 may be missing.
func spots(w *backend.Way) []spot {
	if w == nil {
		return nil
	}
	out := []spot{{unix.SOCK_STREAM, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), w.Proxy)}}
	for a, ports := range map[netip.Addr][]uint16{netip.IPv4Unspecified(): w.Ports, netip.IPv6Unspecified(): w.Six} {
		out = append(out, spot{unix.SOCK_DGRAM, netip.AddrPortFrom(a, crossing.DNSPort)})
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

// Take takes descriptors over that came from inside: those of w in any order, then
// Unix sockets at these paths, then inward ones that are bound to nothing. Each is
// looked at; with an error all of them are closed.
func Take(got []int, w *backend.Way, local []string, inward int) (_ *Set, err error) {
	defer func() {
		if err != nil {
			CloseAll(got)
		}
	}()
	want := spots(w)
	inner := len(got) - inward
	out := inner - len(local)
	if out < 0 {
		return nil, fmt.Errorf("%d sockets came, and %d are to lead inside or have names", len(got), inward+len(local))
	}
	for i, n := range local {
		if err := isLocal(got[out+i], n); err != nil {
			return nil, fmt.Errorf("the socket %s: %v", n, err)
		}
	}
	for _, fd := range got[inner:] {
		if at, err := spotOf(fd); err != nil || at.kind != unix.SOCK_STREAM || at.at.Port() != 0 {
			return nil, fmt.Errorf("a socket that is to lead inside is bound to %v: %v", at.at, err)
		}
	}
	for _, fd := range got[:out] {
		at, err := spotOf(fd)
		i := slices.Index(want, at)
		if err != nil || i < 0 {
			return nil, fmt.Errorf("a socket is none that was asked for: %v %v", at.at, err)
		}
		if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || (n == 1) != (at.kind == unix.SOCK_STREAM) {
			return nil, fmt.Errorf("the socket at %v does not listen", at.at)
		}
		want = slices.Delete(want, i, i+1)
	}
	for _, p := range want {
		if p.at.Addr().Is4() {
			return nil, fmt.Errorf("the socket at %v is missing", p.at)
		}
	}
	return Retake(got[:out:out], got[out:inner:inner], got[inner:]), nil
}

// Add is Take without Unix sockets, into a set that has no others yet.
func (s *Set) Add(got []int, w *backend.Way, inward int) error {
	n, err := Take(got, w, nil, inward)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.way, s.inward, s.free = n.way, n.inward, n.free
	return nil
}

// Retake is a set of descriptors that All returned before.
func Retake(way, local, inward []int) *Set {
	s := &Set{way: way, local: local, inward: inward, free: make(chan int, len(inward))}
	for _, fd := range inward {
		s.free <- fd
	}
	return s
}

// All are the descriptors that are held.
func (s *Set) All() (way, local, inward []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.way, s.local, s.inward
}

// AddLocal adds a Unix socket that listens.
func (s *Set) AddLocal(fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.local = append(s.local, fd)
}

// SetCarried has what c brings answered as the way out. It is the set's to close.
func (s *Set) SetCarried(c *Carried) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carried = c
}

// Close closes all of them. What was handed out before goes on.
func (s *Set) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	CloseAll(s.way)
	CloseAll(s.local)
	CloseAll(s.inward)
	s.way, s.local, s.inward = nil, nil, nil
	if s.carried != nil {
		_ = s.carried.Close() // its folder goes with the boundary
		s.carried = nil
	}
}

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// isLocal looks whether a descriptor is a Unix socket that listens at a path.
func isLocal(fd int, path string) error {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_STREAM {
		return fmt.Errorf("it is no stream: %v", err)
	}
	sa, err := unix.Getsockname(fd)
	if a, ok := sa.(*unix.SockaddrUnix); err != nil || !ok || a.Name != path {
		return fmt.Errorf("it is not at that name: %v", err)
	}
	if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || n != 1 {
		return fmt.Errorf("it does not listen: %v", err)
	}
	return nil
}

// LocalSockets fulfils backend.Locals.
func (s *Set) LocalSockets() (_ map[string]net.Listener, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]net.Listener{}
	defer func() {
		if err != nil {
			for _, l := range out {
				_ = l.Close()
			}
			err = task.Errorf(task.CodeUnavailable, "sockets.local", "what programs inside were lent cannot be answered: %w", err)
		}
	}()
	for _, fd := range s.local {
		sa, err := unix.Getsockname(fd)
		if err != nil {
			return nil, err
		}
		a, ok := sa.(*unix.SockaddrUnix)
		if !ok {
			return nil, fmt.Errorf("it is no Unix socket")
		}
		l, err := listener(fd, a.Name)
		if err != nil {
			return nil, err
		}
		out[filepath.Base(a.Name)] = l
	}
	return out, nil
}

// listener is another descriptor of a socket, for the standard library.
func listener(fd int, name string) (net.Listener, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(own), name)
	defer f.Close()
	l, err := net.FileListener(f)
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	return l, err
}

// Sockets fulfils backend.Listeners.
func (s *Set) Sockets() (out backend.Sockets, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.carried != nil {
		return s.carried.Sockets(), nil
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			out, err = backend.Sockets{}, task.Errorf(task.CodeUnavailable, "sockets.way", "the way out of the boundary cannot be opened: %w", err)
		}
	}()
	for _, fd := range s.way {
		at, err := spotOf(fd)
		if err != nil {
			return out, err
		}
		if at.kind != unix.SOCK_DGRAM {
			l, err := listener(fd, at.at.String())
			if err != nil {
				return out, err
			}
			if out.Proxy == nil { // the first one, as it was made
				out.Proxy = l
			} else {
				out.Direct = append(out.Direct, l)
			}
			continue
		}
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return out, err
		}
		f := os.NewFile(uintptr(own), at.at.String())
		c, err := net.FilePacketConn(f)
		_ = f.Close()
		if err != nil {
			return out, err
		}
		out.Names = append(out.Names, c)
	}
	if out.Proxy == nil {
		return out, task.Errorf(task.CodeUnsupported, "sockets.way", "this boundary has no way out")
	}
	return out, nil
}

// Listening returns where servers in the network namespace of a process wait for TCP
// connections, as the kernel says, without the host's own sockets. The caller knows
// that the process is the boundary's.
func (s *Set) Listening(pid string) ([]netip.AddrPort, error) {
	own := map[netip.AddrPort]bool{}
	s.mu.Lock()
	for _, fd := range s.way {
		if x, err := spotOf(fd); err == nil {
			own[x.at] = true
		}
	}
	s.mu.Unlock()
	all, err := sys.TCPSockets(pid)
	if err != nil {
		return nil, task.Errorf(task.CodeUnavailable, "sockets.listening", "what listens inside cannot be read: %w", err)
	}
	var out []netip.AddrPort
	for _, x := range all {
		if x.State == sys.TCPListen && !own[x.Local] && !slices.Contains(out, x.Local) {
			out = append(out, x.Local)
		}
	}
	return out, nil
}
