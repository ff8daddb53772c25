//go:build !linux

package worker

import (
	"net"
	"os"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/frame"
)

func newTransport(conn net.Conn, o Options) (frame.Transport, task.Assurance, error) {
	return &stream{conn: conn, timeout: o.WriteTimeout}, task.MACOnly, nil
}

func borrow(fs []*os.File) ([]int, func(), error) {
	if len(fs) > 0 {
		return nil, nil, errNoFDs
	}
	return nil, func() {}, nil
}

// OpenPTY is to be had on Linux alone.
func OpenPTY(_, _ uint16) (master, slave *os.File, err error) { return nil, nil, errNoFDs }

func hold([]byte) (*os.File, error) { return nil, errNoFDs }

// watcher exists only where a kernel tells the host how a process ended.
type watcher struct{ pid int }

func newWatcher(*Call, int) *watcher      { return nil }
func (w *watcher) status() (uint32, bool) { return 0, false }
func (w *watcher) run()                   {}
func (w *watcher) interrupt()             {}
