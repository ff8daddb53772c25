//go:build unix

package frame

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// quiet is a tape whose end is a deadline, not the end of the stream.
type quiet struct{ tape }

func (q *quiet) Recv(p []byte) (int, []int, error) {
	if q.in.Len() == 0 {
		return 0, nil, os.ErrDeadlineExceeded
	}
	return q.tape.Recv(p)
}

// TestContinue hands a dialed end over between two frames: the other end sees one
// channel, and neither end's numbers come twice.
func TestContinue(t *testing.T) {
	q := &quiet{}
	host, err := Dial(q)
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Write(Frame{Kind: Request, Op: 2, Body: []byte("before")}); err != nil {
		t.Fatal(err)
	}
	far := &tape{}
	far.in.Reset(bytes.Clone(q.out.Bytes()))
	worker, err := Accept(far)
	if err != nil {
		t.Fatal(err)
	}
	said := func(conn *Conn, want string) {
		t.Helper()
		if f, err := conn.Read(); err != nil || string(f.Body) != want {
			t.Fatalf("%q, %v; want %q", f.Body, err, want)
		}
	}
	said(worker, "before")
	if err := worker.Write(Frame{Kind: Reply, Op: 2, Body: []byte("answer")}); err != nil {
		t.Fatal(err)
	}
	q.in.Reset(bytes.Clone(far.out.Bytes()))
	said(host, "answer")
	for range 2 { // silence is no violation
		if _, err := host.Read(); err != ErrIdle {
			t.Fatal(err)
		}
	}
	state, err := host.Leave()
	if err != nil || state.Sent != 2 || state.Received != 1 {
		t.Fatalf("%+v, %v", state, err)
	}
	// The one that left has no part in the channel any more.
	if err := host.Write(Frame{Kind: Request, Op: 3}); err != ErrDead {
		t.Errorf("it writes: %v", err)
	}
	if _, err := host.Read(); err != ErrDead {
		t.Errorf("it reads: %v", err)
	}
	if _, err := host.Leave(); err != ErrDead {
		t.Errorf("it leaves twice: %v", err)
	}
	q.out.Reset()
	next, err := Continue(q, state)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Write(Frame{Kind: Request, Op: 3, Body: []byte("after")}); err != nil {
		t.Fatal(err)
	}
	far.in.Reset(bytes.Clone(q.out.Bytes()))
	said(worker, "after")
	far.out.Reset()
	if err := worker.Write(Frame{Kind: Reply, Op: 3, Body: []byte("again")}); err != nil {
		t.Fatal(err)
	}
	q.in.Reset(bytes.Clone(far.out.Bytes()))
	said(next, "again")
	// The same state a second time is a replay, and the other end says so.
	q.out.Reset()
	if twin, err := Continue(q, state); err != nil || twin.Write(Frame{Kind: Request, Op: 4, Body: []byte("twin")}) != nil {
		t.Fatal(err)
	}
	far.in.Reset(bytes.Clone(q.out.Bytes()))
	if _, err := worker.Read(); err != ErrSequence {
		t.Errorf("a second heir is heard: %v", err)
	}
}

// TestIdleIsBetweenFrames: a deadline inside a frame ends the channel.
func TestIdleIsBetweenFrames(t *testing.T) {
	far := &tape{}
	q := &quiet{}
	host, err := Dial(q)
	if err != nil {
		t.Fatal(err)
	}
	far.in.Reset(bytes.Clone(q.out.Bytes()))
	worker, err := Accept(far)
	if err == nil {
		err = worker.Write(Frame{Kind: Reply, Op: 1, Body: []byte("body")})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, HeaderSize, HeaderSize + 1} {
		c := &Conn{t: q, end: "dialed", recvMAC: host.recvMAC}
		q.in.Reset(far.out.Bytes()[:n])
		if _, err := c.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after %d bytes: %v", n, err)
		}
		if _, err := c.Read(); err != ErrDead {
			t.Errorf("after %d bytes it is read on: %v", n, err)
		}
	}
	for name, s := range map[string]State{"no secret": {Sent: 1}, "no hello": {Secret: make([]byte, SecretSize)}} {
		if _, err := Continue(q, s); err != ErrHello {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := worker.Leave(); err != ErrDead {
		t.Errorf("the worker's end leaves: %v", err)
	}
}
