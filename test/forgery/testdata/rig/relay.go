//go:build linux && canary

package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// A relay stands between the host and W, as the helper of another backend
// would, and has no key. manipulation is what it does to frame number n of one
// direction: it returns what to pass on; nil at the end closes.
type manipulation struct {
	name string
	up   bool // from W to the host
	do   func(s *state, f []byte) [][]byte
}

// state is what a relay has seen. Frame 0 of each direction is the greeting.
type state struct {
	mu   sync.Mutex
	n    map[bool]int
	last map[bool][]byte // of each direction
	held []byte
}

// at is the frame with which manipulations begin.
const at = 3

// once makes f the treatment of one frame, the others pass.
func once(f func(s *state, b []byte) [][]byte) func(*state, []byte) [][]byte {
	did := false
	return func(s *state, b []byte) [][]byte {
		if did {
			return [][]byte{b}
		}
		did = true
		return f(s, b)
	}
}

func twice(_ *state, b []byte) [][]byte { return [][]byte{b, b} }
func drop(_ *state, _ []byte) [][]byte  { return [][]byte{} }

func flip(at int) func(*state, []byte) [][]byte {
	return func(_ *state, b []byte) [][]byte {
		c := slices.Clone(b)
		c[(len(c)+at)%len(c)] ^= 1
		return [][]byte{c}
	}
}

func length(n uint32) func(*state, []byte) [][]byte {
	return func(_ *state, b []byte) [][]byte {
		c := slices.Clone(b)
		binary.BigEndian.PutUint32(c[24:], n)
		return [][]byte{c}
	}
}

// swap passes this frame on after the next one.
func swap() func(*state, []byte) [][]byte {
	n := 0
	return func(s *state, b []byte) [][]byte {
		switch n++; n {
		case 1:
			s.held = slices.Clone(b)
			return [][]byte{}
		case 2:
			return [][]byte{b, s.held}
		}
		return [][]byte{b}
	}
}

// back passes on the last frame of the other direction instead.
func back(up bool, renumber bool) func(*state, []byte) [][]byte {
	return func(s *state, b []byte) [][]byte {
		c := slices.Clone(s.last[!up])
		if renumber {
			copy(c[8:16], b[8:16])
		}
		return [][]byte{c}
	}
}

func cut(n int) func(*state, []byte) [][]byte {
	return func(_ *state, b []byte) [][]byte {
		if n < 0 {
			return [][]byte{b[:len(b)+n], nil}
		}
		return [][]byte{b[:n], nil}
	}
}

func body(text string) func(*state, []byte) [][]byte {
	return func(_ *state, b []byte) [][]byte {
		c := append(slices.Clone(b[:64]), text...)
		binary.BigEndian.PutUint32(c[24:], uint32(len(text)))
		return [][]byte{c}
	}
}

func both(name string, f func(up bool) func(*state, []byte) [][]byte) []manipulation {
	return []manipulation{{name + ", from the worker", true, f(true)}, {name + ", from the host", false, f(false)}}
}

func plain(f func(*state, []byte) [][]byte) func(bool) func(*state, []byte) [][]byte {
	return func(bool) func(*state, []byte) [][]byte { return once(f) }
}

func replays() []manipulation {
	return slices.Concat(
		both("a frame twice", plain(twice)), both("a frame missing", plain(drop)),
		both("two frames in the other order", func(bool) func(*state, []byte) [][]byte { return swap() }),
		both("a bit of the body changed", plain(flip(-2))), both("a bit of the number changed", plain(flip(15))),
		both("the operation changed", plain(flip(23))), both("the kind changed", plain(flip(4))))
}

func reflections() []manipulation {
	return slices.Concat(
		both("the other's frame sent back", func(up bool) func(*state, []byte) [][]byte { return once(back(up, false)) }),
		both("the other's frame sent back with the right number", func(up bool) func(*state, []byte) [][]byte { return once(back(up, true)) }))
}

func malformed() []manipulation {
	return slices.Concat(
		both("a giant length", plain(length(1<<30))), both("a negative length", plain(length(1<<32-1))),
		both("an invalid text", plain(body("\xff\xfe"))), both("a name twice", plain(body(`{"req":"x","req":"y"}`))),
		both("a deep nesting", plain(body(fmt.Sprintf("%0*d", 4096, 0)))))
}

func truncations() []manipulation {
	return slices.Concat(both("cut in the header", plain(cut(40))), both("cut in the body", plain(cut(-1))))
}

// relays tries each manipulation on a boundary of its own: the channel must be
// given up, and nothing be taken that was not sent.
func relays(r *rig, res *result, list func() []manipulation) {
	for _, m := range list() {
		b, err := r.open(func(c net.Conn) (net.Conn, int, error) { return between(c.(*net.UnixConn), m) })
		if err != nil {
			res.Lost = append(res.Lost, m.name+": "+err.Error())
			continue
		}
		b.traffic(3)
		res.Attempts++
		before := res.Forged
		r.gone(b, res)
		if res.Forged == before {
			res.Denied["frame checks (sequence, tag, length, key of the direction)"]++
		} else {
			res.Possible = append(res.Possible, m.name)
		}
	}
}

// between returns the host's new end.
func between(w *net.UnixConn, m manipulation) (net.Conn, int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	conns := make([]net.Conn, 2)
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "relay")
		if conns[i], err = net.FileConn(f); err != nil {
			return nil, 0, err
		}
		f.Close()
	}
	host := conns[1].(*net.UnixConn)
	s := &state{n: map[bool]int{}, last: map[bool][]byte{}}
	go pass(s, w, host, true, m)
	go pass(s, host, w, false, m)
	return conns[0], os.Getpid(), nil
}

func pass(s *state, from, to *net.UnixConn, up bool, m manipulation) {
	defer from.Close()
	defer to.Close()
	for {
		f, fds, err := frameOf(from)
		if err != nil {
			return
		}
		s.mu.Lock()
		out := [][]byte{f}
		if up == m.up && s.n[up] >= at {
			out = m.do(s, f)
		}
		s.n[up]++
		s.last[up] = f
		s.mu.Unlock()
		for _, b := range out {
			if b == nil {
				return
			}
			var oob []byte
			if len(fds) > 0 {
				oob = unix.UnixRights(fds...)
			}
			n, _, err := to.WriteMsgUnix(b, oob, nil)
			if err == nil && n < len(b) {
				_, err = to.Write(b[n:])
			}
			if err != nil {
				return
			}
		}
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

// frameOf reads one frame with its descriptors.
func frameOf(c *net.UnixConn) (f []byte, fds []int, err error) {
	f = make([]byte, 64)
	oob := make([]byte, 256)
	n, on, _, _, err := c.ReadMsgUnix(f, oob)
	if err != nil || n == 0 {
		return nil, nil, io.EOF
	}
	msgs, _ := unix.ParseSocketControlMessage(oob[:on])
	for i := range msgs {
		got, _ := unix.ParseUnixRights(&msgs[i])
		fds = append(fds, got...)
	}
	if _, err := io.ReadFull(c, f[n:]); err != nil {
		return nil, fds, err
	}
	rest := make([]byte, binary.BigEndian.Uint32(f[24:]))
	if _, err := io.ReadFull(c, rest); err != nil {
		return nil, fds, err
	}
	return append(f, rest...), fds, nil
}
