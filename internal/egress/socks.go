package egress

import (
	"io"
	"net/netip"
)

// Replies of SOCKS 5.
const (
	socksOK          = 0
	socksFailed      = 1
	socksRule        = 2
	socksUnreachable = 4
	socksRefused     = 5
	socksCommand     = 7
	socksAddress     = 8
)

// socks serves one client of SOCKS 5 without a password: the listener is one
// task's alone. Only CONNECT is offered; BIND would listen, and UDP has no names
// in it that could be checked.
func (s *session) socks() {
	var b [256]byte
	if _, err := io.ReadFull(s.br, b[:2]); err != nil {
		return
	}
	n := int(b[1])
	if _, err := io.ReadFull(s.br, b[:n]); err != nil {
		return
	}
	offered := false
	for _, m := range b[:n] {
		offered = offered || m == 0
	}
	if !offered {
		s.last([]byte{5, 0xff})
		return
	}
	if _, err := s.conn.Write([]byte{5, 0}); err != nil {
		return
	}
	if _, err := io.ReadFull(s.br, b[:4]); err != nil {
		return
	}
	if b[0] != 5 || b[2] != 0 {
		s.socksRefuse("", refuse(ReasonForm, "a malformed request"), socksFailed)
		return
	}
	command := b[1]
	h, said, err := s.socksHost(b[3])
	if err != nil {
		if said != "" {
			code := byte(socksRule)
			if ReasonOf(err) == ReasonProtocol {
				code = socksAddress
			}
			s.socksRefuse(said, err, code)
		}
		return
	}
	if _, err := io.ReadFull(s.br, b[:2]); err != nil {
		return
	}
	d := Dest{h, uint16(b[0])<<8 | uint16(b[1])}
	switch {
	case command != 1:
		s.socksRefuse(d.String(), refuse(ReasonProtocol, "SOCKS command %d is not offered, only CONNECT", command), socksCommand)
		return
	case d.Port == 0:
		s.socksRefuse(d.String(), refuse(ReasonForm, "no port"), socksRule)
		return
	}
	if d, err = s.g.meant(d); err != nil {
		s.socksRefuse(h.String(), err, socksRule)
		return
	}
	s.pass(ProtoSOCKS, d, func(err error) bool {
		if err == nil {
			_, err := s.conn.Write(socksReply(socksOK))
			return err == nil
		}
		s.last(socksReply(socksCode(ReasonOf(err))))
		return false
	})
}

// socksHost reads the address of a request; said is empty when it broke off.
func (s *session) socksHost(kind byte) (h Host, said string, err error) {
	var b [256]byte
	switch kind {
	case 1, 4:
		n := 4
		if kind == 4 {
			n = 16
		}
		if _, err := io.ReadFull(s.br, b[:n]); err != nil {
			return Host{}, "", err
		}
		a, _ := netip.AddrFromSlice(b[:n])
		h, err = FromAddr(a)
		return h, a.String(), err
	case 3:
		n, err := s.br.ReadByte()
		if err != nil {
			return Host{}, "", err
		}
		if _, err := io.ReadFull(s.br, b[:n]); err != nil {
			return Host{}, "", err
		}
		said = string(b[:n])
		// An address in the place of a name: with the brackets of a URL or without.
		if a, aerr := netip.ParseAddr(said); aerr == nil {
			h, err = FromAddr(a)
		} else {
			h, err = ParseHost(said)
		}
		return h, "name " + said, err
	}
	return Host{}, "an address", refuse(ReasonProtocol, "address type %d is not known", kind)
}

func (s *session) socksRefuse(said string, err error, code byte) {
	s.g.unreadable(ProtoSOCKS, said, err)
	s.last(socksReply(code))
}

func socksCode(r Reason) byte {
	switch r {
	case ReasonResolve:
		return socksUnreachable
	case ReasonDial:
		return socksRefused
	case ReasonRule, ReasonAsk, ReasonAddress, ReasonForm, ReasonName:
		return socksRule
	}
	return socksFailed
}

// socksReply names no address: which one was dialled is no business of the task.
func socksReply(code byte) []byte { return []byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0} }
