//go:build unix

package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// tape is a Transport that plays recorded bytes and records what is sent.
type tape struct {
	in  bytes.Reader
	fds map[int][]int // offset → descriptors
	pos int
	out bytes.Buffer
	one bool // one byte per read
}

func (t *tape) Recv(p []byte) (int, []int, error) {
	if t.one && len(p) > 1 {
		p = p[:1]
	}
	fds := t.fds[t.pos]
	n, err := t.in.Read(p)
	t.pos += n
	return n, fds, err
}
func (t *tape) Send(p []byte, _ []int) error { t.out.Write(p); return nil }
func (t *tape) Close() error                 { return nil }

// pairUp returns the bytes of a hello and of n frames the host sent after it,
// each frame apart.
func recorded(t testing.TB, bodies ...string) (hello []byte, frames [][]byte) {
	t.Helper()
	tp := &tape{}
	c, err := Dial(tp)
	if err != nil {
		t.Fatal(err)
	}
	hello = bytes.Clone(tp.out.Bytes())
	for i, b := range bodies {
		tp.out.Reset()
		if err := c.Write(Frame{Kind: Request, Op: uint64(i + 1), Body: []byte(b)}); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, bytes.Clone(tp.out.Bytes()))
	}
	return hello, frames
}

// play feeds bytes to a worker's end and reads until an error.
func play(data []byte, one bool) (got []string, err error) {
	tp := &tape{one: one}
	tp.in.Reset(data)
	c, err := Accept(tp)
	if err != nil {
		return nil, err
	}
	for {
		f, err := c.Read()
		if err != nil {
			if _, again := c.Read(); again != ErrDead {
				return got, errors.New("a dead stream was read on")
			}
			return got, err
		}
		got = append(got, string(f.Body))
	}
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func edit(b []byte, at int, v ...byte) []byte {
	c := bytes.Clone(b)
	copy(c[at:], v)
	return c
}

func TestHonestFramesPass(t *testing.T) {
	hello, f := recorded(t, "one", "", strings.Repeat("x", MaxBody))
	for _, one := range []bool{false, true} {
		got, err := play(join(hello, f[0], f[1], f[2]), one)
		if err != io.EOF || len(got) != 3 || got[0] != "one" || got[1] != "" || len(got[2]) != MaxBody {
			t.Fatalf("byte by byte %v: %d frames, %v", one, len(got), err)
		}
	}
}

// Every forgery ends the stream at the forged frame, whatever came before it.
func TestForgeries(t *testing.T) {
	hello, f := recorded(t, "one", "two", "three")
	_, other := recorded(t, "one", "two")
	big := edit(f[0], 24, 0x00, 0x10, 0x00, 0x01)
	reflect := func() []byte { // what the worker itself sends comes back to it
		tp := &tape{}
		tp.in.Reset(hello)
		w, err := Accept(tp)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second has the number that the host's next frame would have
			tp.out.Reset()
			if err := w.Write(Frame{Kind: Request, Op: 1, Body: []byte("one")}); err != nil {
				t.Fatal(err)
			}
		}
		return tp.out.Bytes()
	}()
	for _, c := range []struct {
		name string
		data []byte
		n    int // honest frames before
		want error
	}{
		{"replayed", join(hello, f[0], f[0]), 1, ErrSequence},
		{"reordered", join(hello, f[1], f[0]), 0, ErrSequence},
		{"one missing", join(hello, f[0], f[2]), 1, ErrSequence},
		{"wrapped sequence", join(hello, edit(f[0], 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)), 0, ErrSequence},
		{"sequence zero", join(hello, edit(f[0], 8, 0, 0, 0, 0, 0, 0, 0, 0)), 0, ErrSequence},
		{"of another session", join(hello, other[0]), 0, ErrTag},
		{"reflected", join(hello, reflect), 0, ErrTag},
		{"second hello", join(hello, edit(hello, 8, f[0][8:16]...)), 0, ErrTag},
		{"body changed", join(hello, edit(f[0], HeaderSize, 'O')), 0, ErrTag},
		{"tag changed", join(hello, edit(f[0], 32, f[0][32]^1)), 0, ErrTag},
		{"operation changed", join(hello, edit(f[0], 16, 9)), 0, ErrTag},
		{"kind changed", join(hello, edit(f[0], 4, byte(Cancel))), 0, ErrTag},
		{"kind unknown", join(hello, edit(f[0], 4, 7)), 0, ErrKind},
		{"kind zero", join(hello, edit(f[0], 4, 0)), 0, ErrKind},
		{"magic", join(hello, edit(f[0], 0, 'c', 's', 'n', '2')), 0, ErrMagic},
		{"reserved", join(hello, edit(f[0], 7, 1)), 0, ErrReserved},
		{"reserved word", join(hello, edit(f[0], 31, 1)), 0, ErrReserved},
		{"giant", join(hello, big), 0, ErrLength},
		{"negative", join(hello, edit(f[0], 24, 0xff, 0xff, 0xff, 0xff)), 0, ErrLength},
		{"claimed descriptors", join(hello, edit(f[0], 5, 2)), 0, ErrFDs},
		{"cut in the header", join(hello, f[0][:40]), 0, ErrTruncated},
		{"cut in the body", join(hello, f[0][:HeaderSize+1]), 0, ErrTruncated},
		{"cut after a frame", join(hello, f[0], f[1][:1]), 1, ErrTruncated},
		{"hello with a wrong tag", edit(hello, 40, hello[40]^1), 0, ErrTag},
		{"hello of another kind", edit(hello, 4, byte(Event)), 0, ErrTag},
		{"a request for a hello", f[0], 0, ErrSequence},
		{"short secret", edit(hello, 24, 0, 0, 0, 31), 0, ErrTag},
	} {
		got, err := play(c.data, false)
		if !errors.Is(err, c.want) || len(got) != c.n {
			t.Errorf("%s: %v after %d frames, want %v after %d", c.name, err, len(got), c.want, c.n)
		}
	}
}

// A descriptor in the middle of a frame, or more of them than the header says,
// is refused and closed.
func TestStrayDescriptors(t *testing.T) {
	hello, f := recorded(t, "one")
	for name, at := range map[string]int{"with the header, unannounced": len(hello), "in the body": len(hello) + HeaderSize, "in the hello": 0} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		tp := &tape{fds: map[int][]int{at: {dup(t, w)}}}
		_ = w.Close()
		tp.in.Reset(join(hello, f[0]))
		c, err := Accept(tp)
		if err == nil {
			_, err = c.Read()
		}
		if !errors.Is(err, ErrFDs) {
			t.Errorf("%s: %v", name, err)
		}
		// The last writer is gone: the stray descriptor was closed.
		if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%s: the descriptor stayed open", name)
		}
		_ = r.Close()
	}
}

func TestTooBigIsNotSent(t *testing.T) {
	tp := &tape{}
	c, err := Dial(tp)
	if err != nil {
		t.Fatal(err)
	}
	n := tp.out.Len()
	if err := c.Write(Frame{Kind: Request, Op: 1, Body: make([]byte, MaxBody+1)}); err != ErrTooBig || tp.out.Len() != n {
		t.Fatalf("%v, %d bytes", err, tp.out.Len()-n)
	}
	if err := c.Write(Frame{Kind: Request, Op: 1}); err != nil {
		t.Fatal(err)
	}
}

func TestStrictBodies(t *testing.T) {
	good := []string{`{"op":"ping"}`, ` {"op":"exec","argv":["YQ=="],"env":[],"plan":{"a":{"a":1},"b":[{"a":1},{"a":2}]}} `}
	bad := []string{
		``, ` `, `{}{}`, `{"op":"ping"} x`, `{"op":"ping","op":"exec"}`, `{"op":"ping","OP":"exec"}`, `{"op":"ping","extra":1}`,
		`{"op":1}`, `[1]`, `{"op":"ping"`, `{"op":"ping"}]`, `{"plan":{"a":1,"a":2}}`, `{"argv":["!"]}`, `{"call":-1}`, `{"signal":1.5}`,
		`{"plan":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, "{\"op\":\"\xff", `{"call":1e99}`,
	}
	for _, s := range good {
		if err := Decode([]byte(s), new(RequestBody)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range bad {
		if err := Decode([]byte(s), new(RequestBody)); err == nil {
			t.Errorf("accepted: %s", s)
		}
	}
}

// The numbers end; they do not begin again. A frame recorded under one is never
// good a second time, however long a channel lives.
func TestSequenceDoesNotWrap(t *testing.T) {
	tp := &tape{}
	c, err := Dial(tp)
	if err != nil {
		t.Fatal(err)
	}
	hello := bytes.Clone(tp.out.Bytes())
	tp.out.Reset()
	c.sendSeq = lastSeq - 1
	if err := c.Write(Frame{Kind: Request, Op: 1, Body: []byte("last")}); err != nil {
		t.Fatal(err)
	}
	last := bytes.Clone(tp.out.Bytes())
	for range 2 {
		if err := c.Write(Frame{Kind: Request, Op: 2, Body: []byte("after")}); err == nil || tp.out.Len() != len(last) {
			t.Fatalf("sent after the last number: %v", err)
		}
	}
	// Frames that carry on from zero, as a sender without this rule makes them.
	for i, f := range [][]byte{forged(c, 0), forged(c, 1)} {
		in := &tape{}
		in.in.Reset(join(hello, last, f))
		w, err := Accept(in)
		if err != nil {
			t.Fatal(err)
		}
		w.recvSeq = lastSeq - 1
		if got, err := w.Read(); err != nil || string(got.Body) != "last" {
			t.Fatalf("%q %v", got.Body, err)
		}
		if got, err := w.Read(); !errors.Is(err, ErrSequence) {
			t.Errorf("number %d after the last one: %q %v", i, got.Body, err)
		}
	}
}

// forged is a frame with a tag that verifies and any number.
func forged(c *Conn, seq uint64) []byte {
	b := make([]byte, HeaderSize)
	copy(b, magic)
	b[4] = byte(Request)
	binary.BigEndian.PutUint64(b[8:], seq)
	c.sendMAC.Reset()
	c.sendMAC.Write(b[:32])
	c.sendMAC.Sum(b[32:32])
	return b
}

// FuzzStream: no bytes make a reader do anything but return frames that
// verify, then an error; and without the key none verifies.
func FuzzStream(f *testing.F) {
	hello, fr := recorded(f, "one", "two")
	f.Add(join(fr[0], fr[1]))
	f.Add(fr[0][:70])
	f.Add(edit(fr[0], 24, 0xff))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := play(join(hello, data), false)
		if err == nil {
			t.Fatal("a stream without end")
		}
		honest := join(fr[0], fr[1])
		for i := range got {
			if i >= 2 || !bytes.HasPrefix(data, join(fr[:i+1]...)) {
				t.Fatalf("accepted %q, which was not sent", got[i])
			}
		}
		_ = honest
	})
}

// FuzzBody: what decodes also encodes, and decodes again to the same bytes.
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"req":"ab","ok":true,"event":"exit","status":9}`))
	f.Add([]byte(`{"req":"ab","REQ":"cd"}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r ReplyBody
		if Decode(data, &r) != nil {
			return
		}
		b := Encode(r)
		var again ReplyBody
		if err := Decode(b, &again); err != nil || !bytes.Equal(Encode(again), b) {
			t.Fatalf("%q → %q: %v", data, b, err)
		}
	})
}

// FuzzHeader flips single bytes of an honest frame: none survives.
func FuzzHeader(f *testing.F) {
	f.Add(uint16(0), byte(1))
	hello, fr := recorded(f, "body")
	f.Fuzz(func(t *testing.T, at uint16, x byte) {
		b := bytes.Clone(fr[0])
		i := int(at) % len(b)
		b[i] ^= x
		got, err := play(join(hello, b), false)
		if (x == 0) != (len(got) == 1) || err == nil {
			t.Fatalf("byte %d of the frame ^ %#x: %d frames, %v", i, x, len(got), err)
		}
	})
}
