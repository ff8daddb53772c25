package source

import (
	"context"
	"errors"
	"io/fs"
	"sort"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// Limits on what is read of a task's own git directory.
const (
	maxRefFile = 4096
	maxPacked  = 64 << 20
	maxRefs    = 200_000
)

// refChanges is what a task did to its refs, read without git.
type refChanges struct {
	changed []Ref // refs, and HEAD when detached, with an object that Prepare did not put there
	extra   []Ref // objects without a ref of their own: older stashes, HEADs of worktrees
	lost    []Ref // objects that only a pack brings out: those that the logs alone name, and extra where no ref has changed
	// unknown says why the refs could not be read; then the bundle tells.
	unknown string
}

func (c *refChanges) any() bool { return len(c.changed)+len(c.extra) > 0 || c.unknown != "" }

// logs says whether the logs of a task's refs are looked at, and how.
type logs int

const (
	unread  logs = iota // not at all
	likely              // their own words tell which commits others lead to
	exactly             // only objects do
)

// changedRefs compares the task's refs with what Prepare wrote.
func (ws Workspace) changedRefs(ctx context.Context, s *state) (*refChanges, error) {
	return ws.refChanges(ctx, s, unread)
}

// refChanges is changedRefs, and looks at the logs of the refs too.
func (ws Workspace) refChanges(ctx context.Context, s *state, look logs) (*refChanges, error) {
	switch s.Strategy {
	case "", task.StrategyClone:
	case task.StrategyWorktree:
		return ws.hostRefs(ctx, s)
	default:
		return &refChanges{}, nil // there is no repository, or it is the user's own
	}
	root, err := tree.OpenRoot(ws.source())
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.refs", "the task's files cannot be opened: %v", err)
	}
	defer root.Close()
	out := &refChanges{}
	if _, err := root.Stat(".git"); errors.Is(err, fs.ErrNotExist) {
		return out, nil // there is no commit that could be lost
	}
	dir, err := root.OpenDir(".git")
	if err != nil {
		out.unknown = ".git is not a folder"
		return out, nil
	}
	defer dir.Close()
	now, extra, err := readRefs(ctx, dir)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		out.unknown = err.Error()
		return out, nil
	}
	known := make(map[string]bool, len(s.Tips))
	for _, t := range s.Tips {
		known[t] = true
	}
	for name, oid := range now {
		if !known[oid] {
			out.changed = append(out.changed, Ref{Name: name, Object: oid})
		}
	}
	sort.Slice(out.changed, func(i, j int) bool { return out.changed[i].Name < out.changed[j].Name })
	for _, e := range extra {
		if !known[e.Object] {
			out.extra = append(out.extra, e)
		}
	}
	if len(out.changed) == 0 {
		out.lost, out.extra = out.extra, nil // a bundle holds what is on a ref
	}
	if look == unread {
		return out, nil
	}
	for _, r := range append(append(out.changed[:len(out.changed):len(out.changed)], out.extra...), out.lost...) {
		known[r.Object] = true
	}
	more, err := ws.lostOf(ctx, dir, known, look == exactly)
	out.lost = append(out.lost, more...)
	return out, err
}

// readRefs reads HEAD, packed-refs and the loose refs of a git directory.
func readRefs(ctx context.Context, dir *tree.Root) (refs map[string]string, extra []Ref, err error) {
	refs = map[string]string{}
	b, err := dir.ReadFile("packed-refs", maxPacked)
	if err == nil {
		if refs, err = parsePackedRefs(b); err != nil {
			return nil, nil, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if b, err = dir.ReadFile("HEAD", maxRefFile); err != nil {
		return nil, nil, err
	}
	sym, oid, ok := parseRefFile(b)
	switch {
	case !ok:
		return nil, nil, errors.New("HEAD is not a ref")
	case sym == "":
		refs["HEAD"] = oid
	case !git.ValidRef(sym):
		return nil, nil, errors.New("HEAD names an invalid ref")
	}
	top, err := dir.OpenDir("refs")
	if errors.Is(err, fs.ErrNotExist) {
		return refs, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer top.Close()
	err = top.Walk(ctx, func(_ string, entries []*tree.Entry) error {
		for _, e := range entries {
			switch e.Info.Kind {
			case tree.Dir:
				e.Descend = true
				continue
			case tree.File:
			default:
				return errors.New("a ref is not a regular file: " + quote(e.Path))
			}
			name := "refs/" + e.Path
			if strings.HasSuffix(name, ".lock") {
				continue // of a git that was killed
			}
			b, err := top.ReadFile(e.Path, maxRefFile)
			if err != nil {
				return err
			}
			sym, oid, ok := parseRefFile(b)
			if !ok || !git.ValidRef(name) {
				return errors.New("not a ref: " + quote(name))
			}
			if sym == "" {
				refs[name] = oid
			} else {
				delete(refs, name)
			}
			if len(refs) > maxRefs {
				return tree.ErrLimit
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return refs, extras(dir), nil
}

// extras finds commits that no ref names: stashes below the newest, and the
// detached heads of worktrees made inside. What cannot be read is left out.
func extras(dir *tree.Root) []Ref {
	var out []Ref
	if b, err := dir.ReadFile("logs/refs/stash", maxPacked); err == nil {
		lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
		for i, n := len(lines)-2, 1; i >= 0 && n < 1000; i, n = i-1, n+1 {
			if f := strings.SplitN(lines[i], " ", 3); len(f) == 3 && git.IsOID(f[1]) {
				out = append(out, Ref{Name: "stash/" + strconv.Itoa(n), Object: f[1]})
			}
		}
	}
	wts, err := dir.OpenDir("worktrees")
	if err != nil {
		return out
	}
	defer wts.Close()
	n := 0
	_ = wts.Walk(context.Background(), func(d string, entries []*tree.Entry) error {
		for _, e := range entries {
			if d != "" || e.Info.Kind != tree.Dir || n >= 1000 {
				continue
			}
			if b, err := wts.ReadFile(e.Path+"/HEAD", maxRefFile); err == nil {
				if _, oid, ok := parseRefFile(b); ok && oid != "" {
					n++
					out = append(out, Ref{Name: "other/worktrees/" + strconv.Itoa(n), Object: oid})
				}
			}
		}
		return nil
	})
	return out
}

// parseRefFile reads HEAD or a loose ref: "ref: NAME" or an object name.
func parseRefFile(b []byte) (sym, oid string, ok bool) {
	s := string(b)
	if rest, is := strings.CutPrefix(s, "ref:"); is {
		sym = strings.Trim(rest, " \t\r\n")
		return sym, "", sym != "" && !strings.ContainsAny(sym, " \t\r\n\x00")
	}
	s = strings.TrimSuffix(s, "\n")
	return "", s, git.IsOID(s)
}

// parsePackedRefs reads a packed-refs file.
func parsePackedRefs(b []byte) (map[string]string, error) {
	refs := map[string]string{}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		return nil, errors.New("packed-refs was cut")
	}
	for _, line := range strings.Split(string(b), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '^' {
			if !git.IsOID(line[1:]) {
				return nil, errors.New("packed-refs: not an object name")
			}
			continue
		}
		oid, name, ok := strings.Cut(line, " ")
		if !ok || !git.IsOID(oid) || !git.ValidRef(name) {
			return nil, errors.New("packed-refs: not a ref: " + quote(line))
		}
		if refs[name] = oid; len(refs) > maxRefs {
			return nil, tree.ErrLimit
		}
	}
	return refs, nil
}
