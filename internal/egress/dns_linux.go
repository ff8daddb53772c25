package egress

import (
	"bytes"
	"net"
	"syscall"
)

// ipv6FreeBind lets an answer leave from an address that only a route makes ours.
const ipv6FreeBind = 78

// questions reads questions that came for any address at all, as they do where
// all routes lead to this socket, and answers from the address that was asked: a
// client takes no other's word.
func questions(pc net.PacketConn) asked {
	u, ok := pc.(*net.UDPConn)
	if !ok || !tellWhere(u) {
		return plainQuestions(pc)
	}
	var info [128]byte
	return func(b []byte) (int, func([]byte), error) {
		n, in, _, from, err := u.ReadMsgUDPAddrPort(b, info[:])
		at := bytes.Clone(info[:in])
		return n, func(out []byte) { _, _, _ = u.WriteMsgUDPAddrPort(out, at, from) }, err
	}
}

// tellWhere has the kernel say to which address each packet came.
func tellWhere(u *net.UDPConn) bool {
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	ok := false
	err = raw.Control(func(fd uintptr) {
		v4 := syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_PKTINFO, 1) == nil
		v6 := syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_RECVPKTINFO, 1) == nil &&
			syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, ipv6FreeBind, 1) == nil
		ok = v4 || v6
	})
	return ok && err == nil
}
