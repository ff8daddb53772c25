package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// checkNamed says whether a word can be the name of a declared check.
func checkNamed(w string) bool {
	return w != "" && len(w) <= 60 && w[0] != '-' && strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == ""
}

func (a *app) declaredChecks(cmd *cobra.Command, ref string) (*task.CheckList, error) {
	return doQuick[*task.CheckList](a, cmd, "", "checks", &door.TaskIn{Task: ref})
}

// listChecks prints the checks that a task's policy declares.
func (a *app) listChecks(cmd *cobra.Command, ref string) error {
	l, err := a.declaredChecks(cmd, ref)
	if err != nil {
		return err
	}
	if a.json {
		a.writeJSON(l)
		return nil
	}
	t := &text{w: a.stdout(), u: a.ui}
	if len(l.Checks) == 0 {
		t.printf("no check is declared: write checks into .caisson.yaml and commit it, or give a command: caisson check %s -- CMD\n", clean(ref))
		return nil
	}
	rows := make([][]string, 0, len(l.Checks))
	for _, c := range l.Checks {
		last := "-"
		if c.Last != nil {
			last = fmt.Sprintf("VER %d, tree %s, %s", c.Last.Level, clean(c.Last.Tree[:min(12, len(c.Last.Tree))]), stamp(c.Last.Begun))
		}
		rows = append(rows, []string{clean(c.Name), clean(quoteArgv(c.Run)), clean(c.Pinned), last})
	}
	t.table("", append([][]string{{"NAME", "RUNS", "DECLARED BY", "LAST"}}, rows...), nil)
	return nil
}

// completeCheck offers tasks, then the checks that are declared for the task, and
// leaves commands to the shell.
func (a *app) completeCheck(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return a.taskNames(cmd), cobra.ShellCompDirectiveNoFileComp
	case len(args) > 1 || a.checkWorkspaceEnv("") != nil:
		return nil, cobra.ShellCompDirectiveDefault
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeTimeout)
	defer cancel()
	e, closer, err := a.cfg.Engine(ctx, true, func(string) {})
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	defer closer()
	l, err := door.Do[*task.CheckList](ctx, a.call(e), "checks", &door.TaskIn{Task: args[0]})
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var out []string
	for _, c := range l.Checks {
		out = append(out, c.Name+"\t"+clean(quoteArgv(c.Run)))
	}
	return out, cobra.ShellCompDirectiveDefault
}
