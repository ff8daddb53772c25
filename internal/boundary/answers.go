package boundary

import (
	"context"
	"slices"
	"strings"
	"sync"
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

// askOthers bounds how long each other process is asked what waits in it, and
// askedAtOnce how many are at a time.
const (
	askOthers   = 3 * time.Second
	askedAtOnce = 64
)

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
	// All at once: one that does not answer must not keep the others from it.
	found := make([][]task.Question, len(ts))
	var wg sync.WaitGroup
	turns := make(chan struct{}, askedAtOnce)
	for i, t := range ts {
		if l := m.lookup(t.ID()); l != nil {
			found[i] = l.queue.Questions()
			continue
		}
		if t.View.State != task.Ready {
			continue
		}
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			octx, done := context.WithTimeoutCause(ctx, askOthers, sys.ErrDeadline)
			defer done()
			qs, err := m.cfg.Remote(t.ID()).Questions(octx)
			if ctx.Err() == nil {
				m.unheard(t.ID(), err)
			}
			found[i] = qs
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, task.Errorf(task.CodeCanceled, "questions", "%w", context.Cause(ctx))
	}
	return slices.Concat(found...), nil
}

// unheard notes that another process could not be asked, once until it can be
// again: who watches asks several times a second.
func (m *Manager) unheard(id task.ID, err error) {
	m.mu.Lock()
	known := m.silent[id]
	if err == nil {
		delete(m.silent, id)
	} else {
		if m.silent == nil {
			m.silent = map[task.ID]bool{}
		}
		m.silent[id] = true
	}
	m.mu.Unlock()
	if err != nil && !known {
		m.cfg.Log("task " + string(id) + " cannot be asked what waits in it: " + err.Error())
	}
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
