package far

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
)

// names answers for every name at one address, by datagram and, elsewhere than at
// loopback, by stream at the ports for plain and private questions.
func (w *World) names(at string) error {
	pc, err := net.ListenPacket("udp", at+":53")
	if err != nil {
		return err
	}
	direct := at == namesAt
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			if a := w.answer(b[:n], direct); a != nil {
				_, _ = pc.WriteTo(a, from)
			}
		}
	}()
	if !direct {
		return nil
	}
	for _, port := range []string{":53", ":853"} {
		l, err := net.Listen("tcp", at+port)
		if err != nil {
			return err
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					w.note("P33", "connected to %s%s", at, port)
					var size [2]byte
					if _, err := io.ReadFull(conn, size[:]); err != nil {
						return
					}
					q := make([]byte, binary.BigEndian.Uint16(size[:]))
					if _, err := io.ReadFull(conn, q); err != nil {
						return
					}
					if a := w.answer(q, true); a != nil {
						_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
					}
				}()
			}
		}()
	}
	return nil
}

// answer is the reply to one question. direct says that it came to a server that
// nobody is told of.
func (w *World) answer(q []byte, direct bool) []byte {
	if len(q) < 17 || binary.BigEndian.Uint16(q[4:]) != 1 {
		return nil
	}
	var labels []string
	i := 12
	for i < len(q) && q[i] != 0 {
		n := int(q[i])
		if n > 63 || i+1+n >= len(q) {
			return nil
		}
		labels = append(labels, string(q[i+1:i+1+n]))
		i += 1 + n
	}
	if i+5 > len(q) {
		return nil
	}
	name := strings.ToLower(strings.Join(labels, "."))
	kind := binary.BigEndian.Uint16(q[i+1:])
	end := i + 5
	addrs, known := zone[name]
	switch {
	case !known || direct:
		prop := "P34"
		if direct || strings.Contains(name, ".p33.") {
			prop = "P33"
		}
		w.note(prop, "was asked for the name %s", name)
		addrs = []string{deniedAt}
	case name == flip:
		w.mu.Lock()
		if addrs = []string{allowedAt}; kind == 1 {
			if w.ready++; w.ready%2 == 0 {
				addrs = []string{"127.0.0.1"}
			}
		}
		w.mu.Unlock()
	}
	var body []byte
	count := 0
	add := func(data []byte) {
		body = append(body, 0xc0, 12)
		body = binary.BigEndian.AppendUint16(body, kind)
		body = append(body, 0, 1, 0, 0, 0, 0)
		body = append(binary.BigEndian.AppendUint16(body, uint16(len(data))), data...)
		count++
	}
	for _, s := range addrs {
		a := netip.MustParseAddr(s)
		if kind == 1 && a.Is4() || kind == 28 && a.Is6() {
			add(a.AsSlice())
		}
	}
	switch kind {
	case 16:
		add([]byte("\x03far"))
	case 15:
		add([]byte("\x00\x0a\x02mx\x04test\x00"))
	}
	head := append([]byte{q[0], q[1], 0x84, 0, 0, 1}, byte(count>>8), byte(count), 0, 0, 0, 0)
	return append(append(head, q[12:end]...), body...)
}
