package mcp

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// flushTime is how long a client may take to read the last answers once the
// server ends.
const flushTime = 2 * time.Second

// Stdio serves one client over a pair of streams, until the client closes its
// side (nil) or ctx ends (its cause). It closes both streams.
func (s *Server) Stdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	gone := make(chan struct{})
	ended := make(chan error, 1)
	hungUp := sync.OnceFunc(func() { s.halt(errGone); close(gone) })
	t := &owing{Transport: &sdk.IOTransport{Reader: &ending{ReadCloser: in, end: hungUp}, Writer: out}, calls: map[jsonrpc.ID]bool{}}
	// The session outlives ctx by the answers that are on their way then.
	ss, err := s.sdk.Connect(context.WithoutCancel(ctx), t, nil)
	if err != nil {
		return err
	}
	go func() { ended <- ss.Wait() }()
	var cause error
	select {
	case err := <-ended:
		// A message that cannot be read ends the session too: what follows it in the
		// stream has no meaning.
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
			s.cfg.Note("the client's stream could not be read: " + err.Error())
		}
		s.halt(errGone)
		return nil
	case <-gone:
	case <-ctx.Done():
		cause = context.Cause(ctx)
		s.halt(cause)
	}
	// A client that does not read must not hold up the end of the task.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if cause != nil { // who hung up gets no answer
		t.settled(late)
	}
	go func() { _ = ss.Close() }()
	select {
	case <-ended:
	case <-late.Done():
	}
	_ = in.Close()
	_ = out.Close()
	return cause
}

// ending tells when a stream ends.
type ending struct {
	io.ReadCloser
	end func()
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil {
		e.end()
	}
	return n, err
}

// owing knows which calls have no answer yet: the library drops answers that are
// not written when a session is closed, and a client would have to guess how its
// last call ended.
type owing struct {
	sdk.Transport

	mu    sync.Mutex
	calls map[jsonrpc.ID]bool // guarded by mu
	paid  chan struct{}       // guarded by mu: closed when the last is answered; nil: nobody waits
}

func (o *owing) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := o.Transport.Connect(ctx)
	return &owingConn{c, o}, err
}

// settled waits until every call is answered, or ctx ends.
func (o *owing) settled(ctx context.Context) {
	o.mu.Lock()
	if len(o.calls) == 0 {
		o.mu.Unlock()
		return
	}
	o.paid = make(chan struct{})
	paid := o.paid
	o.mu.Unlock()
	select {
	case <-paid:
	case <-ctx.Done():
	}
}

type owingConn struct {
	sdk.Connection
	o *owing
}

func (c *owingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); ok && err == nil && r.Method == "tools/call" && r.IsCall() {
		c.o.mu.Lock()
		c.o.calls[r.ID] = true
		c.o.mu.Unlock()
	}
	return m, err
}

func (c *owingConn) Write(ctx context.Context, m jsonrpc.Message) error {
	err := c.Connection.Write(ctx, m)
	if r, ok := m.(*jsonrpc.Response); ok {
		c.o.mu.Lock()
		delete(c.o.calls, r.ID)
		if c.o.paid != nil && len(c.o.calls) == 0 {
			close(c.o.paid)
			c.o.paid = nil
		}
		c.o.mu.Unlock()
	}
	return err
}
