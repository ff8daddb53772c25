package boundary

import (
	"context"
	"io"
	"path/filepath"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/task"
)

// workspace names the folders of a task that is in the inventory.
func (m *Manager) workspace(t *inventory.Task, progress func(string)) source.Workspace {
	ws := m.workspaceOf(t.ID(), t.View.Source)
	ws.Progress = progress
	return ws
}

// workspaceOf names the folders of a task that works on ref.
func (m *Manager) workspaceOf(id task.ID, ref task.SourceRef) source.Workspace {
	ws := source.Workspace{Task: id, Dir: m.taskDir(id)}
	if ref.Strategy == task.StrategyCheckout {
		ws.Files = ref.Repo
	}
	return ws
}

// filesOf is the folder of a task's files.
func filesOf(ws source.Workspace) string {
	if ws.Files != "" {
		return ws.Files
	}
	return filepath.Join(ws.Dir, "source")
}

// result reads what a task made of its source: from its files while they are
// there, later from what was rescued. The caller closes it.
func (m *Manager) result(ctx context.Context, t *inventory.Task, progress func(string)) (*source.Result, error) {
	ws := m.workspace(t, progress)
	if exists(filesOf(ws)) && exists(filepath.Join(ws.Dir, "shadow.git")) {
		return source.Look(ctx, ws)
	}
	r, err := source.Recall(ctx, ws, t.View.Source, t.View.Results)
	if err != nil && task.HintOf(err) == "" {
		gone := task.Errorf(task.CodeOf(err), "result", "the files of task %s are gone, and its result cannot be read: %w", t.ID(), err)
		return nil, gone.WithHint("`caisson show %s` lists what it left", t.ID())
	}
	return r, err
}

// Diff implements door.Engine.
func (m *Manager) Diff(ctx context.Context, ref string, w io.Writer, o door.DiffOptions) (*task.DiffReport, error) {
	t, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	paths, err := source.LiteralPaths(t.View.Source, o.Paths)
	if err != nil {
		return nil, err
	}
	r, risks, err := m.look(ctx, &t, nil, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	rep := &task.DiffReport{Schema: "caisson.diff/1", ID: t.ID(), Start: r.Start, Tree: r.Tree, Risky: []task.Risk{}, From: r.From}
	for _, c := range r.Changes {
		if source.Within(paths, string(c.Path)) {
			rep.Files++
		}
	}
	for _, k := range risks {
		if len(k.Raw) == 0 || source.Within(paths, string(k.Raw)) {
			rep.Risky = append(rep.Risky, k)
		}
	}
	if rep.Verification, err = m.verification(ctx, &t.View, r.Tree); err != nil {
		return nil, err
	}
	if o.Found != nil {
		if err := o.Found(rep); err != nil {
			return rep, err
		}
	}
	return rep, r.Diff(ctx, w, source.DiffOptions{Stat: o.Stat, NameStatus: o.NameStatus, NUL: o.NUL, Color: o.Color, Paths: paths, Width: o.Width})
}
