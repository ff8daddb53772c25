package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// branchRef checks a branch name that a person gave and returns the full one.
func branchRef(name string) (string, error) {
	bad := func(why string) (string, error) {
		return "", task.Errorf(task.CodeUsage, "source.branch", "%s cannot be a branch: %s", quote(name), why).
			WithHint("use a name such as fix/login")
	}
	low := strings.ToLower(name)
	switch {
	case strings.HasPrefix(name, "-"):
		return bad("git would take it for an option")
	case strings.HasPrefix(low, "refs/"):
		return bad("the name is meant without refs/heads/")
	case low == "head", name == "@", strings.HasSuffix(name, "_HEAD") && !strings.ContainsRune(name, '/'):
		return bad("git gives that name a meaning of its own")
	case looksLikeObject(low):
		return bad("it looks like the name of an object")
	case !git.ValidRef("refs/heads/" + name):
		return bad("git does not allow such a name")
	}
	return "refs/heads/" + name, nil
}

// looksLikeObject reports whether git could take a name for a commit: hex digits
// in the number in which commits are abbreviated, or in full.
func looksLikeObject(name string) bool {
	return len(name) >= 7 && len(name) <= 64 && strings.Trim(name, "0123456789abcdef") == "" && strings.ContainsAny(name, "0123456789")
}

// refsClash reports whether two refs of different names cannot both exist on
// every file system: names that differ in case or accents only, or one that is a folder of
// the other.
func refsClash(a, b string) bool {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	for i := range min(len(x), len(y)) {
		if foldName(x[i]) != foldName(y[i]) {
			return false
		}
		if x[i] != y[i] {
			return true // one file or folder where two are meant
		}
	}
	return true
}

// checkedOut returns the checkout whose HEAD, rebase or bisect is on a branch;
// empty: none. The files are read, no git is asked.
func checkedOut(common, ref string) (where string, err error) {
	dirs := map[string]string{common: filepath.Dir(common)}
	entries, err := os.ReadDir(filepath.Join(common, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", broken("check its permissions", "the worktrees of %s cannot be listed: %v", quote(common), err)
	}
	for _, e := range entries {
		d := filepath.Join(common, "worktrees", e.Name())
		dirs[d] = d
		if b, err := readSmall(filepath.Join(d, "gitdir")); err == nil {
			dirs[d] = filepath.Dir(strings.TrimRight(string(b), "\r\n"))
		}
	}
	short := strings.TrimPrefix(ref, "refs/heads/")
	for d, top := range dirs {
		head := filepath.Join(d, "HEAD")
		if to, err := os.Readlink(head); err == nil { // as git made it long ago
			if to == ref {
				return top, nil
			}
			continue
		}
		b, err := readSmall(head)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", broken("run `git worktree repair` there", "the HEAD of %s cannot be read: %v", quote(d), err)
		}
		if sym, _, ok := parseRefFile(b); ok && strings.EqualFold(sym, ref) {
			return top, nil
		}
		for _, n := range []string{"rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"} {
			if b, err := readSmall(filepath.Join(d, n)); err == nil {
				if s := strings.TrimRight(string(b), "\r\n"); s == ref || s == short {
					return top, nil
				}
			}
		}
	}
	return "", nil
}

// Worktrees returns the tops of the repository's linked worktrees, as its own
// records name them; empty where there are none.
func (r *Repo) Worktrees() []string {
	if r.Ref.CommonDir == "" {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(r.Ref.CommonDir, "worktrees"))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if b, err := readSmall(filepath.Join(r.Ref.CommonDir, "worktrees", e.Name(), "gitdir")); err == nil {
			out = append(out, filepath.Dir(strings.TrimRight(string(b), "\r\n")))
		}
	}
	return out
}
