// Package frame is the wire form of the worker's channel: authenticated frames
// with a fixed header over any byte stream, descriptors beside them where the
// transport can carry them, and the strict bodies that both halves exchange.
//
// Its limit: it moves frames and refuses bad ones. It starts nothing, decides
// nothing, never reconnects and never reads on after the first violation.
package frame

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"math"
	"os"
	"sync"

	"github.com/caisson-dev/caisson/internal/sys"
)

// Kind says what a frame is.
type Kind byte

// The kinds. The zero kind is never valid.
const (
	Request Kind = 1
	Reply   Kind = 2
	Event   Kind = 3
	Cancel  Kind = 4
	// Tool is a request that the worker carries out itself; its one answer is a
	// Reply. Stop asks for that answer soon. Neither goes on to the tool space.
	Tool Kind = 5
	Stop Kind = 6
)

// Limits of one frame.
const (
	HeaderSize = 64
	MaxBody    = 1 << 20
	MaxFDs     = 8
	SecretSize = 32
)

const magic = "csn1"

// lastSeq is the last number of a direction. After it the channel ends: a number
// that came again under the same key would make every recorded frame good again.
const lastSeq = math.MaxUint64

// Reasons for which a stream is given up. They are matched by callers that
// report why; the text is for the log.
var (
	ErrMagic     = errors.New("frame: wrong magic or version")
	ErrKind      = errors.New("frame: unknown kind")
	ErrReserved  = errors.New("frame: reserved bytes are set")
	ErrSequence  = errors.New("frame: sequence is not the next one")
	ErrLength    = errors.New("frame: length out of bounds")
	ErrTag       = errors.New("frame: tag does not verify")
	ErrSender    = errors.New("frame: sent by another process")
	ErrFDs       = errors.New("frame: descriptors do not match the header")
	ErrTruncated = errors.New("frame: stream ended inside a frame")
	ErrHello     = errors.New("frame: bad hello")
	ErrDead      = errors.New("frame: stream was given up earlier")
	// ErrTooBig is returned by Write for a body that no reader would accept.
	// Nothing was sent and the stream stays usable.
	ErrTooBig = errors.New("frame: body is larger than a frame may be")
	// ErrIdle is returned by Read when the deadline of the transport passed
	// between two frames. Nothing was read and the stream stays usable.
	ErrIdle = errors.New("frame: no frame has begun")
)

// Transport carries bytes and, where it can, descriptors.
//
// Recv reads at least one byte into p and returns the descriptors that came
// with exactly those bytes (the caller closes them), having checked the sender
// where the kernel names it. io.EOF marks the end. Send writes all of p with
// fds on its first byte and does not close them. Recv has one caller at a time,
// and so has Send; both may run at once, and Close ends both.
type Transport interface {
	Recv(p []byte) (n int, fds []int, err error)
	Send(p []byte, fds []int) error
	Close() error
}

// Frame is one message. A reader owns Body and FDs.
type Frame struct {
	Kind Kind
	Op   uint64
	Body []byte
	FDs  []int
}

// Peek returns what the header at the beginning of p says: for a transport that
// treats what belongs to one operation alike. Nothing of it is checked.
func Peek(p []byte) (Kind, uint64) {
	if len(p) < HeaderSize {
		return 0, 0
	}
	return Kind(p[4]), binary.BigEndian.Uint64(p[16:])
}

// CloseFDs closes the descriptors that came with f.
func (f *Frame) CloseFDs() {
	for _, fd := range f.FDs {
		closeFD(fd)
	}
	f.FDs = nil
}

// Conn is one end of a channel. One goroutine reads, any number write.
// After the first failed Read or Write every later one fails.
type Conn struct {
	t   Transport
	end string // which end this is, for test builds

	// owned by the reader
	recvSeq uint64
	recvMAC hash.Hash
	head    [HeaderSize]byte

	mu      sync.Mutex
	sendSeq uint64
	sendMAC hash.Hash
	buf     []byte
	secret  []byte // of a dialed end, for State

	deadMu sync.Mutex
	dead   error
}

// Dial makes the host's end: it picks a fresh secret and sends the hello.
func Dial(t Transport) (*Conn, error) {
	secret := make([]byte, SecretSize)
	_, _ = rand.Read(secret) // never fails since Go 1.24: the program is ended instead
	c := &Conn{t: t, end: "dialed", sendMAC: zeroMAC(), secret: secret}
	if err := c.Write(Frame{Kind: Request, Body: secret}); err != nil {
		return nil, err
	}
	return c, c.setKeys(secret, "caisson/1 host", "caisson/1 worker")
}

// State is what a dialed end is between two frames. It holds the secret.
type State struct {
	Secret         []byte
	Sent, Received uint64 // the last number of each direction
}

// Leave ends this end's use of the transport, which stays open, and returns what
// Continue goes on from. The last Read must have returned ErrIdle, and none may
// be running. No number is used twice: nothing can be read or written by this
// Conn any more.
func (c *Conn) Leave() (State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadMu.Lock()
	defer c.deadMu.Unlock()
	if c.dead != nil || len(c.secret) != SecretSize {
		return State{}, ErrDead
	}
	c.dead = ErrDead
	return State{Secret: c.secret, Sent: c.sendSeq, Received: c.recvSeq}, nil
}

// Continue makes a dialed end that goes on where another stopped, over the same
// stream. Whoever calls it twice with one state breaks the channel.
func Continue(t Transport, s State) (*Conn, error) {
	if len(s.Secret) != SecretSize || s.Sent == 0 {
		return nil, ErrHello
	}
	c := &Conn{t: t, end: "dialed", secret: s.Secret, sendSeq: s.Sent, recvSeq: s.Received}
	return c, c.setKeys(s.Secret, "caisson/1 host", "caisson/1 worker")
}

// Accept makes the worker's end: it reads the hello. Nothing else is believed
// before it, and it is not believed twice.
func Accept(t Transport) (*Conn, error) {
	c := &Conn{t: t, end: "accepted", recvMAC: zeroMAC()}
	f, err := c.Read()
	if err != nil {
		return nil, err
	}
	if f.Kind != Request || f.Op != 0 || len(f.Body) != SecretSize || len(f.FDs) != 0 {
		f.CloseFDs()
		return nil, c.fail(ErrHello)
	}
	err = c.setKeys(f.Body, "caisson/1 worker", "caisson/1 host")
	clear(f.Body)
	return c, err
}

func zeroMAC() hash.Hash { return hmac.New(sha256.New, make([]byte, 32)) }

// setKeys derives the key of each direction. Two keys stop reflection.
func (c *Conn) setKeys(secret []byte, send, recv string) error {
	k1, err := hkdf.Key(sha256.New, secret, nil, send, 32)
	if err != nil {
		return err
	}
	k2, err := hkdf.Key(sha256.New, secret, nil, recv, 32)
	if err != nil {
		return err
	}
	c.sendMAC, c.recvMAC = hmac.New(sha256.New, k1), hmac.New(sha256.New, k2)
	return nil
}

// Close ends the transport.
func (c *Conn) Close() error {
	c.deadMu.Lock()
	if c.dead == nil {
		c.dead = ErrDead
	}
	c.deadMu.Unlock()
	return c.t.Close()
}

func (c *Conn) fail(err error) error {
	c.deadMu.Lock()
	defer c.deadMu.Unlock()
	if c.dead == nil {
		c.dead = err
	}
	return err
}

func (c *Conn) deadErr() error {
	c.deadMu.Lock()
	defer c.deadMu.Unlock()
	if c.dead != nil {
		return ErrDead
	}
	return nil
}

// Write sends f whole. It does not close f.FDs.
func (c *Conn) Write(f Frame) error {
	if len(f.Body) > MaxBody || len(f.FDs) > MaxFDs {
		return ErrTooBig
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.deadErr(); err != nil {
		return err
	}
	if c.sendSeq == lastSeq {
		return c.fail(ErrSequence)
	}
	need := HeaderSize + len(f.Body)
	b := c.buf[:0]
	if cap(b) < need {
		b = make([]byte, 0, need)
	}
	b = b[:HeaderSize]
	clear(b)
	copy(b, magic)
	b[4] = byte(f.Kind)
	b[5] = byte(len(f.FDs))
	c.sendSeq++
	binary.BigEndian.PutUint64(b[8:], c.sendSeq)
	binary.BigEndian.PutUint64(b[16:], f.Op)
	binary.BigEndian.PutUint32(b[24:], uint32(len(f.Body)))
	b = append(b, f.Body...)
	c.sendMAC.Reset()
	c.sendMAC.Write(b[:32])
	c.sendMAC.Write(f.Body)
	c.sendMAC.Sum(b[32:32])
	if cap(b) <= 16<<10 {
		c.buf = b // a rare large frame is not kept alive
	}
	if sys.Canary {
		sys.Mirror(c.end+" sent", b)
	}
	if err := c.t.Send(b, f.FDs); err != nil {
		return c.fail(err)
	}
	return nil
}

// Read returns the next frame. io.EOF means the other end closed between two
// frames; every other error is a violation or a broken transport.
func (c *Conn) Read() (Frame, error) {
	if err := c.deadErr(); err != nil {
		return Frame{}, err
	}
	f, err := c.read()
	if err == ErrIdle {
		return Frame{}, err
	}
	if err != nil {
		f.CloseFDs()
		return Frame{}, c.fail(err)
	}
	return f, nil
}

func (c *Conn) read() (f Frame, err error) {
	h := c.head[:]
	if f.FDs, err = c.fill(h, true); err != nil {
		return f, err
	}
	f.Kind, f.Op = Kind(h[4]), binary.BigEndian.Uint64(h[16:])
	n := binary.BigEndian.Uint32(h[24:])
	switch {
	case string(h[:4]) != magic:
		return f, ErrMagic
	case f.Kind < Request || f.Kind > Stop:
		return f, ErrKind
	case h[6] != 0 || h[7] != 0 || binary.BigEndian.Uint32(h[28:]) != 0:
		return f, ErrReserved
	case n > MaxBody:
		return f, ErrLength
	case int(h[5]) != len(f.FDs):
		return f, ErrFDs
	case c.recvSeq == lastSeq || binary.BigEndian.Uint64(h[8:]) != c.recvSeq+1:
		return f, ErrSequence
	}
	if n > 0 {
		f.Body = make([]byte, n)
		fds, err := c.fill(f.Body, false)
		f.FDs = append(f.FDs, fds...)
		if err != nil {
			return f, err
		}
		if len(fds) > 0 {
			return f, ErrFDs
		}
	}
	c.recvMAC.Reset()
	c.recvMAC.Write(h[:32])
	c.recvMAC.Write(f.Body)
	var tag [32]byte
	if !hmac.Equal(c.recvMAC.Sum(tag[:0]), h[32:]) && !sys.Without("mac") {
		return f, ErrTag
	}
	if sys.Canary {
		sys.Mirror(c.end+" took", h, f.Body)
	}
	c.recvSeq++
	return f, nil
}

// fill reads all of p. Descriptors are legal only with the first bytes of a
// header; whatever arrived is returned so that the caller closes it.
func (c *Conn) fill(p []byte, header bool) (fds []int, err error) {
	for off := 0; off < len(p); {
		n, got, err := c.t.Recv(p[off:])
		late := len(got) > 0 && off > 0
		fds = append(fds, got...)
		switch {
		case err == io.EOF && header && off == 0 && n == 0:
			return fds, io.EOF
		case header && off == 0 && n == 0 && len(fds) == 0 && errors.Is(err, os.ErrDeadlineExceeded):
			return nil, ErrIdle
		case err == io.EOF:
			return fds, ErrTruncated
		case err != nil:
			return fds, err
		case n <= 0:
			return fds, ErrTruncated
		case late || len(fds) > MaxFDs:
			return fds, ErrFDs
		}
		off += n
	}
	return fds, nil
}

// Digest returns the SHA-256 of a request's body, by which replies name it.
func Digest(body []byte) [32]byte { return sha256.Sum256(body) }
