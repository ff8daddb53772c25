// Package swap changes many files of one folder as one step: all of them or
// none, also when the process is killed in between or somebody writes there at
// the same time. Nothing that another program saved is lost.
//
// Its limit: it knows paths, bytes and modes. Which files change, and whether
// they may, is decided by package source.
//
// How it works. The new contents are made beforehand in a staging folder on the
// same file system; a journal says what was there and what will be. Then each
// path is exchanged with its staged file by one rename that cannot follow a
// link, and what came out is compared with what was expected. The old files are
// deleted only when all of that went well and is on disk; until then every step
// can be taken back, by this process or by Recover in a later one.
package swap

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/sys"
)

var _ = sys.RegisterFaults("swap.begun", "swap.staged", "swap.journaled", "swap.stepped", "swap.undone", "swap.exchanged", "swap.durable", "swap.committed", "swap.removed")

// Kind is what an entry is.
type Kind uint8

// The kinds. The zero value is Special: never opened.
const (
	Special Kind = iota // FIFO, socket, device
	File
	Link
	Dir
)

// Seen is an entry as it was looked at.
type Seen struct {
	Kind   Kind   `json:"kind"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	Size   int64  `json:"size"`
	Mode   uint32 `json:"mode"` // type and permission bits, as in struct stat
	UID    uint32 `json:"uid"`
	GID    uint32 `json:"gid"`
	MtimeS int64  `json:"mtime_s"`
	MtimeN int64  `json:"mtime_ns"`
	CtimeS int64  `json:"ctime_s"`
	CtimeN int64  `json:"ctime_ns"`
	// Hash is the SHA-256 of a file's content or a link's target, where it was
	// asked for.
	Hash [sha256.Size]byte `json:"hash"`
}

// Perm returns the permission bits.
func (s *Seen) Perm() uint32 { return s.Mode & 0o7777 }

// same reports whether o is the same entry with, as far as times tell, the same
// content. A rename changes the changing time, so that counts only where asked.
func (s *Seen) same(o *Seen, ctime bool) bool {
	return s.is(o) && s.Kind == o.Kind && s.Size == o.Size && s.Mode == o.Mode && s.MtimeS == o.MtimeS && s.MtimeN == o.MtimeN &&
		(!ctime || s.CtimeS == o.CtimeS && s.CtimeN == o.CtimeN)
}

// is reports whether o is the same entry, whatever became of it.
func (s *Seen) is(o *Seen) bool { return s != nil && o != nil && s.Dev == o.Dev && s.Ino == o.Ino }

// Content is what shall be at a path.
type Content struct {
	Kind Kind
	From string // of a file: where its bytes are, in a folder of ours
	To   string // of a link: its target
	Perm uint32
	// UID and GID are the owner; -1 leaves it to the kernel.
	UID, GID int
}

// Step is the change of one path. Old is what was seen there, nil: nothing;
// New is what shall be there, nil: nothing. Both may be folders, which then
// must be empty when it is their turn.
type Step struct {
	Path string
	Old  *Seen
	New  *Content
	// Optional is for a folder that goes when nothing is left in it.
	Optional bool
}

// Job says where steps are done.
type Job struct {
	// Root is the open folder, whose lock the caller holds, and RootPath its name.
	Root     *os.File
	RootPath string
	// Stages are folders in which a staging folder may be made; the first one
	// from which files can be renamed into Root is taken.
	Stages []string
	// Name begins the name of the staging folder.
	Name string
	// Journal is a folder of ours; it is made, and removed in the end.
	Journal string
	// Check is asked after the last exchange; an error takes everything back.
	Check func() error
}

// Left is a path that could not be put back because somebody else changed it
// meanwhile. Their version stays; what was there before is in the file Kept,
// when it was not empty.
type Left struct {
	Path string
	Kept string
}

// Errors of this package that callers match.
var (
	// ErrUnsupported says that this platform or file system cannot do it.
	ErrUnsupported = errors.New("swap: files cannot be exchanged here")
	// ErrUnsafe says that a path leads over a link or another file system.
	ErrUnsafe = errors.New("swap: the path leads over a link or onto another file system")
	// ErrMoved says that the folder of the journal is not there any more.
	ErrMoved = errors.New("swap: the folder is not the one that was recorded")
)

// Changed says that a path is not as it was seen: somebody wrote there.
type Changed struct{ Path, Why string }

func (c *Changed) Error() string { return strconv.QuoteToGraphic(c.Path) + ": " + c.Why }

// Undone wraps why steps were taken back. Left is not empty when some could not.
type Undone struct {
	Err  error
	Left []Left
}

func (u *Undone) Error() string {
	if len(u.Left) == 0 {
		return u.Err.Error()
	}
	return fmt.Sprintf("%v; %d paths could not be put back", u.Err, len(u.Left))
}

func (u *Undone) Unwrap() error { return u.Err }

// Valid reports whether a path can be resolved below a folder at all.
func Valid(path string) bool {
	if path == "" || strings.ContainsRune(path, 0) {
		return false
	}
	for _, p := range strings.Split(path, "/") {
		if p == "" || p == "." || p == ".." {
			return false
		}
	}
	return true
}
