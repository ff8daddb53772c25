package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Demanded is the highest level on a that a floor asks for.
func Demanded(a task.Axis, floors []Floor) int {
	level := 0
	for _, f := range floors {
		if f.Axis == a {
			level = max(level, f.Level)
		}
	}
	return level
}

// Worth says which level a check gives a result that has the tree that it began
// with, and why. A check counts when the host itself saw that it ended with 0,
// on files that were the same before and after. What the worker alone says is
// the word of the inside.
func Worth(c *task.Check) (level int, why string) {
	switch {
	case c.Pinned == "":
		return 0, "nobody said that it is a check"
	case c.Tree == "" || c.After == "":
		return 0, "the files could not be read, so nobody knows what it is about"
	case c.Reason != "":
		return 0, "it was ended: " + c.Reason
	case c.Exit != 0:
		return 0, fmt.Sprintf("it ended with %d", c.Exit)
	case c.Tree != c.After:
		return 0, "the files changed while it ran, so it is about neither state"
	case !c.Observed:
		return 1, "the host could not see how it ended: that it ended with 0 is the worker's word"
	}
	return 2, "it ended with 0, as the host saw, on files that were the same before and after"
}

// same says that b is a later run of the check a.
func same(a, b *task.Check) bool {
	if a.Name != "" || b.Name != "" {
		return a.Name == b.Name
	}
	return a.Digest == b.Digest
}

// OnTree returns, of the checks on record, the last run of each on exactly this
// tree, and how many there are of other trees only.
func OnTree(checks []task.Check, tree string) (on []task.Check, stale int) {
	on = []task.Check{}
	for i := range checks {
		c := &checks[i]
		if c.Tree != tree || tree == "" {
			continue
		}
		if at := slices.IndexFunc(on, func(o task.Check) bool { return same(&o, c) }); at >= 0 {
			on = slices.Delete(on, at, at+1)
		}
		on = append(on, *c)
	}
	for i := range checks {
		if checks[i].Tree != tree && !slices.ContainsFunc(on, func(o task.Check) bool { return same(&o, &checks[i]) }) {
			stale++
		}
	}
	return on, stale
}

// Leave says how far a result with this tree is verified. required is what the
// task's plan says of VER; floors are those of the policy as it is now, which may
// have been raised since.
func Leave(tree string, checks []task.Check, required task.Level, floors []Floor) task.Verification {
	v := task.Verification{Tree: tree, Required: max(required.Required, 0), Demanded: required.Demanded, Why: required.Asked}
	if now := Demanded(task.VER, floors); now > v.Demanded {
		v.Demanded = now
	}
	if v.Demanded > v.Required {
		v.Required, v.Why = v.Demanded, "asked for by a policy that was raised since"
	}
	v.Checks, v.Stale = OnTree(checks, tree)
	if len(v.Checks) > 0 {
		// A check that failed on these files is not made good by another one.
		v.Level = slices.MinFunc(v.Checks, func(a, b task.Check) int { return cmp.Compare(a.Level, b.Level) }).Level
	}
	return v
}

// whoAsks names the rows, and whoever else asks for a level.
func whoAsks(rs []task.Reason) string {
	var rows, rest []string
	for _, r := range rs {
		switch {
		case r.Row != "" && !slices.Contains(rows, r.Row):
			rows = append(rows, r.Row)
		case r.Row == "" && r.Fact.Evidence != "":
			rest = append(rest, r.Fact.Evidence)
		}
	}
	if len(rows) > 0 {
		rest = append([]string{"row " + strings.Join(rows, ", ")}, rest...)
	}
	return strings.Join(rest, "; ")
}

// Gaps are the digests that acceptances of a result's missing verification are
// bound to: of this very result, and of what is missing alone, for a repository.
func Gaps(id task.ID, v *task.Verification) (result, repo string) {
	type gap struct {
		Kind                      string
		Task                      task.ID
		Tree                      string
		Required, Level, Demanded int
		Failed                    []string
	}
	g := gap{Kind: "caisson.verification/1", Required: v.Required, Level: v.Level, Demanded: v.Demanded}
	repo = digest(g)
	g.Task, g.Tree = id, v.Tree
	for _, c := range v.Checks {
		if c.Level == 0 {
			g.Failed = append(g.Failed, c.Name+" "+c.Digest)
		}
	}
	return digest(g), repo
}
