package source

import (
	"context"
	"strings"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/task"
)

// partial reports whether the repository is a partial clone.
func (c *config) partial() bool {
	for k, v := range c.last {
		if k == "extensions.partialclone" || strings.HasPrefix(k, "remote.") && (strings.HasSuffix(k, ".promisor") && truth(v) || strings.HasSuffix(k, ".partialclonefilter")) {
			return true
		}
	}
	return false
}

// complete refuses a partial clone of which the task would need what is not
// there: nothing is fetched for it, neither now nor inside.
func (r *Repo) complete(ctx context.Context) error {
	if !r.partial {
		return nil
	}
	if r.Ref.Strategy != task.StrategyCheckout && r.Ref.History != task.HistoryNone {
		return unsupported("use --history none, which needs no more than the files of the base; or clone it without --filter",
			"the repository is a partial clone: objects of its history may be missing, and nothing is fetched for a task")
	}
	if r.Ref.Base == "" {
		return nil
	}
	missing, err := r.lacks(ctx, r.Ref.Base)
	if err != nil {
		return err
	}
	if missing {
		return unsupported("fetch them with `git archive "+r.Ref.Base+" >/dev/null`, then try again; or clone it without --filter",
			"the repository is a partial clone, and objects of the base %s are missing: nothing is fetched for a task", r.Ref.Base)
	}
	return nil
}

// lacks reports whether an object of the tree of treeish is not in the user's
// repository. What is missing is not asked for anywhere.
func (r *Repo) lacks(ctx context.Context, treeish string) (bool, error) {
	out, err := r.git.Run(ctx, git.Cmd{GitDir: r.gitDir, Max: 1 << 30, Args: []string{"rev-list", "--objects", "--quiet", "--missing=print", treeish + "^{tree}"}})
	if err != nil && git.Status(err) < 0 {
		return false, err
	}
	return err != nil || len(out) > 0, nil
}
