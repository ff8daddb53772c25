// Package workerbin carries the small static program that caisson places
// inside a boundary, and puts it on disk for the launcher.
//
// Its limit: it stores bytes and checks them; it starts nothing. A program
// built without the embedded worker (plain `go build`, `go test`) gets
// ErrAbsent and may use its own executable instead, when that registers the
// worker's roles (see cmd/caisson).
package workerbin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"sync"
)

// bin holds the worker that `make build` put there; the committed keep-file
// makes the pattern match in a tree where nothing was built. "all:" because
// the keep-file begins with a dot.
//
//go:embed all:bin
var bin embed.FS

// digest is the worker's SHA-256 in hex, stamped by the Makefile so that a
// start need not hash some megabytes. It only names the file: what decides
// whether a file on disk is ours is the comparison with the embedded bytes.
var digest string

// ErrAbsent says that this program was built without the worker. The caller
// may launch its own executable in the worker's roles instead, if it is one
// that has them.
var ErrAbsent = errors.New("workerbin: this build carries no worker")

// Mode is the mode of the worker's file.
type Mode uint32

const (
	// Unread lets everybody execute and nobody read, not even the owner: the
	// kernel then makes a process non-dumpable from its first instruction. With a
	// readable file there is a moment, between the exec of a guardian and its own
	// PR_SET_DUMPABLE, in which a tool of the same kernel id could open its memory.
	// Execute for others, because the worker has another kernel id when caisson
	Unread Mode = 0o111
	// Readable is for a kernel inside that loads a program only for who may read it.
	Readable Mode = 0o555
)

// suffix tells the files of a folder apart.
var suffix = map[Mode]string{Unread: "", Readable: "-r"}

// image is the embedded worker; embed.FS.ReadFile would copy all of it.
type image struct {
	io.ReaderAt
	size int64
}

// open returns the embedded worker, nil when there is none. Reading it needs
// no closing.
var open = sync.OnceValue(func() *image { return imageIn(bin) })

func imageIn(fsys fs.FS) *image {
	f, err := fsys.Open("bin/caisson-worker")
	if err != nil {
		return nil
	}
	st, err := f.Stat()
	r, ok := f.(io.ReaderAt)
	if err != nil || !ok || st.Size() == 0 {
		return nil
	}
	return &image{ReaderAt: r, size: st.Size()}
}

func (im *image) sha256() string {
	h := sha256.New()
	_, _ = io.Copy(h, io.NewSectionReader(im, 0, im.size)) // memory to memory
	return hex.EncodeToString(h.Sum(nil))
}

// Present reports whether this program carries a worker.
func Present() bool { return open() != nil }

// Bytes returns a copy of the embedded worker, nil when there is none.
func Bytes() []byte {
	im := open()
	if im == nil {
		return nil
	}
	b := make([]byte, im.size)
	_, _ = im.ReadAt(b, 0)
	return b
}

// SHA256 returns the hex digest of the embedded worker, "" when there is none.
var SHA256 = sync.OnceValue(func() string {
	im := open()
	switch {
	case im == nil:
		return ""
	case len(digest) == sha256.Size*2:
		return digest
	}
	return im.sha256()
})
