package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Where the invariants are proved. I1 to I4 and I6: TestMergeInvariants; I5:
// TestContainmentEgress and TestContainmentRandom; I8 and what of I9 is decided
// here: TestDecideInvariants. I7, that nobody inside writes what is more trusted,
// and the rest of I9, that nothing is done a second time elsewhere, are about a
// running product: test/conformance and test/lifecycle.

// TestDecideInvariants: whatever is promised, found, demanded and accepted, no task
// runs with less than it needs unless an acceptance that counts covers the gap; and
// what a backend does not give is missing, never another backend's.
func TestDecideInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	free, blocked, covered := 0, 0, 0
	for n := range cases(1500) {
		in := input()
		in.Rules.Alone = r.IntN(2) == 0
		in.Rules.Delegated = []task.Axis{pick(r, task.Axes)}
		in.Unattended, in.Now = r.IntN(3) == 0, noon.Add(time.Minute)
		in.Need, in.Operator = task.Vector{}, task.Vector{}
		for range r.IntN(3) {
			a := pick(r, task.Axes)
			in.Need[a] = task.MaxLevel(a)
		}
		if r.IntN(3) == 0 {
			a := pick(r, task.Axes)
			in.Operator[a] = r.IntN(task.MaxLevel(a) + 1)
			in.Floors = append(in.Floors, Floor{Axis: a, Level: in.Operator[a], Source: task.SourceOperator})
		}
		if r.IntN(4) == 0 {
			in.Promised = task.Vector{} // the provider failed, and gives nothing
		}
		if r.IntN(2) == 0 {
			in.Findings = []task.Finding{{ID: "f", Axis: pick(r, task.Axes), Cap: r.IntN(3)}}
		}
		first, err := Decide(in)
		if err != nil {
			continue // a need below a row
		}
		for _, a := range task.Short(first.Required, first.Effective) {
			if r.IntN(4) == 0 {
				continue
			}
			in.Acceptances = append(in.Acceptances, randomAcceptance(r, a, max(first.Effective[a], 0), first))
		}
		d, err := Decide(in)
		if err != nil {
			t.Fatalf("case %d: %v", n, err)
		}
		if d.Plan.Backend != in.Backend {
			t.Fatalf("case %d: decided for %s, and the plan is for %s", n, in.Backend, d.Plan.Backend)
		}
		if (d.Blocked() == nil) != (len(d.Plan.Missing) == 0) {
			t.Fatalf("case %d: blocked %v with %d missing", n, d.Blocked(), len(d.Plan.Missing))
		}
		for _, a := range task.Axes {
			need, have := d.Required[a], d.Effective[a]
			short := have != task.LevelNA && max(have, 0) < need
			missing := slices.ContainsFunc(d.Plan.Missing, func(m task.Missing) bool { return m.Axis == a })
			i := slices.IndexFunc(d.Plan.Accepted, func(c task.Covered) bool { return c.Axis == a })
			switch {
			case short && !missing && i < 0 && !laterOn(d, a):
				t.Fatalf("case %d: %s needs %d, has %d, is neither missing nor accepted", n, a, need, have)
			case !short && missing:
				t.Fatalf("case %d: %s is missing and there", n, a)
			case i >= 0:
				covered++
				if why := shortcoming(&d.Plan.Accepted[i].Acceptance, &in, d, max(have, 0)); why != "" || missing {
					t.Fatalf("case %d: %s is covered by an acceptance that does not count: %s: %+v", n, a, why, d.Plan.Accepted[i])
				}
			}
		}
		if d.Blocked() == nil {
			free++
		} else {
			blocked++
		}
	}
	if free == 0 || blocked == 0 || covered == 0 {
		t.Errorf("%d free, %d blocked, %d covered: not everything was tried", free, blocked, covered)
	}
}

// laterOn says that the axis is looked at when a result leaves.
func laterOn(d *Decision, a task.Axis) bool {
	_, later := leaving[a]
	return later || d.Effective[a] == task.LevelNA
}

// randomAcceptance is one that may count, or lacks something.
func randomAcceptance(r *rand.Rand, a task.Axis, have int, d *Decision) task.Acceptance {
	acc := task.Acceptance{ID: "a", Axis: a, Level: r.IntN(have + 2), Report: d.Plan.Report, Scope: task.ScopeCommand, Reason: "x",
		By: task.Acceptor{Login: "u", Authority: task.SourceUser, Assurance: task.AssuredTTY}, Created: noon, Expires: noon.Add(time.Hour)}
	switch r.IntN(8) {
	case 0:
		acc.Revoked = &noon
	case 1:
		acc.Expires = noon
	case 2:
		acc.Report = "sha256:other"
	case 3:
		acc.By.Authority = pick(r, []task.Source{task.SourceProject, task.SourceModel, task.SourceTask, task.SourceAgent})
	case 4:
		acc.By.Assurance = task.AssuredNone
	case 5:
		acc.Standing, acc.Scope, acc.Repo, acc.By.Authority = true, task.ScopeRepo, anyRepo, task.SourceOperator
	case 6:
		acc.MaxUses, acc.Uses = 1, 1
	}
	return acc
}

// shortcoming says, in other words than Covers, why an acceptance is none.
func shortcoming(a *task.Acceptance, in *Input, d *Decision, have int) string {
	switch {
	case a.Revoked != nil:
		return "revoked"
	case !in.Now.Before(a.Expires):
		return "expired"
	case a.Level > have:
		return "it accepts more than is left"
	case a.Level < in.Operator[a.Axis]:
		return "below a floor of the operator"
	case a.MaxUses > 0 && a.Uses >= a.MaxUses:
		return "used up"
	case a.Standing && a.By.Authority != task.SourceOperator:
		return "standing, by somebody else than the operator"
	case a.Standing:
		return ""
	case in.Unattended:
		return "nobody is there"
	case a.Report != d.Plan.Report:
		return "given for another report"
	case a.By.Authority != task.SourceUser || a.By.Assurance.Rank() < task.AssuredTTY.Rank():
		return "not a person's at a terminal"
	case !in.Rules.Alone && mayAccept(a.Axis, have, false) == operatorOnly:
		return "the operator's to accept"
	}
	return ""
}
