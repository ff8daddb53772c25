package boundary

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("keep.noted")

// MaxKeep bounds how long files can be kept with one word: nobody remembers
// after ten years what they were for.
const MaxKeep = 10 * 365 * 24 * time.Hour

// maxReason bounds the reason, which every `ls` reads.
const maxReason = 500

// Keep implements door.Engine: it says until when the files of a task stay, now
// or, of one that is open, when it ends.
func (m *Manager) Keep(ctx context.Context, ref string, o door.KeepOptions) (*task.View, error) {
	switch {
	case o.For <= 0:
		return nil, task.Errorf(task.CodeUsage, "keep", "the time to keep a task for must be above zero").WithHint("`caisson close %s` ends its retention now", ref)
	case o.For > MaxKeep:
		return nil, task.Errorf(task.CodeUsage, "keep", "a task is kept for ten years at most")
	case strings.TrimSpace(o.Reason) == "" || len(o.Reason) > maxReason:
		return nil, task.Errorf(task.CodeUsage, "keep", "a retention needs a reason of at most %d bytes", maxReason)
	}
	r := &task.Retention{Owner: m.cfg.Identity.Login, Until: time.Now().Add(o.For).UTC(), Why: o.Reason}
	t, err := m.find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if t.View.Source.Strategy == task.StrategyCheckout {
		return nil, task.Errorf(task.CodeState, "keep", "task %s works in your checkout itself: its files are yours and stay anyway", t.ID()).
			WithHint("`caisson diff %s` shows what it changed, as long as it is open", t.ID())
	}
	if most := t.View.KeepFor; most > 0 && o.For > most {
		return nil, task.Errorf(task.CodeDenied, "keep", "the policy keeps files of ended tasks for %s at most (retention.environments)", most).
			WithHint("`caisson keep %s --for %s` stays inside it; `caisson export` takes the result out", ref, most)
	}
	var out *task.View
	err = m.act(ctx, ref, doing{
		op: "keep",
		live: func(l *live, t inventory.Task) (err error) {
			out, err = m.keep(ctx, l, r, func(v *task.View) { v.Asked = r })
			return err
		},
		remote: func(x Remote) (err error) { out, err = x.Keep(ctx, o); return err },
		ended: func(l *live, t inventory.Task) (err error) {
			switch t.View.State {
			case task.Kept:
				out, err = m.keep(ctx, l, r, func(v *task.View) { v.Retention = r })
				return err
			case task.Stuck:
				return task.Errorf(task.CodeState, "keep", "task %s is stuck: what is left of it stays until its cleanup succeeds", l.id).
					WithHint("`caisson resume %s` opens it again if its files are intact", l.id)
			}
			return left(task.Errorf(task.CodeState, "keep", "task %s is closed: there are no files to keep", l.id), &t.View)
		},
	})
	return out, err
}

// keep records a retention, in the evidence first.
func (m *Manager) keep(ctx context.Context, l *live, r *task.Retention, set func(*task.View)) (*task.View, error) {
	t, err := m.cfg.DB.Task(ctx, l.id)
	if err != nil {
		return nil, err
	}
	if _, err := l.log.Append(ctx, evidence.RetentionSet, m.actor(), map[string]any{"until": r.Until, "why": r.Why, "state": t.View.State, "before": t.View.Retention}); err != nil {
		return nil, err
	}
	if err := sys.Fault("keep.noted"); err != nil {
		return nil, err
	}
	if err := m.cfg.DB.Update(ctx, l.id, set); err != nil {
		return nil, err
	}
	return m.Show(ctx, string(l.id))
}

// keepsFor is how long the files of a task stay that nobody asked to keep: the
// policy that held when it was opened can only shorten it.
func keepsFor(t inventory.Task) time.Duration {
	if most := t.View.KeepFor; most > 0 {
		return min(most, keepTime)
	}
	return keepTime
}

// keepFor is the policy's word on how long files of ended tasks stay; 0: none.
func (d *decided) keepFor() time.Duration {
	if d.rules.Rules == nil || (d.rules.Rules.Retention.Environments.From == policy.Origin{}) {
		return 0
	}
	return max(time.Duration(d.rules.Rules.Retention.Environments.Value), time.Second)
}

// riskyFiles are the patterns that the policy adds to the built-in ones.
func (d *decided) riskyFiles() (out []string) {
	if d.rules.Rules != nil {
		for _, g := range d.rules.Rules.RiskyFiles {
			out = append(out, string(g.Value))
		}
	}
	return out
}

// matching says whether a pattern of the policy means a file; in either case, for
// some file systems do not tell it apart.
func matching(patterns []string) func(string) bool {
	var gs []policy.Glob
	for _, p := range patterns {
		gs = append(gs, policy.Glob(p), policy.Glob(strings.ToLower(p)))
	}
	return func(name string) bool {
		return slices.ContainsFunc(gs, func(g policy.Glob) bool { return g.Matches(name) })
	}
}
