package boundary

import (
	"context"
	"strings"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/task"
)

// What a strategy makes besides files and pins.
const (
	kindWorktree = "worktree" // worktrees/caisson-<id> in the user's repository
	kindBranch   = "branch"   // refs/heads/caisson/<id>
)

// shape makes the draft of a boundary fit the strategy.
func shape(s *backend.Spec, ref task.SourceRef, id task.ID) {
	if ref.Strategy != task.StrategyWorktree {
		return
	}
	s.Source.Cover = []string{".git"}
	s.Files = append(s.Files, backend.File{Target: backend.BinDir + "/git", Mode: 0o555, Text: source.Shim(backend.BinDir, s.Source.Target, id)})
	for i, kv := range s.Env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			s.Env[i] = "PATH=" + backend.BinDir + ":" + path
		}
	}
}

// strategyResources names what the strategy makes in the user's repository.
func strategyResources(ref task.SourceRef, l *live) []inventory.Resource {
	if ref.Strategy != task.StrategyWorktree {
		return nil
	}
	return []inventory.Resource{
		{Resource: task.Resource{Kind: kindWorktree, Name: source.WorktreeName(l.id), Token: l.token, External: ref.CommonDir}, Provider: "source", Durable: true},
		{Resource: task.Resource{Kind: kindBranch, Name: source.WorktreeBranch(l.id), Token: l.token, External: ref.CommonDir}, Provider: "source", Durable: true},
	}
}

// strategyChanges is the same state for all of them.
func strategyChanges(ref task.SourceRef, id task.ID, state task.ResourceState) []inventory.ResourceChange {
	if ref.Strategy != task.StrategyWorktree {
		return nil
	}
	return []inventory.ResourceChange{{Kind: kindWorktree, Name: source.WorktreeName(id), State: state}, {Kind: kindBranch, Name: source.WorktreeBranch(id), State: state}}
}

// unlink takes what the strategy made out of the user's repository.
func (m *Manager) unlink(ctx context.Context, l *live, t inventory.Task, rep *task.CloseReport) error {
	if t.View.Source.Strategy != task.StrategyWorktree {
		return nil
	}
	left, err := source.Unlink(ctx, l.ws, t.View.Source)
	rep.Notes = append(rep.Notes, left...)
	if err != nil {
		return err
	}
	l.observed = append(l.observed, strategyChanges(t.View.Source, l.id, task.Gone)...)
	return m.cfg.DB.Update(ctx, l.id, func(v *task.View) { v.Source.Folder = "" })
}
