package boundary

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/approval"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// aloneWait is how long a command that must run alone waits for those that run.
const aloneWait = 30 * time.Second

// turns lets what may write a task's files go on side by side, or one of it
// alone. The zero value is ready.
type turns struct {
	mu      sync.Mutex
	beside  int
	alone   bool
	waiting int           // that want to be alone: nobody else begins before them
	news    chan struct{} // closed at the next change
}

// changed wakes who waits. Called with mu held.
func (t *turns) changed() {
	if t.news != nil {
		close(t.news)
		t.news = nil
	}
}

// wait returns once free holds, with mu held; or the cause of ctx's end, without.
func (t *turns) wait(ctx context.Context, free func() bool) error {
	t.mu.Lock()
	for !free() {
		if t.news == nil {
			t.news = make(chan struct{})
		}
		news := t.news
		t.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		t.mu.Lock()
	}
	return nil
}

// share begins one that others may run beside. over ends it, once.
func (t *turns) share(ctx context.Context) (over func(), err error) {
	if err := t.wait(ctx, func() bool { return !t.alone && t.waiting == 0 }); err != nil {
		return nil, err
	}
	t.beside++
	t.mu.Unlock()
	return sync.OnceFunc(func() {
		t.mu.Lock()
		t.beside--
		t.changed()
		t.mu.Unlock()
	}), nil
}

// own begins one that nothing else runs beside. over ends it, once.
func (t *turns) own(ctx context.Context) (over func(), err error) {
	t.mu.Lock()
	t.waiting++
	t.mu.Unlock()
	err = t.wait(ctx, func() bool { return !t.alone && t.beside == 0 })
	if err != nil {
		t.mu.Lock()
	}
	t.waiting--
	t.alone = err == nil
	t.changed()
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		t.mu.Lock()
		t.alone = false
		t.changed()
		t.mu.Unlock()
	}), nil
}

// takeTurn waits until the call may begin, where it starts a program or writes.
func (m *Manager) takeTurn(ctx context.Context, l *live, k *toolCall, res *task.ToolResult) error {
	if k.over != nil || k.tool != contract.Shell && !k.writes() {
		return nil
	}
	wctx, stop := l.while(ctx)
	defer stop()
	defer k.beats("waits for a command that runs alone (--frozen, or a check)")()
	over, err := l.turns.share(wctx)
	if err != nil {
		return m.refuse(ctx, l, k, res, task.Errorf(task.CodeCanceled, "tool", "not started, a command that runs alone (--frozen, or a check) was waited for: %w", err))
	}
	k.over = over
	return nil
}

// endTurn lets others begin, unless it is not known whether the call is over.
func (k *toolCall) endTurn(err error) {
	if k.over != nil && (task.CodeOf(err) != task.CodeOutcomeUnknown || !k.writes()) {
		k.over()
	}
}

// alone makes sure that nothing in the task can change its files until the call
// is over: no other call runs, none begins, and of what earlier calls left behind
// no process is left. That is the kernel's word, so the files that are compared
// after it are those that the command gets.
func (m *Manager) alone(ctx context.Context, l *live, k *toolCall) *task.Error {
	defer k.beats("waits until nothing else runs in the task (--frozen)")()
	over, err := l.clear(ctx, lonely{"tool", task.CodeDenied, "with --frozen it runs alone", "and ask again"})
	k.over = over
	return err
}

// lonely says who wants to run alone, for errors.
type lonely struct {
	op    string
	code  task.Code
	what  string // "with --frozen it runs alone"
	again string
}

// clear waits until nothing else runs in the task, lets nothing begin, and ends
// what earlier calls left behind. over, which is never nil without an error and may
// be with one, lets others begin again.
func (l *live) clear(ctx context.Context, who lonely) (over func(), _ *task.Error) {
	if names := l.tools.runs(); len(names) > 0 {
		return nil, task.Errorf(who.code, who.op, "%s, and background shells run: %s", who.what, strings.Join(names, ", ")).
			WithHint("end them with shell_kill, %s", who.again)
	}
	wctx, stop := context.WithTimeout(ctx, aloneWait)
	defer stop()
	over, err := l.turns.own(wctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, task.Errorf(task.CodeCanceled, who.op, "not started: %w", context.Cause(ctx))
		}
		return nil, task.Errorf(who.code, who.op, "%s, and other calls went on running for %s", who.what, aloneWait).
			WithHint("end them, also shells in other terminals, %s", who.again)
	}
	_, wk := l.standing()
	if err := wk.KillAll(ctx, killTime); err != nil {
		return over, task.Errorf(who.code, who.op, "%s, and what earlier calls left running could not be ended: %w", who.what, err)
	}
	return over, nil
}

// noBackground refuses what would go on beside calls that write.
func noBackground(k *toolCall) *task.Error {
	if a, ok := k.args.(*contract.ShellArgs); !ok || !a.Background {
		return nil
	}
	return task.Errorf(task.CodeDenied, "tool", "with --frozen no background shell can be asked about: it would go on while the files change").
		WithHint("make it a plain call, or have a task without --frozen")
}

// runs names the background shells that run.
func (s *toolState) runs() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shells {
		if sh.state().state == "running" {
			names = append(names, fmt.Sprintf("%s (%s)", sh.name, approval.Visible(short(sh.text, 60))))
		}
	}
	return names
}
