//go:build linux

package worker_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/test/harness"
)

// parked parks the client once nothing is under way.
func (b *box) parked() worker.State {
	b.t.Helper()
	var s worker.State
	harness.Eventually(b.t, "the client is parked", func() bool {
		var err error
		s, err = b.client.Park()
		return err == nil
	})
	return s
}

// TestPark: a client is put aside only at rest; what wants to send waits; nothing
// of the channel is lost.
func TestPark(t *testing.T) {
	b := start(t)
	r := spawn(t, b, "sleep 1000")
	if _, err := b.client.Park(); task.CodeOf(err) != task.CodeState {
		t.Fatalf("parked with a call running: %v", err)
	}
	if err := r.Cancel(deadline(t, time.Minute), 0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s := b.parked()
		got := make(chan string, 1)
		go func() { _, out, _ := b.sh("echo waited"); got <- out }()
		select {
		case out := <-got:
			t.Fatalf("%q was heard while parked", out)
		case <-time.After(50 * time.Millisecond): // too short a wait can only hide the fault
		}
		if err := b.client.Unpark(s); err != nil {
			t.Fatal(err)
		}
		if out := <-got; out != "waited\n" {
			t.Errorf("%q", out)
		}
	}
}

// TestResume takes a parked channel over by its descriptor and state alone.
func TestResume(t *testing.T) {
	b := start(t)
	if _, out, _ := b.sh("echo one"); out != "one\n" {
		t.Fatal(out)
	}
	s := b.parked()
	heir := func(s worker.State) worker.State {
		n, err := unix.FcntlInt(uintptr(s.Stream), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		s.Stream = n
		return s
	}
	for name, bad := range map[string]worker.State{"no stream": {Frames: s.Frames, Stream: -1}, "no secret": {Stream: heir(s).Stream}} {
		if c, err := worker.Resume(deadline(t, time.Minute), bad, worker.Options{WorkerPID: b.cmd.Process.Pid}); err == nil {
			_ = c.Close()
			t.Errorf("%s: resumed", name)
		}
	}
	old := b.client
	c, err := worker.Resume(deadline(t, time.Minute), heir(s), worker.Options{WorkerPID: b.cmd.Process.Pid, OnPoison: func(e error) { b.poison <- e }})
	if err != nil {
		t.Fatal(err)
	}
	b.client = c
	t.Cleanup(func() { _ = old.Close() }) // in the product it is gone with its program
	if c.Assurance() != old.Assurance() {
		t.Errorf("%s, not %s", c.Assurance(), old.Assurance())
	}
	if exit, out, _ := b.sh("echo two; exit 3"); exit != 3 || out != "two\n" {
		t.Errorf("%d %q", exit, out)
	}
	next := b.parked()
	if next.LastOp <= s.LastOp || next.Frames.Sent <= s.Frames.Sent || next.Frames.Received <= s.Frames.Received {
		t.Errorf("numbers came again: %d %d %d after %d %d %d", next.LastOp, next.Frames.Sent, next.Frames.Received, s.LastOp, s.Frames.Sent, s.Frames.Received)
	}
	if err := c.Unpark(next); err != nil {
		t.Fatal(err)
	}
	// Whoever goes on with a state that was used already ends the channel.
	if twin, err := worker.Resume(deadline(t, time.Minute), heir(s), worker.Options{WorkerPID: b.cmd.Process.Pid}); err == nil {
		_ = twin.Close()
		t.Error("a second heir was answered")
	}
	select {
	case err := <-b.poison:
		if !strings.Contains(err.Error(), "ended") {
			t.Errorf("poisoned by %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the worker went on after a frame came twice")
	}
}

// TestParkedIsClosed: a client that is closed while it is put aside ends, and so
// does what waited to send; it cannot go on any more.
func TestParkedIsClosed(t *testing.T) {
	b := start(t)
	s := b.parked()
	waits := make(chan error, 1)
	go func() { waits <- b.client.Ping(deadline(t, time.Minute)) }()
	closed := make(chan error, 1)
	go func() { closed <- b.client.Close() }()
	for _, c := range []chan error{closed, waits} {
		select {
		case err := <-c:
			if c == waits && task.CodeOf(err) != task.CodeChannel {
				t.Errorf("what waited was told %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it never ended")
		}
	}
	if err := b.client.Unpark(s); task.CodeOf(err) != task.CodeChannel {
		t.Errorf("it went on: %v", err)
	}
}

// TestParkedWorkerEnds: the death of the worker while nobody reads is noticed.
func TestParkedWorkerEnds(t *testing.T) {
	b := start(t)
	s := b.parked()
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-b.exited
	if err := b.client.Unpark(s); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.poison:
	case <-time.After(time.Minute):
		t.Error("nobody noticed")
	}
}
