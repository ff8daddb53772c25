package search

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// Place is where a search begins.
type Place struct {
	// Root is an open folder; nothing above it is looked at. It stays the caller's.
	Root int
	// Path is the place relative to Root, without a link in it and without a
	// slash at its ends; "" is Root. Rules of the folders between hold.
	Path string
	// Deny are paths relative to Root that are as if they were not there.
	Deny []string
	// Found, where set, is told what was found since it was told last, as a result
	// with these files alone; at most every FoundEvery, 0 for the usual time. It is
	// called while the search waits, and must not keep what it gets.
	Found      func(part any)
	FoundEvery time.Duration
}

// Limits of a walk, which keep its memory bounded whatever the tree.
const (
	direntBuffer = 64 << 10
	maxNames     = 16 << 20 // bytes of names of one folder that are sorted together
	maxPending   = 32 << 20 // bytes of paths of folders that are still to be read
	batchFiles   = 64       // names that are handed on together
)

// walk visits the folders below a place, one after the other in one goroutine.
type walk struct {
	ctx      context.Context
	place    Place
	noIgnore bool
	hidden   bool
	// enter says whether anything below a folder can be of use; path is relative
	// to the place and ends with a slash.
	enter func(path string) bool
	// folder, where set, is told of each folder below the place that no rule hides.
	folder func(path string) error
	emit   func(*batch) error
	skip   contract.Skipped

	buf   []byte
	arena []byte // names of the folder being read, each with a zero byte behind it
	list  []entry
	bytes int // of pending
	todo  []pending
}

type entry struct {
	off uint32
	len uint16
	typ byte
}

type pending struct {
	path  string // relative to Root, with a slash at its end; "" is Root
	chain *ruleChain
}

// batch is some files of one folder, sorted.
type batch struct {
	seq    int
	dir    *openFolder // the receiver releases it
	path   string      // of the folder, relative to the place, with a slash at its end
	inRoot string      // the same, relative to Root
	chain  *ruleChain  // nil: no rules
	names  []byte
	list   []entry
	hidden bool
	before contract.Skipped // what the walk had left out by then
}

// each calls f for the files that no rule hides. name has a zero byte behind it.
func (b *batch) each(f func(name []byte, typ byte) error) error {
	var path []byte
	for _, e := range b.list {
		name := b.names[e.off : int(e.off)+int(e.len)+1 : int(e.off)+int(e.len)+1]
		if b.chain != nil {
			path = append(append(path[:0], b.inRoot...), name[:e.len]...)
		}
		if hides(b.chain, b.hidden, path, name[:e.len], false) {
			continue
		}
		if err := f(name[:e.len], e.typ); err != nil {
			return err
		}
	}
	return nil
}

// hides says whether rules or a leading dot keep a name out. A rule that takes a
// name back also shows it when it is hidden.
func hides(chain *ruleChain, hidden bool, path, name []byte, dir bool) bool {
	v := unmatched
	if chain != nil {
		v = chain.verdict(view(path), dir)
	}
	return v == ignored || v == unmatched && !hidden && name[0] == '.'
}

// begin reads the rules that hold in the place.
func (w *walk) begin() *ruleChain {
	if w.noIgnore {
		return nil
	}
	var chain *ruleChain
	dir := ""
	for rest := w.place.Path; ; {
		fd, err := openBelow(w.place.Root, dir, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			chain = w.rules(chain, fd, dir, func(string) bool { return true })
			_ = unix.Close(fd)
		}
		if rest == "" {
			return chain
		}
		first, after, _ := strings.Cut(rest, "/")
		dir, rest = dir+first+"/", after
	}
}

// rules returns the chain for the folder dir, open as fd; has says whether a name
// may be in it.
func (w *walk) rules(up *ruleChain, fd int, dir string, has func(string) bool) *ruleChain {
	c := &ruleChain{up: up, base: dir}
	some := false
	load := func(kind int, name string) {
		if c.files[kind] = readRules(fd, name); c.files[kind] != nil {
			some = true
		}
	}
	if has(".git") {
		var st unix.Stat_t
		if unix.Fstatat(fd, ".git", &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			c.repo, some = true, true
			load(gitInfo, ".git/info/exclude")
		}
	}
	inRepo := c.repo
	for n := up; n != nil && !inRepo; n = n.up {
		inRepo = n.repo
	}
	for kind, name := range ruleNames {
		if has(name) && (kind != gitRules || inRepo) {
			load(kind, name)
		}
	}
	if !some {
		return up // one link less for every file below
	}
	return c
}

// readRules reads a file of rules; nil when there is none.
func readRules(dir int, name string) *ignoreFile {
	fd, err := openBelow(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	b := make([]byte, min(st.Size, maxIgnore)+1)
	n := 0
	for n < len(b) {
		k, err := readFD(fd, b[n:])
		if err != nil {
			return nil
		}
		if k == 0 {
			break
		}
		n += k
	}
	if f := parseIgnore(string(b[:min(n, maxIgnore)])); len(f.rules) > 0 {
		return f
	}
	return nil
}

// run walks until the end, an error of emit or folder, or the end of ctx.
func (w *walk) run() error {
	start := w.place.Path
	if start != "" {
		start += "/"
	}
	chain := w.begin()
	w.buf = make([]byte, direntBuffer)
	w.todo = append(w.todo, pending{path: start, chain: chain})
	for len(w.todo) > 0 {
		next := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		w.bytes -= len(next.path)
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		if err := w.visit(next, next.path == start); err != nil {
			return err
		}
	}
	return nil
}

// visit reads one folder: its files go out, its folders are put on top of what is
// to do. The files of a folder so come before those of its folders.
func (w *walk) visit(p pending, first bool) error {
	fd, err := openBelow(w.place.Root, strings.TrimSuffix(p.path, "/"), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		switch err {
		case unix.ENOENT, unix.ENOTDIR, unix.ELOOP: // gone, or something else by now
		case unix.ENAMETOOLONG:
			w.skip.TooDeep++
		default:
			w.skip.Unreadable++
		}
		return nil
	}
	dir := &openFolder{fd: fd}
	dir.used.Store(1)
	defer dir.release()
	// Memory for names is bounded: a folder with more of them is taken in parts,
	// each sorted by itself.
	for more := true; more; {
		w.arena, w.list = w.arena[:0], w.list[:0]
		if more, err = w.read(fd); err != nil {
			w.skip.Unreadable++
		}
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		slices.SortFunc(w.list, func(a, b entry) int { return bytes.Compare(w.name(a), w.name(b)) })
		if !w.noIgnore && !first { // begin has read the rules of the first
			p.chain = w.rules(p.chain, fd, p.path, func(name string) bool { return more || w.has(name) })
		}
		first = true // for further parts
		if err := w.files(dir, p); err != nil {
			return err
		}
		if err := w.folders(p); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) name(e entry) []byte { return w.arena[e.off : int(e.off)+int(e.len)] }

func (w *walk) has(name string) bool {
	_, ok := slices.BinarySearchFunc(w.list, name, func(e entry, name string) int { return strings.Compare(view(w.name(e)), name) })
	return ok
}

// read fills the arena from an open folder; more says that it is not at its end.
func (w *walk) read(fd int) (more bool, err error) {
	for {
		n, err := unix.Getdents(fd, w.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return false, err
		}
		dents(w.buf[:n], func(name []byte, typ byte) {
			if typ == unix.DT_UNKNOWN {
				if typ, err = typeOf(fd, string(name)); err != nil {
					return // gone
				}
			}
			w.list = append(w.list, entry{off: uint32(len(w.arena)), len: uint16(len(name)), typ: typ})
			w.arena = append(append(w.arena, name...), 0)
		})
		if len(w.arena) > maxNames {
			return true, nil
		}
		if context.Cause(w.ctx) != nil {
			return false, nil
		}
	}
}

// files hands on what is no folder.
func (w *walk) files(dir *openFolder, p pending) error {
	start := w.place.Path
	if start != "" {
		start += "/"
	}
	var b *batch
	flush := func() error {
		if b == nil {
			return nil
		}
		full := b
		b = nil
		dir.used.Add(1)
		return w.emit(full)
	}
	for _, e := range w.list {
		if e.typ == unix.DT_DIR {
			continue
		}
		if b == nil {
			b = &batch{dir: dir, path: p.path[len(start):], inRoot: p.path, chain: p.chain, hidden: w.hidden, before: w.skip}
		}
		name := w.name(e)
		b.list = append(b.list, entry{off: uint32(len(b.names)), len: e.len, typ: e.typ})
		b.names = append(append(b.names, name...), 0)
		if len(b.list) == batchFiles {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// folders puts the folders that are to be entered on top, the first one uppermost.
func (w *walk) folders(p pending) error {
	start := len(w.place.Path)
	if start > 0 {
		start++
	}
	from := len(w.todo)
	for _, e := range w.list {
		if e.typ != unix.DT_DIR {
			continue
		}
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		name := w.name(e)
		path := p.path + string(name)
		// The inside of a repository's own folder is never what somebody looks for,
		// unless the search begins in it or everything is asked for.
		if string(name) == ".git" && !(w.noIgnore && w.hidden) {
			continue
		}
		if hides(p.chain, w.hidden, []byte(path), name, true) || slices.Contains(w.place.Deny, path) {
			continue
		}
		path += "/"
		if w.folder != nil {
			if err := w.folder(path[start:]); err != nil {
				return err
			}
		}
		if w.enter != nil && !w.enter(path[start:]) {
			continue
		}
		if w.bytes+len(path) > maxPending {
			w.skip.TooDeep++
			continue
		}
		w.bytes += len(path)
		w.todo = append(w.todo, pending{path: path, chain: p.chain})
	}
	slices.Reverse(w.todo[from:])
	return nil
}
