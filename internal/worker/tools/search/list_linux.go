package search

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// List reads an open folder. Of one with many entries it holds only those that
// the result will have.
func List(ctx context.Context, dir int, a *contract.ListDirArgs) (*contract.ListDirResult, error) {
	limit := bound(a.Limit, contract.ListDefault, contract.ListMax)
	var first nameHeap // the first names so far, the last of them on top
	total := 0
	buf := make([]byte, direntBuffer)
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		n, err := unix.Getdents(dir, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n <= 0 {
			break
		}
		dents(buf[:n], func(name []byte, _ byte) {
			switch total++; {
			case len(first) < limit:
				heap.Push(&first, string(name))
			case view(name) < first[0]:
				first[0] = string(name)
				heap.Fix(&first, 0)
			}
		})
	}
	slices.Sort(first)
	r := &contract.ListDirResult{Entries: make([]contract.DirEntry, 0, len(first)), Total: total, Truncated: total > len(first)}
	for _, name := range first {
		r.Entries = append(r.Entries, describe(dir, name))
	}
	return r, nil
}

// describe looks at one entry, never through a link.
func describe(dir int, name string) contract.DirEntry {
	e := contract.DirEntry{Kind: "gone"}
	e.Name, e.NameBytes = texts([]byte(name))
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return e
	}
	e.Kind = kind(byte(st.Mode & unix.S_IFMT >> 12))
	e.Mode = fmt.Sprintf("%04o", st.Mode&0o7777)
	e.Modified = time.Unix(st.Mtim.Unix()).UTC().Format(time.RFC3339)
	switch e.Kind {
	case "file":
		e.Size = st.Size
	case "link":
		b := make([]byte, unix.PathMax)
		if n, err := unix.Readlinkat(dir, name, b); err == nil {
			e.Target, e.TargetBytes = texts(b[:n])
		}
	}
	return e
}

func kind(typ byte) string {
	switch typ {
	case unix.DT_REG:
		return "file"
	case unix.DT_DIR:
		return "dir"
	case unix.DT_LNK:
		return "link"
	case unix.DT_FIFO:
		return "fifo"
	case unix.DT_SOCK:
		return "socket"
	}
	return "device"
}

// nameHeap has its last name first.
type nameHeap []string

func (h nameHeap) Len() int           { return len(h) }
func (h nameHeap) Less(i, j int) bool { return cmp.Less(h[j], h[i]) }
func (h nameHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *nameHeap) Push(x any)        { *h = append(*h, x.(string)) }
func (h *nameHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// Find returns the files below a place whose path matches.
func Find(ctx context.Context, p Place, a *contract.GlobArgs) (*contract.GlobResult, error) {
	g, fail := NewGlob(a.Pattern)
	if fail != nil {
		return nil, fail
	}
	limit := bound(a.Limit, contract.GlobDefault, contract.GlobMax)
	r := &contract.GlobResult{Files: []contract.FoundFile{}}
	tell := newTeller(&p)
	found := func(path []byte, kind string) error {
		if len(r.Files) == limit {
			r.Truncated = true
			return errEnough
		}
		f := contract.FoundFile{Kind: kind}
		f.Path, f.PathBytes = texts(path)
		r.Files = append(r.Files, f)
		tell.glob(r)
		return nil
	}
	var path []byte
	w := &walk{ctx: ctx, place: p, noIgnore: a.NoIgnore, hidden: a.Hidden, enter: g.Enter}
	if g.dirs {
		w.folder = func(path string) error {
			if path = path[:len(path)-1]; g.Match(path) {
				return found([]byte(path), "dir")
			}
			return nil
		}
	}
	w.emit = func(b *batch) error {
		defer b.dir.release()
		if g.dirs {
			return nil
		}
		return b.each(func(name []byte, typ byte) error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if path = append(append(path[:0], b.path...), name...); !g.Match(view(path)) {
				return nil
			}
			switch typ {
			case unix.DT_REG, unix.DT_LNK:
				return found(path, kind(typ))
			}
			w.skip.Special++
			return nil
		})
	}
	if err := w.run(); err != nil && err != errEnough {
		return nil, err
	}
	r.Skipped = w.skip
	return r, nil
}
