package boundary

import (
	"context"
	"maps"
	"path/filepath"
	"slices"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/task"
)

// List implements door.Engine.
func (m *Manager) List(ctx context.Context, all bool) ([]task.View, error) {
	ts, err := m.cfg.DB.List(ctx, all)
	if err != nil {
		return nil, err
	}
	views := make([]task.View, 0, len(ts))
	for _, t := range ts {
		views = append(views, t.View)
	}
	return views, nil
}

// Show implements door.Engine.
func (m *Manager) Show(ctx context.Context, ref string) (*task.View, error) {
	t, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if t.View.Ran && t.View.Source.Folder != "" {
		t.View.Source.Notes = append(t.View.Source.Notes, source.State(m.workspace(&t, nil), t.View.Source)...)
	}
	return &t.View, nil
}

// Log implements door.Engine.
func (m *Manager) Log(ctx context.Context, ref string, follow bool, emit func(door.Event) error) error {
	t, err := m.find(ctx, ref)
	if err != nil {
		return err
	}
	dir := filepath.Join(m.taskDir(t.ID()), "evidence")
	seq := evidence.Read(dir, 1)
	// A task that was resumed has ended before: those ends are not the one that
	// is waited for.
	var resumed uint64
	if follow && t.View.State.Live() {
		for e, err := range seq {
			if err == nil && e.Type == evidence.ResumeIntent {
				resumed = e.Seq
			}
		}
		seq = evidence.Follow(ctx, dir, 1)
	}
	for e, err := range seq {
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		ev := door.Event{Line: e.Line, Seq: e.Seq, Time: e.Time, Type: string(e.Type), Task: e.Task, Body: e.Fields(), Redacted: e.Redacted, Prev: e.Prev,
			Actor: map[string]any{"kind": e.Actor.Kind, "id": e.Actor.ID}}
		if err := emit(ev); err != nil {
			return err
		}
		if follow && e.Seq > resumed && t.View.State.Live() && (e.Type == evidence.TaskClosed || e.Type == evidence.TaskKept) {
			return nil
		}
	}
	return nil
}

// Doctor implements door.Engine.
func (m *Manager) Doctor(ctx context.Context) (*task.DoctorReport, error) {
	rep := &task.DoctorReport{Schema: "caisson.doctor/1", Version: m.cfg.Version, Platform: m.cfg.Platform}
	has := map[string][]task.Feature{}
	if m.cfg.Machine != nil {
		has = m.cfg.Machine(ctx)
	}
	for _, d := range m.cfg.Drivers {
		try := d.Probe
		if f, ok := d.(backend.Fresher); ok {
			try = f.Fresh // doctor tries, it does not remember
		}
		c, err := try(ctx)
		if err != nil {
			return nil, err
		}
		b := task.BackendReport{Name: d.Name(), Version: c.Version, Usable: c.Usable, Why: c.Why, Features: c.Features, Findings: c.Findings}
		for _, a := range task.Axes {
			l := task.Level{Axis: a, Promised: c.Levels[a], How: c.How[a]}
			if h, ok := hostLevels(task.SourceRef{Shared: true}, nil)[a]; ok {
				l.Promised, l.How = h.level, h.why
			}
			b.Levels = append(b.Levels, l)
		}
		b.Needs = has[d.Name()]
		delete(has, d.Name())
		rep.Backends = append(rep.Backends, b)
	}
	if b, err := m.Budget(ctx); err == nil && len(b.Uses) > 0 {
		rep.Budget = b // what is wrong with a policy is said where it is used
	}
	if m.cfg.Checks != nil {
		rep.Checks = m.cfg.Checks(ctx)
	}
	rep.Checks = append(rep.Checks, has[""]...)
	delete(has, "")
	for _, name := range slices.Sorted(maps.Keys(has)) { // of backends that are not in this version
		for _, f := range has[name] {
			f.Name = name + ": " + f.Name
			rep.Checks = append(rep.Checks, f)
		}
	}
	return rep, nil
}
