//go:build linux

package worker_test

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
	"github.com/caisson-dev/caisson/internal/worker/frame"
)

// plain is a stream without anything beside it.
type plain struct{ net.Conn }

func (p plain) Recv(b []byte) (int, []int, error) { n, err := p.Read(b); return n, nil, err }
func (p plain) Send(b []byte, _ []int) error      { _, err := p.Write(b); return err }

// The channel is called what it is: only a socket without a name, whose sender
// the kernel names, is more than a key.
func TestAssurance(t *testing.T) {
	if got := playWorker(t).client.Assurance(); got != task.KernelObject || got.Level() != 2 {
		t.Errorf("a pair of sockets: %q", got)
	}
	if got := start(t).client.Assurance(); got != task.KernelObject {
		t.Errorf("a real worker: %q", got)
	}
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed := func() (net.Conn, net.Conn) {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c, s
	}
	for name, pair := range map[string]func() (net.Conn, net.Conn){"a pipe": net.Pipe, "a socket with a name": dialed} {
		host, far := pair()
		go func() {
			c, err := frame.Accept(plain{far})
			if err != nil {
				return
			}
			if f, err := c.Read(); err == nil {
				_ = c.Write(reply(f, frame.ReplyBody{OK: true, Protocol: frame.Protocol}))
				_, _ = c.Read()
			}
		}()
		o := worker.Options{}
		if name != "a pipe" {
			o.WorkerPID = os.Getpid()
		}
		c, err := worker.Start(context.Background(), host, o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := c.Assurance(); got != task.MACOnly || got.Level() != 0 {
			t.Errorf("%s: %q", name, got)
		}
		_ = c.Close()
		_ = far.Close()
	}
	if task.Assurance("").Level() != 0 || task.UIDSplit.Level() != 1 || task.DaemonExec.Level() != 2 {
		t.Error("levels")
	}
}
