package probe

import (
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func (in *inside) interfaces(string) Result {
	b, err := readFile("/proc/self/net/dev")
	if err != nil {
		return failed(err, "/proc/self/net/dev")
	}
	names := parseInterfaces(b)
	in.facts.Interfaces = names[:min(len(names), MaxTargets)]
	for _, n := range names {
		if n != "lo" {
			return Result{Outcome: Allowed, Detail: strings.Join(in.facts.Interfaces, " ")}
		}
	}
	return Result{Outcome: Denied, Detail: "only " + strings.Join(names, " ")}
}

func (in *inside) routeTable(string) Result {
	rs, err := routes("/proc/self/net/")
	if err != nil {
		return failed(err, "/proc/self/net/route")
	}
	return boolResult(len(rs) == 0, strings.Join(rs[:min(len(rs), 8)], ", "))
}

// sockaddr turns "IP:port" into an address and its family.
func sockaddr(addr string) (unix.Sockaddr, int, bool) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, 0, false
	}
	if a := ap.Addr().Unmap(); a.Is4() {
		return &unix.SockaddrInet4{Port: int(ap.Port()), Addr: a.As4()}, unix.AF_INET, true
	}
	return &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}, unix.AF_INET6, true
}

// dialTCP starts a connection and looks once, briefly, at what became of it. A
// connection under way has a route, which is already too much.
//
// Where there is a gate, all addresses lead to it, and what it takes it ends
// without a byte: then that is the refusal.
func (in *inside) dialTCP(addr string) Result {
	sa, family, ok := sockaddr(addr)
	if !ok {
		return Result{Outcome: Failed, Detail: "not an address"}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return verdict(errnoOf(err))
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, sa)
	if err == unix.EINPROGRESS {
		// On loopback the answer is there at once; elsewhere waiting would only
		// tell whether somebody answers.
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, perr := unix.Poll(p, 20)
		if n == 1 && perr == nil {
			e, gerr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if gerr != nil {
				return failed(gerr, "SO_ERROR")
			}
			if e == 0 && in.spec.Gate != GateNone {
				return ended(fd)
			}
			return verdict(unix.Errno(e)).also(unix.EADDRNOTAVAIL)
		}
		return Result{Outcome: Allowed, Errno: "EINPROGRESS", Detail: "there is a route"}
	}
	if err == nil && in.spec.Gate != GateNone {
		return ended(fd)
	}
	return verdict(errnoOf(err)).also(unix.EADDRNOTAVAIL)
}

// endedTime is how long the gate may take to end a connection.
const endedTime = 10 * time.Second

// ended waits for the end of a connection that says nothing.
func ended(fd int) Result {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for until := time.Now().Add(endedTime); ; {
		n, err := unix.Poll(p, int(max(0, time.Until(until).Milliseconds())))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return failed(err, "poll")
		case n == 0:
			return Result{Outcome: Allowed, Detail: "a connection stands"}
		}
		break
	}
	b := make([]byte, 1)
	n, err := unix.Read(fd, b)
	switch {
	case err == unix.ECONNRESET || err == unix.EPIPE || err == nil && n == 0:
		return Result{Outcome: Denied, Detail: "taken by the gate and ended"}
	case err == nil:
		return Result{Outcome: Allowed, Detail: "somebody answers"}
	}
	return failed(err, "read")
}

// refused sends a datagram where only the gate could take it, and waits for the
// kernel's word that nobody is there for it. Questions for names the gate takes.
func refused(fd int, sa unix.Sockaddr, port uint16) Result {
	if err := unix.Connect(fd, sa); err != nil {
		return verdict(errnoOf(err)).also(unix.EADDRNOTAVAIL)
	}
	if port == dnsPort {
		return Result{Outcome: Denied, Detail: "there the gate answers"}
	}
	if _, err := unix.Write(fd, []byte{0}); err != nil {
		return verdict(errnoOf(err)).also(unix.EADDRNOTAVAIL)
	}
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 2000); err != nil || n == 0 { // on loopback the word is there at once
		return Result{Outcome: Allowed, Detail: "a datagram was taken"}
	}
	_, err := unix.Read(fd, make([]byte, 1))
	return verdict(errnoOf(err)).also(unix.EADDRNOTAVAIL)
}

const dnsPort = 53

// dialUDP asks the kernel for a route; nothing is sent. One socket of each
// family serves for all: ending one is the slow part.
func (in *inside) dialUDP(addr string) Result {
	sa, family, ok := sockaddr(addr)
	if !ok {
		return Result{Outcome: Failed, Detail: "not an address"}
	}
	fd, open := in.udp[family]
	if !open {
		var err error
		fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return verdict(errnoOf(err))
		}
		if in.udp == nil {
			in.udp = map[int]int{}
		}
		in.udp[family] = fd
	}
	if in.spec.Gate != GateNone {
		ap, _ := netip.ParseAddrPort(addr)
		return refused(fd, sa, ap.Port())
	}
	return verdict(errnoOf(unix.Connect(fd, sa))).also(unix.EADDRNOTAVAIL)
}
