package hostsockets

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/worker/crossing"
)

// Carried is the host's half of sockets that stay inside, because no descriptor can
// be handed over: the worker carries what comes there to a door that stays open. What
// it says is its word; everything is decided about here as elsewhere. The caller ends
// it with Close.
type Carried struct {
	key  [crossing.KeySize]byte
	way  *backend.Way
	path string
	l    net.Listener

	mu     sync.Mutex
	closed bool
	proxy  *carriedListener
	direct *carriedListener
	names  *carriedNames
}

const (
	// saidTime is how long a worker may take to say what it carries.
	saidTime = 10 * time.Second
	// answerTime is how long a question may wait for its answer.
	answerTime = 30 * time.Second
	// maxUnsaid bounds connections of which nothing is known yet, programs' own among
	// them.
	maxUnsaid = 256
	// maxWaiting bounds those that nobody took yet, per listener.
	maxWaiting = 64
)

// OpenCarried listens in a folder that is this boundary's alone.
func OpenCarried(dir string, key [crossing.KeySize]byte, w *backend.Way) (*Carried, error) {
	fd, err := ListenLocal(dir, DoorName, unix.SOCK_STREAM)
	if err != nil {
		return nil, err
	}
	c := &Carried{key: key, way: w, path: filepath.Join(dir, DoorName)}
	c.l, err = listener(fd, c.path)
	_ = unix.Close(fd)
	if err != nil {
		return nil, err
	}
	go c.serve()
	return c, nil
}

// Close ends it and every connection that nobody took yet.
func (c *Carried) Close() error {
	c.mu.Lock()
	c.closed = true
	p, d, n := c.proxy, c.direct, c.names
	c.mu.Unlock()
	for _, l := range []*carriedListener{p, d} {
		if l != nil {
			_ = l.Close()
		}
	}
	if n != nil {
		_ = n.Close()
	}
	err := c.l.Close()
	if rerr := os.Remove(c.path); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

// Sockets fulfils backend.Listeners: what comes from then on comes to what is returned.
func (c *Carried) Sockets() backend.Sockets {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proxy = newCarriedListener(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), c.way.Proxy))
	c.direct = newCarriedListener(netip.AddrPort{})
	c.names = &carriedNames{in: make(chan asking), closed: make(chan struct{})}
	if c.closed {
		_, _, _ = c.proxy.Close(), c.direct.Close(), c.names.Close()
	}
	return backend.Sockets{Proxy: c.proxy, Direct: []net.Listener{c.direct}, Names: []net.PacketConn{c.names}}
}

func (c *Carried) serve() {
	slots := make(chan struct{}, maxUnsaid)
	for {
		slots <- struct{}{}
		conn, err := c.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // of this machine's descriptors there are none at the moment
			<-slots
			time.Sleep(50 * time.Millisecond)
			continue
		}
		go func() {
			defer func() { <-slots }()
			if u, ok := conn.(*net.UnixConn); !ok || !c.take(u) {
				_ = conn.Close()
			}
		}()
	}
}

// take hears what conn carries and gives it to whom it is for.
func (c *Carried) take(conn *net.UnixConn) bool {
	_ = conn.SetDeadline(time.Now().Add(saidTime))
	h, err := crossing.ReadHeader(conn)
	if err != nil || subtle.ConstantTimeCompare(h.Key[:], c.key[:]) != 1 {
		return false // a program's own
	}
	c.mu.Lock()
	proxy, direct, names := c.proxy, c.direct, c.names
	c.mu.Unlock()
	switch h.Kind {
	case crossing.Tried:
		_, _ = conn.Write([]byte{crossing.Tried})
		return false
	case crossing.Question:
		b, err := crossing.ReadPacket(conn)
		if err != nil || names == nil {
			return false
		}
		_ = conn.SetDeadline(time.Now().Add(answerTime))
		return names.give(asking{conn, b})
	case crossing.Connection:
		_ = conn.SetDeadline(time.Time{})
		l := c.listenerOf(h.At, proxy, direct)
		return l != nil && l.give(&carriedConn{UnixConn: conn, at: h.At, from: h.From})
	}
	return false
}

// listenerOf says whose a connection is; nil: it came where nothing listens.
func (c *Carried) listenerOf(at netip.AddrPort, proxy, direct *carriedListener) *carriedListener {
	ports := c.way.Ports
	if at.Addr().Is6() {
		ports = c.way.Six
	}
	switch {
	case !at.IsValid():
	case proxy != nil && at == proxy.at:
		return proxy
	case slices.Contains(ports, at.Port()), slices.Contains(c.way.At, at.String()):
		return direct
	}
	return nil
}

// carriedConn is a connection of a program inside.
type carriedConn struct {
	*net.UnixConn
	at, from netip.AddrPort
}

// LocalAddr implements net.Conn: it is what the program wanted to reach.
func (c *carriedConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.at) }

// RemoteAddr implements net.Conn.
func (c *carriedConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.from) }

type carriedListener struct {
	at     netip.AddrPort
	in     chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newCarriedListener(at netip.AddrPort) *carriedListener {
	return &carriedListener{at: at, in: make(chan net.Conn, maxWaiting), closed: make(chan struct{})}
}

// give hands a connection over. False: it is the caller's to close.
func (l *carriedListener) give(c net.Conn) bool {
	select {
	case <-l.closed:
		return false
	default:
	}
	t := time.NewTimer(answerTime)
	defer t.Stop()
	select {
	case l.in <- c:
		return true
	case <-l.closed:
	case <-t.C:
	}
	return false
}

// Accept implements net.Listener.
func (l *carriedListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.closed:
		for { // what came and nobody will take
			select {
			case c := <-l.in:
				_ = c.Close()
			default:
				return nil, net.ErrClosed
			}
		}
	}
}

// Close implements net.Listener.
func (l *carriedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *carriedListener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// asking is a question for a name; to answer ends it.
type asking struct {
	conn   *net.UnixConn
	packet []byte
}

// Network implements net.Addr.
func (asking) Network() string { return "carried" }

// String implements net.Addr.
func (asking) String() string { return "a program inside" }

// carriedNames are the questions of programs inside, as packets.
type carriedNames struct {
	in     chan asking
	once   sync.Once
	closed chan struct{}
}

func (n *carriedNames) give(a asking) bool {
	t := time.NewTimer(answerTime)
	defer t.Stop()
	select {
	case n.in <- a:
		// It stays open until it is answered, or has waited long enough.
		time.AfterFunc(answerTime, func() { _ = a.conn.Close() })
		return true
	case <-n.closed:
	case <-t.C:
	}
	return false
}

// ReadFrom implements net.PacketConn.
func (n *carriedNames) ReadFrom(p []byte) (int, net.Addr, error) {
	select {
	case a := <-n.in:
		return copy(p, a.packet), a, nil
	case <-n.closed:
		return 0, nil, net.ErrClosed
	}
}

// WriteTo implements net.PacketConn.
func (n *carriedNames) WriteTo(p []byte, to net.Addr) (int, error) {
	a, ok := to.(asking)
	if !ok || len(p) > crossing.MaxPacket {
		return 0, errors.New("nobody asked")
	}
	defer a.conn.Close()
	if _, err := a.conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close implements net.PacketConn.
func (n *carriedNames) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// LocalAddr implements net.PacketConn.
func (n *carriedNames) LocalAddr() net.Addr { return asking{} }

// SetDeadline implements net.PacketConn; there is none.
func (n *carriedNames) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.PacketConn; there is none.
func (n *carriedNames) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.PacketConn; there is none.
func (n *carriedNames) SetWriteDeadline(time.Time) error { return nil }
