package crossing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Where no descriptor can be handed over, for the kernel inside is another than the
// host's, the worker keeps the sockets and carries what comes: for each connection,
// and each question for a name, it connects to the host's door and says first what
// came where.

// KeySize is the length of the secret that begins each connection to a door. Programs
// inside may connect there as well; they do not know it.
const KeySize = 32

// Kinds of what is carried.
const (
	Tried      = 'T' // nothing: whether the door is there; the host answers with the same byte
	Connection = 'C' // bytes both ways, each direction until its own end
	Question   = 'Q' // one packet each way, behind two bytes of its length
)

// HeaderSize is the length of Header on the wire.
const HeaderSize = KeySize + 1 + 2*(16+2)

// Header begins a connection to a door. All of it is the worker's word.
type Header struct {
	Key  [KeySize]byte
	Kind byte
	At   netip.AddrPort // where it came in: what the program wanted to reach
	From netip.AddrPort
}

// Encode renders it.
func (h Header) Encode() []byte {
	b := append(append(make([]byte, 0, HeaderSize), h.Key[:]...), h.Kind)
	for _, a := range []netip.AddrPort{h.At, h.From} {
		x := [16]byte{}
		if a.Addr().IsValid() {
			x = a.Addr().As16()
		}
		b = binary.BigEndian.AppendUint16(append(b, x[:]...), a.Port())
	}
	return b
}

// ReadHeader reads one.
func ReadHeader(r io.Reader) (h Header, err error) {
	var b [HeaderSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return h, err
	}
	copy(h.Key[:], b[:])
	h.Kind = b[KeySize]
	at := func(b []byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[:16])).Unmap(), binary.BigEndian.Uint16(b[16:]))
	}
	h.At, h.From = at(b[KeySize+1:]), at(b[KeySize+19:])
	return h, nil
}

// MaxPacket is the longest question and answer.
const MaxPacket = 4096

// What is carried at once. Who comes later waits where the kernel has programs wait.
const (
	maxStreams   = 512
	maxQuestions = 64
)

// Try tells whether the host is behind the door at path.
func Try(path string, key [KeySize]byte) error {
	s, err := door(path, Header{Key: key, Kind: Tried})
	if err != nil {
		return err
	}
	defer s.Close()
	var b [1]byte
	if _, err := io.ReadFull(s, b[:]); err != nil || b[0] != Tried {
		return fmt.Errorf("the host does not answer at %s: %v", path, err)
	}
	return nil
}

// door connects to the host.
func door(path string, h Header) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("connect to the host at %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), "door")
	if _, err := f.Write(h.Encode()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Carrier carries what comes at sockets that Open made.
type Carrier struct {
	Path string // of the door
	Key  [KeySize]byte
	// Done is called after each stream and question; nil: nobody.
	Done func()
}

// Carry takes the sockets over and returns; it goes on until the process ends.
func (c *Carrier) Carry(fds []int) error {
	streams, questions := make(chan struct{}, maxStreams), make(chan struct{}, maxQuestions)
	for _, fd := range fds {
		kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "caught")
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		if kind == unix.SOCK_DGRAM {
			go c.questions(f, raw, questions)
		} else {
			go c.streams(f, raw, streams)
		}
	}
	return nil
}

func (c *Carrier) done() {
	if c.Done != nil {
		c.Done()
	}
}

// streams accepts at one socket.
func (c *Carrier) streams(f *os.File, raw syscall.RawConn, slots chan struct{}) {
	defer f.Close()
	for {
		slots <- struct{}{}
		var own int
		var from unix.Sockaddr
		var err error
		rerr := raw.Read(func(fd uintptr) bool {
			own, from, err = unix.Accept4(int(fd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return !errors.Is(err, unix.EAGAIN)
		})
		if rerr != nil {
			return
		}
		if err != nil {
			<-slots
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) {
				pause()
			}
			continue
		}
		go func() {
			defer func() { <-slots; c.done() }()
			local, err := unix.Getsockname(own)
			client := os.NewFile(uintptr(own), "client")
			defer client.Close()
			if err != nil {
				return
			}
			host, err := door(c.Path, Header{Key: c.Key, Kind: Connection, At: addrOf(local), From: addrOf(from)})
			if err != nil {
				return
			}
			defer host.Close()
			var both sync.WaitGroup
			both.Go(func() { pour(host, client) })
			pour(client, host)
			both.Wait()
		}()
	}
}

func addrOf(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// pour moves bytes until their end, which it passes on. Where they cannot be taken the
// other direction ends too: who writes to nobody is told.
func pour(to, from *os.File) {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	for {
		n, err := from.Read(*b)
		if n > 0 {
			if _, werr := to.Write((*b)[:n]); werr != nil {
				shut(from, unix.SHUT_RD)
				shut(to, unix.SHUT_RDWR)
				return
			}
		}
		if errors.Is(err, io.EOF) {
			shut(to, unix.SHUT_WR)
			return
		}
		if err != nil {
			shut(to, unix.SHUT_RDWR)
			return
		}
	}
}

func shut(f *os.File, how int) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), how) })
	}
}

// questions carries the packets of one socket.
func (c *Carrier) questions(f *os.File, raw syscall.RawConn, slots chan struct{}) {
	defer f.Close()
	for {
		slots <- struct{}{}
		b := make([]byte, MaxPacket)
		var n int
		var from unix.Sockaddr
		var err error
		rerr := raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), b, 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		if rerr != nil {
			return
		}
		if err != nil || n <= 0 || from == nil {
			<-slots
			continue
		}
		go func() {
			defer func() { <-slots; c.done() }()
			host, err := door(c.Path, Header{Key: c.Key, Kind: Question, From: addrOf(from)})
			if err != nil {
				return
			}
			defer host.Close()
			if _, err := host.Write(append(binary.BigEndian.AppendUint16(nil, uint16(n)), b[:n]...)); err != nil {
				return
			}
			answer, err := ReadPacket(host)
			if err != nil {
				return
			}
			_ = raw.Control(func(fd uintptr) { _ = unix.Sendto(int(fd), answer, unix.MSG_DONTWAIT, from) })
		}()
	}
}

// ReadPacket reads one with its length.
func ReadPacket(r io.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n == 0 || n > MaxPacket {
		return nil, fmt.Errorf("a packet of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}

// pause lets others give back what is used up.
func pause() { unix.Nanosleep(&unix.Timespec{Nsec: 10e6}, nil) }
