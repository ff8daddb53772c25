package source

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// tip is the commit that stands for a result.
type tip struct {
	commit  string
	commits int // on it and not in the base
	notes   []string
}

// Tip returns the commit that a branch of the result names, and how many
// commits it has that the base does not. It is the task's own HEAD when that
// has the very files of the result, else one commit on top of it. Without
// commits made inside it is one commit on what the task began with. Asked again
// about the same files it is the same commit.
//
// Commits made inside must have been fetched before Look.
func (r *Result) Tip(ctx context.Context) (commit string, commits int, err error) {
	t, err := r.tip(ctx)
	if err != nil {
		return "", 0, err
	}
	return t.commit, t.commits, nil
}

func (r *Result) tip(ctx context.Context) (*tip, error) {
	if r.made != nil {
		return r.made, nil
	}
	t := &tip{}
	if err := r.makeTip(ctx, t); err != nil {
		return nil, err
	}
	n, err := r.countBeyond(ctx, t.commit, r.Base)
	if err != nil {
		return nil, err
	}
	t.commits = n
	if r.Base != "" {
		lost, err := r.countBeyond(ctx, r.Base, t.commit)
		if err != nil {
			return nil, err
		}
		if lost > 0 {
			t.notes = append(t.notes, fmt.Sprintf("history was rewritten inside: it does not continue from the base; %s of the base %s not in it",
				plural(lost, "commit"), isAre(lost)))
		}
	}
	carried, err := r.carried(ctx)
	if err != nil {
		return nil, err
	}
	if carried {
		t.notes = append(t.notes, "it also has the uncommitted files of the checkout that the task began with")
	}
	r.made = t
	return t, nil
}

// carried reports whether the task began with other files than its base has.
func (r *Result) carried(ctx context.Context) (bool, error) {
	if r.Base == "" {
		return false, nil
	}
	base, err := r.treeName(ctx, r.Base+"^{tree}")
	return base != r.Start, err
}

// filesBeyondBase counts the files that differ from the base.
func (r *Result) filesBeyondBase(ctx context.Context) (int, error) {
	carried, err := r.carried(ctx)
	if err != nil || !carried {
		return len(r.Changes), err
	}
	out, err := r.g.Run(ctx, r.cmd("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", r.Base, r.Tree, "--"))
	if err != nil {
		return 0, task.Errorf(task.CodeSource, "source.tip", "the changed files cannot be counted: %v", err)
	}
	return strings.Count(string(out), "\x00"), nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// makeTip finds or makes the commit of a result.
func (r *Result) makeTip(ctx context.Context, t *tip) error {
	if r.headErr != nil {
		return r.headErr
	}
	parent, message := r.rescued, "files of caisson task "+string(r.Task)+"\n"
	if r.s != nil {
		parent = r.s.startCommit()
	} else if parent == "" {
		parent = r.Base
	}
	inside := r.head != "" && r.head != r.Base
	if inside {
		if err := r.checkHead(ctx); err != nil {
			return err
		}
		parent, message = r.head, "uncommitted "+message
	}
	if parent != "" {
		has, err := r.treeName(ctx, parent+"^{tree}")
		if err != nil {
			return err
		}
		if has == r.Tree {
			t.commit = parent
			return nil
		}
	}
	if inside {
		t.notes = append(t.notes, "the newest commit holds the files that were not committed inside")
	}
	when, err := r.tipTime(ctx, parent)
	if err != nil {
		return err
	}
	who, err := r.author(ctx)
	if err != nil {
		return err
	}
	t.commit, err = commitTree(ctx, r.g, commitSpec{dir: r.dir, tree: r.Tree, parent: parent, message: message, who: who, when: when})
	return err
}

// author is who a task's commits are by.
func (r *Result) author(ctx context.Context) (task.GitIdentity, error) {
	switch {
	case r.s != nil:
		return r.s.Identity, nil
	case r.rescued == "":
		return defaultIdentity, nil
	}
	out, err := r.g.Run(ctx, r.cmd("log", "-1", "--no-walk", "--format=%an%n%ae", r.rescued, "--"))
	name, email, ok := strings.Cut(strings.TrimSuffix(string(out), "\n"), "\n")
	if err != nil || !ok {
		return task.GitIdentity{}, task.Errorf(task.CodeSource, "source.tip", "the commit %s cannot be read: %v", r.rescued, err)
	}
	return task.GitIdentity{Name: name, Email: email}, nil
}

// checkHead makes sure that the task's HEAD is a commit that was fetched with
// all it leads to. Its objects were checked when they came in.
func (r *Result) checkHead(ctx context.Context) error {
	cmd := r.cmd("cat-file", "--batch-check=%(objecttype)")
	cmd.Stdin = strings.NewReader(r.head + "\n")
	out, err := r.g.Run(ctx, cmd)
	if err != nil {
		return badHead("%v", err)
	}
	switch kind := strings.TrimSpace(string(out)); {
	case strings.HasSuffix(kind, " missing"):
		return badHead("its commit %s did not come out of the boundary", r.head)
	case kind != "commit":
		return badHead("it names a %s, not a commit", kind)
	}
	args := []string{"rev-list", "--objects", "--quiet", r.head, "--not", "--all"}
	if r.Base != "" {
		args = append(args, r.Base)
	}
	if _, err := r.g.Run(ctx, r.cmd(args...)); err != nil {
		return badHead("its history is not complete: %v", err)
	}
	return nil
}

// maxCommitTime is the last moment that a commit of ours may carry, in seconds:
// the year 2100. Beyond it some tools cannot read a date.
const maxCommitTime = 4102444800

// tipTime is the date of a commit made for a result: the same whenever the same
// files are made into one, so that nothing changes when nothing changed. It is
// the moment the task began, or its parent's where that is later.
func (r *Result) tipTime(ctx context.Context, parent string) (int64, error) {
	var when int64
	if r.s != nil {
		when = max(r.s.CutoffS, 0)
	}
	if parent == "" {
		return when, nil
	}
	out, err := r.g.Run(ctx, r.cmd("log", "-1", "--no-walk", "--format=%ct", parent, "--"))
	if err != nil {
		return 0, task.Errorf(task.CodeSource, "source.tip", "the commit %s cannot be read: %v", parent, err)
	}
	if t, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64); err == nil && t > when && t < maxCommitTime {
		when = t
	}
	return when, nil
}

// countBeyond counts the commits of one history that another does not have.
func (r *Result) countBeyond(ctx context.Context, of, not string) (int, error) {
	args := []string{"rev-list", "--count", of}
	if not != "" {
		args = append(args, "--not", not)
	}
	out, err := r.g.Run(ctx, r.cmd(args...))
	if err != nil {
		return 0, task.Errorf(task.CodeSource, "source.tip", "the commits of %s cannot be counted: %v", of, err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 0, task.Errorf(task.CodeInternal, "source.tip", "git rev-list answered %q", out)
	}
	return n, nil
}

// commitSpec says what one commit is made of.
type commitSpec struct {
	dir, tree, parent, message string
	who                        task.GitIdentity
	when                       int64
}

// commitTree makes a commit in a git directory of the host's own.
func commitTree(ctx context.Context, g *git.Git, c commitSpec) (string, error) {
	args := []string{"commit-tree", "-F", "-"}
	if c.parent != "" {
		args = append(args, "-p", c.parent)
	}
	// A clock may say anything, and git takes no date before 1970.
	date := "@" + strconv.FormatInt(min(max(c.when, 0), maxCommitTime-1), 10) + " +0000"
	oid, err := oneLine(ctx, g, git.Cmd{
		GitDir: c.dir, Args: append(args, c.tree), Stdin: strings.NewReader(c.message),
		Env: []string{
			"GIT_AUTHOR_NAME=" + c.who.Name, "GIT_AUTHOR_EMAIL=" + c.who.Email, "GIT_AUTHOR_DATE=" + date,
			"GIT_COMMITTER_NAME=" + c.who.Name, "GIT_COMMITTER_EMAIL=" + c.who.Email, "GIT_COMMITTER_DATE=" + date,
		},
	})
	if err != nil {
		return "", task.Errorf(task.CodeSource, "source.snapshot", "the files cannot be committed: %v", err)
	}
	return oid, nil
}
