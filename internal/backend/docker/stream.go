package docker

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/caisson-dev/caisson/internal/task"
)

// attached is a container's standard streams over one connection: what is written
// is its input; what is read is its output, which the engine mixes with its errors
// in pieces behind a header of eight bytes.
type attached struct {
	net.Conn
	r    *bufio.Reader
	left int // of the piece of standard output that is being read

	mu       sync.Mutex
	complain []byte // the last of standard error
}

// maxComplaint is how much of standard error is kept.
const maxComplaint = 8 << 10

// maxPiece bounds what one header may announce.
const maxPiece = 16 << 20

var errPiece = errors.New("the engine's stream has a header that is none")

// Read returns bytes of standard output.
func (a *attached) Read(p []byte) (int, error) {
	for a.left == 0 {
		var h [8]byte
		if _, err := io.ReadFull(a.r, h[:]); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = io.EOF
			}
			return 0, err
		}
		n := binary.BigEndian.Uint32(h[4:])
		if h[0] > 2 || h[1] != 0 || h[2] != 0 || h[3] != 0 || n > maxPiece {
			return 0, errPiece
		}
		if h[0] != 2 {
			a.left = int(n)
			continue
		}
		if err := a.takeComplaint(int64(n)); err != nil {
			return 0, err
		}
	}
	n, err := a.r.Read(p[:min(len(p), a.left)])
	a.left -= n
	return n, err
}

func (a *attached) takeComplaint(n int64) error {
	text, err := io.ReadAll(io.LimitReader(a.r, n))
	if err == nil && int64(len(text)) < n {
		err = io.EOF
	}
	a.mu.Lock()
	a.complain = append(a.complain, text...)
	if over := len(a.complain) - maxComplaint; over > 0 {
		a.complain = append([]byte(nil), a.complain[over:]...)
	}
	a.mu.Unlock()
	return err
}

// complaint is what the worker said on standard error last.
func (a *attached) complaint() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return printable(string(a.complain), 500)
}

// Multiplexed says that no descriptor goes over, and what keeps the worker apart
// from the tools: its user id, which was checked.
func (a *attached) Multiplexed() task.Assurance { return task.UIDSplit }
