package boundary

import (
	"fmt"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// What runs in a boundary that lacks a layer runs there because somebody accepted
// that, until a time. When an acceptance is over or taken back, nothing new
// begins, and what runs has a while, grace, to come to its end.

// lapseInterval is how often a task that rests on an acceptance looks whether it
// still does: two looks at files.
const lapseInterval = 3 * time.Second

// restOn notes acceptances that the boundary rests on. The decision's lock is
// held, or nobody else has the decision yet.
func (s *standingDecision) restOn(cs []task.Covered) {
	for _, c := range cs {
		if s.rests == nil {
			s.rests = map[task.Axis]task.Acceptance{}
		}
		s.rests[c.Axis] = c.Acceptance
	}
}

// watchRest has a task that rests on an acceptance watched. The decision's lock
// is held, or nobody else has the decision yet.
func (m *Manager) watchRest(l *live) {
	if len(l.decision.rests) > 0 && !l.decision.watched {
		l.decision.watched = true
		l.watch.Go(func() { m.watchAcceptances(l) })
	}
}

// watchAcceptances ends what runs a while after an acceptance that it rests on is
// over. It ends with the task.
func (m *Manager) watchAcceptances(l *live) {
	tick := time.NewTicker(min(lapseInterval, grace/4))
	defer tick.Stop()
	var since time.Time // of a lapse that what runs has not ended for
	ended := false
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-tick.C:
		}
		lapsed := m.lapsed(l)
		switch {
		case len(lapsed) == 0:
			since, ended = time.Time{}, false
		case since.IsZero():
			since = time.Now()
		case !ended && time.Since(since) >= grace:
			ended = true
			m.endLapsed(l, lapsed)
		}
	}
}

// lapsed are the axes that are missing because an acceptance is over or was taken
// back; a requirement that was raised lets what runs go on. The decision is made anew
// only when what it rests on changed.
func (m *Manager) lapsed(l *live) []task.Axis {
	if m.cfg.Policy == nil {
		return nil
	}
	s := &l.decision
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known || s.err == nil || s.stamp != m.stamp(l.checkout) {
		_ = m.decideAnew(l.ctx, l) // what it says is in s
	}
	return s.lapsed
}

// endLapsed ends what runs. The task stays: its work is a person's to bring out.
func (m *Manager) endLapsed(l *live, axes []task.Axis) {
	names := make([]string, len(axes))
	for i, a := range axes {
		names[i] = string(a)
	}
	text := fmt.Sprintf("the acceptance that %s may be missing was over, and so was the while of %s after it", strings.Join(names, ", "), grace)
	m.limitHit(l, "acceptance", text)
	ctx, done := sys.Detach(l.ctx, killTime)
	defer done()
	_, wk := l.standing()
	if wk == nil {
		return
	}
	if err := wk.KillAll(ctx, killTime); err != nil {
		m.condemn(l, err)
	}
}
