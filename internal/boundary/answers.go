package boundary

import (
	"context"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/approval"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract/schema"
)

// Tools implements door.Engine.
func (m *Manager) Tools(context.Context) ([]task.ToolInfo, error) { return schema.Tools(), nil }

// askOthers bounds how long one other process is asked what waits in it.
const askOthers = 10 * time.Second

// Questions implements door.Engine.
func (m *Manager) Questions(ctx context.Context, ref string) ([]task.Question, error) {
	if l := m.lookup(task.ID(ref)); l != nil {
		return l.queue.Questions(), nil
	}
	if ref != "" {
		t, err := m.find(ctx, ref)
		if err != nil {
			return nil, err
		}
		if l := m.lookup(t.ID()); l != nil {
			return l.queue.Questions(), nil
		}
		if t.View.State != task.Ready {
			return nil, nil // nothing can wait in it
		}
		return m.cfg.Remote(t.ID()).Questions(ctx)
	}
	ts, err := m.cfg.DB.List(ctx, false)
	if err != nil {
		return nil, err
	}
	var out []task.Question
	for _, t := range ts {
		if l := m.lookup(t.ID()); l != nil {
			out = append(out, l.queue.Questions()...)
			continue
		}
		if t.View.State != task.Ready {
			continue
		}
		octx, done := context.WithTimeoutCause(ctx, askOthers, sys.ErrDeadline)
		qs, err := m.cfg.Remote(t.ID()).Questions(octx)
		done()
		if ctx.Err() != nil {
			return out, err
		}
		if err != nil {
			m.cfg.Log("task " + string(t.ID()) + " cannot be asked what waits in it: " + err.Error())
			continue
		}
		out = append(out, qs...)
	}
	return out, nil
}

// Answer implements door.Engine.
func (m *Manager) Answer(ctx context.Context, by door.Actor, a task.Answer) (*task.Question, error) {
	if by.Role < door.RolePerson {
		return nil, task.Errorf(task.CodeDenied, "answer", "the %s role may not answer questions", by.Role).WithHint("a person does")
	}
	id, _, ok := strings.Cut(a.ID, ".")
	if !ok {
		return nil, task.Errorf(task.CodeNotFound, "answer", "no question is called %q", a.ID).WithHint("`caisson approve` lists what waits")
	}
	if l := m.lookup(task.ID(id)); l != nil {
		return m.answer(ctx, l, by.Door, a)
	}
	t, err := m.cfg.DB.Task(ctx, task.ID(id))
	if err != nil {
		return nil, task.Errorf(task.CodeNotFound, "answer", "no question %q waits: %w", a.ID, err).WithHint("`caisson approve` lists what waits")
	}
	if t.View.State != task.Ready {
		return nil, task.Errorf(task.CodeNotFound, "answer", "no question %q waits: its task is %s", a.ID, t.View.State)
	}
	return m.cfg.Remote(t.ID()).Answer(ctx, a)
}

// answer answers in the process that holds the task. The answer is on record
// before it counts.
func (m *Manager) answer(ctx context.Context, l *live, by string, a task.Answer) (*task.Question, error) {
	if by != hookDoor {
		attend(l.dir)
	}
	return l.queue.Answer(by, a, func(q task.Question) error {
		dctx, done := sys.Detach(ctx, time.Minute)
		defer done()
		actor := m.actor()
		if by == hookDoor {
			actor = evidence.Actor{Kind: "program", ID: l.asking.Hook}
		}
		_, err := l.log.Append(dctx, evidence.ApprovalAnswered, actor, map[string]any{"question": q.ID, "call": q.Call, "digest": q.Digest, "allow": a.Allow, "scope": a.Scope,
			"reason": approval.Visible(short(a.Reason, 1000)), "door": by})
		return err
	})
}
