package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Draining after a command ended. What the command itself wrote is in the pipe
// by then and is always read to the last byte. What processes that it left
// behind still write is taken until they fall silent, within a bound: they may
// hold the pipe open for ever and must not hold us.
const (
	drainSilence = 100 * time.Millisecond
	drainBound   = time.Second
)

// tailSize is how much of the end of a stream is kept for the record.
const tailSize = 4 << 10

// tally is what went through one stream.
type tally struct {
	n    int64
	sum  hash.Hash
	tail []byte
}

func (t *tally) add(b []byte) {
	t.n += int64(len(b))
	if t.sum == nil {
		t.sum = sha256.New()
	}
	t.sum.Write(b)
	if len(b) >= tailSize {
		t.tail = append(t.tail[:0], b[len(b)-tailSize:]...)
		return
	}
	t.tail = append(t.tail, b...)
	if over := len(t.tail) - tailSize; over > 0 {
		t.tail = t.tail[:copy(t.tail, t.tail[over:])]
	}
}

func (t *tally) hex() string {
	if t.sum == nil {
		t.sum = sha256.New()
	}
	return hex.EncodeToString(t.sum.Sum(nil))
}

// fdOf returns f's descriptor without switching it to blocking mode, as
// (*os.File).Fd would: the mode is shared with whoever started us.
func fdOf(f *os.File) int {
	n := -1
	if f == nil {
		return n
	}
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { n = int(fd) })
	}
	return n
}

// gone reports whether err says that the reader of a stream went away.
func gone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, fs.ErrClosed)
}
