package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// renderBudget prints how much of what all tasks may take together is taken.
func (a *app) renderBudget(w io.Writer, b *task.BudgetReport) error {
	t := &text{w: w, u: a.ui}
	t.budget(b.Uses, b.Waiting)
	return t.err
}

func (t *text) budget(uses []task.BudgetUse, waiting int) {
	if len(uses) == 0 {
		return
	}
	t.head("budget of all tasks together")
	var rows [][]string
	for _, u := range uses {
		name, used, most := u.What, strconv.FormatFloat(u.Used, 'f', -1, 64), strconv.FormatFloat(u.Most, 'f', -1, 64)
		if base, ok := strings.CutSuffix(u.What, "_bytes"); ok {
			name, used, most = base, bytesText(int64(u.Used)), bytesText(int64(u.Most))
		}
		rows = append(rows, []string{name, used + " of " + most, clean(u.From)})
	}
	t.table("  ", rows, nil)
	if waiting > 0 {
		t.printf("  %s\n", fmt.Sprintf("waiting for their turn: %d", waiting))
	}
}
