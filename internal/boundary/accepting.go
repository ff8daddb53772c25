package boundary

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// decisionsID stands for a task in the record of what was decided before there
// was one: refusals and acceptances.
const decisionsID = task.ID("decisions")

func (m *Manager) decisionsDir() string { return filepath.Join(m.cfg.StateDir, "decisions") }

// recordDecision appends one event to that record, durable. Another process that
// is writing is waited for.
func (m *Manager) recordDecision(ctx context.Context, kind evidence.Type, body any) error {
	for try := 0; ; try++ {
		log, err := evidence.Open(m.decisionsDir(), decisionsID, nil)
		if err != nil && task.CodeOf(err) == task.CodeConflict && try < 200 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(25 * time.Millisecond):
			}
			continue
		}
		if err != nil {
			return err
		}
		_, err = log.Append(ctx, kind, m.actor(), body)
		return errors.Join(err, log.Close())
	}
}

// recordRefusal is recordDecision of a refusal, which stands whether or not that
// succeeds.
func (m *Manager) recordRefusal(ctx context.Context, body any) {
	if err := m.recordDecision(ctx, evidence.BoundaryBlocked, body); err != nil {
		m.cfg.Log("the refusal could not be put on record: " + err.Error())
	}
}

// ruledOut puts on record that a rule refused a task while it was decided, and
// returns that refusal, which stands whether or not that succeeds. What is no
// refusal of a rule is no decision: it is only returned.
func (m *Manager) ruledOut(ctx context.Context, d *decided, argv []string, err error) error {
	if task.CodeOf(err) != task.CodeDenied || m.inside() != "" {
		return err
	}
	body := map[string]any{"error": err.Error(), "code": string(task.CodeOf(err)), "unattended": d.req.Unattended, "backend": d.req.Backend, "argv0": first(argv)}
	if d.repo != nil {
		body["source"] = d.repo.Ref
	}
	if d.rules.Digest != "" {
		body["policy"] = d.rules.Digest
	}
	m.recordRefusal(ctx, body)
	return err
}

// refused puts on record that a task was refused before anything of it was made.
// The refusal stands whether or not that succeeds.
func (m *Manager) refused(ctx context.Context, d *decided, argv []string) error {
	err := d.plan.Blocked()
	if err == nil {
		return nil
	}
	answered := d.plan.Plan.Answered()
	body := d.record(map[string]any{"missing": d.plan.Plan.Missing, "answered": answered, "source": d.repo.Ref, "unattended": d.req.Unattended, "argv0": first(argv)})
	m.recordRefusal(ctx, body)
	return err
}

func first(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	return argv[0]
}

// Accept implements door.Engine.
func (m *Manager) Accept(ctx context.Context, by door.Actor, q task.AcceptRequest) ([]task.Acceptance, error) {
	const op = "accept"
	if by.Door != "cli" || by.Role != door.RolePerson {
		return nil, task.Errorf(task.CodeDenied, op, "a weaker boundary is accepted by a person at the command line, not through %s", by.Door)
	}
	if id := m.inside(); id != "" || withinTask() {
		return nil, task.Errorf(task.CodeDenied, op, "this process belongs to a task: what is inside a boundary cannot accept a weaker one").
			WithHint("accept it from a terminal of your own, on the host")
	}
	if strings.TrimSpace(q.Reason) == "" {
		return nil, task.Errorf(task.CodeUsage, op, "an acceptance needs a reason").WithHint("--reason says why, for whoever reads the record")
	}
	if len(q.Axes) == 0 {
		return nil, task.Errorf(task.CodeUsage, op, "an acceptance names what is accepted").WithHint("for example --axis KRN=1")
	}
	rep, rules, id, err := m.toAccept(ctx, &q)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	var out []task.Acceptance
	for _, a := range task.Axes {
		level, asked := q.Axes[a]
		if !asked {
			continue
		}
		short, missing := rep.Short[a]
		switch {
		case len(rep.Short) > 0 && !missing:
			return nil, task.Errorf(task.CodeUsage, op, "nothing is missing on %s", a).WithHint("the report says what is: `caisson plan` with the same flags")
		case missing && level > max(short[1], 0):
			return nil, task.Errorf(task.CodeUsage, op, "%s has %d: an acceptance of %d does not cover that", a, max(short[1], 0), level).WithHint("--axis %s=%d", a, max(short[1], 0))
		}
		acc := task.Acceptance{
			ID: "a" + task.NewToken()[:10], Axis: a, Required: short[0], Level: level, Report: rep.Report, Scope: q.Scope, Reason: q.Reason,
			By:      task.Acceptor{UID: m.cfg.Identity.UID, Login: m.cfg.Identity.Login, Authority: m.authority(rules), Assurance: q.Assurance, Key: q.Key, Signature: q.Signature, SignedAt: q.SignedAt},
			Created: now, Expires: now.Add(term(q.For, rules.Accept)), MaxUses: q.Uses, Policy: rep.Policy,
		}
		switch q.Scope {
		case task.ScopeTask:
			acc.Report, acc.Task = rep.Gap, id
		case task.ScopeRepo:
			acc.Report, acc.Repo = rep.Gap, rep.Repo
		}
		if acc.Report == "" {
			return nil, task.Errorf(task.CodeUsage, op, "only the report's digest is known, and --scope %s needs the report itself", q.Scope).
				WithHint("caisson plan --json … | caisson accept - --scope %s …", q.Scope)
		}
		c := policy.Claim{Axis: a, Required: short[0], Now: now, Hostile: rep.Hostile, OperatorFloor: rules.Operator[a], Rules: rules.Accept}
		if err := policy.May(&acc, c); err != nil {
			return nil, task.Errorf(task.CodeDenied, op, "this cannot be accepted: %w", err).WithHint("%s", whoMay(a, level, rep.Hostile))
		}
		out = append(out, acc)
	}
	for _, acc := range out {
		// The record first: an acceptance that is not in it does not count.
		if err := m.recordDecision(ctx, evidence.Accepted, acc); err != nil {
			return nil, err
		}
		if err := m.cfg.DB.Accept(ctx, acc); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func whoMay(a task.Axis, level int, hostile bool) string {
	return "who may accept it: " + strings.Join(policy.Acceptable(a, level, hostile), ", ") + "; `caisson policy show` has the rules in force"
}

func term(asked time.Duration, r policy.AcceptRules) time.Duration {
	if asked > 0 {
		return asked
	}
	if r.MaxTTL > 0 {
		return min(policy.DefaultTTL, r.MaxTTL)
	}
	return policy.DefaultTTL
}

// authority is whose decision this user's is: the operator's where there is no
// other, or where the user is the operator of the machine.
func (m *Manager) authority(r policy.Governing) task.Source {
	if m.cfg.Identity.UID == 0 || r.Accept.Alone {
		return task.SourceOperator
	}
	return task.SourceUser
}

// toAccept finds what an acceptance answers, and the rules about it.
func (m *Manager) toAccept(ctx context.Context, q *task.AcceptRequest) (*task.AcceptReport, policy.Governing, task.ID, error) {
	rep, id := q.Report, task.ID("")
	var rules policy.Governing
	switch {
	case rep != nil:
	case strings.HasPrefix(q.Ref, "sha256:"):
		if len(q.Ref) != len("sha256:")+64 {
			return nil, rules, "", task.Errorf(task.CodeUsage, "accept", "%q is not a whole digest", q.Ref).WithHint("copy it from the report")
		}
		if rep = m.refusal(q.Ref); rep == nil {
			rep = &task.AcceptReport{Report: q.Ref}
		}
	default:
		t, err := m.find(ctx, q.Ref)
		if err != nil {
			return nil, rules, "", err
		}
		if _, ver := q.Axes[task.VER]; ver {
			if rep, err = m.unverified(ctx, &t, q); err != nil {
				return nil, rules, "", err
			}
			id = t.ID()
			break
		}
		d, err := m.again(ctx, &t.View)
		if err != nil {
			return nil, rules, "", err
		}
		if d.plan.Blocked() == nil {
			return nil, rules, "", task.Errorf(task.CodeState, "accept", "nothing is missing for task %s", t.ID())
		}
		r := d.plan.Plan.Answered()
		rep, id = &r, t.ID()
		if q.Scope == "" {
			q.Scope = task.ScopeTask
		}
	}
	if q.Scope == "" {
		q.Scope = task.ScopeCommand
	}
	rules, err := m.rulesOf(ctx, nil)
	return rep, rules, id, err
}

// refusal finds the report with this digest, with or without a command, among
// the refusals on record.
func (m *Manager) refusal(digest string) (found *task.AcceptReport) {
	for e, err := range evidence.Read(m.decisionsDir(), 0) {
		if err != nil {
			return found // as far as it can be read
		}
		if e.Type != evidence.BoundaryBlocked {
			continue
		}
		var body struct {
			Answered task.AcceptReport `json:"answered"`
		}
		if json.Unmarshal(e.Body, &body) == nil && (body.Answered.Report == digest || body.Answered.Gap == digest) {
			found = &body.Answered
		}
	}
	return found
}

// Acceptances implements door.Engine.
func (m *Manager) Acceptances(ctx context.Context) ([]task.Acceptance, error) {
	rules, err := m.rulesOf(ctx, nil)
	if err != nil {
		return nil, err
	}
	return m.acceptances(ctx, rules)
}

// Revoke implements door.Engine.
func (m *Manager) Revoke(ctx context.Context, by door.Actor, id, reason string) error {
	if by.Role != door.RolePerson {
		return task.Errorf(task.CodeDenied, "accept", "only a person revokes an acceptance")
	}
	if err := m.recordDecision(ctx, evidence.Revoked, map[string]any{"acceptance": id, "reason": reason}); err != nil {
		return err
	}
	return m.cfg.DB.Revoke(ctx, id)
}

// withinTask says that this process is a member of a task's control group.
func withinTask() bool {
	b, err := os.ReadFile("/proc/self/cgroup")
	return err == nil && namesTask(string(b))
}

// aTask is the part of a control group's name that every backend gives it: the
// installation, the task, and the beginning of its token.
var aTask = regexp.MustCompile(`/caisson-[a-z2-7]+-t[a-z2-7]{10}-[a-z2-7]{8}(\.scope)?(/|$)`)

// namesTask says that a /proc/PID/cgroup names a task's control group.
func namesTask(groups string) bool {
	for line := range strings.Lines(groups) {
		if aTask.MatchString(strings.TrimSuffix(line, "\n")) {
			return true
		}
	}
	return false
}
