package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/swap"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("apply.locked", "apply.done")

// stageName begins the name of the folder that holds new contents beside the
// checkout while an apply runs.
const stageName = ".caisson-apply"

// Apply does what the plan says: all of it, or nothing. It looks at everything
// again under the lock of the checkout; whatever moved since the plan was made
// is a refusal. A process that is killed leaves a journal for RecoverApply.
func (p *ApplyPlan) Apply(ctx context.Context) error {
	if p.scratch == nil {
		return task.Errorf(task.CodeInternal, "source.apply", "the plan is closed")
	}
	if len(p.Conflicts) > 0 {
		return p.conflict(p.Conflicts)
	}
	if _, err := RecoverApply(ctx, p.o.Journal); err != nil {
		return err
	}
	root, err := lockFolder(p.Checkout)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := sys.Fault("apply.locked"); err != nil {
		return err
	}
	if err := p.sameRoot(root); err != nil {
		return err
	}
	again, err := findTarget(ctx, p.g, p.o.Source, p.o.Env)
	if err != nil {
		return err
	}
	if again.l != p.t.l {
		return p.moved("the repository of the checkout is another one")
	}
	if err := p.sameHead(ctx); err != nil {
		return err
	}
	s, err := p.survey(ctx, root)
	if err != nil {
		return err
	}
	if len(s.conflicts) > 0 {
		return p.conflict(s.conflicts)
	}
	if len(s.steps) == 0 {
		return nil
	}
	p.say("changing " + plural(len(s.steps), "file"))
	var stages []string
	if p.t.repo != nil {
		stages = append(stages, p.t.l.gitDir)
	}
	err = swap.Run(ctx, swap.Job{
		Root: root, RootPath: p.Checkout, Stages: append(stages, p.Checkout), Name: stageName, Journal: p.o.Journal,
		Check: func() error { return p.sameHead(ctx) },
	}, s.steps)
	if err != nil {
		return p.explain(err)
	}
	return sys.Fault("apply.done")
}

// sameHead makes sure that the checkout holds as committed what it did when the
// plan was made.
func (p *ApplyPlan) sameHead(ctx context.Context) error {
	if p.t.repo == nil {
		return nil
	}
	now, err := p.t.headTree(ctx)
	if err != nil {
		return err
	}
	if now != p.ours {
		return p.moved("the checkout's HEAD moved")
	}
	return nil
}

func (p *ApplyPlan) moved(what string) error {
	return task.Errorf(task.CodeConflict, "source.apply", "%s since the plan was made; nothing was changed", what).
		WithHint("run `caisson apply` again")
}

// conflict refuses, with the first few paths.
func (p *ApplyPlan) conflict(cs []task.Conflict) error {
	const show = 3
	var lines []string
	for i, c := range cs {
		if i == show {
			lines = append(lines, fmt.Sprintf("and %d more", len(cs)-show))
			break
		}
		lines = append(lines, c.Path+": "+c.Why)
	}
	return task.Errorf(task.CodeConflict, "source.apply", "nothing was changed in %s: %s", quote(p.Checkout), strings.Join(lines, "; ")).
		WithHint("commit or stash what is in the way, or take the result with `caisson branch`")
}

// explain turns an error of the exchange into one for a person.
func (p *ApplyPlan) explain(err error) error {
	var u *swap.Undone
	if errors.As(err, &u) && len(u.Left) > 0 {
		return leftError(p.Checkout, u.Left, u.Err)
	}
	var c *swap.Changed
	var te *task.Error
	switch {
	case errors.As(err, &c):
		return task.Errorf(task.CodeConflict, "source.apply", "%s in the checkout: %s; nothing was changed", quote(c.Path), c.Why).
			WithHint("let the program that writes there finish, then run `caisson apply` again")
	case errors.Is(err, swap.ErrUnsupported):
		return task.Errorf(task.CodeUnsupported, "source.apply", "the files of %s cannot be exchanged in one step: %v", quote(p.Checkout), err).
			WithHint("take the result with `caisson branch` or `caisson export --patch`")
	case errors.As(err, &te):
		return err
	case errors.Is(err, context.Canceled):
		return task.Errorf(task.CodeCanceled, "source.apply", "the apply was cancelled; nothing was changed: %w", err)
	}
	return task.Errorf(task.CodeSource, "source.apply", "the checkout %s cannot be changed: %w", quote(p.Checkout), err)
}

func leftError(checkout string, left []swap.Left, why error) error {
	var lines []string
	for i, l := range left {
		if i == 10 {
			lines = append(lines, fmt.Sprintf("and %d more", len(left)-i))
			break
		}
		if l.Kept != "" {
			lines = append(lines, quote(l.Path)+" (what was there before: "+quote(l.Kept)+")")
		} else {
			lines = append(lines, quote(l.Path))
		}
	}
	msg := "an apply to %s was taken back, but these were changed by somebody meanwhile and stay as they are: %s"
	if why != nil {
		return task.Errorf(task.CodeConflict, "source.apply", msg+": %v", quote(checkout), strings.Join(lines, ", "), why).
			WithHint("look at these files; the copies are yours to keep or delete")
	}
	return task.Errorf(task.CodeConflict, "source.apply", msg, quote(checkout), strings.Join(lines, ", ")).
		WithHint("look at these files; the copies are yours to keep or delete")
}

// RecoverApply ends what a killed Apply left behind in journal: the checkout is
// then exactly as before, or, where everything had been done, exactly as wanted.
// It can be repeated. Files that somebody changed meanwhile are left as they
// are and named in the error; what they replaced is kept in the journal folder.
func RecoverApply(_ context.Context, journal string) (recovered bool, err error) {
	var root string
	recovered, left, err := swap.Recover(journal, func(dir string) (*os.File, error) {
		root = dir
		return lockFolder(dir)
	})
	var te *task.Error
	switch {
	case errors.Is(err, swap.ErrMoved):
		return recovered, task.Errorf(task.CodeStuck, "source.apply", "an apply to %s was cut short, and that folder is not there any more: %v", quote(root), err).
			WithHint("bring the folder back to its place, or remove %s to give its former files up", quote(journal))
	case errors.As(err, &te):
		return recovered, err
	case err != nil:
		return recovered, task.Errorf(task.CodeStuck, "source.apply", "an apply that was cut short cannot be taken back: %v", err).
			WithHint("the former files are safe; repair what is named and try again")
	case len(left) > 0:
		return recovered, leftError(root, left, nil)
	}
	return recovered, nil
}
