package cli

import (
	"fmt"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// known prints the facts that make rows count.
func (t *text) known(fs []task.Fact) {
	if len(fs) == 0 {
		return
	}
	t.head("known of the task")
	var rows [][]string
	for _, f := range fs {
		what := string(f.What) + " = " + f.Value
		if f.Subject != "" {
			what += " (" + f.Subject + ")"
		}
		by := string(f.Source)
		if f.Rule != "" {
			by += " " + f.Rule
		}
		rows = append(rows, []string{clean(what), clean(by), clean(f.Evidence)})
	}
	const most = 24
	more := len(rows) - most
	t.table("  ", rows[:min(len(rows), most)], nil)
	if more > 0 {
		t.printf("  and %d more (--json)\n", more)
	}
}

// considered prints every backend, and why it was or was not taken.
func (t *text) considered(cs []task.Considered) {
	if len(cs) == 0 {
		return
	}
	t.head("backends")
	for _, c := range cs {
		text := clean(c.Why)
		if len(c.Short) > 0 {
			text += ": " + clean(strings.Join(c.Short, "; "))
		}
		t.printf("  %s %s  %s\n", t.u.mark(c.Chosen && len(c.Short) == 0), clean(c.Backend), text)
	}
}

// accepted prints the gaps that somebody accepted.
func (t *text) accepted(cs []task.Covered) {
	if len(cs) == 0 {
		return
	}
	t.head("accepted gaps")
	for _, c := range cs {
		x := &c.Acceptance
		t.printf("  %s needs %d, has %d: accepted by %s (%s) until %s, %s: %s\n", c.Axis, c.Required, c.Effective,
			clean(x.By.Login), x.By.Assurance, stamp(x.Expires), clean(x.ID), clean(x.Reason))
	}
}

// shared prints what exists today, by name: what the boundary leaves within
// reach, and how much of what it keeps away.
func (t *text) shared(is []task.Instance) {
	if len(is) == 0 {
		return
	}
	t.head("on this machine")
	var reach, away []string
	kinds := map[string]int{}
	var order []string
	for _, i := range is {
		if i.Reachable {
			reach = append(reach, fmt.Sprintf("%s: %s %s", i.Axis, i.Kind, i.Name))
			continue
		}
		if kinds[i.Kind] == 0 {
			order = append(order, i.Kind)
		}
		kinds[i.Kind]++
	}
	for _, k := range order {
		away = append(away, counted(kinds[k], k))
	}
	const most = 12
	for i, r := range reach {
		if i == most {
			t.printf("  within reach: and %d more (--json)\n", len(reach)-most)
			break
		}
		t.printf("  within reach: %s\n", clean(r))
	}
	if len(away) > 0 {
		t.printf("  kept away: %s (--json names them)\n", clean(strings.Join(away, ", ")))
	}
}
