package crossing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Open makes routes that lead every address back to the boundary's own loopback
// interface, and sockets there. It takes CAP_NET_ADMIN, and CAP_NET_BIND_SERVICE
// where low ports are not everybody's. The caller closes what it returns.
func Open(w *Way) (fds []int, err error) {
	defer func() {
		if err != nil {
			closeAll(fds)
			fds = nil
		}
	}()
	err = routeHome(unix.AF_INET)
	if errors.Is(err, unix.EINVAL) {
		err = everyAddress() // gVisor knows no such route
	}
	if err != nil {
		return nil, fmt.Errorf("route all addresses to loopback: %w", err)
	}
	if err := ownAddress(); err != nil {
		return nil, fmt.Errorf("give loopback an address: %w", err)
	}
	// Without IPv6 here nothing of it can be reached, routed or not.
	six := routeHome(unix.AF_INET6) == nil
	open := func(network int, at netip.AddrPort) error {
		fd, err := listenAt(network, at)
		if err != nil {
			return fmt.Errorf("listen at %s: %w", at, err)
		}
		fds = append(fds, fd)
		return nil
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if err := open(unix.SOCK_STREAM, netip.AddrPortFrom(loopback, w.Proxy)); err != nil {
		return fds, err
	}
	anywhere := []netip.Addr{netip.IPv4Unspecified()}
	if six {
		anywhere = append(anywhere, netip.IPv6Unspecified())
	}
	for i, a := range anywhere {
		if err := open(unix.SOCK_DGRAM, netip.AddrPortFrom(a, DNSPort)); err != nil {
			return fds, err
		}
		for _, p := range [][]uint16{w.Ports, w.Six}[i] {
			if err := open(unix.SOCK_STREAM, netip.AddrPortFrom(a, p)); err != nil {
				return fds, err
			}
		}
	}
	for _, s := range w.At {
		at, err := netip.ParseAddrPort(s)
		if err != nil || !at.Addr().IsLoopback() {
			return fds, fmt.Errorf("listen at %s: it is no address of the loopback interface", s)
		}
		if at.Addr().Is6() && !six {
			continue
		}
		if err := open(unix.SOCK_STREAM, at); err != nil {
			return fds, err
		}
	}
	return fds, nil
}

// Inward makes n sockets by which the host connects to servers inside. The caller
// closes them.
func Inward(n int) (fds []int, err error) {
	for range n {
		// One of IPv6 reaches addresses of IPv4 as well.
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
		} else {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		}
		if err != nil {
			if fd >= 0 {
				unix.Close(fd)
			}
			closeAll(fds)
			return nil, fmt.Errorf("make a socket: %w", err)
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// listenAt makes one socket, non-blocking and closed on exec.
func listenAt(kind int, at netip.AddrPort) (int, error) {
	family := unix.AF_INET
	var sa unix.Sockaddr
	if a := at.Addr(); a.Is4() {
		sa = &unix.SockaddrInet4{Addr: a.As4(), Port: int(at.Port())}
	} else {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16(), Port: int(at.Port())}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = unix.Bind(fd, sa)
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// backlog is how many connections may wait to be taken; the kernel's own bound
// holds besides.
const backlog = 4096

// routeHome adds the route that makes every address of a family one of this
// network namespace's own: what is `ip route add local default dev lo`.
func routeHome(family int) error {
	lo, err := loopbackIndex()
	if err != nil {
		return err
	}
	body := []byte{byte(family), 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0}
	return netlink(unix.RTM_NEWROUTE, append(body, attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(lo)))...))
}

// everyAddress has loopback take every address of IPv4 for its own: an address of
// each half, with the half as its network.
func everyAddress() error {
	lo, err := loopbackIndex()
	if err != nil {
		return err
	}
	for _, a := range [][]byte{{127, 255, 255, 254}, {198, 19, 255, 253}} {
		if err := addAddress(lo, a, 1); err != nil {
			return err
		}
	}
	return nil
}

// ownAddress gives loopback an address that is not called so: without one, the C
// library finds no address of a name for whoever asks for those that can be used
// (AI_ADDRCONFIG). It is among the addresses that stand for names and stands for
// none.
func ownAddress() error {
	lo, err := loopbackIndex()
	if err != nil {
		return err
	}
	return addAddress(lo, []byte{198, 19, 255, 254}, 32)
}

func addAddress(lo int, a []byte, prefix byte) error {
	body := binary.NativeEndian.AppendUint32([]byte{unix.AF_INET, prefix, 0, unix.RT_SCOPE_UNIVERSE}, uint32(lo))
	return netlink(unix.RTM_NEWADDR, append(append(body, attr(unix.IFA_LOCAL, a)...), attr(unix.IFA_ADDRESS, a)...))
}

// attr is one attribute of four bytes.
func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofRtAttr+len(value)))
	return append(binary.NativeEndian.AppendUint16(b, kind), value...)
}

// netlink has the kernel make something, and waits for its word.
func netlink(kind uint16, body []byte) error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	e := binary.NativeEndian
	msg := e.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(body)))
	msg = e.AppendUint16(msg, kind)
	msg = e.AppendUint16(msg, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	msg = e.AppendUint64(msg, 0) // sequence, port: the kernel answers on this socket alone
	if err := unix.Sendto(s, append(msg, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(s, answer, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if n < unix.NLMSG_HDRLEN+4 || e.Uint16(answer[4:]) != unix.NLMSG_ERROR {
			return errors.New("the kernel gave no answer that can be read")
		}
		if no := int32(e.Uint32(answer[unix.NLMSG_HDRLEN:])); no != 0 {
			return unix.Errno(-no)
		}
		return nil
	}
}

func loopbackIndex() (int, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(s)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFINDEX, ifr); err != nil {
		return 0, err
	}
	return int(ifr.Uint32()), nil
}
