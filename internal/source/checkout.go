package source

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("source.captured")

// inspectCheckout decides about the user's checkout itself: nothing is copied,
// nothing is written, and git inside is the repository's own.
func inspectCheckout(ctx context.Context, o Options) (*Repo, error) {
	switch {
	case o.Base != "" && o.Base != "HEAD" && o.Base != "@":
		return nil, task.Errorf(task.CodeUsage, "source.inspect", "--base %s: the checkout is what it is", quote(o.Base)).
			WithHint("leave --base out, or use --source worktree")
	case o.Dirty != task.DirtyNone:
		return nil, task.Errorf(task.CodeUsage, "source.inspect", "the checkout itself has all of its uncommitted state already").
			WithHint("leave --dirty out")
	}
	o.History = task.HistoryFull
	r, err := inspectRepo(ctx, o)
	if errors.Is(err, errNoRepo) {
		return inspectFolder(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	own := filepath.Join(r.Ref.Repo, ".git")
	st, err := os.Lstat(own)
	switch {
	case r.bare:
		return nil, unsupported("use --source clone or --source worktree", "%s is a bare repository, which has no checkout", quote(r.Ref.Repo))
	case err != nil || !st.IsDir() || r.gitDir != own || r.Ref.CommonDir != own:
		// Inside, git would stand before a pointer to something that is not there.
		return nil, unsupported("use --source worktree or --source clone, or start in the checkout that holds the repository",
			"the git directory of %s lies elsewhere, in %s", quote(r.Ref.Repo), quote(r.Ref.CommonDir))
	case !r.Pinnable:
		return nil, unsupported("use --source clone", "the checkout %s belongs to another user, or cannot be written", quote(r.Ref.Repo))
	}
	if len(alternates(r.objects)) > 0 {
		r.note("the repository borrows objects from another one, which git inside cannot read")
	}
	r.Ref.Shared, r.Ref.Folder = false, r.Ref.Repo
	r.Refs, r.Tips, r.Objects = nil, nil, nil
	return r, nil
}

// inspectFolder decides about a folder that is in no repository.
func inspectFolder(ctx context.Context, o Options) (*Repo, error) {
	top, err := filepath.Abs(cmp.Or(o.Dir, "."))
	if err == nil {
		top, err = filepath.EvalSymlinks(top)
	}
	switch {
	case err != nil:
		return nil, broken("name an existing folder with --repo", "the folder %s cannot be used: %v", quote(o.Dir), err)
	case !utf8.ValidString(top) || strings.ContainsAny(top, "\n\x00"):
		return nil, unsupported("rename that folder", "the path %s is not plain text", quote(top))
	case ownerOf(top) != os.Geteuid() || !mayWrite(top):
		return nil, unsupported("use --source copy", "the folder %s belongs to another user, or cannot be written", quote(top))
	}
	if i, err := os.Lstat(filepath.Join(top, ".git")); err == nil && !i.IsDir() {
		return nil, broken("remove it, or use --source copy", "%s is neither a repository nor a folder", quote(filepath.Join(top, ".git")))
	}
	r := &Repo{format: "sha1", Identity: (&config{}).identity(o.Env)}
	r.Ref = task.SourceRef{Repo: top, Folder: top, Strategy: o.Strategy, Target: cmp.Or(o.At, top)}
	if err := cleanTarget(r.Ref.Target); err != nil {
		return nil, err
	}
	r.note("the folder is in no repository: there is no git inside")
	r.git, err = findGit(ctx)
	return r, err
}

// prepareCheckout writes down how the checkout is now, in the task's folder
// alone: the index of its base, the tree of its files, and what of its git
// directory git on the host trusts.
func prepareCheckout(ctx context.Context, r *Repo, ws Workspace, in Inside) (*Prepared, error) {
	p := &preparation{r: r, ws: ws, in: in}
	if ws.Files != r.Ref.Repo {
		return nil, task.Errorf(task.CodeInternal, "source.prepare", "the workspace does not name the checkout")
	}
	if err := os.Mkdir(ws.shadow(), 0o700); err != nil {
		return nil, task.Errorf(task.CodeConflict, "source.prepare", "the task's record cannot be made: %v", err)
	}
	if err := p.frames(ws.shadow()); err != nil {
		return nil, err
	}
	if err := sys.Fault("source.framed"); err != nil {
		return nil, err
	}
	if err := p.shadow(); err != nil {
		return nil, err
	}
	ws.say("recording how the checkout is")
	if r.Ref.Base != "" {
		if err := p.compare(ctx, r.Ref.Base); err != nil {
			return nil, err
		}
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	// What differs from the base now is the user's, and part of the start.
	s, _, tree, err := ws.lookAt(ctx)
	if err != nil {
		return nil, err
	}
	if tree != s.baseTree() {
		p.startTree = tree
		if err := p.compare(ctx, tree); err != nil {
			return nil, err
		}
	}
	if p.trusted, err = trusted(ctx, ws.source()); err != nil {
		return nil, err
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := sys.Fault("source.captured"); err != nil {
		return nil, err
	}
	return p.prepared(), nil
}

// compare makes the index of a tree with the times of the files that are as in
// it, so that no later look reads them again. The git directory is caisson's
// own: nothing that the checkout configures can run.
func (p *preparation) compare(ctx context.Context, tree string) error {
	run := func(args ...string) error {
		_, err := p.r.git.Run(ctx, git.Cmd{
			GitDir: p.ws.shadow(), WorkTree: p.ws.source(), Progress: p.ws.Progress, Args: args,
			Env:    []string{"GIT_INDEX_FILE=" + p.ws.shadow() + "/" + baseIndex},
			Config: []string{"index.version=2", "core.bare=false"},
		})
		return err
	}
	if err := run("read-tree", "--reset", tree); err != nil {
		return p.fail("the start cannot be read", err)
	}
	// The status says whether every file is as in the tree.
	if err := run("update-index", "-q", "--ignore-submodules", "--refresh"); err != nil && git.Status(err) < 0 {
		return p.fail("the checkout cannot be compared with its start", err)
	}
	return nil
}
