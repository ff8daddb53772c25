package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) allowCommand() *cobra.Command {
	var in door.AllowIn
	cmd := &cobra.Command{
		Use:     "allow TASK [HOST[:PORT]]...",
		Short:   "let an open task reach more, until it ends",
		GroupID: groupTask,
		Long: `Adds destinations to a task that was opened with a network (--net, --allow), for this
task alone and until it is closed: a resumed task has what it was opened with. They are
written as --allow takes them. What the policy denies, or does not let you allow, stays
closed. Without a destination it lists what was added, by you or because a model asked for
it and you agreed.`,
		Example: `  caisson allow demo docs.example.com
  caisson allow demo db.example.com:5432 --reason 'integration tests'
  caisson allow demo --withdraw docs.example.com`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				err := usagef(cmd, "%s needs a task", cmd.CommandPath())
				if len(in.Withdraw) > 0 {
					err = err.WithHint(withdrawOrder)
				}
				return err
			}
			return nil
		},
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Task, in.Places = args[0], args[1:]
			r, err := do[*task.AllowReport](a, cmd, "", "allow", &in, nil)
			if e := (*task.Error)(nil); len(in.Withdraw) > 0 && task.CodeOf(err) == task.CodeNotFound && errors.As(err, &e) && e.Op == "inventory.find" {
				return task.Errorf(task.CodeNotFound, "cli", "%v", err).WithHint(withdrawOrder)
			}
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(r)
				return nil
			}
			t := text{w: a.stdout(), u: a.ui}
			if len(r.Widened) == 0 {
				t.printf("nothing was added to what task %s may reach\n", r.Task)
			}
			for _, w := range r.Widened {
				t.printf("%s\n", clean(widenedText(w)))
			}
			for _, n := range r.Notes {
				a.ui.note("%s", clean(n))
			}
			return t.err
		},
	}
	cmd.Flags().StringArrayVar(&in.Withdraw, "withdraw", nil, "take a destination back that was added; what is open goes on `HOST[:PORT]`")
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the record `TEXT`")
	return cmd
}

// withdrawOrder is said to who wrote the task behind --withdraw, which takes the
// word that follows it.
const withdrawOrder = "the task comes first: caisson allow TASK --withdraw HOST[:PORT]"

// widenedText is one destination that was added.
func widenedText(w task.Widened) string {
	var more []string
	if w.Question != "" {
		more = append(more, "a model asked, "+w.Question)
	}
	if w.Reason != "" {
		more = append(more, w.Reason)
	}
	s := w.To + ", allowed by " + w.By + " at " + stamp(w.At)
	if len(more) > 0 {
		s += ": " + strings.Join(more, ": ")
	}
	return s
}
