package capture

import (
	"errors"
	"io"
	"os"
	"time"
)

// After a program ended: what it wrote is in the pipe by then and is always
// taken to the last byte. What processes that it left behind still write is
// taken until they fall silent, within a bound.
const (
	silence = 100 * time.Millisecond
	bound   = time.Second
)

// Pump moves what comes out of r to a sink. From the end of the program on it
// reads and drops, so that what was left behind with the pipe does not die of
// it; it ends with the last writer.
type Pump struct {
	r     *os.File
	w     io.WriteCloser
	taken chan struct{}
	over  chan struct{}
}

// NewPump starts a pump, which closes both r and w.
func NewPump(r *os.File, w io.WriteCloser) *Pump {
	p := &Pump{r: r, w: w, taken: make(chan struct{}), over: make(chan struct{})}
	go p.run()
	return p
}

// End says that the program ended, and returns when everything is taken.
func (p *Pump) End() {
	_ = p.r.SetReadDeadline(time.Unix(1, 0))
	<-p.taken
}

// Over is closed once the last writer is gone.
func (p *Pump) Over() <-chan struct{} { return p.over }

func (p *Pump) run() {
	defer close(p.over)
	defer p.r.Close()
	buf := make([]byte, 64<<10)
	err := p.copy(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = p.drain(buf)
	}
	_ = p.w.Close()
	close(p.taken)
	if err == nil {
		_ = p.r.SetReadDeadline(time.Time{})
		_, _ = io.Copy(io.Discard, p.r)
	}
}

func (p *Pump) copy(buf []byte) error {
	for {
		n, err := p.r.Read(buf)
		if n > 0 {
			_, _ = p.w.Write(buf[:n])
		}
		if err != nil {
			return err
		}
	}
}

// drain returns nil when somebody may still write.
func (p *Pump) drain(buf []byte) error {
	left := waiting(p.r)
	_ = p.r.SetReadDeadline(time.Time{})
	for left > 0 {
		n, err := p.r.Read(buf[:min(left, len(buf))])
		if n > 0 {
			_, _ = p.w.Write(buf[:n])
		}
		if err != nil {
			return err
		}
		left -= n
	}
	for until := time.Now().Add(bound); time.Now().Before(until); {
		_ = p.r.SetReadDeadline(time.Now().Add(silence))
		n, err := p.r.Read(buf)
		if n > 0 {
			_, _ = p.w.Write(buf[:n])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
