package source

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's own checksum, not a security measure
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// indexEntry is one file as git recorded it right after the checkout: the stat
// cache that spares reading unchanged files.
type indexEntry struct {
	ctimeS, ctimeN uint32
	mtimeS, mtimeN uint32
	dev, ino       uint32
	mode           uint32
	uid, gid       uint32
	size           uint32
	oid            string
	path           string
	flags          uint16 // assumed unchanged, stage
	more           uint16 // intended to be added, skipped
	at             int    // offset of the entry in the file
}

// Bits of an index entry's flags.
const (
	assumedValid = 0x8000 // in flags: git does not look at the file
	stageBits    = 0x3000 // in flags: not 0 in a conflict
	skipWorktree = 0x4000 // in more: the file is not meant to be there
	intentToAdd  = 0x2000 // in more: there is no content yet
)

const gitlink = 0o160000

// parseIndex reads an index of version 2 or 3, which git wrote for us.
func parseIndex(b []byte, format string) ([]indexEntry, error) {
	hashLen := 20
	if format == "sha256" {
		hashLen = 32
	}
	bad := func(what string) error {
		return task.Errorf(task.CodeInternal, "source.index", "the index cannot be read: %s", what)
	}
	if len(b) < 12+hashLen || string(b[:4]) != "DIRC" {
		return nil, bad("header")
	}
	version, n := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if version != 2 && version != 3 {
		return nil, bad("version")
	}
	if uint64(n)*62 > uint64(len(b)) {
		return nil, bad("count")
	}
	out := make([]indexEntry, 0, n)
	pos, end := 12, len(b)-hashLen
	for range n {
		fixed := 40 + hashLen + 2
		if pos+fixed > end {
			return nil, bad("entry")
		}
		u := func(i int) uint32 { return binary.BigEndian.Uint32(b[pos+4*i:]) }
		e := indexEntry{
			ctimeS: u(0), ctimeN: u(1), mtimeS: u(2), mtimeN: u(3), dev: u(4), ino: u(5), mode: u(6), uid: u(7), gid: u(8), size: u(9),
			oid: hex.EncodeToString(b[pos+40 : pos+40+hashLen]), at: pos,
		}
		flags := binary.BigEndian.Uint16(b[pos+40+hashLen:])
		if flags&0x4000 != 0 {
			if version < 3 {
				return nil, bad("flags")
			}
			fixed += 2
		}
		if pos+fixed > end {
			return nil, bad("entry")
		}
		e.flags = flags & (assumedValid | stageBits)
		if flags&0x4000 != 0 {
			e.more = binary.BigEndian.Uint16(b[pos+fixed-2:])
		}
		nul := bytes.IndexByte(b[pos+fixed:end], 0)
		if nul <= 0 {
			return nil, bad("name")
		}
		e.path = string(b[pos+fixed : pos+fixed+nul])
		pos += (fixed + nul + 8) &^ 7
		out = append(out, e)
	}
	return out, nil
}

// ownIndex returns the index as it must look inside, where the files belong to
// uid and gid: otherwise the first `git status` would read every file again.
func ownIndex(b []byte, entries []indexEntry, format string, uid, gid uint32) []byte {
	var h hash.Hash = sha1.New() //nolint:gosec // see above
	if format == "sha256" {
		h = sha256.New()
	}
	out := bytes.Clone(b[:len(b)-h.Size()])
	for _, e := range entries {
		if e.mode == gitlink {
			continue
		}
		binary.BigEndian.PutUint32(out[e.at+28:], uid)
		binary.BigEndian.PutUint32(out[e.at+32:], gid)
	}
	h.Write(out)
	return h.Sum(out)
}

// writeIndex renders an index of version 2, or of 3 where an entry needs it.
// The entries are sorted by path.
func writeIndex(entries []indexEntry, format string) []byte {
	var h hash.Hash = sha1.New() //nolint:gosec // see above
	if format == "sha256" {
		h = sha256.New()
	}
	version := uint32(2)
	for i := range entries {
		if entries[i].more != 0 {
			version = 3
		}
	}
	out := []byte("DIRC")
	u32 := func(ns ...uint32) {
		for _, n := range ns {
			out = binary.BigEndian.AppendUint32(out, n)
		}
	}
	u32(version, uint32(len(entries))) //nolint:gosec // far below
	for i := range entries {
		e := &entries[i]
		begin := len(out)
		u32(e.ctimeS, e.ctimeN, e.mtimeS, e.mtimeN, e.dev, e.ino, e.mode, e.uid, e.gid, e.size)
		oid, _ := hex.DecodeString(e.oid)
		out = append(out, oid...)
		flags := e.flags | uint16(min(len(e.path), 0xfff)) //nolint:gosec // bounded
		if e.more != 0 {
			flags |= 0x4000
		}
		out = binary.BigEndian.AppendUint16(out, flags)
		if e.more != 0 {
			out = binary.BigEndian.AppendUint16(out, e.more)
		}
		out = append(out, e.path...)
		for n := 8 - (len(out)-begin)%8; n > 0; n-- {
			out = append(out, 0)
		}
	}
	h.Write(out)
	return h.Sum(out)
}

// entryOf makes the entry of a file that is as i says.
func entryOf(path, oid string, i tree.Info) indexEntry {
	e := indexEntry{
		ctimeS: uint32(i.CtimeS), ctimeN: i.CtimeN, mtimeS: uint32(i.MtimeS), mtimeN: i.MtimeN, dev: uint32(i.Dev), ino: uint32(i.Ino), //nolint:gosec // git keeps the low 32 bits
		mode: 0o100644, uid: i.UID, gid: i.GID, size: uint32(i.Size), oid: oid, path: path, //nolint:gosec // see above
	}
	switch {
	case i.Kind == tree.Link:
		e.mode = 0o120000
	case i.Exec():
		e.mode = 0o100755
	}
	return e
}

// same reports whether a file is as the checkout left it. The changing time
// decides: it cannot be set from inside a boundary.
func (e *indexEntry) same(i tree.Info, s *state) bool {
	if s.since(i) {
		return false
	}
	return uint32(i.Size) == e.size && uint32(i.Ino) == e.ino && //nolint:gosec // git keeps the low 32 bits
		uint32(i.MtimeS) == e.mtimeS && i.MtimeN == e.mtimeN &&
		uint32(i.CtimeS) == e.ctimeS && i.CtimeN == e.ctimeN && fitsMode(e.mode, i)
}

// since reports whether something was changed after the task had begun.
func (s *state) since(i tree.Info) bool {
	return i.CtimeS > s.CutoffS || i.CtimeS == s.CutoffS && i.CtimeN >= s.CutoffN
}

// brought reports whether something that nothing else is recorded of is as it
// was put there, as far as its changing time says.
func (s *state) brought(i tree.Info) bool {
	return !s.since(i) && (i.CtimeS > s.BegunS || i.CtimeS == s.BegunS && i.CtimeN >= s.BegunN)
}

// fitsMode reports whether kind and executable bit are those of the entry.
func fitsMode(mode uint32, i tree.Info) bool {
	switch mode {
	case 0o120000:
		return i.Kind == tree.Link
	case 0o100755:
		return i.Kind == tree.File && i.Exec()
	case 0o100644:
		return i.Kind == tree.File && !i.Exec()
	}
	return false
}
