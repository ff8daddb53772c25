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

var _ = sys.RegisterFaults("source.branchstored", "source.branchmade")

// BranchOptions says which branch a result becomes.
type BranchOptions struct {
	// Repo is the user's repository as it is found now; CommonDir counts.
	Repo task.SourceRef
	// Name is the branch without refs/heads/; empty is caisson/<id>, or
	// caisson/<id>-result where the task's own worktree has that branch.
	Name string
	// Force moves an existing branch that is checked out nowhere.
	Force bool
}

// DefaultBranch is the branch of a task: the one that its worktree stands on, or
// that its result becomes when no name is given.
func DefaultBranch(id task.ID) string { return "caisson/" + string(id) }

// BranchName is the branch that Branch makes when it is given name.
func (r *Result) BranchName(name string) string {
	switch {
	case name != "":
		return name
	case r.strategy == task.StrategyWorktree:
		return DefaultBranch(r.Task) + "-result" // its worktree stands, or stood, on a branch of the shorter name
	}
	return DefaultBranch(r.Task)
}

// Branch makes the result a branch of the user's repository: its objects are
// verified and stored, then one ref transaction, with the value that was seen
// before, names them. A branch that is there with this very commit is success.
// No hook runs, and no checkout, index or other ref is touched. On a crash in
// between only objects are left, held by nothing once the task is closed.
func (r *Result) Branch(ctx context.Context, o BranchOptions) (*task.BranchReport, error) {
	name := r.BranchName(o.Name)
	ref, err := branchRef(name)
	if err != nil {
		return nil, err
	}
	common := o.Repo.CommonDir
	if common == "" && r.s != nil {
		common = r.s.CommonDir
	}
	if common == "" {
		return nil, task.Errorf(task.CodeUnsupported, "source.branch", "the files of %s come from no git repository, so there is none to make a branch in", r.Task).
			WithHint("use `caisson export %s` with --patch, --bundle or --dir", r.Task)
	}
	if err := r.branchable(ctx, common); err != nil {
		return nil, err
	}
	t, err := r.tip(ctx)
	if err != nil {
		return nil, err
	}
	rep := &task.BranchReport{
		Schema: "caisson.branch/1", ID: r.Task, Branch: ref, Object: t.commit, Base: r.Base, Commits: t.commits,
		Risky: []task.Risk{}, From: r.From, Notes: append(append([]string(nil), t.notes...), r.leftOut()...),
	}
	if rep.Files, err = r.filesBeyondBase(ctx); err != nil {
		return nil, err
	}
	b := &branching{r: r, d: &delivery{g: r.g, task: r.Task, from: r.dir, to: common}, ref: ref, name: name, force: o.Force}
	if err := b.look(ctx, t.commit); err != nil {
		return nil, err
	}
	if b.old == t.commit {
		return rep, nil
	}
	if err := b.make(ctx, t.commit); err != nil {
		return nil, err
	}
	rep.Created = true
	if b.old != "" {
		rep.Notes = append(rep.Notes, fmt.Sprintf("%s named the commit %s before", name, b.old))
	}
	return rep, nil
}

// branchable refuses a repository that a branch cannot be written into.
func (r *Result) branchable(ctx context.Context, common string) error {
	for _, n := range []string{"HEAD", "objects", "refs"} {
		if !exists(filepath.Join(common, n)) {
			return task.Errorf(task.CodeSource, "source.branch", "the repository %s is gone or is not complete", quote(common)).
				WithHint("`caisson export %s --bundle` writes the same commits to a file that any clone can fetch from", r.Task)
		}
	}
	for _, p := range []string{common, filepath.Join(common, "refs"), filepath.Join(common, "refs", "heads"), filepath.Join(common, "objects")} {
		if !exists(p) {
			continue // git makes refs/heads
		}
		if o := ownerOf(p); o != os.Geteuid() {
			return cannotWrite(r.Task, common, fmt.Sprintf("%s belongs to another user (uid %d)", quote(p), o))
		}
		if !mayWrite(p) {
			return cannotWrite(r.Task, common, quote(p)+" cannot be written")
		}
	}
	out, err := r.g.Run(ctx, git.Cmd{GitDir: common, Args: []string{"rev-parse", "--show-object-format"}})
	if err != nil {
		return broken("run `git fsck` there", "git cannot use the repository %s: %v", quote(common), err)
	}
	if f := strings.TrimSpace(string(out)); f != r.format {
		return task.Errorf(task.CodeSource, "source.branch", "the repository %s uses the object format %s, the result %s", quote(common), quote(f), r.format).
			WithHint("use `caisson export %s --patch`", r.Task)
	}
	return nil
}

func cannotWrite(id task.ID, common, why string) error {
	return task.Errorf(task.CodeSource, "source.branch", "no branch can be made in %s: %s", quote(common), why).
		WithHint("write a file with `caisson export %s --bundle -o FILE`, then `git fetch FILE` where you may write", id)
}

// branching is one branch on its way.
type branching struct {
	r         *Result
	d         *delivery
	ref, name string
	force     bool
	old       string // what the branch names now; empty: there is none
}

// look decides whether the branch may be made or moved.
func (b *branching) look(ctx context.Context, commit string) error {
	refs, err := listRefs(ctx, b.d.g, b.d.to, "refs/heads/")
	if err != nil {
		return broken("run `git fsck` there", "the branches of %s cannot be listed: %v", quote(b.d.to), err)
	}
	for _, ref := range refs {
		if ref.Name == b.ref {
			if ref.Symref != "" {
				return task.Errorf(task.CodeConflict, "source.branch", "%s is another name for %s", quote(b.name), quote(ref.Symref)).
					WithHint("name another branch")
			}
			b.old = ref.Object
		} else if refsClash(ref.Name, b.ref) {
			return task.Errorf(task.CodeConflict, "source.branch", "the branch %s cannot stand beside %s: on some file systems they are the same name, or one is the other's folder",
				quote(b.name), quote(strings.TrimPrefix(ref.Name, "refs/heads/"))).WithHint("name another branch: `caisson branch %s NAME`", b.r.Task)
		}
	}
	if b.old == commit {
		return nil
	}
	where, err := checkedOut(b.d.to, b.ref)
	if err != nil {
		return err
	}
	if where != "" {
		return task.Errorf(task.CodeConflict, "source.branch", "the branch %s is checked out in %s, which would no longer fit its files", quote(b.name), quote(where)).
			WithHint("name another branch, or bring the change into that checkout with `caisson apply %s`", b.r.Task)
	}
	if b.old != "" && !b.force {
		return task.Errorf(task.CodeConflict, "source.branch", "the branch %s exists and names another commit, %s", quote(b.name), b.old).
			WithHint("name another branch, or move it with --force")
	}
	return nil
}

// make stores the objects and writes the ref.
func (b *branching) make(ctx context.Context, commit string) error {
	ok, err := b.d.complete(ctx, commit)
	if err != nil {
		return err
	}
	if !ok {
		keep, err := b.bring(ctx, commit)
		if keep != "" {
			defer os.Remove(keep)
		}
		if err != nil {
			return err
		}
	}
	if err := sys.Fault("source.branchstored"); err != nil {
		return err
	}
	verb := "create " + b.ref + " " + commit
	if b.old != "" {
		verb = "update " + b.ref + " " + commit + " " + b.old
	}
	cmd := git.Cmd{
		GitDir: b.d.to, Stdin: strings.NewReader("start\n" + verb + "\nprepare\ncommit\n"),
		Args: []string{"update-ref", "--no-deref", "-m", "branch: made from caisson task " + string(b.r.Task), "--stdin"},
	}
	if who, err := b.r.author(ctx); err != nil {
		return err
	} else if b.reflog(ctx) {
		// As `git branch` would: the log is how a moved branch is found again.
		cmd.Config = []string{"core.logAllRefUpdates=true"}
		cmd.Env = []string{"GIT_COMMITTER_NAME=" + who.Name, "GIT_COMMITTER_EMAIL=" + who.Email}
	}
	if _, err := b.d.g.Run(ctx, cmd); err != nil {
		if git.Status(err) < 0 {
			return err
		}
		return task.Errorf(task.CodeConflict, "source.branch", "the branch %s cannot be written: %v", quote(b.name), err).
			WithHint("it may have changed just now: try again, or name another branch")
	}
	return sys.Fault("source.branchmade")
}

// bring stores what the repository lacks and makes sure that nothing is missing.
func (b *branching) bring(ctx context.Context, commit string) (keep string, err error) {
	if b.r.s == nil {
		// Of a call that was killed; nobody else removes it any more.
		if err := dropKeeps(b.d.to, b.r.Task); err != nil {
			return "", err
		}
	}
	pack, n, err := b.d.pack(ctx, []string{commit}, b.r.known())
	if err != nil {
		return "", err
	}
	defer os.Remove(pack)
	if n > 0 {
		if keep, err = b.d.store(ctx, pack); err != nil {
			return keep, err
		}
	}
	ok, err := b.d.complete(ctx, commit)
	if err == nil && !ok {
		err = task.Errorf(task.CodeSource, "source.branch", "the repository %s lacks commits that the task began with", quote(b.d.to)).
			WithHint("it may have been replaced since; use `caisson export %s --patch`", b.r.Task)
	}
	return keep, err
}

// reflog reports whether the repository keeps logs of its branches.
func (b *branching) reflog(ctx context.Context) bool {
	out, err := b.d.g.Run(ctx, git.Cmd{Args: []string{"config", "--file", filepath.Join(b.d.to, "config"), "--no-includes", "--get", "core.logAllRefUpdates"}})
	return err != nil || !strings.EqualFold(strings.TrimSpace(string(out)), "false")
}

// known are commits that the user's repository had when the task began.
func (r *Result) known() []string {
	switch {
	case r.s != nil:
		return r.s.Tips
	case r.Base != "":
		return []string{r.Base}
	}
	return nil
}

// leftOut says what of the task's files is in no tree.
func (r *Result) leftOut() []string {
	var notes []string
	if n := len(r.Unfit); n > 0 {
		notes = append(notes, "not in it, because no commit can hold them: "+someOf(r.Unfit))
	}
	if n := len(r.ignored); n > 0 {
		notes = append(notes, "not in it, because they are ignored: "+someOf(r.ignored))
	}
	return notes
}

// someOf names the first few paths.
func someOf(paths []string) string {
	const show = 5
	var out []string
	for i, p := range paths {
		if i == show {
			out = append(out, fmt.Sprintf("and %d more", len(paths)-show))
			break
		}
		out = append(out, quote(p))
	}
	return strings.Join(out, ", ")
}
