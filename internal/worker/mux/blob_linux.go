package mux

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// blob is a file whose content comes before its frame.
type blob struct {
	fd   int
	left int64
}

func newBlob(size int64) (*blob, error) {
	fd, err := unix.MemfdCreate("passed", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &blob{fd: fd, left: size}, nil
}

func (b *blob) close() { _ = unix.Close(b.fd) }

// passContent sends a regular file as a whole, from its beginning.
func (c *Conn) passContent(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > MaxBlob {
		return fmt.Errorf("mux: only a regular file of at most %d bytes can be passed so", MaxBlob)
	}
	body := append([]byte{passBlob}, make([]byte, 8)...)
	binary.BigEndian.PutUint64(body[1:], uint64(st.Size))
	if err := c.put(passChunk, 0, body); err != nil {
		return err
	}
	buf := make([]byte, maxChunk)
	for off := int64(0); off < st.Size; {
		n, err := unix.Pread(fd, buf[:min(int64(len(buf)), st.Size-off)], off)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 {
			// It became shorter. What is announced must come.
			n = int(min(int64(len(buf)), st.Size-off))
			clear(buf[:n])
		}
		if err := c.put(blobChunk, 0, buf[:n]); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

func (c *Conn) takeBlob(ch chunk) error {
	b := c.blob
	if b == nil || len(ch.body) == 0 || int64(len(ch.body)) > b.left {
		return ErrChunk
	}
	for p := ch.body; len(p) > 0; {
		n, err := unix.Write(b.fd, p)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	b.left -= int64(len(ch.body))
	return c.settleBlob()
}

// settleBlob makes a whole one a descriptor of the frame that follows.
func (c *Conn) settleBlob() error {
	b := c.blob
	if b.left > 0 {
		return nil
	}
	c.blob = nil
	if _, err := unix.Seek(b.fd, 0, 0); err != nil {
		b.close()
		return err
	}
	c.pending = append(c.pending, b.fd)
	return nil
}
