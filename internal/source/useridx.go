package source

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/swap"
	"github.com/caisson-dev/caisson/internal/task"
)

// userEntry is one entry of the user's index.
type userEntry struct {
	indexEntry
	stage  int
	intent bool // `git add -N`: only the name is there
	skip   bool // skip-worktree: not in a sparse checkout
	sparse bool // a folder that a sparse index does not list
}

// userIndex is a copy of the user's index, read without regard to what its
// bits ask git to believe.
type userIndex struct {
	entries map[string]*userEntry
	folders []string // of a sparse index, with "/" at the end
	// The time of the index itself: what was changed at that moment or later
	// may look unchanged by its times alone.
	timeS, timeN int64
	file         string // the copy
}

// readUserIndex copies the index of t into the scratch folder and reads it.
// Git brings the copy into a form that is easy to read; the user's own is not
// opened by git and not written.
func readUserIndex(ctx context.Context, t *target, dir, work string) (*userIndex, error) {
	fail := func(err error) (*userIndex, error) {
		return nil, task.Errorf(task.CodeSource, "source.apply", "the index of %s cannot be read: %v", quote(t.dir), err).
			WithHint("check it with `git status`, then try again")
	}
	x := &userIndex{entries: map[string]*userEntry{}, file: filepath.Join(dir, "user.index")}
	if err := os.Remove(x.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	from := filepath.Join(t.l.gitDir, "index")
	st, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return x, nil
	}
	if err != nil {
		return fail(err)
	}
	x.timeS, x.timeN = st.ModTime().Unix(), int64(st.ModTime().Nanosecond())
	if ok, err := copyIndex(from, x.file); err != nil || !ok {
		if err == nil {
			err = errors.New("it is not a regular file, or too large")
		}
		return fail(err)
	}
	if _, err := copySplit(t.l.gitDir, dir); err != nil {
		return fail(err)
	}
	_, err = t.repo.git.Run(ctx, git.Cmd{
		GitDir: dir, WorkTree: work, Env: []string{"GIT_INDEX_FILE=" + x.file}, Config: []string{"core.bare=false", "index.version=2"},
		Args: []string{"update-index", "--no-split-index", "--index-version", "2"},
	})
	if err != nil {
		return fail(err)
	}
	b, err := os.ReadFile(x.file)
	if errors.Is(err, fs.ErrNotExist) {
		return x, nil
	}
	if err != nil {
		return fail(err)
	}
	if err := x.parse(b, t.repo.format); err != nil {
		return fail(err)
	}
	return x, nil
}

func (x *userIndex) parse(b []byte, format string) error {
	entries, err := parseIndex(b, format)
	if err != nil {
		return err
	}
	for _, e := range entries {
		u := &userEntry{indexEntry: e, stage: int(e.flags & stageBits >> 12), skip: e.more&skipWorktree != 0, intent: e.more&intentToAdd != 0}
		if e.mode == 0o040000 {
			x.folders = append(x.folders, strings.TrimSuffix(e.path, "/")+"/")
			continue
		}
		if old := x.entries[e.path]; old != nil {
			u.stage = max(u.stage, old.stage)
		}
		x.entries[e.path] = u
	}
	return nil
}

// find returns the entry of a path; nil: none.
func (x *userIndex) find(path string) *userEntry {
	for _, d := range x.folders {
		if strings.HasPrefix(path, d) {
			return &userEntry{skip: true, sparse: true}
		}
	}
	return x.entries[path]
}

// fresh reports whether the times of a file say, as far as times can, that it
// is what the entry names.
func (x *userIndex) fresh(e *userEntry, s *swap.Seen) bool {
	if s.MtimeS > x.timeS || s.MtimeS == x.timeS && s.MtimeN >= x.timeN {
		return false // written when the index was, or later
	}
	return uint32(s.Size) == e.size && uint32(s.Ino) == e.ino && //nolint:gosec // git keeps the low 32 bits
		uint32(s.MtimeS) == e.mtimeS && uint32(s.MtimeN) == e.mtimeN && //nolint:gosec // see above
		uint32(s.CtimeS) == e.ctimeS && uint32(s.CtimeN) == e.ctimeN //nolint:gosec // see above
}
