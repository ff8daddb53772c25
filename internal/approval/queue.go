// Package approval holds the tool calls of a task that wait for a person, and
// binds each answer to the one call that it is about.
//
// Its limit: it decides nothing and asks nobody by itself; it knows no tool and
// opens no file. Nothing is allowed that was not answered: its zero values deny.
package approval

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// The scopes of an answer that allows.
const (
	ScopeOnce  = ""      // this one call
	ScopeTool  = "tool"  // this tool with any arguments, for the rest of the task
	ScopeExact = "exact" // this very call again, on files that are as they were
)

// Scopes lists them.
var Scopes = []string{ScopeOnce, ScopeTool, ScopeExact}

// Queue holds the questions and the grants of one task, in the process that
// holds its boundary: with it they end. The zero value is ready. Safe for
// concurrent use.
type Queue struct {
	mu      sync.Mutex
	waiting []*Waiting
	grants  []grant
}

// grant is what an answer with a scope left behind.
type grant struct{ id, scope, tool, bind string }

// Waiting is one question that waits.
type Waiting struct {
	q    *Queue
	ask  task.Question
	door string // that asked
	bind string // all that the answer is bound to
	// exact: an answer for the tool is one for exactly this.
	exact bool

	answer chan Answer // capacity 1
	// guarded by q.mu
	taken bool // somebody is answering it
	over  bool // nobody waits for the answer any more
}

// Answer is a person's answer that counts.
type Answer struct {
	Allow         bool
	Scope, Reason string
	Door          string // through which it came
}

// Ask puts a question into the queue. door is the one that asked; bind is
// everything that an answer is bound to. The caller calls Wait, once.
func (q *Queue) Ask(ask task.Question, door, bind string) *Waiting {
	return q.add(&Waiting{q: q, ask: ask, door: door, bind: bind, answer: make(chan Answer, 1)})
}

// AskExact is Ask for something that is no tool with arguments: what an answer
// leaves behind is never more than this very thing again. Its name is for people:
// who chooses what is asked about can make two things of one name.
func (q *Queue) AskExact(ask task.Question, door, bind string) *Waiting {
	return q.add(&Waiting{q: q, ask: ask, door: door, bind: bind, exact: true, answer: make(chan Answer, 1)})
}

func (q *Queue) add(w *Waiting) *Waiting {
	q.mu.Lock()
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()
	return w
}

// Wait returns the answer. When ctx or the question's time ends first there is
// none, and none counts any more: CodeCanceled or CodeDenied.
func (w *Waiting) Wait(ctx context.Context) (Answer, error) {
	t := time.NewTimer(time.Until(w.ask.Expires))
	defer t.Stop()
	var err error
	select {
	case a := <-w.answer:
		return a, nil
	case <-t.C:
		err = task.Errorf(task.CodeDenied, "approval", "nobody answered within %s whether %s may be called", w.ask.Expires.Sub(w.ask.Asked).Round(time.Second), w.ask.Tool).
			WithHint("ask again when somebody is there; `caisson approve` lists what waits")
	case <-ctx.Done():
		err = task.Errorf(task.CodeCanceled, "approval", "not called, nobody waits for it any more: %w", context.Cause(ctx))
	}
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	w.over = true
	w.q.drop(w)
	return Answer{}, err
}

// drop is called with mu held.
func (q *Queue) drop(w *Waiting) {
	q.waiting = slices.DeleteFunc(q.waiting, func(o *Waiting) bool { return o == w })
}

// Questions lists what waits, the oldest first.
func (q *Queue) Questions() []task.Question {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := make([]task.Question, 0, len(q.waiting))
	for _, w := range q.waiting {
		if !w.taken {
			out = append(out, w.ask)
		}
	}
	return out
}

// Answer answers one question. door is the one through which the answer comes;
// it must be another than the one that asked. record is called, with nothing
// held, before the answer counts; its error is Answer's, and the question waits
// on. The first answer counts.
func (q *Queue) Answer(door string, a task.Answer, record func(task.Question) error) (*task.Question, error) {
	w, err := q.take(door, a)
	if err != nil {
		return nil, err
	}
	err = record(w.ask)
	q.mu.Lock()
	defer q.mu.Unlock()
	w.taken = false
	if err != nil {
		return nil, err
	}
	if w.over || !time.Now().Before(w.ask.Expires) {
		return nil, gone(a.ID)
	}
	w.over = true
	q.drop(w)
	if a.Allow && a.Scope != ScopeOnce {
		g := grant{id: w.ask.ID, scope: a.Scope, tool: w.ask.Tool, bind: w.bind}
		if w.exact {
			g.scope = ScopeExact
		}
		q.grants = append(q.grants, g)
	}
	w.answer <- Answer{Allow: a.Allow, Scope: a.Scope, Reason: a.Reason, Door: door}
	ask := w.ask
	return &ask, nil
}

func (q *Queue) take(door string, a task.Answer) (*Waiting, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.waiting, func(w *Waiting) bool { return w.ask.ID == a.ID })
	if i < 0 || a.ID == "" {
		return nil, gone(a.ID)
	}
	w := q.waiting[i]
	switch {
	case w.over || w.taken || !time.Now().Before(w.ask.Expires):
		return nil, gone(a.ID)
	case door == "" || door == w.door:
		return nil, task.Errorf(task.CodeDenied, "approval", "the question %s cannot be answered by the door that asked it", a.ID).
			WithHint("`caisson approve %s` or `caisson deny %s` answers it", a.ID, a.ID)
	case a.Digest != "" && a.Digest != w.ask.Digest:
		return nil, task.Errorf(task.CodeConflict, "approval", "the question %s is about another call than the one that was answered", a.ID).
			WithHint("look at it again: `caisson approve`")
	case !slices.Contains(Scopes, a.Scope):
		return nil, task.Errorf(task.CodeUsage, "approval", "there is no scope %q", a.Scope).WithHint("it takes %s", strings.Join(Scopes[1:], " or "))
	case a.Scope != ScopeOnce && !a.Allow:
		return nil, task.Errorf(task.CodeUsage, "approval", "only an answer that allows has a scope").WithHint("leave the scope out")
	}
	w.taken = true
	return w, nil
}

func gone(id string) error {
	return task.Errorf(task.CodeNotFound, "approval", "no question %q waits: it was answered, its time is over, or the call that asked has ended", id).
		WithHint("`caisson approve` lists what waits")
}

// Granted returns the question whose answer allows a call of tool that is bound
// to bind, empty when there is none.
func (q *Queue) Granted(tool, bind string) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range q.grants {
		if g.tool != tool {
			continue
		}
		switch g.scope {
		case ScopeTool:
			return g.id
		case ScopeExact:
			if g.bind == bind && bind != "" {
				return g.id
			}
		}
	}
	return ""
}
