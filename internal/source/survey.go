package source

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sort"

	"github.com/caisson-dev/caisson/internal/source/swap"
	"github.com/caisson-dev/caisson/internal/task"
)

// survey is one look at every path that a plan touches.
type survey struct {
	p     *ApplyPlan
	root  *os.File
	index *userIndex // nil: a folder without git

	done      map[string]bool // as wanted already
	already   int
	conflicts []task.Conflict
	steps     []swap.Step

	gone    map[string]bool // tracked paths that are to go
	folders map[string]*folderSeen
	needed  map[string]bool // folders that must be there in the end
	making  map[string]bool // folders above what is added
	away    map[string]*swap.Seen
	unsure  []*unsure
}

// folderSeen is a folder above a path that is touched.
type folderSeen struct {
	seen  *swap.Seen // nil: not there
	solid bool       // a folder, and so are all above it
	why   string     // why nothing may be put below it
}

// unsure is a file whose times do not tell whether it was changed.
type unsure struct {
	path string
	oid  string
	seen *swap.Seen
}

// survey looks at the checkout and finds what is to be done, or what is in the
// way. It changes nothing.
func (p *ApplyPlan) survey(ctx context.Context, root *os.File) (*survey, error) {
	s := &survey{
		p: p, root: root, done: map[string]bool{}, gone: map[string]bool{}, folders: map[string]*folderSeen{},
		needed: map[string]bool{}, making: map[string]bool{}, away: map[string]*swap.Seen{},
	}
	if p.t.repo != nil {
		var err error
		if s.index, err = readUserIndex(ctx, p.t, p.dir, p.work); err != nil {
			return nil, err
		}
	}
	for i := range p.changes {
		c := &p.changes[i]
		if c.NewMode == 0 {
			s.gone[string(c.Path)] = true
			continue
		}
		for _, d := range parents(string(c.Path)) {
			s.needed[d] = true
		}
	}
	for i := range p.changes {
		if err := ctx.Err(); err != nil {
			return nil, task.Errorf(task.CodeCanceled, "source.apply", "looking at the checkout was cancelled: %w", context.Cause(ctx))
		}
		if err := s.path(&p.changes[i]); err != nil {
			return nil, err
		}
	}
	if err := s.twins(); err != nil {
		return nil, err
	}
	if err := s.compare(ctx); err != nil {
		return nil, err
	}
	if len(s.conflicts) > 0 {
		sort.SliceStable(s.conflicts, func(i, j int) bool { return s.conflicts[i].Path < s.conflicts[j].Path })
		s.steps = nil
		return s, nil
	}
	return s, s.emptied()
}

func (s *survey) clash(path, why string) {
	s.conflicts = append(s.conflicts, task.Conflict{Path: quote(path), Why: why})
}

// above looks at the folders a path is in and reports whether the path can
// exist now. A reason why nothing may be put there becomes a conflict.
func (s *survey) above(path string) (there bool, why string, err error) {
	solid := true
	for _, d := range parents(path) {
		f := s.folders[d]
		if f == nil {
			f = &folderSeen{}
			s.folders[d] = f
			if solid {
				if err := s.lookFolder(d, f); err != nil {
					return false, "", err
				}
			}
		}
		if f.why != "" {
			return false, f.why, nil
		}
		solid = solid && f.solid
	}
	return solid, "", nil
}

// covered reports whether a folder above a path is no folder any more.
func (s *survey) covered(path string) bool {
	for _, d := range parents(path) {
		if f := s.folders[d]; f != nil && f.seen != nil && f.seen.Kind != swap.Dir {
			return true
		}
	}
	return false
}

func (s *survey) lookFolder(d string, f *folderSeen) error {
	seen, err := swap.Look(s.root, d, false)
	switch {
	case errors.Is(err, swap.ErrUnsafe):
		f.why = "its folder " + quote(d) + " is on another file system, or leads there"
		return nil
	case errors.Is(err, fs.ErrPermission):
		f.why = "its folder " + quote(d) + " cannot be looked at"
		return nil
	case err != nil:
		return s.unreadable(d, err)
	}
	f.seen = seen
	switch {
	case seen == nil:
	case seen.Kind == swap.Dir:
		f.solid = true
		inner, err := swap.Look(s.root, d+"/.git", false)
		if errors.Is(err, swap.ErrUnsafe) {
			f.why = "its folder " + quote(d) + " is on another file system"
			return nil
		}
		if err != nil {
			return s.unreadable(d+"/.git", err)
		}
		if inner != nil {
			f.why = "its folder " + quote(d) + " is a repository of its own"
		}
		if seen.Dev != s.p.dev {
			f.why = "its folder " + quote(d) + " is on another file system"
		}
	case s.gone[d]:
		// The file or link that is there goes first.
	case seen.Kind == swap.Link:
		f.why = "its folder " + quote(d) + " is a link in the checkout"
	default:
		f.why = "its folder " + quote(d) + " is a file in the checkout"
	}
	return nil
}

func (s *survey) unreadable(path string, err error) error {
	if errors.Is(err, swap.ErrUnsupported) {
		return task.Errorf(task.CodeUnsupported, "source.apply", "apply needs Linux 5.6 or newer: %v", err).
			WithHint("take the result with `caisson branch` or `caisson export --patch`")
	}
	return task.Errorf(task.CodeSource, "source.apply", "%s in the checkout cannot be looked at: %v", quote(path), err)
}

// path decides about one change.
func (s *survey) path(c *rawChange) error {
	p := string(c.Path)
	there, why, err := s.above(p)
	if err != nil {
		return err
	}
	if c.NewMode == 0 && s.covered(p) {
		why = "" // a file is where the folder was: the path is gone already
	}
	if why != "" {
		s.clash(p, why)
		return nil
	}
	var seen *swap.Seen
	if there {
		if seen, err = swap.Look(s.root, p, true); err != nil {
			if errors.Is(err, fs.ErrPermission) {
				s.clash(p, "it cannot be read")
				return nil
			}
			if errors.Is(err, swap.ErrUnsafe) {
				s.clash(p, "something else is mounted there")
				return nil
			}
			return s.unreadable(p, err)
		}
	}
	if seen != nil && seen.Dev != s.p.dev {
		s.clash(p, "it is on another file system")
		return nil
	}
	w := s.p.want[p]
	if (s.isDone(w, seen) || w == nil && s.needed[p] && seen.Kind == swap.Dir) && !s.isSkipped(p, seen) {
		s.done[p] = true
		s.already++
		return nil
	}
	if c.OldMode == 0 {
		return s.added(p, w, seen)
	}
	why = s.tracked(c, seen)
	if why != "" {
		s.clash(p, why)
		return nil
	}
	if w == nil {
		s.steps = append(s.steps, swap.Step{Path: p, Old: seen})
		return nil
	}
	s.steps = append(s.steps, swap.Step{Path: p, Old: seen, New: s.content(w, seen, p)})
	return nil
}

// isDone reports whether a path is as it shall be, byte for byte.
func (s *survey) isDone(w *wantedFile, seen *swap.Seen) bool {
	switch {
	case w == nil:
		return seen == nil
	case seen == nil || seen.Hash != w.hash:
		return false
	case w.link:
		return seen.Kind == swap.Link
	}
	return seen.Kind == swap.File && (s.p.t.nomode || w.exec == (seen.Mode&0o100 != 0))
}

// isSkipped reports whether a path is absent because a sparse checkout leaves
// it out: a deletion there would not be seen by anybody.
func (s *survey) isSkipped(p string, seen *swap.Seen) bool {
	if seen != nil || s.index == nil {
		return false
	}
	e := s.index.find(p)
	return e != nil && e.skip
}

// added decides about a path that the checkout's commit does not have.
func (s *survey) added(p string, w *wantedFile, seen *swap.Seen) error {
	if s.index != nil {
		if e := s.index.find(p); e != nil {
			if e.sparse {
				s.clash(p, outsideSparse)
			} else {
				s.clash(p, "it was added in the checkout and is not committed")
			}
			return nil
		}
	}
	switch {
	case seen == nil:
	case seen.Kind == swap.Dir:
		ok, err := s.canEmpty(p)
		if err != nil {
			return err
		}
		if !ok {
			s.clash(p, "a folder with other files is in the way")
			return nil
		}
		// By the time of this step it is gone.
		seen = nil
	default:
		s.clash(p, "an untracked file is in the way")
		return nil
	}
	s.steps = append(s.steps, swap.Step{Path: p, New: s.content(w, nil, p)})
	for _, d := range parents(p) {
		s.making[d] = true
	}
	return nil
}

// canEmpty reports whether everything in a folder is to go, and notes the
// folders themselves.
func (s *survey) canEmpty(d string) (bool, error) {
	seen, err := swap.Look(s.root, d, false)
	if err != nil || seen == nil || seen.Kind != swap.Dir || seen.Dev != s.p.dev {
		return false, err
	}
	names, err := swap.Names(s.root, d)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, swap.ErrUnsafe) {
		return false, nil
	}
	if err != nil {
		return false, s.unreadable(d, err)
	}
	for _, n := range names {
		below := d + "/" + n
		if s.gone[below] {
			continue
		}
		if ok, err := s.canEmpty(below); !ok || err != nil {
			return false, err
		}
	}
	s.away[d] = seen
	return true, nil
}

const outsideSparse = "it is outside of the sparse checkout: widen that with `git sparse-checkout add`"

// tracked says why a path that the checkout's commit has must not be touched;
// empty: it is as committed, as far as is known yet.
func (s *survey) tracked(c *rawChange, seen *swap.Seen) string {
	p := string(c.Path)
	if s.index == nil {
		switch {
		case seen == nil:
			return "it was deleted in the folder since the task began"
		case !s.fits(c.OldMode, seen):
			return "it was changed in the folder since the task began"
		}
		s.unsure = append(s.unsure, &unsure{path: p, oid: c.oldOID, seen: seen})
		return ""
	}
	e := s.index.find(p)
	switch {
	case e == nil:
		return "it was removed from the index and that is not committed"
	case e.stage != 0:
		return "it is in the middle of a merge"
	case e.skip && seen == nil:
		return outsideSparse
	case e.intent || e.oid != c.oldOID || e.mode != c.OldMode:
		return "it has staged changes that are not committed"
	case seen == nil:
		return "it was deleted in the checkout and that is not committed"
	case !s.fits(c.OldMode, seen):
		return uncommitted
	}
	if !s.index.fresh(e, seen) {
		s.unsure = append(s.unsure, &unsure{path: p, oid: c.oldOID, seen: seen})
	}
	return ""
}

const uncommitted = "it has uncommitted changes"

// fits reports whether kind and executable bit are those of a tree's mode.
func (s *survey) fits(mode uint32, seen *swap.Seen) bool {
	if mode == modeLink {
		return seen.Kind == swap.Link
	}
	return seen.Kind == swap.File && (s.p.t.nomode || (mode == 0o100755) == (seen.Mode&0o100 != 0))
}

// content says what to put at a path: a file that is replaced keeps its owner
// and its other permission bits.
func (s *survey) content(w *wantedFile, old *swap.Seen, p string) *swap.Content {
	c := &swap.Content{Kind: swap.File, From: w.from, UID: -1, GID: -1, Perm: s.p.perms.file}
	if w.exec {
		c.Perm = s.p.perms.exec
	}
	if w.link {
		*c = swap.Content{Kind: swap.Link, To: w.to, UID: -1, GID: -1}
	}
	switch {
	case old != nil && (old.Kind == swap.File || old.Kind == swap.Link):
		s.owner(c, old)
		if old.Kind == swap.File && !w.link {
			c.Perm = old.Perm() & 0o777
			if was := old.Mode&0o100 != 0; was && !w.exec {
				c.Perm &^= 0o111
			} else if !was && w.exec {
				c.Perm |= c.Perm & 0o444 >> 2
			}
		}
	default:
		s.ownerOf(c, p)
	}
	return c
}

// owner keeps the owner of what was there. Only root makes files for others.
func (s *survey) owner(c *swap.Content, old *swap.Seen) {
	if os.Geteuid() == 0 {
		c.UID, c.GID = int(old.UID), int(old.GID)
	}
}

// ownerOf gives a new entry, made by root, to the owner of the folder it is in.
func (s *survey) ownerOf(c *swap.Content, p string) {
	if os.Geteuid() != 0 {
		return
	}
	above := parents(p)
	for i := len(above) - 1; i >= 0; i-- {
		if f := s.folders[above[i]]; f != nil && f.solid {
			s.owner(c, f.seen)
			return
		}
	}
	if root, err := swap.Look(s.root, ".", false); err == nil && root != nil {
		s.owner(c, root)
	}
}

// emptied adds the steps for folders: those that are missing, those that stand
// where a file shall be, and those that the deletions leave empty.
func (s *survey) emptied() error {
	for d := range s.making {
		if f := s.folders[d]; f != nil && !f.solid {
			c := &swap.Content{Kind: swap.Dir, Perm: s.p.perms.dir, UID: -1, GID: -1}
			s.ownerOf(c, d)
			s.steps = append(s.steps, swap.Step{Path: d, New: c})
		}
	}
	for d, seen := range s.away {
		s.steps = append(s.steps, swap.Step{Path: d, Old: seen})
	}
	seen := map[string]bool{}
	for p := range s.gone {
		if s.done[p] {
			continue
		}
		for _, d := range parents(p) {
			if f := s.folders[d]; !seen[d] && !s.needed[d] && s.away[d] == nil && f != nil && f.solid {
				s.steps = append(s.steps, swap.Step{Path: d, Old: f.seen, Optional: true})
			}
			seen[d] = true
		}
	}
	sort.SliceStable(s.steps, func(i, j int) bool { return s.steps[i].Path < s.steps[j].Path })
	return nil
}
