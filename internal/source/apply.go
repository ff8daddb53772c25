package source

import (
	"context"

	"github.com/caisson-dev/caisson/internal/task"
)

// ApplyOptions says where a result goes.
type ApplyOptions struct {
	// Source is what was recorded of the task's source: the target is the
	// checkout that it names, found anew.
	Source task.SourceRef
	// Journal is a folder of caisson's own, tasks/<id>/apply. It exists only
	// while an apply is under way, or was cut short.
	Journal string
	// Env is the user's environment, as in Options.
	Env []string
	// Progress tells what goes on when it takes long; may be nil.
	Progress func(string)
}

// ApplyPlan is what bringing a result into the checkout would do. Nothing was
// changed for it. Close it.
type ApplyPlan struct {
	Checkout string // the folder that is changed
	// Digest names exactly this change of exactly this checkout.
	Digest    string
	Changes   []task.FileChange
	Already   int             // files that are as wanted before anything is done
	Conflicts []task.Conflict // not empty: Apply refuses
	Notes     []string
}

func unbuilt(op string) error {
	return task.Errorf(task.CodeUnsupported, op, "this part is not in this build")
}

// PlanApply works out what bringing the result into the checkout means.
func (r *Result) PlanApply(ctx context.Context, o ApplyOptions) (*ApplyPlan, error) {
	return nil, unbuilt("source.apply")
}

// Apply does what the plan says: all of it or nothing.
func (p *ApplyPlan) Apply(ctx context.Context) error { return unbuilt("source.apply") }

// Close gives back what the plan holds. The zero value can be closed.
func (p *ApplyPlan) Close() {}

// RecoverApply ends what a killed Apply left behind in journal.
func RecoverApply(ctx context.Context, journal string) (recovered bool, err error) {
	return false, nil
}

// Recall makes the result of an ended task whose files are gone, from what was
// rescued when it ended.
func Recall(ctx context.Context, ws Workspace, ref task.SourceRef, rs []task.ResultRef) (*Result, error) {
	return nil, unbuilt("source.recall")
}
