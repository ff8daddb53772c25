package inside

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// reel plays bytes once and keeps what is sent.
type reel struct {
	in  *bytes.Reader
	out bytes.Buffer
}

func (r *reel) Recv(p []byte) (int, []int, error) { n, err := r.in.Read(p); return n, nil, err }
func (r *reel) Send(p []byte, _ []int) error      { r.out.Write(p); return nil }
func (r *reel) Close() error                      { return nil }

// told is a tool space that is about to hear what a key holder said, and the
// place where its answers land.
func toldSpace(t testing.TB, frames ...frame.Frame) (*space, *reel) {
	var host reel
	c, err := frame.Dial(&host)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range frames {
		if err := c.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	r := &reel{in: bytes.NewReader(host.out.Bytes())}
	s := &space{lastOp: firstOp, calls: map[uint64]*call{}, guards: map[int]*guardian{}, born: make(chan struct{}, 1), alone: make(chan struct{}, 1)}
	// Nothing is started and nothing killed here: a space that is killing answers
	// both with a refusal, after the same decoding.
	s.killing = true
	s.filled.Do(func() {})
	if s.conn, err = frame.Accept(r); err != nil {
		t.Fatal(err)
	}
	return s, r
}

// FuzzRequests: whatever a host says, each frame is answered at most once or
// ends the boundary; an id is never used twice.
func FuzzRequests(f *testing.F) {
	seed := func(kind frame.Kind, op uint64, body string) []byte {
		b := []byte{byte(kind)}
		b = binary.BigEndian.AppendUint16(b, uint16(op))
		b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
		return append(b, body...)
	}
	f.Add(seed(frame.Request, 2, `{"op":"ping"}`))
	f.Add(append(seed(frame.Request, 2, `{"op":"ping"}`), seed(frame.Request, 2, `{"op":"ping"}`)...))
	f.Add(seed(frame.Request, 3, `{"op":"exec","argv":["YQ=="]}`))
	f.Add(seed(frame.Request, 3, `{"op":"exec","argv":["YQ=="],"tty":true,"builtin":"probe"}`))
	f.Add(seed(frame.Request, 3, `{"op":"signal","call":4,"signal":-9}`))
	f.Add(seed(frame.Request, 3, `{"op":"killall","limit_ms":-1}`))
	f.Add(seed(frame.Request, 3, `{"op":"space","plan":{}}`))
	f.Add(seed(frame.Cancel, 9, `{"req":"x","grace_ms":0,"limit_ms":0}`))
	f.Add(seed(frame.Cancel, 9, `{"req":"x","grace_ms":-1,"limit_ms":0}`))
	f.Add(seed(frame.Reply, 9, `{"req":"x","ok":true}`))
	f.Add(seed(frame.Request, 0, `{"op":"ping"}`))
	f.Fuzz(func(t *testing.T, script []byte) {
		var frames []frame.Frame
		for len(script) >= 5 && len(frames) < 64 {
			n := min(int(binary.BigEndian.Uint16(script[3:])), len(script)-5)
			frames = append(frames, frame.Frame{Kind: frame.Kind(script[0]), Op: uint64(binary.BigEndian.Uint16(script[1:])), Body: script[5 : 5+n]})
			script = script[5+n:]
		}
		s, r := toldSpace(t, frames...)
		code := s.serve()
		answers := bytes.Count(r.out.Bytes(), []byte("csn1"))
		if answers > len(frames) {
			t.Fatalf("%d answers to %d frames", answers, len(frames))
		}
		if code != ExitOK && code != ExitChannel {
			t.Fatalf("status %d", code)
		}
		if len(s.calls) != 0 || len(s.guards) != 0 {
			t.Fatal("something was started")
		}
	})
}

// FuzzGuardian: a guardian that says anything. I passes on at most one answer
// and one exit per call, and always comes to an end with it.
func FuzzGuardian(f *testing.F) {
	rec := func(l ...record) (b []byte) {
		for _, r := range l {
			b = append(b, r.bytes()...)
		}
		return b
	}
	f.Add(rec(record{kind: recStarted, b: 9, c: 1}, record{kind: recExit, a: 256}), false)
	f.Add(rec(record{kind: recStarted, b: 9, c: 1}, record{kind: recStarted, b: 9, c: 1}, record{kind: recExit}, record{kind: recExit}), true)
	f.Add(rec(record{kind: recFailed, a: 99, b: 1 << 40}), false)
	f.Add(rec(record{kind: recExit}, record{kind: recClear}), true)
	f.Add(rec(record{kind: recStarted}, record{kind: recFailed}), false)
	f.Add(rec(record{kind: recStarted}, record{kind: recStarted}, record{kind: recExit}, record{kind: recNotClear, b: 1 << 63}), true)
	f.Add(rec(record{kind: recTaken}, record{kind: 77})[:recordSize+5], false)
	f.Fuzz(func(t *testing.T, said []byte, canceled bool) {
		if len(said) > 64*recordSize {
			return
		}
		s, r := toldSpace(t)
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
			t.Fatal(err)
		}
		far := os.NewFile(uintptr(pair[1]), "guardian")
		c := &call{s: s, op: 7, name: "d", open: true, canceled: canceled, ctl: &guardian{File: os.NewFile(uintptr(pair[0]), "call"), pid: int32(os.Getpid())}}
		if _, err := far.Write(said); err != nil {
			t.Fatal(err)
		}
		if err := unix.Shutdown(pair[1], unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
		c.follow()
		_ = far.Close()
		_ = c.ctl.Close()
		checkSaid(t, r.out.Bytes())
	})
}

// checkSaid holds the frames about one call to what the host will take.
func checkSaid(t *testing.T, b []byte) {
	replies, exits, ends := 0, 0, 0
	for len(b) > 0 {
		n := int(binary.BigEndian.Uint32(b[24:]))
		kind, body := frame.Kind(b[4]), b[frame.HeaderSize:frame.HeaderSize+n]
		b = b[frame.HeaderSize+n:]
		var r frame.ReplyBody
		if err := frame.Decode(body, &r); err != nil || r.Req != "d" {
			t.Fatalf("said %q: %v", body, err)
		}
		switch {
		case ends > 0:
			t.Fatalf("said %q after the end", body)
		case kind == frame.Reply:
			if replies++; !r.OK {
				ends++
			}
		case r.Event == frame.EventExit && replies == 1:
			exits++
		case r.Event == frame.EventLost, (r.Event == frame.EventClear || r.Event == frame.EventNotClear) && replies == 1:
			ends++
		default:
			t.Fatalf("said %q before the answer", body)
		}
	}
	if replies > 1 || exits > 1 {
		t.Fatalf("%d answers, %d exits", replies, exits)
	}
	if replies == 0 && ends == 0 {
		t.Fatal("the call has no answer and no end")
	}
}
