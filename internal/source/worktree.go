package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("source.worktreebranched", "source.registering", "source.registered", "source.linked", "source.unregistering", "source.unregistered", "source.unbranched")

// A worktree task's files are a linked worktree of the user's repository, so
// that the user's own git and editor show them live. It is registered by hand:
// `git worktree add` would run the hooks and filters of the user's
// configuration on the way. Names are made from the task's id alone; whoever
// cleans up needs nothing else.

// WorktreeName is the name of a task's worktree in the user's repository.
func WorktreeName(id task.ID) string { return "caisson-" + string(id) }

// WorktreeBranch is the full name of the ref that a task's worktree stands on.
func WorktreeBranch(id task.ID) string { return "refs/heads/" + DefaultBranch(id) }

// adminOf is the folder in which the repository keeps a task's worktree.
func adminOf(commonDir string, id task.ID) string {
	return filepath.Join(commonDir, "worktrees", WorktreeName(id))
}

// lockText marks the folder as ours, and keeps git from pruning it.
func lockText(id task.ID) string { return "caisson task " + string(id) }

// inspectWorktree decides about a linked worktree.
func inspectWorktree(ctx context.Context, o Options) (*Repo, error) {
	o.History = task.HistoryNone // nothing of the repository is readable inside
	r, err := inspectRepo(ctx, o)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(r.Ref.CommonDir, "worktrees")
	st, err := os.Lstat(dir)
	switch {
	case r.Ref.Base == "":
		return nil, unsupported("make a first commit, or use --source clone", "a worktree stands on a commit, and %s has none yet", quote(r.Ref.Repo))
	case !r.Pinnable:
		return nil, unsupported("use --source clone", "a worktree is registered in the repository, and %s cannot be written by you", quote(r.Ref.CommonDir))
	case err == nil && (!st.IsDir() || !mayWrite(dir)):
		return nil, unsupported("make it a folder that you can write, or use --source clone", "worktrees are registered in %s, which cannot be used", quote(dir))
	case err != nil && !os.IsNotExist(err):
		return nil, broken("check its permissions", "%s cannot be read: %v", quote(dir), err)
	}
	r.Ref.Branch, r.Ref.Shared = "", false
	r.Refs, r.Tips, r.Objects = nil, []string{r.Ref.Base}, nil
	return r, nil
}

// prepareWorktree makes the files, then registers them as a worktree: whatever
// breaks before leaves nothing in the user's repository but a pin.
func prepareWorktree(ctx context.Context, r *Repo, ws Workspace, in Inside) (*Prepared, error) {
	p := &preparation{r: r, ws: ws, in: in, pinned: true}
	if err := p.tops(); err != nil {
		return nil, err
	}
	if err := p.frames(ws.shadow()); err != nil {
		return nil, err
	}
	if err := sys.Fault("source.framed"); err != nil {
		return nil, err
	}
	if err := p.pinOnce(ctx); err != nil {
		return nil, task.Errorf(task.CodeSource, "source.prepare", "refs cannot be written into %s: %w", quote(r.Ref.CommonDir), err).
			WithHint("use --source clone, which needs none")
	}
	if err := sys.Fault("source.pinned"); err != nil {
		return nil, err
	}
	if err := p.shadow(); err != nil {
		return nil, err
	}
	if err := p.files(ctx, p.connected); err != nil {
		return nil, err
	}
	r.Ref.Branch = DefaultBranch(ws.Task)
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := p.register(ctx); err != nil {
		return nil, err
	}
	out := p.prepared()
	out.Ref.Folder = ws.source()
	out.Ref.Notes = append(out.Ref.Notes, "git does not work inside: look at the files with your own git or editor in "+ws.source())
	return out, nil
}

// register makes branch, administrative folder and pointer, in this order.
func (p *preparation) register(ctx context.Context) error {
	id, common := p.ws.Task, p.r.Ref.CommonDir
	head := "ref: " + WorktreeBranch(id) + "\n"
	_, err := p.r.git.Run(ctx, git.Cmd{GitDir: common, Args: []string{"update-ref", "--no-deref", "--stdin"},
		Stdin: strings.NewReader(fmt.Sprintf("start\ncreate %s %s\nprepare\ncommit\n", WorktreeBranch(id), p.r.Ref.Base))})
	if err != nil && git.Status(err) < 0 {
		return p.fail("the branch of the worktree cannot be made", err)
	}
	if err != nil {
		// For example a branch of the user's that is called caisson.
		head, p.r.Ref.Branch = p.r.Ref.Base+"\n", ""
		p.notes = append(p.notes, "the worktree stands on the commit without a branch: "+err.Error())
	}
	if err := sys.Fault("source.worktreebranched"); err != nil {
		return err
	}
	index, err := os.ReadFile(p.ws.shadow() + "/" + p.indexName())
	if err != nil {
		return p.fail("the index cannot be read", err)
	}
	admin := adminOf(common, id)
	if err := os.Mkdir(filepath.Dir(admin), 0o777); err != nil && !os.IsExist(err) { //nolint:gosec // as git makes it
		return p.fail("the worktree cannot be registered", err)
	}
	if err := os.Mkdir(admin, 0o777); err != nil { //nolint:gosec // as git makes it
		return p.fail("the worktree cannot be registered", err)
	}
	// The lock first: from then on no `git worktree prune` takes it.
	for i, f := range []struct{ name, text string }{
		{"locked", lockText(id) + "\n"}, {"commondir", "../..\n"}, {"gitdir", p.ws.source() + "/.git\n"}, {"HEAD", head}, {"index", string(index)},
	} {
		if err := writeFile(filepath.Join(admin, f.name), []byte(f.text), 0o644); err != nil {
			return p.fail("the worktree cannot be registered", err)
		}
		if i == 0 {
			if err := sys.Fault("source.registering"); err != nil {
				return err
			}
		}
	}
	if err := sys.Fault("source.registered"); err != nil {
		return err
	}
	if err := writeFile(p.ws.source()+"/.git", []byte(pointerText(common, id)), 0o644); err != nil {
		return p.fail("the worktree cannot be linked", err)
	}
	return sys.Fault("source.linked")
}

// pointerText is what the file .git of a task's worktree says.
func pointerText(commonDir string, id task.ID) string {
	return "gitdir: " + adminOf(commonDir, id) + "\n"
}
