//go:build linux

package worker_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// tap is a transport over a socket that can also keep what it should send.
type tap struct {
	*frame.Socket
	hold func(p []byte) bool // true: not sent
}

func (t *tap) Send(p []byte, fds []int) error {
	if t.hold != nil && t.hold(p) {
		return nil
	}
	return t.Socket.Send(p, fds)
}

// fake is a worker played by the test, in this process.
type fake struct {
	t      *testing.T
	fd     int
	tap    *tap
	conn   *frame.Conn
	client *worker.Client
	poison chan error
}

func playWorker(t *testing.T) *fake {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(pair[0]), "ours")
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	sock, err := frame.NewSocket(pair[1], 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, fd: pair[1], tap: &tap{Socket: sock}, poison: make(chan error, 1)}
	ready := make(chan error, 1)
	go func() {
		var err error
		if f.conn, err = frame.Accept(f.tap); err == nil {
			r := f.next()
			err = f.conn.Write(reply(r, frame.ReplyBody{OK: true, Protocol: frame.Protocol}))
		}
		ready <- err
	}()
	f.client, err = worker.Start(context.Background(), conn, worker.Options{WorkerPID: os.Getpid(), OnPoison: func(e error) { f.poison <- e }})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.client.Close(); _ = sock.Close() })
	return f
}

func (f *fake) next() frame.Frame {
	r, err := f.conn.Read()
	if err != nil {
		f.t.Errorf("the host's frame: %v", err)
	}
	r.CloseFDs()
	return r
}

func hexDigest(b []byte) string {
	const hex = "0123456789abcdef"
	d := frame.Digest(b)
	var out []byte
	for _, c := range d {
		out = append(out, hex[c>>4], hex[c&15])
	}
	return string(out)
}

func reply(r frame.Frame, b frame.ReplyBody) frame.Frame {
	b.Req = hexDigest(r.Body)
	return frame.Frame{Kind: frame.Reply, Op: r.Op, Body: frame.Encode(b)}
}

func event(r frame.Frame, b frame.ReplyBody) frame.Frame {
	f := reply(r, b)
	f.Kind = frame.Event
	return f
}

// exec makes the client start a call and returns its request; the errors of its start and of
// its end follow.
func (f *fake) exec() (frame.Frame, chan error) {
	errs := make(chan error, 2)
	fs := devNull(f.t)
	go func() {
		call, err := f.client.Exec(context.Background(), worker.Command{Argv: []string{"x"}}, fs)
		errs <- err
		if err == nil {
			_, err = call.Wait(context.Background())
			errs <- err
		}
	}()
	return f.next(), errs
}

// The control: a worker that behaves is believed.
func TestHonestWorker(t *testing.T) {
	f := playWorker(t)
	r, errs := f.exec()
	for _, fr := range []frame.Frame{reply(r, frame.ReplyBody{OK: true, PID: 5}), event(r, frame.ReplyBody{Event: frame.EventExit, Status: 9})} {
		if err := f.conn.Write(fr); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if f.client.Err() != nil {
		t.Fatal(f.client.Err())
	}
}

// Every dishonest answer ends the channel; what was outstanding is unknown.
func TestDishonestWorker(t *testing.T) {
	ok := frame.ReplyBody{OK: true, PID: 5}
	exit := frame.ReplyBody{Event: frame.EventExit}
	for name, lie := range map[string]func(f *fake, r frame.Frame) []frame.Frame{
		"unknown operation":  func(_ *fake, r frame.Frame) []frame.Frame { r.Op += 7; return []frame.Frame{reply(r, ok)} },
		"operation zero":     func(_ *fake, r frame.Frame) []frame.Frame { r.Op = 0; return []frame.Frame{reply(r, ok)} },
		"other request":      func(_ *fake, r frame.Frame) []frame.Frame { r.Body = []byte("{}"); return []frame.Frame{reply(r, ok)} },
		"two replies":        func(_ *fake, r frame.Frame) []frame.Frame { return []frame.Frame{reply(r, ok), reply(r, ok)} },
		"event before reply": func(_ *fake, r frame.Frame) []frame.Frame { return []frame.Frame{event(r, exit)} },
		"two exits": func(_ *fake, r frame.Frame) []frame.Frame {
			return []frame.Frame{reply(r, ok), event(r, exit), event(r, exit)}
		},
		"clear, not asked": func(_ *fake, r frame.Frame) []frame.Frame {
			return []frame.Frame{reply(r, ok), event(r, frame.ReplyBody{Event: frame.EventClear})}
		},
		"ended, not asked": func(_ *fake, r frame.Frame) []frame.Frame {
			return []frame.Frame{reply(r, ok), event(r, frame.ReplyBody{Event: frame.EventEnded})}
		},
		"unknown event": func(_ *fake, r frame.Frame) []frame.Frame {
			return []frame.Frame{reply(r, ok), event(r, frame.ReplyBody{Event: "approved"})}
		},
		"a request": func(_ *fake, r frame.Frame) []frame.Frame {
			x := reply(r, ok)
			x.Kind = frame.Request
			return []frame.Frame{x}
		},
		"host's own echo": func(_ *fake, r frame.Frame) []frame.Frame { return []frame.Frame{r} },
		"extra field": func(_ *fake, r frame.Frame) []frame.Frame {
			x := reply(r, ok)
			x.Body = append(x.Body[:len(x.Body)-1], `,"allow":true}`...)
			return []frame.Frame{x}
		},
		"double field": func(_ *fake, r frame.Frame) []frame.Frame {
			x := reply(r, ok)
			x.Body = append(x.Body[:len(x.Body)-1], `,"OK":false}`...)
			return []frame.Frame{x}
		},
		"no JSON": func(_ *fake, r frame.Frame) []frame.Frame {
			x := reply(r, ok)
			x.Body = []byte("\xff")
			return []frame.Frame{x}
		},
		"two descriptors": func(_ *fake, r frame.Frame) []frame.Frame {
			x := reply(r, ok)
			x.FDs = []int{0, 1}
			return []frame.Frame{x}
		},
		"descriptor with an event": func(_ *fake, r frame.Frame) []frame.Frame {
			x := event(r, exit)
			x.FDs = []int{0}
			return []frame.Frame{reply(r, ok), x}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := playWorker(t)
			r, errs := f.exec()
			for _, fr := range lie(f, r) {
				_ = f.conn.Write(fr) // may fail once the host has hung up
			}
			expectPoison(t, f, errs)
		})
	}
}

func expectPoison(t *testing.T, f *fake, errs chan error) {
	t.Helper()
	select {
	case err := <-f.poison:
		if task.CodeOf(err) != task.CodeChannel {
			t.Errorf("poison: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("not poisoned")
	}
	err := <-errs
	if err == nil {
		err = <-errs
	}
	if err != nil && task.CodeOf(err) != task.CodeOutcomeUnknown {
		t.Errorf("outstanding call: %v (%s)", err, task.CodeOf(err))
	}
	if _, err := f.client.Exec(context.Background(), worker.Command{Argv: []string{"x"}}, devNull(t)); task.CodeOf(err) != task.CodeChannel {
		t.Errorf("a poisoned channel took a call: %v", err)
	}
}

// The same bytes, verified by the same key, from the worker and from another
// process that got hold of its socket.
func TestSenderIsChecked(t *testing.T) {
	for _, thief := range []bool{false, true} {
		f := playWorker(t)
		var held []byte
		f.tap.hold = func(p []byte) bool { held = append([]byte(nil), p...); return true }
		r, errs := f.exec()
		if err := f.conn.Write(reply(r, frame.ReplyBody{OK: true})); err != nil {
			t.Fatal(err)
		}
		if !thief {
			if err := f.tap.Socket.Send(held, nil); err != nil {
				t.Fatal(err)
			}
			if err := <-errs; err != nil {
				t.Errorf("control: the worker itself was refused: %v", err)
			}
			continue
		}
		stolen := dupFile(t, f.fd)
		cmd := exec.Command("cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = stolen
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = in.Write(held)
		select {
		case err := <-f.poison:
			if !errors.Is(err, frame.ErrSender) {
				t.Errorf("poisoned by %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("a stranger's frame was not refused")
		}
		if err := <-errs; task.CodeOf(err) != task.CodeOutcomeUnknown {
			t.Errorf("the call: %v", err)
		}
		_ = in.Close()
		_ = cmd.Wait()
		_ = stolen.Close()
	}
}

func dupFile(t *testing.T, fd int) *os.File {
	t.Helper()
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(d), "dup")
}

// A dropped reply costs its own request only; it may also come late.
func TestLateReply(t *testing.T) {
	f := playWorker(t)
	ctx, stop := context.WithCancel(context.Background())
	got := make(chan error, 1)
	go func() { got <- f.client.Ping(ctx) }()
	r := f.next()
	stop()
	if err := <-got; task.CodeOf(err) != task.CodeOutcomeUnknown {
		t.Fatal(err)
	}
	go func() { got <- f.client.Ping(context.Background()) }()
	r2 := f.next()
	for _, x := range []frame.Frame{r2, r} {
		if err := f.conn.Write(reply(x, frame.ReplyBody{OK: true})); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	go func() { got <- f.client.Ping(context.Background()) }()
	if err := f.conn.Write(reply(f.next(), frame.ReplyBody{OK: true})); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("a late reply spoiled the channel: %v", err)
	}
}

// A worker that dies, and one that only falls silent.
func TestDeadAndSilentWorker(t *testing.T) {
	f := playWorker(t)
	_, errs := f.exec()
	_ = unix.Shutdown(f.fd, unix.SHUT_RDWR)
	expectPoison(t, f, errs)

	a, b := net.Pipe()
	poison := make(chan error, 1)
	go func() {
		c, err := frame.Accept(&pipeTransport{b})
		if err != nil {
			return
		}
		r, _ := c.Read()
		_ = c.Write(reply(r, frame.ReplyBody{OK: true, Protocol: frame.Protocol}))
		_, _ = io.Copy(io.Discard, b)
	}()
	c, err := worker.Start(context.Background(), a, worker.Options{Heartbeat: 5 * time.Millisecond, HeartbeatLost: 50 * time.Millisecond, OnPoison: func(e error) { poison <- e }})
	if err != nil {
		t.Fatal(err) // also shows that a plain stream works, without descriptors
	}
	defer func() { _ = c.Close() }()
	select {
	case err := <-poison:
		if task.CodeOf(err) != task.CodeChannel {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("silence was not noticed")
	}
}

type pipeTransport struct{ net.Conn }

func (p *pipeTransport) Recv(b []byte) (int, []int, error) { n, err := p.Read(b); return n, nil, err }
func (p *pipeTransport) Send(b []byte, _ []int) error      { _, err := p.Write(b); return err }

func TestWrongVersionIsRefused(t *testing.T) {
	a, b := net.Pipe()
	go func() {
		c, err := frame.Accept(&pipeTransport{b})
		if err != nil {
			return
		}
		r, _ := c.Read()
		_ = c.Write(reply(r, frame.ReplyBody{OK: true, Protocol: "caisson/2"}))
		_, _ = io.Copy(io.Discard, b)
	}()
	if _, err := worker.Start(context.Background(), a, worker.Options{}); task.CodeOf(err) != task.CodeChannel {
		t.Error(err)
	}
}
