package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/source/tree"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// registration is a worktree task's entry in the user's repository, as it is now.
type registration struct {
	id     task.ID
	common string
	admin  string
	there  bool   // the administrative folder is there
	ours   bool   // and is the one that Prepare made
	why    string // why it is not
	head   string // the commit that its HEAD names directly; empty: a branch, or unreadable
	tip    string // where the branch stands; empty: there is none
}

// registered looks at it. dir is the folder of the task.
func registered(ctx context.Context, g *git.Git, common string, id task.ID, dir string) (*registration, error) {
	reg := &registration{id: id, common: common, admin: adminOf(common, id)}
	refs, err := listRefs(ctx, g, common, WorktreeBranch(id))
	if err != nil {
		return nil, err
	}
	for _, r := range refs {
		if r.Name == WorktreeBranch(id) {
			reg.tip = r.Object
		}
	}
	st, err := os.Lstat(reg.admin)
	if errors.Is(err, fs.ErrNotExist) {
		return reg, nil
	}
	if err != nil {
		return nil, task.Errorf(task.CodeSource, "source.worktree", "%s cannot be looked at: %v", quote(reg.admin), err)
	}
	reg.there = true
	if !st.IsDir() {
		reg.why = "it is not a folder"
		return reg, nil
	}
	locked, lerr := readSmall(filepath.Join(reg.admin, "locked"))
	mark := lerr == nil && strings.TrimSpace(string(locked)) == lockText(id)
	back, err := readSmall(filepath.Join(reg.admin, "gitdir"))
	at := strings.TrimRight(string(back), "\r\n")
	if at != "" && !filepath.IsAbs(at) {
		at = filepath.Join(reg.admin, at)
	}
	switch {
	case err == nil && at == filepath.Join(dir, "source", ".git"):
		reg.ours = true
	case err == nil && exists(at):
		// Somebody moved it; what is there now is theirs.
		reg.why = "it names the worktree " + quote(filepath.Dir(at))
	case mark:
		reg.ours = true
	default:
		// Made, but not marked before a crash.
		names, derr := os.ReadDir(reg.admin)
		reg.ours = derr == nil && unmarked(names)
		reg.why = "it does not carry the task's mark"
	}
	if b, err := readSmall(filepath.Join(reg.admin, "HEAD")); err == nil && reg.ours {
		if _, oid, ok := parseRefFile(b); ok {
			reg.head = oid
		}
	}
	return reg, nil
}

// unmarked reports whether a folder holds nothing but the first file on its way.
func unmarked(entries []os.DirEntry) bool {
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".new-") {
			return false
		}
	}
	return true
}

// hostRefs is changedRefs of a worktree: nothing inside can commit, but a person
// can, in the folder on the host.
func (ws Workspace) hostRefs(ctx context.Context, s *state) (*refChanges, error) {
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	reg, err := registered(ctx, g, s.CommonDir, ws.Task, ws.Dir)
	if err != nil {
		return nil, err
	}
	out := &refChanges{}
	if reg.tip != "" && reg.tip != s.Base {
		out.changed = append(out.changed, Ref{Name: WorktreeBranch(ws.Task), Object: reg.tip})
	}
	if reg.head != "" && reg.head != s.Base && reg.head != reg.tip {
		out.changed = append(out.changed, Ref{Name: "HEAD", Object: reg.head})
	}
	return out, nil
}

// HostCommits publishes what a person committed in a worktree task's folder
// with the host's git. The branch stays by itself; a commit without a branch
// gets a ref.
func HostCommits(ctx context.Context, ws Workspace) ([]task.ResultRef, error) {
	s, err := ws.loadState()
	if err != nil || s.Strategy != task.StrategyWorktree {
		return nil, err
	}
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	refs, err := ws.hostRefs(ctx, s)
	if err != nil {
		return nil, err
	}
	var out []task.ResultRef
	for _, r := range refs.changed {
		res := task.ResultRef{Kind: "branch", Name: r.Name, Object: r.Object, Count: ws.count(ctx, g, result{object: r.Object}, 0)}
		if r.Name == "HEAD" {
			res.Name = refPrefix(ws.Task) + "head"
			_, err = g.Run(ctx, git.Cmd{GitDir: s.CommonDir, Args: []string{"update-ref", "--no-deref", "--stdin"},
				Stdin: strings.NewReader(fmt.Sprintf("start\nupdate %s %s\nprepare\ncommit\n", res.Name, r.Object))})
			if err != nil {
				return out, task.Errorf(task.CodeSource, "source.publish", "the commit that the worktree stands on cannot be recorded: %v", err)
			}
		}
		out = append(out, res)
	}
	return out, nil
}

// Unlink takes a worktree task out of the user's repository: its
// administrative folder where that is still the one that Prepare made, and its
// branch where that stands at base and nobody else has checked it out. It can be
// repeated after a crash. left says what was not removed, and why.
func Unlink(ctx context.Context, ws Workspace, ref task.SourceRef) (left []string, err error) {
	if _, ok := task.ParseID(string(ws.Task)); !ok {
		return nil, task.Errorf(task.CodeInternal, "source.unlink", "not a task id: %q", ws.Task)
	}
	if !exists(filepath.Join(ref.CommonDir, "objects")) {
		return nil, nil // the whole repository is gone
	}
	g, err := findGit(ctx)
	if err != nil {
		return nil, err
	}
	reg, err := registered(ctx, g, ref.CommonDir, ws.Task, ws.Dir)
	if err != nil {
		return nil, err
	}
	if reg.there && !reg.ours {
		left = append(left, fmt.Sprintf("%s stays: %s", reg.admin, reg.why))
	} else if err := reg.remove(ctx); err != nil {
		return left, err
	}
	if err := sys.Fault("source.unregistered"); err != nil {
		return left, err
	}
	if reg.tip != "" {
		why, err := reg.unbranch(ctx, g, ref.Base)
		if err != nil {
			return left, err
		}
		if why != "" {
			left = append(left, "the branch "+DefaultBranch(ws.Task)+" stays: "+why)
		}
	}
	return left, sys.Fault("source.unbranched")
}

// remove deletes the administrative folder, and the one it is in when that is
// empty then, as git does.
func (reg *registration) remove(ctx context.Context) error {
	fail := func(err error) error {
		return task.Errorf(task.CodeStuck, "source.unlink", "%s cannot be removed: %v", quote(reg.admin), err)
	}
	parent := filepath.Dir(reg.admin)
	if st, err := os.Lstat(parent); err != nil || !st.IsDir() {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail(err)
		}
		return nil
	}
	if err := sys.Fault("source.unregistering"); err != nil {
		return err
	}
	if err := tree.Remove(ctx, reg.admin, "."+filepath.Base(reg.admin)+".trash"); err != nil {
		return fail(err)
	}
	_ = os.Remove(parent) // only when it is empty
	return nil
}

// unbranch deletes the branch, or says why it stays.
func (reg *registration) unbranch(ctx context.Context, g *git.Git, base string) (why string, err error) {
	if reg.tip != base {
		return "it has commits of its own", nil
	}
	user, err := reg.checkedOut()
	if err != nil {
		return "", err
	}
	if user != "" {
		return "it is checked out in " + quote(user), nil
	}
	_, err = g.Run(ctx, git.Cmd{GitDir: reg.common, Args: []string{"update-ref", "--no-deref", "--stdin"},
		Stdin: strings.NewReader(fmt.Sprintf("start\ndelete %s %s\nprepare\ncommit\n", WorktreeBranch(reg.id), base))})
	if err == nil {
		return "", nil
	}
	// It may have moved in this moment.
	refs, lerr := listRefs(ctx, g, reg.common, WorktreeBranch(reg.id))
	if lerr == nil && len(refs) == 1 && refs[0].Object != base {
		return "it has commits of its own", nil
	}
	return "", task.Errorf(task.CodeStuck, "source.unlink", "the branch %s cannot be removed: %v", DefaultBranch(reg.id), err)
}

// checkedOut names a checkout other than the task's that stands on its branch.
func (reg *registration) checkedOut() (string, error) {
	on := func(gitDir string) bool {
		b, err := readSmall(filepath.Join(gitDir, "HEAD"))
		sym, _, ok := parseRefFile(b)
		return err == nil && ok && sym == WorktreeBranch(reg.id)
	}
	if on(reg.common) {
		return reg.common, nil
	}
	entries, err := os.ReadDir(filepath.Join(reg.common, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", task.Errorf(task.CodeStuck, "source.unlink", "the worktrees of %s cannot be listed: %v", quote(reg.common), err)
	}
	for _, e := range entries {
		if e.Name() != WorktreeName(reg.id) && !strings.HasPrefix(e.Name(), ".") && on(filepath.Join(reg.common, "worktrees", e.Name())) {
			return e.Name(), nil
		}
		// Ours that was not removed because somebody moved it is theirs.
		if e.Name() == WorktreeName(reg.id) && on(reg.admin) {
			return e.Name(), nil
		}
	}
	return "", nil
}

// State says what is not as it should be about a task's files on the host, for
// a person; nothing when all is well. It runs nothing and repairs nothing.
func State(ws Workspace, ref task.SourceRef) []string {
	switch ref.Strategy {
	case task.StrategyWorktree:
	case task.StrategyCheckout:
		if !exists(ref.Repo) {
			return []string{"the checkout " + ref.Repo + " is gone"}
		}
		return nil
	default:
		return nil
	}
	var out []string
	dot, admin := filepath.Join(ws.source(), ".git"), adminOf(ref.CommonDir, ws.Task)
	if !exists(ws.source()) {
		return append(out, "the worktree's folder "+ws.source()+" is gone; what was in it is lost")
	}
	st, err := os.Lstat(dot)
	switch {
	case err != nil:
		out = append(out, "the worktree's .git is gone: git started in that folder would act on a repository around it")
	case !st.Mode().IsRegular():
		out = append(out, "the worktree's .git was replaced: do not run git in that folder before you have looked at it")
	default:
		if b, err := readSmall(dot); err != nil || string(b) != pointerText(ref.CommonDir, ws.Task) {
			out = append(out, "the worktree's .git was changed: do not run git in that folder before you have looked at it")
		}
	}
	if !exists(admin) {
		out = append(out, "the repository does not know the worktree any more ("+admin+" is gone): git does not work in that folder; `caisson diff` does")
	}
	return out
}
