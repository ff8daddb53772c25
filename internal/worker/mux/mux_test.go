//go:build linux

package mux

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// patience bounds a wait that only a fault makes long.
const patience = 30 * time.Second

// pair returns two ends over one connection.
func pair(t *testing.T) (host, inside *Conn) {
	t.Helper()
	a, b := net.Pipe()
	host, inside = Host(a), Inside(b)
	t.Cleanup(func() { host.Close(); inside.Close() })
	return host, inside
}

// channel makes frames over both and returns what arrives at each.
func channel(t *testing.T) (host, inside *frame.Conn, hostMux, insideMux *Conn) {
	t.Helper()
	hm, im := pair(t)
	done := make(chan error, 1)
	go func() {
		var err error
		inside, err = frame.Accept(im)
		done <- err
	}()
	host, err := frame.Dial(hm)
	if err == nil {
		err = <-done
	}
	if err != nil {
		t.Fatal(err)
	}
	return host, inside, hm, im
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	_ = r.SetReadDeadline(time.Now().Add(patience))
	return r, w
}

// fd returns f's descriptor, blocking as a program expects it.
func fd(t *testing.T, f *os.File) int {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	_ = raw.Control(func(p uintptr) { n, err = unix.FcntlInt(p, unix.F_DUPFD_CLOEXEC, 3) })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// run passes a program's three descriptors and returns what the inside got.
func run(t *testing.T, host, inside *frame.Conn, op uint64, files ...*os.File) []*os.File {
	t.Helper()
	var fds []int
	for _, f := range files {
		fds = append(fds, fd(t, f))
	}
	sent := make(chan error, 1)
	go func() { sent <- host.Write(frame.Frame{Kind: frame.Request, Op: op, Body: []byte("run"), FDs: fds}) }()
	f, err := inside.Read()
	if err == nil {
		err = <-sent
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range fds {
		unix.Close(n)
	}
	if f.Op != op || len(f.FDs) != len(files) {
		t.Fatalf("operation %d with %d descriptors", f.Op, len(f.FDs))
	}
	var out []*os.File
	for _, n := range f.FDs {
		_ = unix.SetNonblock(n, true)
		g := os.NewFile(uintptr(n), "inside")
		_ = g.SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { g.Close() })
		out = append(out, g)
	}
	return out
}

// reading keeps an end reading, as both do all the time.
func reading(t *testing.T, c *frame.Conn) <-chan frame.Frame {
	got := make(chan frame.Frame, 64)
	go func() {
		defer close(got)
		for {
			f, err := c.Read()
			if err != nil {
				return
			}
			got <- f
		}
	}()
	return got
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func TestStreamsMoveBothWays(t *testing.T) {
	host, inside, _, _ := channel(t)
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	errR, errW := pipe(t)
	prog := run(t, host, inside, 7, inR, outW, errW)
	outW.Close()
	errW.Close()
	reading(t, host)
	reading(t, inside)
	text := random(3 << 20)
	go func() {
		_, _ = inW.Write(text)
		inW.Close()
	}()
	go func() { // the program copies its input, and ends
		_, _ = io.Copy(prog[1], prog[0])
		_, _ = prog[2].WriteString("done")
		for _, f := range prog {
			f.Close()
		}
	}()
	got, err := io.ReadAll(outR)
	if err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes came back of %d: %v", len(got), len(text), err)
	}
	if b, err := io.ReadAll(errR); err != nil || string(b) != "done" {
		t.Errorf("standard error: %q, %v", b, err)
	}
}

// Output and errors that lead to one place come there in the order in which they
// were written.
func TestOrderOfOnePlace(t *testing.T) {
	host, inside, _, _ := channel(t)
	inR, _ := pipe(t)
	outR, outW := pipe(t)
	prog := run(t, host, inside, 7, inR, outW, outW)
	outW.Close()
	reading(t, host)
	reading(t, inside)
	var want strings.Builder
	go func() {
		for i := range 2000 {
			_, _ = prog[1+i%2].WriteString(strconv.Itoa(i) + "\n")
		}
		for _, f := range prog {
			f.Close()
		}
	}()
	for i := range 2000 {
		want.WriteString(strconv.Itoa(i) + "\n")
	}
	if got, err := io.ReadAll(outR); err != nil || string(got) != want.String() {
		t.Errorf("%d bytes in another order, %v", len(got), err)
	}
}

func TestNobodyReadsWhatIsWritten(t *testing.T) {
	host, inside, _, _ := channel(t)
	inR, _ := pipe(t)
	outR, outW := pipe(t)
	prog := run(t, host, inside, 7, inR, outW)
	outW.Close()
	outR.Close()
	reading(t, host)
	reading(t, inside)
	var err error
	for err == nil {
		_, err = prog[1].Write(random(1000))
	}
	if !errors.Is(err, unix.EPIPE) {
		t.Errorf("a program whose output nobody reads got %v", err)
	}
}

func TestInputIsNotTakenForAProgramThatEnded(t *testing.T) {
	host, inside, hm, _ := channel(t)
	inR, inW := pipe(t)
	_, outW := pipe(t)
	prog := run(t, host, inside, 7, inR, outW)
	reading(t, host)
	reading(t, inside)
	prog[0].Close()
	deadline := time.Now().Add(patience)
	for hm.stream(1) != nil {
		if time.Now().After(deadline) {
			t.Fatal("its input is still being read")
		}
		time.Sleep(time.Millisecond)
	}
	_, _ = inW.WriteString("later")
	inW.Close()
	if b, err := io.ReadAll(inR); err != nil || string(b) != "later" {
		t.Errorf("left of the input: %q, %v", b, err)
	}
}

// An end that is told of comes after all that the program had put out.
func TestDelivered(t *testing.T) {
	host, inside, hm, _ := channel(t)
	outR, outW := pipe(t)
	prog := run(t, host, inside, 7, outW)
	outW.Close()
	events := reading(t, host)
	reading(t, inside)
	text := random(200 << 10)
	read := make(chan []byte, 1)
	start := make(chan struct{})
	go func() {
		<-start
		b := make([]byte, len(text))
		_, _ = io.ReadFull(outR, b)
		read <- b
	}()
	if _, err := prog[0].Write(text); err != nil {
		t.Fatal(err)
	}
	if err := inside.Write(frame.Frame{Kind: frame.Event, Op: 7, Body: []byte("exit")}); err != nil {
		t.Fatal(err)
	}
	<-events
	done := hm.Delivered(7)
	select {
	case <-done:
		t.Error("delivered, though nobody read more than a pipe holds")
	case <-time.After(20 * time.Millisecond):
	}
	close(start)
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("never delivered")
	}
	if b := <-read; !bytes.Equal(b, text) {
		t.Error("other bytes arrived")
	}
	select {
	case <-hm.Delivered(8):
	default:
		t.Error("an operation without output is waited for")
	}
}

func TestFilesGoOverWhole(t *testing.T) {
	host, inside, _, _ := channel(t)
	text := random(200 << 10)
	file := func() *os.File {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err == nil {
			_, err = f.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	check := func(from, to *frame.Conn, kind frame.Kind) {
		t.Helper()
		n := fd(t, file())
		sent := make(chan error, 1)
		go func() { sent <- from.Write(frame.Frame{Kind: kind, Op: 9, Body: []byte("x"), FDs: []int{n, n}}) }()
		f, err := to.Read()
		if err == nil {
			err = <-sent
		}
		unix.Close(n)
		if err != nil || len(f.FDs) != 2 {
			t.Fatalf("%d descriptors, %v", len(f.FDs), err)
		}
		for _, n := range f.FDs {
			g := os.NewFile(uintptr(n), "passed")
			if b, err := io.ReadAll(g); err != nil || !bytes.Equal(b, text) {
				t.Errorf("another content: %d bytes, %v", len(b), err)
			}
			g.Close()
		}
	}
	check(host, inside, frame.Tool)
	check(inside, host, frame.Reply)
}

func TestTerminal(t *testing.T) {
	host, inside, _, _ := channel(t)
	master, slave, err := OpenPTY(24, 80)
	if err != nil {
		t.Skipf("no terminal can be had here: %v", err)
	}
	defer master.Close()
	_ = master.SetReadDeadline(time.Now().Add(patience))
	prog := run(t, host, inside, 7, slave)
	slave.Close()
	reading(t, host)
	reading(t, inside)
	ws, err := unix.IoctlGetWinsize(int(prog[0].Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Row != 24 || ws.Col != 80 {
		t.Errorf("its size is %+v, %v", ws, err)
	}
	if _, err := master.WriteString("hi\r"); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 16)
	n, err := prog[0].Read(line) // the terminal inside made a line of it
	if err != nil || string(line[:n]) != "hi\n" {
		t.Errorf("read %q, %v", line[:n], err)
	}
	if _, err := prog[0].WriteString("bye\n"); err != nil {
		t.Fatal(err)
	}
	raw, _ := master.SyscallConn()
	_ = raw.Control(func(p uintptr) {
		_ = unix.IoctlSetWinsize(int(p), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 132})
	})
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if ws, err := unix.IoctlGetWinsize(int(prog[0].Fd()), unix.TIOCGWINSZ); err == nil && ws.Row == 50 && ws.Col == 132 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("its size stays %+v, %v", ws, err)
		}
	}
	prog[0].Close()
	b, _ := io.ReadAll(master) // ends with EIO
	if !strings.Contains(string(b), "hi\r\nbye\r\n") {
		t.Errorf("the screen has %q", b)
	}
}

// What the other end says is not believed.
func TestChunksThatCannotBe(t *testing.T) {
	cases := map[string][]chunk{
		"unknown kind":                  {{kind: 99}},
		"descriptors that did not come": {{kind: bytesChunk, stream: 1, body: []byte("x")}},
		"an empty piece of a frame":     {{kind: bytesChunk}},
		"a pipe from inside":            {{kind: passChunk, stream: 2, body: []byte{passOut}}},
		"a file without a size":         {{kind: passChunk, body: []byte{passBlob}}},
		"a file that is too large":      {{kind: passChunk, body: []byte{passBlob, 1, 0, 0, 0, 0, 0, 0, 0}}},
		"content without a file":        {{kind: blobChunk, body: []byte("x")}},
		"more content than said":        {{kind: passChunk, body: []byte{passBlob, 0, 0, 0, 0, 0, 0, 0, 1}}, {kind: blobChunk, body: []byte("xy")}},
		"a frame before its file":       {{kind: passChunk, body: []byte{passBlob, 0, 0, 0, 0, 0, 0, 0, 1}}, {kind: bytesChunk, stream: 1, body: []byte("x")}},
		"the same from inside":          {{kind: passChunk, stream: 1, body: []byte{passSame}}},
		"half a mark":                   {{kind: markChunk, body: []byte("1234567")}},
	}
	for name, cs := range cases {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			c := Host(a)
			defer c.Close()
			go func() {
				for _, ch := range cs {
					h := head(ch.kind, ch.stream, len(ch.body))
					_, _ = b.Write(append(h[:], ch.body...))
				}
				b.Close()
			}()
			if _, fds, err := c.Recv(make([]byte, 64)); !errors.Is(err, ErrChunk) || len(fds) != 0 {
				t.Errorf("%v, %d descriptors", err, len(fds))
			}
		})
	}
}

// What an inside that was taken over sends without end takes no room on the host.
func TestNothingIsKeptWithoutBound(t *testing.T) {
	a, b := net.Pipe()
	c := Host(a)
	defer c.Close()
	r, w := pipe(t)
	defer r.Close()
	sent := make(chan struct{})
	said := func(kind, stream uint32, body []byte) {
		h := head(kind, stream, len(body))
		_, _ = b.Write(append(h[:], body...))
	}
	const op, other = 7, 1 << 20
	go func() { // what the host says is not listened to
		_, _ = io.Copy(io.Discard, b)
	}()
	out := fd(t, w)
	defer unix.Close(out)
	if err := c.pass(out, 1, frame.Request, op, map[[2]uint64]uint32{}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(sent)
		for n := uint64(0); n < 5000; n++ {
			said(markChunk, 0, binary.BigEndian.AppendUint64(nil, other+n))
		}
		// One of an operation with output under way is, or nothing would be waited for.
		mark := binary.BigEndian.AppendUint64(nil, op)
		mark = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(mark, 1), 10)
		said(markChunk, 0, mark)
		said(bytesChunk, 0, make([]byte, 64))
		said(dataChunk, 1, []byte("x"))
		said(dataChunk, 1, nil)
		b.Close()
	}()
	if _, _, err := c.Recv(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	kept := len(c.marks)
	c.mu.Unlock()
	if kept != 1 {
		t.Errorf("%d marks are kept", kept)
	}
	if _, _, err := c.Recv(make([]byte, 64)); !errors.Is(err, ErrChunk) {
		t.Errorf("a piece without a byte: %v", err)
	}
	<-sent
}

func FuzzRecv(f *testing.F) {
	h := head(bytesChunk, 0, 4)
	f.Add(append(h[:], "text"...))
	h = head(passChunk, 0, 9)
	f.Add(append(h[:], passBlob, 0, 0, 0, 0, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, z := net.Pipe()
		c := Host(a)
		go func() {
			_, _ = z.Write(b)
			z.Close()
		}()
		for {
			_, fds, err := c.Recv(make([]byte, 100))
			for _, n := range fds {
				unix.Close(n)
			}
			if err != nil {
				break
			}
		}
		c.Close()
	})
}
