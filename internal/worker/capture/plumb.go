package capture

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Plumbing is the host's half of one program's streams.
type Plumbing struct {
	// Files are the program's ends; whoever starts it closes them. Unused with a
	// terminal.
	Files [3]*os.File
	tty   bool
	fed   sync.WaitGroup

	mu    sync.Mutex
	in    *os.File // the host's end of its input; nil with a terminal until it is there
	pumps []*Pump
}

// Plumb makes pipes for a program, or waits for its terminal. Output goes to
// the sinks, which it closes; with one sink both outputs go there, in the order
// in which they were written.
func Plumb(tty bool, sinks ...io.WriteCloser) (*Plumbing, error) {
	p := &Plumbing{tty: tty}
	if tty {
		for _, s := range sinks[1:] {
			_ = s.Close()
		}
		p.pumps = []*Pump{{w: sinks[0]}}
		return p, nil
	}
	var ours, theirs []*os.File
	for range 1 + len(sinks) {
		r, w, err := os.Pipe()
		if err != nil {
			for _, f := range append(ours, theirs...) {
				_ = f.Close()
			}
			return nil, err
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	ours[0], theirs[0] = theirs[0], ours[0]
	p.in = ours[0]
	for i, s := range sinks {
		p.pumps = append(p.pumps, NewPump(ours[i+1], s))
	}
	// One file twice is two descriptors of the program.
	p.Files = [3]*os.File(append(theirs, theirs[len(theirs)-1])[:3])
	return p, nil
}

// OnPTY takes the host's end of the program's terminal, and closes it.
func (p *Plumbing) OnPTY(master *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.in = master
	p.pumps = []*Pump{NewPump(master, p.pumps[0].w)}
}

// Feed writes the program's input in the background and ends it then, unless it
// stays open.
func (p *Plumbing) Feed(text string, stays bool) {
	if p.tty && text != "" && !stays {
		text += "\x04"
		if !strings.HasSuffix(text, "\n\x04") {
			text += "\x04" // the first only sends the unfinished line
		}
	}
	p.fed.Go(func() {
		if text != "" {
			_, _ = p.Write(text, time.Time{})
		}
		if !stays {
			p.CloseInput()
		}
	})
}

// Write gives the program more input, until a deadline; a zero one is none.
func (p *Plumbing) Write(text string, until time.Time) (int, error) {
	p.mu.Lock()
	in := p.in
	p.mu.Unlock()
	if in == nil {
		return 0, os.ErrClosed
	}
	if !until.IsZero() {
		_ = in.SetWriteDeadline(until)
	}
	return in.WriteString(text)
}

// CloseInput ends the program's input; of a terminal, by ^D.
func (p *Plumbing) CloseInput() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.in != nil && !p.tty {
		_ = p.in.Close()
		p.in = nil
	}
}

// End takes what is left of the output, once the program ended or was not
// started at all.
func (p *Plumbing) End() {
	p.mu.Lock()
	in, pumps := p.in, p.pumps
	p.mu.Unlock()
	if in != nil {
		_ = in.SetWriteDeadline(time.Unix(1, 0)) // nobody reads it any more
	}
	for _, pump := range pumps {
		if pump.r == nil { // the terminal was never made
			_ = pump.w.Close()
			continue
		}
		pump.End()
	}
	p.fed.Wait()
	p.CloseInput()
}

// TTY reports whether the program has a terminal.
func (p *Plumbing) TTY() bool { return p.tty }
