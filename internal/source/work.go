package source

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// Snapshot is the state of a task's files as a commit in the shadow repository.
type Snapshot struct {
	Changed bool   // false: the files are those of the base, nothing was made
	Commit  string // its only parent is what the task began with
	Tree    string
	Files   int // changed, added and deleted files
}

// maxListed bounds each list of a task.Work.
const maxListed = 10_000

// look scans a task's files and makes their tree; tree is the base's when
// nothing changed.
func (ws Workspace) look(ctx context.Context) (v view, err error) {
	s, f, tree, err := ws.lookAt(ctx)
	if err != nil {
		return v, err
	}
	v = view{s: s, found: f, tree: tree}
	if v.changes, err = ws.changes(ctx, s, tree, false); err != nil {
		return v, err
	}
	// git leaves a path that it deems unfit out of an index without a word.
	// Such a file is not rescued by a commit, so it is special.
	in := make(map[string]bool, len(v.changes))
	for _, c := range v.changes {
		in[string(c.Path)] = true
	}
	var kept []string
	for _, p := range f.untracked {
		if in[p] || slices.Contains(f.deleted, p) {
			kept = append(kept, p)
		} else {
			f.special = append(f.special, p)
		}
	}
	f.untracked = kept
	return v, nil
}

// view is one look at a task's files.
type view struct {
	s       *state
	found   *found
	tree    string
	changes []rawChange
}

// lookAt starts git only where something was changed or has to be matched with
// ignore rules.
func (ws Workspace) lookAt(ctx context.Context) (s *state, f *found, tree string, err error) {
	if s, err = ws.loadState(); err != nil {
		return
	}
	st, err := ws.newStage()
	if err != nil {
		return
	}
	defer st.remove(ctx)
	if f, err = ws.scan(ctx, s, st); err != nil {
		return
	}
	tree, err = ws.treeOf(ctx, s, st, f)
	if tree == "" {
		tree = s.baseTree()
	}
	return
}

// Work lists everything in a task that removing it would lose: changed and
// deleted tracked files, untracked files, top-most ignored entries, refs that
// moved, and what cannot be in a commit. It has no lasting effect.
func Work(ctx context.Context, ws Workspace) (*task.Work, error) {
	v, err := ws.look(ctx)
	if err != nil {
		return nil, err
	}
	s, f, changes := v.s, v.found, v.changes
	refs, err := ws.refChanges(ctx, s, likely)
	if err != nil {
		return nil, err
	}
	w := &task.Work{Tracked: []string{}, Untracked: []string{}, Ignored: []string{}, Commits: []string{}, Special: []string{}}
	add := func(list *[]string, items ...string) {
		for _, it := range items {
			if len(*list) >= maxListed {
				w.Truncated = true
				return
			}
			*list = append(*list, it)
		}
	}
	untracked := make(map[string]bool, len(f.untracked))
	for _, p := range f.untracked {
		untracked[p] = true
	}
	for _, c := range changes {
		if untracked[string(c.Path)] {
			add(&w.Untracked, quote(string(c.Path)))
		} else {
			add(&w.Tracked, quote(string(c.Path)))
		}
	}
	for _, p := range f.ignored {
		add(&w.Ignored, quote(p))
	}
	for _, r := range append(append(refs.changed, refs.extra...), refs.lost...) {
		add(&w.Commits, r.Name+" "+r.Object)
	}
	if refs.unknown != "" {
		add(&w.Commits, "unreadable: "+refs.unknown)
	}
	for _, p := range append(append([]string(nil), f.special...), f.nested...) {
		add(&w.Special, quote(p))
	}
	return w, nil
}

// MakeSnapshot records the task's files, committed inside or not, as one
// commit on the base in the shadow repository. Ignored files are not in it.
func MakeSnapshot(ctx context.Context, ws Workspace) (*Snapshot, error) {
	v, err := ws.look(ctx)
	if err != nil {
		return nil, err
	}
	if len(v.changes) == 0 {
		return &Snapshot{}, nil
	}
	s := v.s
	if s.Strategy == task.StrategyCopy {
		oid, err := ws.savedChange(ctx, v)
		if err != nil {
			return nil, err
		}
		return &Snapshot{Changed: true, Commit: oid, Tree: v.tree, Files: len(v.changes)}, nil
	}
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	oid, err := commitTree(ctx, g, commitSpec{
		dir: ws.shadow(), tree: v.tree, parent: s.startCommit(), message: "files of caisson task " + string(ws.Task) + "\n",
		who: s.Identity, when: time.Now().Unix(),
	})
	if err != nil {
		return nil, err
	}
	return &Snapshot{Changed: true, Commit: oid, Tree: v.tree, Files: len(v.changes)}, nil
}

// Changes returns the exact change set of the task's files against its base,
// sorted by path, any file name. renames pairs deletions with additions.
func Changes(ctx context.Context, ws Workspace, renames bool) ([]task.Change, error) {
	s, _, tree, err := ws.lookAt(ctx)
	if err != nil {
		return nil, err
	}
	raw, err := ws.changes(ctx, s, tree, renames)
	return plainChanges(raw), err
}

// changes is Changes with the names of the objects.
func (ws Workspace) changes(ctx context.Context, s *state, tree string, renames bool) ([]rawChange, error) {
	if tree == s.baseTree() {
		return nil, nil
	}
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{"diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none"}
	if renames {
		args = append(args, "-M")
	} else {
		args = append(args, "--no-renames")
	}
	out, err := g.Run(ctx, ws.shadowCmd(append(args, s.baseTree(), tree, "--")...))
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.changes", "the change set cannot be computed: %v", err)
	}
	cs, err := parseRaw(out)
	if err != nil {
		return nil, err
	}
	sort.SliceStable(cs, func(i, j int) bool { return bytes.Compare(cs[i].Path, cs[j].Path) < 0 })
	return cs, nil
}

// plainChanges leaves the objects out.
func plainChanges(raw []rawChange) []task.Change {
	if raw == nil {
		return nil
	}
	cs := make([]task.Change, len(raw))
	for i := range raw {
		cs[i] = raw[i].Change
	}
	return cs
}

// parseRaw reads `git diff-tree -z --raw --no-abbrev`.
func parseRaw(out []byte) ([]rawChange, error) {
	bad := func() error {
		return task.Errorf(task.CodeInternal, "source.changes", "git's change list cannot be read")
	}
	f, ok := git.SplitZ(out)
	if !ok {
		return nil, bad()
	}
	var cs []rawChange
	for i := 0; i < len(f); {
		// :100644 100644 <oid> <oid> M
		h := strings.Split(strings.TrimPrefix(f[i], ":"), " ")
		if len(h) != 5 || f[i][0] != ':' || h[4] == "" || i+1 >= len(f) || !git.IsOID(h[2]) || !git.IsOID(h[3]) {
			return nil, bad()
		}
		om, err1 := strconv.ParseUint(h[0], 8, 32)
		nm, err2 := strconv.ParseUint(h[1], 8, 32)
		if err1 != nil || err2 != nil || f[i+1] == "" {
			return nil, bad()
		}
		c := rawChange{Change: task.Change{Status: h[4][0], Path: []byte(f[i+1]), OldMode: uint32(om), NewMode: uint32(nm)}, oldOID: h[2], newOID: h[3]}
		i += 2
		switch c.Status {
		case 'A', 'M', 'D', 'T':
		case 'R', 'C':
			if i >= len(f) || f[i] == "" {
				return nil, bad()
			}
			c.OldPath, c.Path = c.Path, []byte(f[i])
			i++
		default:
			return nil, bad()
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// DiffOptions selects the form of a diff.
type DiffOptions struct {
	Stat, NameStatus, NUL, Color bool
	// Paths limits the diff to files and folders, as LiteralPaths gives them;
	// empty: all.
	Paths []string
	// Width of a --stat, in columns; 0 is git's 80.
	Width int
}

// Diff writes the task's changes to w, see Result.Diff.
func Diff(ctx context.Context, ws Workspace, w io.Writer, o DiffOptions) error {
	r, err := Look(ctx, ws)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Diff(ctx, w, o)
}
