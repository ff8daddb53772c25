//go:build !linux

package control

import (
	"errors"
	"net"
	"os"
)

var errPlatform = errors.New("control: a supervisor's socket needs Linux")

func sendWithFiles(*net.UnixConn, []byte, []*os.File) error   { return errPlatform }
func recvWithFiles(*net.UnixConn, []byte) ([]*os.File, error) { return nil, errPlatform }
func stopped(*net.UnixConn) bool                              { return false }

func reader(*os.File) *os.File    { return nil }
func reference(*os.File) *os.File { return nil }
