package source

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// target is the folder that a result is brought into, found anew.
type target struct {
	dir    string
	repo   *Repo  // nil: a folder without git
	l      layout // of repo
	attrs  string // info/attributes under which its files are written
	nomode bool   // the executable bit means nothing there
}

// findTarget looks for the checkout that a task was opened from. Only that one
// will do: a folder that was put in its place meanwhile gets nothing.
func findTarget(ctx context.Context, g *git.Git, ref task.SourceRef, env []string) (*target, error) {
	gone := func(format string, args ...any) error {
		return task.Errorf(task.CodeSource, "source.apply", format, args...).
			WithHint("bring it back to its place, or take the result with `caisson branch` or `caisson export`")
	}
	if ref.Repo == "" {
		return nil, gone("the task was not opened from a folder")
	}
	real, err := filepath.EvalSymlinks(ref.Repo)
	if err != nil {
		return nil, gone("the folder %s is not there any more", quote(ref.Repo))
	}
	if real != ref.Repo {
		return nil, gone("%s leads to another folder now, %s", quote(ref.Repo), quote(real))
	}
	if ref.CommonDir == "" {
		return findFolder(ref, gone)
	}
	bare := unsupported("take the result with `caisson branch` or `caisson export`", "the task was opened from the bare repository %s, which has no checkout to bring files into", quote(ref.Repo))
	if ref.CommonDir == ref.Repo && looksBare(ref.Repo) {
		return nil, bare
	}
	l, ok, err := at(ref.Repo)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, gone("%s is not a git checkout any more", quote(ref.Repo))
	}
	if l.common != ref.CommonDir {
		return nil, gone("%s belongs to another repository now, %s", quote(ref.Repo), quote(l.common))
	}
	r := &Repo{gitDir: l.gitDir, format: "sha1", git: g}
	r.Ref = task.SourceRef{Repo: l.top, CommonDir: l.common, History: task.HistoryFull}
	if r.objects, err = filepath.EvalSymlinks(filepath.Join(l.common, "objects")); err != nil {
		return nil, broken("run `git fsck`", "the object store cannot be used: %v", err)
	}
	conf, err := readConfig(ctx, g, l.gitDir, env)
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	if err := r.judge(l, conf, env); err != nil {
		return nil, err
	}
	if r.bare {
		return nil, bare
	}
	t := &target{dir: l.top, repo: r, l: l}
	r.settings = conf.conversions()
	if v, ok := conf.last["core.filemode"]; ok && !truth(v) {
		t.nomode = true
	}
	attrs, _ := readWithin(l.common, "info/attributes", 1<<20)
	t.attrs = string(attrs)
	if ref.Base != "" {
		// A repository that was deleted and made anew has the same path.
		found, err := r.resolve(ctx, ref.Base)
		if task.CodeOf(err) == task.CodeCanceled {
			return nil, err
		}
		if err != nil || found != ref.Base {
			return nil, gone("%s is another repository now: it does not have the commit %s that the task began at", quote(ref.Repo), ref.Base)
		}
	}
	return t, nil
}

// findFolder finds the target of the copy strategy.
func findFolder(ref task.SourceRef, gone func(string, ...any) error) (*target, error) {
	st, err := os.Lstat(ref.Repo)
	if err != nil {
		return nil, gone("the folder %s cannot be looked at: %v", quote(ref.Repo), err)
	}
	if st.Mode().IsRegular() {
		return nil, task.Errorf(task.CodeUnsupported, "source.apply", "the task was opened from the archive %s, which is not changed", quote(ref.Repo)).
			WithHint("write the files elsewhere with `caisson export --dir`")
	}
	if !st.IsDir() {
		return nil, gone("%s is not a folder any more", quote(ref.Repo))
	}
	if o, me := ownerOf(ref.Repo), os.Geteuid(); o != me && me != 0 {
		return nil, task.Errorf(task.CodeDenied, "source.apply", "the folder %s belongs to another user (uid %d)", quote(ref.Repo), o).
			WithHint("write the files elsewhere with `caisson export --dir`")
	}
	return &target{dir: ref.Repo, attrs: rawAttributes}, nil
}

// headTree returns the tree that the checkout holds as committed.
func (t *target) headTree(ctx context.Context) (string, error) {
	oid, err := t.repo.resolve(ctx, "HEAD")
	if err != nil {
		return "", err
	}
	if oid != "" {
		return oneLine(ctx, t.repo.git, git.Cmd{GitDir: t.l.gitDir, Args: []string{"rev-parse", "--verify", "--end-of-options", oid + "^{tree}"}})
	}
	b, err := readSmall(filepath.Join(t.l.gitDir, "HEAD"))
	sym, is := strings.CutPrefix(string(b), "ref:")
	sym = strings.TrimSpace(sym)
	if err == nil && is && git.ValidRef(sym) {
		refs, err := listRefs(ctx, t.repo.git, t.l.gitDir, sym)
		if err != nil {
			return "", err
		}
		born := false
		for _, r := range refs {
			born = born || r.Name == sym
		}
		if !born {
			return (&state{Format: t.repo.format}).emptyTree(), nil
		}
	}
	return "", broken("run `git fsck`", "HEAD of %s does not name a commit that is there", quote(t.dir))
}
