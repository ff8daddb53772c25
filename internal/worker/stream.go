package worker

import (
	"errors"
	"net"
	"time"
)

// errNoFDs says that a transport carries bytes only.
var errNoFDs = errors.New("worker: this channel cannot carry descriptors")

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
