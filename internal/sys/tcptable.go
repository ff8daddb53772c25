package sys

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// TCPSocket is one line of a table of TCP sockets as the kernel shows it.
type TCPSocket struct {
	Local, Remote netip.AddrPort // IPv4 in IPv6 is IPv4
	State         int
	UID           int  // who made it; 0 of one that is not Held
	Held          bool // some process has it open
}

// States of TCPSocket.
const (
	TCPEstablished = 1
	TCPTimeWait    = 6
	TCPListen      = 10
)

// maxTCPSockets bounds how many lines of a table are looked at.
const maxTCPSockets = 1 << 16

// TCPSockets reads the tables of the network namespace of a process: "self" or a
// pid. A kernel without IPv6 has one of two.
func TCPSockets(pid string) ([]TCPSocket, error) {
	var out []TCPSocket
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open("/proc/" + pid + "/net/" + name)
		if errors.Is(err, os.ErrNotExist) && name == "tcp6" {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, parseTCPSockets(f)...)
		_ = f.Close()
	}
	return out, nil
}

func parseTCPSockets(r io.Reader) (out []TCPSocket) {
	sc := bufio.NewScanner(r)
	sc.Scan() // names of columns
	for n := 0; sc.Scan() && n < maxTCPSockets; n++ {
		f := strings.Fields(sc.Text())
		if len(f) < 10 {
			continue
		}
		local, err := tableAddress(f[1])
		remote, err2 := tableAddress(f[2])
		state, err3 := strconv.ParseUint(f[3], 16, 8)
		uid, err4 := strconv.ParseUint(f[7], 10, 32)
		if errors.Join(err, err2, err3, err4) == nil {
			out = append(out, TCPSocket{local, remote, int(state), int(uid), f[9] != "0"})
		}
	}
	return out
}

// tableAddress reads an address as those tables have it: words of four bytes in
// the order of this machine, which is little endian wherever we build for.
func tableAddress(s string) (netip.AddrPort, error) {
	a, p, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(a)
	port, perr := strconv.ParseUint(p, 16, 16)
	if !ok || err != nil || perr != nil || len(b) != 4 && len(b) != 16 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", s)
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	addr, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
}

// PeerUID says whose the other end of a connection over loopback is that was
// accepted here. What cannot be told is an error: of an end that was closed, after
// it said something, the kernel tells nobody's number, which is also root's.
func PeerUID(c net.Conn) (int, error) {
	here, ok1 := c.LocalAddr().(*net.TCPAddr)
	there, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return -1, errors.New("it is no TCP connection")
	}
	local, remote := unmapped(here), unmapped(there)
	if !remote.Addr().IsLoopback() {
		return -1, fmt.Errorf("%s is not this machine", remote)
	}
	all, err := TCPSockets("self")
	if err != nil {
		return -1, err
	}
	for _, s := range all {
		if s.Local == remote && s.Remote == local && s.State != TCPTimeWait && s.State != TCPListen && s.Held {
			return s.UID, nil
		}
	}
	return -1, fmt.Errorf("nobody has the other end of %s", remote)
}

func unmapped(a *net.TCPAddr) netip.AddrPort {
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}
