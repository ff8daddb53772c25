package egress

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// overseer ends a request whose program is gone while its server takes its time:
// else the connection would stay until somebody is silent for too long.
type overseer struct {
	x     *sending
	f     front
	ended chan struct{}
	gone  atomic.Bool

	once sync.Once
	all  sync.WaitGroup
}

// begin looks after a program of which nothing more is to be read for this
// request. One that only said that it will send nothing more may be waiting for
// its answer, so it has a while to get one.
func (o *overseer) begin(ctx context.Context) {
	o.all.Go(func() {
		watched, stop := o.f.watch(ctx)
		defer stop()
		select {
		case <-o.ended:
			return
		case <-watched.Done():
		}
		if o.x.tls { // there an end is one of both directions
			o.leave()
			return
		}
		t := time.NewTimer(o.x.g.Timeouts.Head)
		defer t.Stop()
		select {
		case <-o.ended:
		case <-t.C:
			o.leave()
		}
	})
}

// leave ends the connection to the server.
func (o *overseer) leave() {
	o.gone.Store(true)
	o.x.c.Conn.Close()
}

// end is the end of the request. The program's next words are for somebody else.
func (o *overseer) end() {
	o.once.Do(func() { close(o.ended) })
	o.all.Wait()
}

// failing notes that a read failed, or came to the end.
type failing struct {
	io.Reader
	failed, ended bool
}

func (r *failing) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.ended = r.ended || errors.Is(err, io.EOF)
	r.failed = r.failed || err != nil && !errors.Is(err, io.EOF)
	return n, err
}
