package boundary

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/task"
)

// verification says how far a result is verified that is about to leave: what
// the checks on record say of exactly its tree, and what is asked for.
func (m *Manager) verification(ctx context.Context, v *task.View, tree string) (*task.Verification, error) {
	rules, err := m.rulesOf(ctx, nil)
	if err != nil {
		return nil, err
	}
	var required task.Level
	if i := slices.IndexFunc(v.Levels, func(l task.Level) bool { return l.Axis == task.VER }); i >= 0 {
		required = v.Levels[i]
	}
	out := policy.Leave(tree, v.Checks, required, rules.Floors)
	if out.Level >= out.Demanded {
		return &out, nil
	}
	if rules, err = m.rulesOf(ctx, v); err != nil {
		return nil, err
	}
	all, err := m.acceptances(ctx, rules)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if policy.Covers(&all[i], m.verifyClaim(v, &out, rules, all[i].Scope)) == nil {
			out.Accepted = &all[i]
			break
		}
	}
	return &out, nil
}

// rulesOf are the rules that hold today: the operator's and the user's, with v also
// what they and the repository say of that task's repository, where it is still
// there. What a repository demanded of a task is on record with the task.
func (m *Manager) rulesOf(ctx context.Context, v *task.View) (policy.Governing, error) {
	s := Subject{Person: true}
	if v != nil {
		if repo, err := source.Reopen(m.workspaceOf(v.ID, v.Source), v.Source, v.Objects); err == nil {
			s.Repo = repo
		}
	}
	return m.governing(ctx, s)
}

// governing is what the policy in force says of s. Where none is read only what
// is shipped counts, and the user decides what is theirs.
func (m *Manager) governing(ctx context.Context, s Subject) (policy.Governing, error) {
	if m.cfg.Policy == nil {
		return policy.Governing{Accept: policy.AcceptRules{Alone: true}}, nil
	}
	return m.cfg.Policy(ctx, s)
}

// verifyClaim is what an acceptance of that scope is held against.
func (m *Manager) verifyClaim(v *task.View, out *task.Verification, rules policy.Governing, scope task.AcceptScope) policy.Claim {
	result, repo := policy.Gaps(v.ID, out)
	c := policy.Claim{Axis: task.VER, Required: out.Demanded, Have: out.Level, Gap: result, Task: v.ID, Repo: v.Source.CommonDir,
		Now: time.Now(), OperatorFloor: rules.Operator[task.VER], Rules: rules.Accept}
	if c.Repo == "" {
		c.Repo = v.Source.Repo
	}
	if scope == task.ScopeRepo {
		// It was given before there was this result: by a person only where one is there.
		c.Gap, c.Unattended = repo, v.Unattended
	}
	return c
}

// unverified is what an acceptance of a task's result answers, of which less is
// verified than somebody demanded. For one task it is bound to the files as they
// are, for a repository to what is missing.
func (m *Manager) unverified(ctx context.Context, t *inventory.Task, q *task.AcceptRequest) (*task.AcceptReport, error) {
	const op = "accept"
	if q.Scope == "" {
		q.Scope = task.ScopeTask
	}
	if len(q.Axes) > 1 || q.Scope == task.ScopeCommand {
		return nil, task.Errorf(task.CodeUsage, op, "VER is about a result, not about a boundary or a command: it is accepted by itself, for a task or a repository").
			WithHint("caisson accept %s --axis VER=0 --reason …", t.ID())
	}
	r, err := m.result(ctx, t, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	v := &t.View
	out, err := m.verification(ctx, v, r.Tree)
	if err != nil {
		return nil, err
	}
	if out.Level >= out.Demanded {
		return nil, task.Errorf(task.CodeState, op, "nothing is missing: VER %d is there, and nobody demanded more than %d", out.Level, out.Demanded).
			WithHint("what rows ask for beyond that is told when the result leaves, and keeps nothing back")
	}
	rules, err := m.rulesOf(ctx, v)
	if err != nil {
		return nil, err
	}
	c := m.verifyClaim(v, out, rules, q.Scope)
	return &task.AcceptReport{Report: c.Gap, Gap: c.Gap, Repo: c.Repo, Policy: rules.Digest, Short: map[task.Axis][2]int{task.VER: {out.Demanded, out.Level}}}, nil
}

// mayLeave refuses a result of which less is verified than somebody demanded.
// With nil an acceptance that it leaves under has been counted.
func (m *Manager) mayLeave(ctx context.Context, op string, v *task.View, out *task.Verification) error {
	if !out.Refused() {
		if a := out.Accepted; a != nil && !a.Standing {
			return m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error { return tx.Use(a.ID, a.MaxUses) })
		}
		return nil
	}
	err := task.Errorf(task.CodeBoundaryMissing, op, "the result is not verified as demanded: VER %d, and %d is asked for (%s); nothing left the task", out.Level, out.Demanded, out.Why)
	accept := fmt.Sprintf("`caisson accept %s --axis VER=%d --reason …`", v.ID, out.Level)
	switch {
	case v.State.Live():
		return err.WithHint("`caisson check %s -- CMD` runs a check on exactly these files; or %s", v.ID, accept)
	case m.mayResume(inventory.Task{View: *v}) == nil:
		return err.WithHint("`caisson resume %s`, then `caisson check %s -- CMD`; or %s", v.ID, v.ID, accept)
	}
	return err.WithHint("its files are gone, so nothing can be checked any more: %s", accept)
}

// leaves is verification and mayLeave in one.
func (m *Manager) leaves(ctx context.Context, op string, v *task.View, tree string) (*task.Verification, error) {
	out, err := m.verification(ctx, v, tree)
	if err != nil {
		return nil, err
	}
	return out, m.mayLeave(ctx, op, v, out)
}

// verifiedBody is what the record says of it. What rows ask for and nobody
// demanded is accepted by the person who has the result leave.
func verifiedBody(out *task.Verification) map[string]any {
	body := map[string]any{"tree": out.Tree, "level": out.Level, "required": out.Required, "demanded": out.Demanded, "stale": out.Stale}
	checks := []string{}
	for i := range out.Checks {
		c := &out.Checks[i]
		name := c.Name
		if name == "" {
			name = short(strings.Join(c.Argv, " "), 200)
		}
		checks = append(checks, c.Digest[:16]+" "+name+": "+c.Why)
	}
	body["checks"] = checks
	switch {
	case out.Accepted != nil:
		body["accepted"] = out.Accepted.ID
	case out.Short():
		body["accepted"] = "by whoever asked for this, who was told"
	}
	return body
}
