package policy

import (
	"fmt"
	"slices"

	"github.com/caisson-dev/caisson/internal/task"
)

// ceiling says how a request inside every ceiling is honoured, or why it is not.
func (r *Rules) ceiling(d Delegatee, it Item) (Mode, string) {
	if d != "user" && r.Delegation.Value == DelegationNone {
		return "", "nothing is delegated (" + r.Delegation.From.String() + ")"
	}
	mode, some := ModeAuto, false
	for _, c := range r.Ceilings {
		if c.For != d {
			continue
		}
		some = true
		if !slices.ContainsFunc(c.Items(), it.In) {
			return "", fmt.Sprintf("it is not inside what a %s may ask for: delegate.%s (%s)", d, d, c.From)
		}
		own := c.Mode
		if own == "" {
			own = ModeAsk
		}
		if slices.Index(modes, own) > slices.Index(modes, mode) {
			mode = own
		}
	}
	if !some {
		return "", fmt.Sprintf("nothing is delegated to a %s: there is no delegate.%s", d, d)
	}
	return mode, ""
}

// Wish says whether something that was asked for outside of any file, by a flag
// for one, may be had, by the ceiling of who asks: deny, allow, or ask, where a
// person has to agree who did not ask themselves. A person's flag is their word.
// What is denied counts first, and then what base grants.
func (r *Rules) Wish(who Delegatee, it Item) Answer {
	for _, d := range r.Denied {
		if it.meets(d.Item) {
			return Answer{Verdict: task.VerdictDeny, Rule: "denied: " + d.Kind() + " " + d.Item.String(), From: d.From}
		}
	}
	for _, g := range r.Granted {
		if it.In(g.Item) {
			return Answer{Verdict: task.VerdictAllow, Rule: "granted by " + g.Via + ": " + g.Kind() + " " + g.Item.String(), From: g.From}
		}
	}
	mode, why := r.ceiling(who, it)
	if why != "" {
		return Answer{Verdict: task.VerdictDeny, Rule: why, From: r.bounds(who, it)}
	}
	a := Answer{Verdict: task.VerdictAllow, Rule: "inside what a " + string(who) + " may ask for", From: r.bounds(who, Item{})}
	if who != "user" && (mode == ModeAsk || mode == ModeTrusted && !r.Trusted.Value) {
		a.Verdict = task.VerdictAsk
	}
	return a
}

// Denies says whether a denial holds for all of an item.
func (r *Rules) Denies(it Item) bool {
	return slices.ContainsFunc(r.Denied, func(d Denied) bool { return it.meets(d.Item) })
}

// bounds is where the ceiling stands that does not hold an item; the first for
// the zero Item.
func (r *Rules) bounds(who Delegatee, it Item) Origin {
	for _, c := range r.Ceilings {
		if c.For == who && (it == Item{} || !slices.ContainsFunc(c.Items(), it.In)) {
			return c.From
		}
	}
	return Origin{}
}

// meets says whether a denial of d stops what is asked for: also what lies above
// a denied path, which would come along.
func (it Item) meets(d Item) bool {
	switch {
	case it.Mount != nil && d.Mount != nil:
		return d.Mount.Touches(MountPoint{string(it.Mount.Path), it.Mount.Mode == AccessRW})
	case it.Command != nil && d.Command != nil:
		f, _ := d.Command.fits(CommandPoint{Argv: it.Command.Argv})
		return f == fitSure
	}
	return it.In(d)
}
