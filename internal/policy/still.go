package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// StandingBoundary is what Still holds a decision against: a boundary that stands.
type StandingBoundary struct {
	Task   task.ID
	Proved task.Vector
	Seen   map[task.Axis]string
	// Began are the gaps that were accepted when it was opened.
	Began []task.Covered
	// Revoked says that an acceptance counts no more. nil: none was.
	Revoked func(id string) bool
	Now     time.Time
	// Rests are acceptances that it rested on while nothing was missing, and Grace is
	// how long what runs goes on after one of them is over.
	Rests map[task.Axis]task.Acceptance
	Grace time.Duration
}

// Still returns nil when a boundary that stands has what is needed by now, or
// when what it has not is accepted, and otherwise the error boundary_missing.
// until is when that may change by itself; zero: never. lapsed are the axes that are
// missing because an acceptance is over or was taken back.
func (d *Decision) Still(b StandingBoundary) (until time.Time, lapsed []task.Axis, err error) {
	sooner := func(t time.Time) {
		if until.IsZero() || t.Before(until) {
			until = t
		}
	}
	var ms []task.Missing
	for _, a := range task.Short(d.Required, b.Proved) {
		if _, later := leaving[a]; later {
			continue // asked when a result leaves, not before a command
		}
		have := b.Proved[a]
		ok := false
		for _, c := range d.Plan.Accepted {
			if c.Axis == a && c.Acceptance.Level <= max(have, 0) {
				ok = true
				sooner(c.Acceptance.Expires)
			}
		}
		for _, c := range b.Began {
			acc := c.Acceptance
			if !ok && c.Axis == a && c.Required >= d.Required[a] && acc.Level <= max(have, 0) && acc.Level >= d.in.Operator[a] && b.Now.Before(acc.Expires) && !acc.Standing && (b.Revoked == nil || !b.Revoked(acc.ID)) {
				ok = true
				sooner(acc.Expires)
			}
		}
		if ok {
			continue
		}
		if acc, rested := b.Rests[a]; rested && (!b.Now.Before(acc.Expires) || acc.Standing || b.Revoked != nil && b.Revoked(acc.ID)) {
			lapsed = append(lapsed, a)
		}
		m := d.missing(a, d.Required[a], have, whyText(d.reasons[a]), b.Seen[a])
		m.Options = []string{fmt.Sprintf("caisson close %s, and open it again", b.Task)}
		if d.in.Operator[a] <= max(have, 0) {
			m.Options = append(m.Options, fmt.Sprintf("where it is yours to accept: caisson accept %s --axis %s=%d --reason …", b.Task, a, max(have, 0)))
		}
		ms = append(ms, m)
	}
	if len(ms) == 0 {
		return until, nil, nil
	}
	err = d.fail(task.CodeBoundaryMissing, ms)
	if e, ok := err.(*task.Error); ok {
		names := make([]string, len(ms))
		for i, m := range ms {
			names[i] = fmt.Sprintf("%s %d (has %d): %s", m.Axis, m.Required, m.Effective, m.WhyRequired)
		}
		running := "what runs goes on"
		if len(lapsed) > 0 {
			running = fmt.Sprintf("what runs is ended %s after the acceptance was over", b.Grace)
		}
		e.Op = "policy.still"
		e.Msg = fmt.Sprintf("nothing new begins in task %s, whose boundary has not what is needed by now: %s; %s", b.Task, strings.Join(names, "; "), running)
		_ = e.WithHint("%s", strings.Join(ms[0].Options, "; or, "))
		if r, ok := e.Detail.(*Report); ok {
			r.Accept = ""
		}
	}
	return until, lapsed, err
}
