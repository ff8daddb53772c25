package mux

import (
	"encoding/binary"
	"errors"
	"io"
)

// A stream is a sequence of chunks: a header of twelve bytes (kind, stream,
// length; big endian) and as many bytes.
const (
	headSize = 12
	// maxChunk bounds one chunk. Small enough that a ping waits for little.
	maxChunk = 32 << 10
	// window is how much of one stream may be under way: what its other end has
	// not taken yet lies in memory there.
	window = 256 << 10
	// maxStreams bounds how many are open at once.
	maxStreams = 4096
	// MaxBlob bounds the content of one file that goes over as a whole.
	MaxBlob = 64 << 20
)

// Kinds of chunks.
const (
	bytesChunk  = 1 + iota // of frames; stream: how many descriptors belong to its first byte
	passChunk              // stream begins and belongs to the frame that follows; body: what it is
	dataChunk              // of a stream
	endChunk               // nothing more comes in this direction of a stream
	brokenChunk            // nobody takes what comes in the other direction of a stream
	creditChunk            // body: how many bytes more may come in the other direction
	blobChunk              // content of a passed file, before its frame
	markChunk              // body: operation, then stream and count of bytes in turn
	sizeChunk              // of a terminal; body: rows and columns
)

// What is passed.
const (
	passIn   = 'i' // the receiver reads: standard input
	passOut  = 'o' // the receiver writes: standard output
	passTTY  = 't' // a terminal; rows and columns follow
	passSame = 's' // what the stream before it in this frame, of that number, is: standard error with output
	passBlob = 'b' // a regular file; its content comes in blob chunks
)

// ErrChunk says that the other end broke the rules of this package.
var ErrChunk = errors.New("mux: a chunk that cannot be")

type chunk struct {
	kind, stream uint32
	body         []byte
}

func head(kind, stream uint32, size int) [headSize]byte {
	var h [headSize]byte
	binary.BigEndian.PutUint32(h[0:], kind)
	binary.BigEndian.PutUint32(h[4:], stream)
	binary.BigEndian.PutUint32(h[8:], uint32(size))
	return h
}

// readChunk reads one chunk into buf, which has room for the largest. A reader
// that ended between two chunks is io.EOF.
func readChunk(r io.Reader, buf []byte) (chunk, error) {
	var h [headSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return chunk{}, err
	}
	c := chunk{kind: binary.BigEndian.Uint32(h[0:]), stream: binary.BigEndian.Uint32(h[4:])}
	n := binary.BigEndian.Uint32(h[8:])
	if c.kind < bytesChunk || c.kind > sizeChunk || n > maxChunk {
		return chunk{}, ErrChunk
	}
	c.body = buf[:n]
	if _, err := io.ReadFull(r, c.body); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return chunk{}, err
	}
	return c, nil
}
