package worker

import (
	"errors"
	"net"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// errNoFDs says that a transport carries bytes only.
var errNoFDs = errors.New("worker: this channel cannot carry descriptors")

// Multiplexed is a connection to a worker that takes the place of descriptors by
// streams of its own beside the frames, as package mux has them.
type Multiplexed interface {
	// Multiplexed says what is known to make its messages the worker's own.
	Multiplexed() task.Assurance
}

// delivering is a transport whose output of calls is under way for a moment when
// their end is told.
type delivering interface {
	// Delivered is closed once what the call of op had put out is where it belongs.
	Delivered(op uint64) <-chan struct{}
}

// stream is a frame.Transport over any connection: no descriptors, no sender.
type stream struct {
	conn    net.Conn
	timeout time.Duration
}

func (s *stream) Recv(p []byte) (int, []int, error) {
	n, err := s.conn.Read(p)
	if n > 0 {
		err = nil // the error comes again on the next read
	}
	return n, nil, err
}

func (s *stream) Send(p []byte, fds []int) error {
	if len(fds) > 0 {
		return errNoFDs
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	_, err := s.conn.Write(p)
	return err
}

func (s *stream) Close() error { return s.conn.Close() }
