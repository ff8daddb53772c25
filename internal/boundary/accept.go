package boundary

import (
	"context"
	"maps"
	"slices"

	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// acceptances are all that could cover a gap: the standing ones of the policy
// and those on record.
func (m *Manager) acceptances(ctx context.Context, rules policy.Governing) ([]task.Acceptance, error) {
	recorded, err := m.cfg.DB.Acceptances(ctx)
	if err != nil {
		return nil, err
	}
	return append(append([]task.Acceptance(nil), rules.Standing...), recorded...), nil
}

// use counts the acceptances that a task begins under. One that was revoked since
// the plan was made ends the start.
func use(tx *inventory.Tx, covered []task.Covered) error {
	counted := map[string]bool{}
	for _, c := range covered {
		if a := c.Acceptance; !a.Standing && !counted[a.ID] {
			counted[a.ID] = true
			if err := tx.Use(a.ID, a.MaxUses); err != nil {
				return err
			}
		}
	}
	return nil
}

// record is what the evidence says of a decision, added to more.
func (d *decided) record(more map[string]any) map[string]any {
	p := &d.plan.Plan
	body := map[string]any{
		"digest": p.Digest, "rows": p.Rows, "matrix": p.Matrix, "required": d.plan.Required, "levels": lean(p.Levels), "facts": p.Facts,
		"report": p.Report, "grants": p.Grants, "findings": p.Findings, "limits": p.Limits}
	if len(p.Accepted) > 0 {
		body["accepted"] = p.Accepted
	}
	maps.Copy(body, more)
	return body
}

// lean leaves out of levels what the facts beside them say once.
func lean(ls []task.Level) []task.Level {
	out := slices.Clone(ls)
	for i := range out {
		out[i].Reasons = nil
	}
	return out
}
