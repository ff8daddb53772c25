package policy

import (
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Governing is what the policy in force says about one task, from all of its
// sources. The zero value is no policy beyond what is shipped: nothing is
// lowered, nothing delegated, nobody's code is known.
type Governing struct {
	Digest  string      // of every document that counts
	Facts   []task.Fact // declared characteristics; they add risk
	Lowered []task.Fact // the operator's, that take it down
	Floors  []Floor
	// Operator are the operator's floors alone: nothing below is accepted.
	Operator task.Vector
	Accept   AcceptRules
	Standing []task.Acceptance
	// Suppressed are rules of detectors that the operator does not want, with why.
	Suppressed map[string]string
	// Familiar says why the repository's code counts as known, Unfamiliar why not
	// although a person started the task; both empty: nothing is on record.
	Familiar, Unfamiliar string
	// NoTrust: only an entry under trust says that code is known, no person's flag.
	NoTrust bool
	// Budget bounds all tasks of the user together. Its zero value bounds nothing.
	Budget MergedBudget
	// Unwatched is after how long without a person a task that nobody attends counts
	// as unwatched for long; 0: the shipped hour.
	Unwatched time.Duration
	Notes     []string // requests that were refused, and why; what has no effect in this version
	Rules     *Rules   // all of it; nil in the zero value
}

// Govern says what rules mean for one task.
func Govern(r *Rules) Governing {
	g := Governing{Rules: r, Budget: r.Budget, Unwatched: time.Duration(r.Unwatched.Value), Digest: r.Digest(), Facts: r.Facts, Operator: task.Vector{}, Suppressed: map[string]string{}}
	for _, f := range r.Floors {
		g.Floors = append(g.Floors, Floor{Axis: f.Axis, Level: f.Level, Source: f.From.Source, Where: f.From.place()})
		g.Operator[f.Axis] = max(g.Operator[f.Axis], f.Level)
	}
	for _, f := range r.Raised {
		g.Floors = append(g.Floors, Floor{Axis: f.Axis, Level: f.Level, Source: f.From.Source, Where: f.From.place()})
	}
	g.Accept = AcceptRules{MaxTTL: time.Duration(r.MaxTTL.Value), Assurance: map[task.Axis]task.Assured{}, Alone: !r.Operator}
	for _, m := range r.MinAssurance {
		if m.Axis == "default" {
			g.Accept.Default = task.Assured(m.Least)
		} else {
			g.Accept.Assurance[task.Axis(m.Axis)] = task.Assured(m.Least)
		}
	}
	for _, d := range r.Delegable {
		g.Accept.Delegated = append(g.Accept.Delegated, d.Value)
	}
	for _, s := range r.Suppressed {
		g.Suppressed[s.Value.Rule] = s.Value.Reason + " (" + s.From.place() + ")"
	}
	for _, s := range r.Accepted {
		a := s.Value
		g.Standing = append(g.Standing, task.Acceptance{
			ID: "standing:" + s.From.place(), Axis: a.Axis, Level: a.Level, Scope: task.ScopeRepo, Repo: anyRepo, Reason: a.Reason, Standing: true, Where: s.From.place(),
			By: task.Acceptor{Login: string(s.From.Source), Authority: task.SourceOperator}, Expires: a.Expires.Time,
		})
	}
	for _, f := range r.Lowered {
		// Merge left in only what is its source's to say: where there is no operator
		// the user decides in their place, and a person's word about code is theirs.
		if f.Source != task.SourceOperator {
			f.Source, f.Evidence = task.SourceOperator, Origin{f.Source, f.Evidence}.String()
		}
		g.Lowered = append(g.Lowered, f)
	}
	g.NoTrust = r.AllowTrust.From != Origin{} && !r.AllowTrust.Value
	switch {
	case r.Trusted.Value:
		g.Familiar = "known: " + r.Trusted.From.String()
	case g.NoTrust:
		g.Unfamiliar = "only a policy says which code is known (allow_trust: false, " + r.AllowTrust.From.String() + "), and none names this repository"
	}
	if n := r.ServicesNote(); n != "" {
		g.Notes = append(g.Notes, n)
	}
	g.Notes = append(g.Notes, r.idle()...)
	for _, x := range r.Refused {
		g.Notes = append(g.Notes, "asked for by "+x.From.String()+" and not given: "+x.Item.String()+": "+x.Why)
	}
	return g
}

// anyRepo is the repository of a standing acceptance that is in force: the rules
// hold only those for the repository at hand.
const anyRepo = "*"
