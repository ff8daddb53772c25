// Package tree reads, walks, moves and removes folders that a boundary wrote
// to, without ever following what it planted there: no link, no mount, no
// special file, no name that leads out.
//
// Its limit: it knows names, kinds and bytes; it knows nothing of git and
// decides nothing about what is kept.
//
// Every path is resolved one component at a time, relative to a descriptor of
// the parent, with Openat2(RESOLVE_BENEATH|NO_SYMLINKS|NO_MAGICLINKS|NO_XDEV).
// A file is first pinned with O_PATH, looked at, and only then opened through
// its own descriptor, so what was checked is what is read.
package tree

import "errors"

// Kind is what an entry is.
type Kind uint8

// The kinds. The zero value is Special: never opened.
const (
	Special Kind = iota // FIFO, socket, device, or on another file system
	File
	Dir
	Link
)

// Info is what the kernel says about an entry. Ctime cannot be set from
// inside a boundary; the rest can.
type Info struct {
	Kind        Kind
	Mode        uint32 // type and permission bits, as in struct stat
	Size        int64
	MtimeS      int64
	CtimeS      int64
	MtimeN      uint32
	CtimeN      uint32
	Dev, Ino    uint64
	UID, GID    uint32
	OtherDevice bool
}

// Exec reports whether the owner may execute it.
func (i Info) Exec() bool { return i.Mode&0o100 != 0 }

// Limits of a walk.
const (
	MaxDepth = 400       // folders inside one another
	MaxCount = 2_000_000 // entries
)

// Errors of this package that callers match.
var (
	// ErrKind says that an entry is not what was asked for, for example a link
	// where a file was expected.
	ErrKind = errors.New("tree: not a regular file or folder")
	// ErrLimit says that a folder is deeper or larger than the limits.
	ErrLimit = errors.New("tree: deeper or larger than the limit")
	// ErrExists says that something is where nothing must be.
	ErrExists = errors.New("tree: something is there already")
	// ErrUnsupported says that this platform has no safe resolution.
	ErrUnsupported = errors.New("tree: not supported on this platform")
)

// Entry is one name met in a walk. It is valid during the call only.
type Entry struct {
	Path string // relative to the root, raw bytes, "/" between components
	Name string
	Info Info
	// Descend is set by the walk function to go into a folder.
	Descend bool

	dir *handle // parent
}
