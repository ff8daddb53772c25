package inside

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// What I and C say to each other: first one length-prefixed command, then
// records of a fixed size in both directions. C needs neither JSON nor keys,
// and it gets none: everything below it is untrusted.

const recordSize = 24

type record struct {
	kind, a uint32
	b, c    uint64
}

// Records from C.
const (
	recStarted  = 1 + iota // b: pid; a pidfd comes with it, or none where c is 1
	recFailed              // a: why, b: errno
	recExit                // a: wait status
	recClear               // cancelled, nothing left
	recNotClear            // cancelled, b processes left
	recTaken               // the command was read; nothing was started before this
)

// Records from I.
const (
	recBye    = 100 + iota // the exit was taken note of
	recSignal              // a: signal
	recCancel              // b: grace, c: limit after it, milliseconds
)

func (r record) bytes() []byte {
	b := make([]byte, 0, recordSize)
	b = binary.LittleEndian.AppendUint32(b, r.kind)
	b = binary.LittleEndian.AppendUint32(b, r.a)
	b = binary.LittleEndian.AppendUint64(b, r.b)
	return binary.LittleEndian.AppendUint64(b, r.c)
}

func parseRecord(b []byte) record {
	return record{
		kind: binary.LittleEndian.Uint32(b), a: binary.LittleEndian.Uint32(b[4:]),
		b: binary.LittleEndian.Uint64(b[8:]), c: binary.LittleEndian.Uint64(b[16:]),
	}
}

// command is what C is told to run.
type command struct {
	tty     bool
	builtin string
	dir     string
	argv    []string
	env     []string
	rlimits []frame.Rlimit
}

func (c *command) bytes() []byte {
	b := make([]byte, 4, 1024)
	if c.tty {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	str := func(s string) {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	str(c.builtin)
	str(c.dir)
	for _, l := range [][]string{c.argv, c.env} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(l)))
		for _, s := range l {
			str(s)
		}
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(c.rlimits)))
	for _, r := range c.rlimits {
		b = binary.LittleEndian.AppendUint32(b, uint32(r.Resource))
		b = binary.LittleEndian.AppendUint64(b, r.Soft)
		b = binary.LittleEndian.AppendUint64(b, r.Hard)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

var errCommand = errors.New("inside: malformed command")

// parseCommand reads what bytes wrote, without its length.
func parseCommand(b []byte) (c command, err error) {
	bad := false
	take := func(n uint32) []byte {
		if bad || uint64(n) > uint64(len(b)) {
			bad = true
			return make([]byte, min(n, 16))
		}
		p := b[:n]
		b = b[n:]
		return p
	}
	num := func() uint32 { return binary.LittleEndian.Uint32(take(4)) }
	big := func() uint64 { return binary.LittleEndian.Uint64(take(8)) }
	str := func() string { return string(take(num())) }
	list := func() (l []string) {
		for n := num(); n > 0 && !bad; n-- {
			l = append(l, str())
		}
		return l
	}
	c.tty = take(1)[0] == 1
	c.builtin, c.dir = str(), str()
	c.argv, c.env = list(), list()
	for n := num(); n > 0 && !bad; n-- {
		c.rlimits = append(c.rlimits, frame.Rlimit{Resource: int(num()), Soft: big(), Hard: big()})
	}
	if bad || len(b) != 0 {
		return command{}, errCommand
	}
	return c, nil
}

// readCommand is C's wait for its call: the length comes with the program's
// descriptors, three or the one of a terminal.
func readCommand() (cmd command, fds []int, err error) {
	var size [4]byte
	var oob [64]byte
	n, on, flags := 0, 0, 0
	for {
		n, on, flags, _, err = unix.Recvmsg(ChannelFD, size[:], oob[:], unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil || n == 0 || flags&unix.MSG_CTRUNC != 0 {
		return cmd, nil, errCommand
	}
	if fds, err = frame.ParseOOB(n, oob[:on], flags, 0); err != nil {
		return cmd, nil, err
	}
	if err := readFull(ChannelFD, size[n:]); err != nil {
		return cmd, nil, err
	}
	body := make([]byte, binary.LittleEndian.Uint32(size[:]))
	if err := readFull(ChannelFD, body); err != nil {
		return cmd, nil, err
	}
	cmd, err = parseCommand(body)
	if err == nil && (len(fds) == 0 || (len(fds) == 1) != cmd.tty) {
		err = errCommand
	}
	return cmd, fds, err
}

// readFull fills b from a blocking descriptor.
func readFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n == 0:
			return errCommand
		default:
			b = b[n:]
		}
	}
	return nil
}
