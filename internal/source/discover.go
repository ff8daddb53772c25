package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/task"
)

// layout is where the parts of the user's repository are.
type layout struct {
	top    string // of the checkout
	gitDir string // of this checkout (a linked worktree has its own)
	common string // shared by all checkouts
	linked bool
	bare   bool // there is no checkout around it: top is the git directory itself
}

// unsupported refuses a repository that is known but cannot be used.
func unsupported(hint, format string, args ...any) error {
	return task.Errorf(task.CodeUnsupported, "source.inspect", format, args...).WithHint("%s", hint)
}

// broken refuses a repository that is not as it should be.
func broken(hint, format string, args ...any) error {
	return task.Errorf(task.CodeSource, "source.inspect", format, args...).WithHint("%s", hint)
}

// discover finds the repository around dir without starting git: git's own
// discovery would read configuration on the way.
func discover(dir string) (layout, error) {
	start, err := filepath.Abs(dir)
	if err == nil {
		start, err = filepath.EvalSymlinks(start)
	}
	if err != nil {
		return layout{}, broken("name an existing folder with --repo", "the folder %s cannot be used: %v", quote(dir), err)
	}
	if st, err := os.Stat(start); err != nil || !st.IsDir() {
		return layout{}, broken("name a folder with --repo; `--source copy` also takes an archive", "%s is not a folder", quote(dir))
	}
	dev := deviceOf(start)
	for d := start; ; d = filepath.Dir(d) {
		if deviceOf(d) != dev {
			break // as git does: not across file systems
		}
		l, ok, err := at(d)
		if err != nil || ok {
			return l, err
		}
		if looksBare(d) {
			if filepath.Base(d) == ".git" || exists(filepath.Join(d, "commondir")) {
				return layout{}, insideGit(d)
			}
			l := layout{top: d, gitDir: d, common: d, bare: true}
			if err := l.usable(); err != nil {
				return layout{}, err
			}
			return l, l.embedded()
		}
		if d == filepath.Dir(d) {
			break
		}
	}
	return layout{}, broken("`--source copy` takes a folder without git; or name a repository with --repo, or run `git init` there", "%s: %w", quote(start), errNoRepo)
}

// embedded refuses a bare repository in a checkout: a clone or an archive can
// bring such a folder along, and whoever steps into it means the checkout.
func (l layout) embedded() error {
	for d := filepath.Dir(l.top); deviceOf(d) == deviceOf(l.top); d = filepath.Dir(d) {
		if outer, ok, err := at(d); err != nil || ok && outer.common != l.common {
			return unsupported("start in "+quote(d)+", or move that folder out of it", "%s is a bare repository inside the checkout %s", quote(l.top), quote(d))
		}
		if d == filepath.Dir(d) {
			break
		}
	}
	return nil
}

// insideGit refuses to start inside a git directory.
func insideGit(d string) error {
	return unsupported("start in the checkout itself, or make one with `git worktree add` or `git clone`", "%s is the inside of a git directory", quote(d))
}

// errNoRepo says that there is none, and not that one is broken.
var errNoRepo = errors.New("no git repository there or in a folder above")

// at reports the repository whose checkout's top is d.
func at(d string) (l layout, ok bool, err error) {
	dot := filepath.Join(d, ".git")
	st, err := os.Stat(dot)
	if errors.Is(err, fs.ErrNotExist) {
		return l, false, nil
	}
	if err != nil {
		return l, false, broken("check its permissions", "%s cannot be read: %v", quote(dot), err)
	}
	l.top = d
	switch {
	case st.IsDir():
		if !looksBare(dot) && !exists(filepath.Join(dot, "commondir")) {
			return l, false, nil // git, too, takes no notice of such a folder
		}
		l.gitDir = dot
	case st.Mode().IsRegular():
		b, err := readSmall(dot)
		target, found := strings.CutPrefix(strings.TrimRight(string(b), "\r\n"), "gitdir: ")
		if err != nil || !found || target == "" {
			return l, false, broken("repair or remove that file", "%s is not a pointer to a git directory", quote(dot))
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(d, target)
		}
		l.gitDir = target
		if !exists(filepath.Join(target, "HEAD")) {
			return l, false, broken("run `git worktree repair` in the main checkout, or clone it again",
				"%s points to %s, which is gone", quote(dot), quote(target))
		}
	default:
		return l, false, broken("remove it", "%s is neither a folder nor a file", quote(dot))
	}
	if l.gitDir, err = filepath.EvalSymlinks(l.gitDir); err != nil {
		return l, false, broken("check its permissions", "the git directory of %s cannot be used: %v", quote(d), err)
	}
	l.common = l.gitDir
	if b, err := readSmall(filepath.Join(l.gitDir, "commondir")); err == nil {
		c := strings.TrimRight(string(b), "\r\n")
		if !filepath.IsAbs(c) {
			c = filepath.Join(l.gitDir, c)
		}
		if l.common, err = filepath.EvalSymlinks(c); err != nil {
			return l, false, broken("run `git worktree repair` in the main checkout", "the repository of the worktree %s is gone: %v", quote(d), err)
		}
		l.linked = true
		if err := backPointer(l); err != nil {
			return l, false, err
		}
	} else if !st.IsDir() && filepath.Base(l.gitDir) == ".git" && filepath.Dir(l.gitDir) != d {
		// git writes such a file for a submodule or a separate git directory,
		// never with the .git of another checkout. A planted one would show that
		// repository to the task and bring the task's results into it.
		return l, false, broken("remove that file, or start in "+quote(filepath.Dir(l.gitDir)),
			"%s points to the git directory of another checkout, %s", quote(dot), quote(l.gitDir))
	}
	if err := l.usable(); err != nil {
		return l, false, err
	}
	return l, true, nil
}

// awaited are files that git, or this package, opens beside those that must be
// regular files: at a FIFO it would wait for ever. A link to the null device is
// fine with git.
var awaited = []string{"index", "shallow", "objects/info/alternates", "objects/info/commit-graph",
	"info/grafts", "info/attributes", "info/exclude", "info/sparse-checkout"}

// usable refuses what no git directory has, and paths that a boundary's plan
// cannot name.
func (l layout) usable() error {
	if !exists(filepath.Join(l.common, "objects")) || !exists(filepath.Join(l.common, "HEAD")) {
		return broken("run `git fsck` there", "%s is not a complete git directory", quote(l.common))
	}
	for _, dir := range []string{l.gitDir, l.common} {
		for _, name := range []string{"HEAD", "config", "config.worktree", "packed-refs"} {
			if st, err := os.Stat(filepath.Join(dir, name)); err == nil && !st.Mode().IsRegular() {
				return broken("remove it, or clone the repository again", "%s is not a regular file", quote(filepath.Join(dir, name)))
			}
		}
		for _, name := range awaited {
			if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
				return broken("remove it, or clone the repository again", "%s is not a regular file", quote(filepath.Join(dir, name)))
			}
		}
	}
	for _, p := range []string{l.top, l.gitDir, l.common} {
		if strings.ContainsAny(p, "\n\x00") {
			return unsupported("rename that folder", "the path %s contains a line break", quote(p))
		}
		// The boundary's plan travels as JSON, which would turn it into another name.
		if !utf8.ValidString(p) {
			return unsupported("rename that folder", "the path %s is not UTF-8", quote(p))
		}
	}
	return nil
}

// backPointer checks that the linked worktree's administrative folder belongs
// to this checkout: a planted .git file must not lend it another's identity.
func backPointer(l layout) error {
	if filepath.Dir(l.gitDir) != filepath.Join(l.common, "worktrees") {
		return broken("remove the file commondir there", "%s names %s as its repository, which keeps its worktrees elsewhere",
			quote(l.gitDir), quote(l.common))
	}
	b, err := readSmall(filepath.Join(l.gitDir, "gitdir"))
	back := strings.TrimRight(string(b), "\r\n")
	if err == nil && !filepath.IsAbs(back) {
		back = filepath.Join(l.gitDir, back)
	}
	if err == nil {
		a, err1 := os.Stat(back)
		c, err2 := os.Stat(filepath.Join(l.top, ".git"))
		if err1 == nil && err2 == nil && os.SameFile(a, c) {
			return nil
		}
	}
	return broken("run `git worktree repair` in the main checkout",
		"%s names the worktree %s, which does not name it back", quote(filepath.Join(l.top, ".git")), quote(l.gitDir))
}

func looksBare(d string) bool {
	return exists(filepath.Join(d, "HEAD")) && exists(filepath.Join(d, "objects")) && exists(filepath.Join(d, "refs"))
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return err == nil
}

// readSmall reads a pointer file.
func readSmall(p string) ([]byte, error) {
	st, err := os.Stat(p)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > 64<<10 {
		return nil, errors.New("not a small regular file")
	}
	return os.ReadFile(p)
}

// alternates lists the object stores that the user's own store borrows from.
func alternates(objects string) []string {
	b, err := readLimited(filepath.Join(objects, "info", "alternates"), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []string{"unreadable"}
	}
	var out []string
	for _, line := range strings.Split(string(b), "\n") {
		if line != "" && line[0] != '#' {
			out = append(out, line)
		}
	}
	return out
}
