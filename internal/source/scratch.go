package source

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/task"
)

// scratchName begins the name of a folder that lives as long as the call that
// made it. What a killed process left is found by this name and by its lock.
const scratchName = "scratch-"

// scratch is a folder of ours for git directories that are thrown away.
type scratch struct {
	dir  string
	lock interface{ Close() error }
}

// newScratch makes one below parent, and removes those that were left there.
func newScratch(ctx context.Context, parent string) (*scratch, error) {
	fail := func(err error) (*scratch, error) {
		return nil, task.Errorf(task.CodeStateStore, "source.scratch", "a working folder cannot be made: %v", err)
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return fail(err)
	}
	left, err := filepath.Glob(globEscape(parent) + "/" + scratchName + "*")
	if err != nil {
		return fail(err)
	}
	for _, d := range left {
		if l, err := lockFolder(d); err == nil {
			_ = tree.Remove(ctx, d, "."+filepath.Base(d)+".trash")
			l.Close()
		}
	}
	for {
		d, err := os.MkdirTemp(parent, scratchName)
		if err != nil {
			return fail(err)
		}
		l, err := lockFolder(d)
		if err != nil {
			continue // taken for a left one in the moment before it was locked
		}
		if exists(d) {
			return &scratch{dir: d, lock: l}, nil
		}
		l.Close()
	}
}

func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

func (s *scratch) remove() {
	ctx := context.Background() // cleanup, whatever became of the caller
	_ = tree.Remove(ctx, s.dir, "."+filepath.Base(s.dir)+".trash")
	s.lock.Close()
}

// gitSpec says what a git directory of ours is like.
type gitSpec struct {
	format     string
	settings   [][2]string // core.… as carried from the user
	attributes string      // info/attributes: stronger than any .gitattributes
	stores     []string    // object stores that it reads
}

// makeGit makes a git directory below the scratch folder.
func (s *scratch) makeGit(name string, o gitSpec) (string, error) {
	dir := filepath.Join(s.dir, name)
	files := map[string]string{
		"HEAD": "ref: refs/heads/none\n", "config": gitConfig(o.format, true, o.settings), "info/attributes": o.attributes,
		"objects/info/alternates": strings.Join(append(append([]string(nil), o.stores...), ""), "\n"), "refs/heads/.keep": "",
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			return "", task.Errorf(task.CodeStateStore, "source.scratch", "a working repository cannot be made: %v", err)
		}
	}
	return dir, os.Remove(filepath.Join(dir, "refs/heads/.keep"))
}

// stores lists an object store and those that it borrows from itself: git takes
// no relative path from a store that is itself borrowed.
func stores(objects string) []string {
	out := []string{objects}
	for _, a := range alternates(objects) {
		if !filepath.IsAbs(a) {
			a = filepath.Join(objects, a)
		}
		if exists(a) {
			out = append(out, a)
		}
	}
	return out
}

// oneLine runs git for an answer that is one object name.
func oneLine(ctx context.Context, g *git.Git, c git.Cmd) (string, error) {
	out, err := g.Run(ctx, c)
	if err != nil {
		return "", err
	}
	oid := strings.TrimSpace(string(out))
	if !git.IsOID(oid) {
		return "", task.Errorf(task.CodeInternal, "source.git", "git %s answered %q", c.Args[0], oid)
	}
	return oid, nil
}
