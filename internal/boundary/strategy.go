package boundary

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// What a strategy makes besides files and pins.
const (
	kindWorktree = "worktree" // worktrees/caisson-<id> in the user's repository
	kindBranch   = "branch"   // refs/heads/caisson/<id>
)

// shape makes the draft of a boundary fit the strategy.
func shape(s *backend.Spec, ref task.SourceRef, id task.ID) {
	if ref.Strategy == task.StrategyCheckout {
		s.Source.Source = ref.Repo
		if s.Limits.Timeout == 0 {
			s.Limits.Timeout = policy.ShortWork
		}
	}
	if ref.Strategy != task.StrategyWorktree && (ref.Strategy != task.StrategyCheckout || ref.CommonDir != "") {
		return // git works inside, or there is nothing that it could be kept from
	}
	s.Source.Cover = []string{".git"}
	s.Files = append(s.Files, backend.File{Target: backend.BinDir + "/git", Mode: 0o555, Text: source.Shim(source.ShimOptions{Dir: backend.BinDir, Target: s.Source.Target, Task: id, Repo: ref.CommonDir != ""})})
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

// holder names the task, other than id, that works in a checkout itself.
func (m *Manager) holder(ctx context.Context, checkout string, id task.ID) (string, error) {
	ts, err := m.cfg.DB.List(ctx, false)
	if err != nil {
		return "", err
	}
	for _, t := range ts {
		v := &t.View
		if v.ID == id || !v.State.Live() || v.Source.Strategy != task.StrategyCheckout || v.Source.Repo != checkout {
			continue
		}
		if t.Supervisor != nil && !sys.Alive(identOf(t.Supervisor.Process)) {
			continue // the kernel has dropped its lock
		}
		return "task " + string(v.ID), nil
	}
	return "", nil
}

// lockCheckout takes the user's checkout for a task that works in it.
func (m *Manager) lockCheckout(ctx context.Context, l *live, ref task.SourceRef) error {
	if ref.Strategy != task.StrategyCheckout {
		return nil
	}
	release, err := source.LockCheckout(ref.Repo)
	if err == nil {
		l.direct = release
		return nil
	}
	if h, herr := m.holder(ctx, ref.Repo, l.id); herr == nil && h != "" {
		return task.Errorf(task.CodeOf(err), "open", "%w: %s has it", err, h).
			WithHint("`caisson close %s` ends it; --source worktree gives the new task files of its own", strings.TrimPrefix(h, "task "))
	}
	return err
}

func (l *live) unlockCheckout() {
	if l.direct != nil {
		l.direct()
		l.direct = nil
	}
}

// compareCheckout records what of a checkout's git directory changed that git
// on the host acts on. Nothing of it is undone: the files are the user's.
func (m *Manager) compareCheckout(ctx context.Context, l *live, t inventory.Task, rep *task.CloseReport) error {
	if t.View.Source.Strategy != task.StrategyCheckout || !t.View.Ran || !exists(filepath.Join(l.dir, "shadow.git")) {
		return nil
	}
	changed, err := source.TrustedChanges(ctx, l.ws)
	note := source.TrustedNote(changed)
	if err != nil {
		note = "what your own git acts on in the checkout could not be compared: " + err.Error()
	}
	if note == "" {
		return nil
	}
	rep.Notes = append(rep.Notes, note)
	if l.log != nil {
		if _, err := l.log.Append(ctx, evidence.CheckoutChanged, self, map[string]any{"paths": changed, "note": note}); err != nil {
			return err
		}
	}
	return m.cfg.DB.Update(ctx, l.id, func(v *task.View) {
		if !slices.Contains(v.Source.Notes, note) {
			v.Source.Notes = append(v.Source.Notes, note)
		}
	})
}
