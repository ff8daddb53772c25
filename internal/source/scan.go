package source

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// maxPath is the longest path that git can be given, in bytes.
const maxPath = 4000

// maxIgnoreFile bounds one .gitignore. A larger one counts as absent: then its
// files are rescued like any other.
const maxIgnoreFile = 1 << 20

// found is what one walk over a task's files saw.
type found struct {
	changed   []string // tracked, no longer as checked out, still there
	deleted   []string // tracked, gone or replaced by another kind of thing
	untracked []string
	ignored   []string // top-most
	special   []string // cannot be in a tree: FIFOs, sockets, reserved names, …
	nested    []string // .git of repositories inside the tree, and ownStores in use
}

// scanner compares the tree with the index and copies what differs into a
// staging folder that is ours.
type scanner struct {
	ws    Workspace
	s     *state
	root  *tree.Root
	stage *stage
	index map[string]*indexEntry
	dirs  map[string]bool // folders that hold tracked files
	seen  map[string]bool
	asker *ignoreAsker
	out   found
}

// scan walks the task's files. The staging folder gets a copy of everything
// that changed, when copy is set.
func (ws Workspace) scan(ctx context.Context, s *state, st *stage) (*found, error) {
	root, err := tree.OpenRoot(ws.source())
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.scan", "the task's files cannot be opened: %v", err)
	}
	defer root.Close()
	sc := &scanner{ws: ws, s: s, root: root, stage: st, index: map[string]*indexEntry{}, dirs: map[string]bool{}, seen: map[string]bool{}}
	entries, err := ws.baseEntries(s)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		e := &entries[i]
		sc.index[e.path] = e
		for d := e.path; ; {
			j := strings.LastIndexByte(d, '/')
			if j < 0 {
				break
			}
			if d = d[:j]; sc.dirs[d] {
				break
			}
			sc.dirs[d] = true
		}
	}
	sc.asker = &ignoreAsker{ctx: ctx, ws: ws, work: st.path}
	defer sc.asker.close()
	if err := root.Walk(ctx, sc.folder); err != nil {
		return nil, scanError(err)
	}
	if err := sc.asker.close(); err != nil {
		return nil, err
	}
	if s.Strategy == "" || s.Strategy == task.StrategyClone {
		if err := sc.stores(ctx); err != nil {
			return nil, scanError(err)
		}
	}
	for i := range entries {
		if p := entries[i].path; !sc.seen[p] {
			sc.out.deleted = append(sc.out.deleted, p)
		}
	}
	return &sc.out, nil
}

// ownStores are folders of the task's git directory that hold work which its
// commits only name: repositories of submodules, contents of LFS and annex
// files. Prepare makes none of them, so whatever is there was made inside.
var ownStores = []string{".git/modules", ".git/lfs", ".git/annex"}

// stores lists those that have something in them, to be kept like the .git of
// a nested repository.
func (sc *scanner) stores(ctx context.Context) error {
	for _, p := range ownStores {
		dir, err := sc.root.OpenDir(p)
		if err != nil {
			continue // none, or something that holds nothing
		}
		used := false
		err = dir.Walk(ctx, func(_ string, entries []*tree.Entry) error {
			used = used || len(entries) > 0
			return nil
		})
		dir.Close()
		if err != nil {
			return err
		}
		if used {
			sc.out.nested = append(sc.out.nested, p)
		}
	}
	return nil
}

func scanError(err error) error {
	var te *task.Error
	switch {
	case errors.As(err, &te):
		return err
	case errors.Is(err, tree.ErrLimit):
		return task.Errorf(task.CodeLimit, "source.scan", "the task's files are too many or too deep to look at: %v", err).
			WithHint("remove what is not needed inside, or keep the task's folder with `caisson keep`")
	case errors.Is(err, context.Canceled):
		return task.Errorf(task.CodeCanceled, "source.scan", "looking at the task's files was cancelled: %w", err)
	}
	return task.Errorf(task.CodeSource, "source.scan", "the task's files cannot be read: %v", err)
}

// baseEntries reads the index of the checkout.
func (ws Workspace) baseEntries(s *state) ([]indexEntry, error) {
	b, err := os.ReadFile(ws.shadow() + "/" + baseIndex)
	if errors.Is(err, os.ErrNotExist) && !s.hasFiles() {
		return nil, nil
	}
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.scan", "the record of the checkout cannot be read: %v", err)
	}
	return parseIndex(b, s.Format)
}

// folder looks at one folder's entries.
func (sc *scanner) folder(dir string, entries []*tree.Entry) error {
	var ask []*tree.Entry
	for _, e := range entries {
		if dir == "" && e.Name == ".git" && sc.ownGit(e) {
			continue // never looked into here
		}
		if reserved(e) || len(e.Path) > maxPath {
			if e.Name == ".git" {
				sc.out.nested = append(sc.out.nested, e.Path)
			} else {
				sc.out.special = append(sc.out.special, e.Path)
			}
			continue
		}
		ie := sc.index[e.Path]
		switch {
		case e.Info.Kind == tree.Special:
			sc.out.special = append(sc.out.special, e.Path)
		case ie != nil && ie.mode == gitlink && e.Info.Kind == tree.Dir:
			// Empty: as checked out. Otherwise the files take its place.
			names, err := e.Names()
			if err != nil {
				return err
			}
			if len(names) == 0 {
				sc.seen[e.Path] = true
				continue
			}
			if slices.Contains(sc.s.Filled, e.Path) {
				// The entry stands for a commit, whatever became of its files:
				// they cannot be in a tree of this repository.
				sc.seen[e.Path] = true
				touched, err := sc.touched(e)
				if err != nil {
					return err
				}
				if touched {
					sc.out.ignored = append(sc.out.ignored, e.Path)
				}
				continue
			}
			e.Descend = true
		case e.Info.Kind == tree.Dir && sc.dirs[e.Path]:
			e.Descend = true
		case ie != nil && e.Info.Kind != tree.Dir && ie.mode != gitlink:
			sc.seen[e.Path] = true
			if ie.same(e.Info, sc.s) {
				break
			}
			if err := sc.take(e); err != nil {
				return err
			}
			sc.out.changed = append(sc.out.changed, e.Path)
		default:
			ask = append(ask, e)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	if sc.s.Strategy == task.StrategyCopy {
		return sc.sort(ask, make([]bool, len(ask))) // no rule of git's applies
	}
	return sc.untracked(dir, entries, ask)
}

// untracked sorts what is not in the base into ignored and not ignored.
func (sc *scanner) untracked(dir string, entries, ask []*tree.Entry) error {
	// git reads a folder's ignore file when it is first asked about an entry
	// there, so the file must be in place by then.
	if err := sc.ignoreFiles(dir); err != nil {
		return err
	}
	_ = entries
	paths := make([]string, len(ask))
	for i, e := range ask {
		paths[i] = e.Path
		if e.Info.Kind == tree.Dir {
			if err := sc.stage.mkdir(e.Path); err != nil {
				return err
			}
		}
	}
	ignored, err := sc.asker.ask(paths)
	if err != nil {
		return err
	}
	return sc.sort(ask, ignored)
}

// sort takes what is not in the base as ignored or not.
func (sc *scanner) sort(ask []*tree.Entry, ignored []bool) error {
	for i, e := range ask {
		switch {
		case ignored[i]:
			own, err := sc.asBrought(e)
			if err != nil {
				return err
			}
			if own {
				continue // the user's, as it was
			}
			sc.out.ignored = append(sc.out.ignored, e.Path)
		case e.Info.Kind == tree.Dir:
			e.Descend = true
		default:
			if err := sc.take(e); err != nil {
				return err
			}
			sc.out.untracked = append(sc.out.untracked, e.Path)
		}
	}
	return nil
}

// asBrought reports whether an ignored entry is one that came from the user's
// checkout, with nothing in it changed, added or taken away since.
func (sc *scanner) asBrought(e *tree.Entry) (bool, error) {
	if sc.s.Dirty != task.DirtyAll || !sc.s.brought(e.Info) {
		return false, nil
	}
	if e.Info.Kind != tree.Dir {
		return true, nil
	}
	touched, err := sc.touched(e)
	return !touched, err
}

// ignoreFiles puts the ignore files that apply in dir into the staging folder.
func (sc *scanner) ignoreFiles(dir string) error {
	for d := dir; ; {
		p := ".gitignore"
		if d != "" {
			p = d + "/" + p
		}
		if !sc.stage.ignores[p] {
			sc.stage.ignores[p] = true
			b, err := sc.root.ReadFile(p, maxIgnoreFile)
			if err == nil && !sc.stage.has(p) {
				if err := sc.stage.put(p, bytes.NewReader(b), 0o644); err != nil {
					return err
				}
			}
		}
		if d == "" {
			return nil
		}
		if i := strings.LastIndexByte(d, '/'); i >= 0 {
			d = d[:i]
		} else {
			d = ""
		}
	}
}

// ownGit reports whether the .git at the top is the one that belongs there. A
// worktree has a pointer; what took its place on the host is not the task's
// repository, and is kept like any other repository inside the tree.
func (sc *scanner) ownGit(e *tree.Entry) bool {
	if sc.s.Strategy != task.StrategyWorktree {
		return true
	}
	if e.Info.Kind == tree.Dir {
		names, err := e.Names()
		return err == nil && len(names) == 0 // a mount point
	}
	b, err := sc.root.ReadFile(e.Path, 64<<10)
	return err == nil && strings.HasPrefix(string(b), "gitdir: ")
}

// take copies one entry into the staging folder.
func (sc *scanner) take(e *tree.Entry) error {
	if e.Info.Kind == tree.Link {
		target, err := e.Readlink()
		if err != nil {
			return err
		}
		return sc.stage.link(e.Path, target)
	}
	if e.Info.Size > sc.stage.left {
		return sc.stage.full() // before the copy: the size costs nothing inside
	}
	f, err := e.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	mode := os.FileMode(0o644)
	if e.Info.Exec() {
		mode = 0o755
	}
	return sc.stage.put(e.Path, f, mode)
}

// reserved reports whether git must not have this name in a tree: a form of
// .git on some file system, or a link where git expects its own file.
func reserved(e *tree.Entry) bool {
	return isDotGit(e.Name) || e.Info.Kind == tree.Link && isDotGitmodules(e.Name)
}

// isDotGit reports whether a name is .git on any file system git knows: with
// other case, code points that HFS+ ignores, NTFS's short name, trailing dots
// and spaces, or a stream or backslash behind it.
func isDotGit(name string) bool { return is8dot3(name, ".git", "git~1") }

func isDotGitmodules(name string) bool {
	return is8dot3(name, ".gitmodules", "gitmod~1", "gitmod~2", "gitmod~3", "gitmod~4") ||
		len(name) >= 8 && strings.HasPrefix(strings.ToLower(name), "gi7eba")
}

func is8dot3(name string, forms ...string) bool {
	n := strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1
		}
		return r
	}, name)
	if i := strings.IndexAny(n, ":\\"); i >= 0 {
		n = n[:i]
	}
	n = strings.ToLower(strings.TrimRight(n, ". "))
	for _, f := range forms {
		if n == f {
			return true
		}
	}
	return false
}

// ignoreAsker holds one `git check-ignore` that answers as the walk goes on,
// so that ignored folders are never walked.
type ignoreAsker struct {
	ctx    context.Context
	ws     Workspace
	work   string
	c      *conversation
	cancel context.CancelCauseFunc
	left   time.Duration // of askTime
}

// askTime bounds how long git may match ignore rules in one look at a task. The
// rules are chosen inside, and a pattern with many stars takes for ever.
var askTime = 2 * time.Minute

var errAskTime = errors.New("matching took too long")

// ask reports for each path whether it is ignored.
func (a *ignoreAsker) ask(paths []string) ([]bool, error) {
	if a.c == nil {
		g, err := findGit(a.ctx)
		if err != nil {
			return nil, err
		}
		cmd := a.ws.shadowCmd("check-ignore", "-z", "--stdin", "--verbose", "--non-matching", "--no-index")
		cmd.WorkTree = a.work
		cmd.Config = []string{"core.bare=false"}
		ctx, cancel := context.WithCancelCause(a.ctx)
		c, err := converse(ctx, g, cmd)
		if err != nil {
			cancel(nil)
			return nil, err
		}
		a.ctx, a.cancel, a.c, a.left = ctx, cancel, c, askTime
	}
	begun := time.Now()
	t := time.AfterFunc(a.left, func() { a.cancel(errAskTime) })
	defer func() {
		t.Stop()
		a.left -= time.Since(begun)
	}()
	var q bytes.Buffer
	for _, p := range paths {
		// "./" keeps a leading colon from being pathspec magic.
		q.WriteString("./" + p + "\x00")
	}
	out := make([]bool, len(paths))
	err := a.c.exchange(q.Bytes(), func(next func() (string, error)) error {
		for i, p := range paths {
			var f [4]string
			for k := range f {
				var err error
				if f[k], err = next(); err != nil {
					return err
				}
			}
			if f[3] != "./"+p {
				return task.Errorf(task.CodeInternal, "source.ignored", "git answered about %s when asked about %s", quote(f[3]), quote(p))
			}
			out[i] = f[2] != "" && !strings.HasPrefix(f[2], "!")
		}
		return nil
	})
	if err != nil && errors.Is(context.Cause(a.ctx), errAskTime) {
		return nil, task.Errorf(task.CodeLimit, "source.ignored", "the ignore rules in the task's files could not be matched within %s", askTime).
			WithHint("simplify the .gitignore files inside; nothing was removed")
	}
	return out, err
}

// close ends git. It may be called twice.
func (a *ignoreAsker) close() error {
	if a.c == nil {
		return nil
	}
	c := a.c
	a.c = nil
	defer a.cancel(nil)
	err := c.close()
	if git.Status(err) == 1 {
		return nil // nothing was ignored
	}
	return err
}
