package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) lsCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:               "ls",
		Short:             "list tasks and their states",
		GroupID:           groupTask,
		Long:              "Lists the tasks that are open, kept or stuck. `caisson help states` explains the states.",
		Example:           "  caisson ls\n  caisson ls --all --json",
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := do[*door.ListOut](a, cmd, "", "list", &door.ListIn{All: all}, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(l)
				return nil
			}
			if err := a.renderList(a.stdout(), l.Tasks); err != nil || l.Budget == nil {
				return err
			}
			return a.renderBudget(a.stdout(), l.Budget)
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also closed and blocked tasks")
	return cmd
}

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show TASK",
		Short:   "one task: required, promised and proved levels, grants, resources",
		GroupID: groupTask,
		Long: `Prints, per axis, which level the task required, which the backend promised and which
was proved by probing from inside, then findings, grants, tools, limits, resources,
retention, results, and what is not isolated. ` + "`caisson help levels`" + ` explains the axes.`,
		Example:           "  caisson show fix-login\n  caisson show t5k --json",
		Args:              exact(1, "a task"),
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := do[*task.View](a, cmd, "", "show", &door.TaskIn{Task: args[0]}, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(v)
				return nil
			}
			return a.renderTask(a.stdout(), v)
		},
	}
}

func (a *app) logCommand() *cobra.Command {
	var follow, egress, propose bool
	cmd := &cobra.Command{
		Use:     "log TASK",
		Short:   "a task's evidence: commands, exits, probes, rescue",
		GroupID: groupTask,
		Long: `Prints the record that caisson kept on the host, outside the boundary, as a person
reads it. With --json every event is one line, as recorded. -f waits for more until
the task ends. --egress shows only what left the task and what was not let out; --propose writes rules
for what was refused because none allows it, as a part of a policy file. It applies none.`,
		Example:           "  caisson log fix-login\n  caisson log --egress fix-login\n  caisson log -f t5k\n  caisson log --json t5k | jq .type",
		Args:              exact(1, "a task"),
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			if propose {
				if follow {
					return usagef(cmd, "--propose and --follow do not go together")
				}
				p := proposal{Schema: "caisson.proposal/1", Task: args[0], Rules: []proposed{}, Names: []string{}, Addresses: []astray{}}
				_, err := do[*door.None](a, cmd, "", "log", &door.LogIn{Task: args[0]}, func(c *door.Call) { c.Emit = func(e door.Event) error { p.learn(e); return nil } })
				if err != nil {
					return err
				}
				if v, err := do[*task.View](a, cmd, "", "show", &door.TaskIn{Task: args[0]}, nil); err == nil {
					p.noWay = slices.ContainsFunc(v.Levels, func(l task.Level) bool { return l.Axis == task.NET && l.Promised == task.MaxLevel(task.NET) })
				}
				if a.json {
					a.writeJSON(p)
					return nil
				}
				return p.write(a.stdout())
			}
			emitTo := func(w io.Writer) error {
				r := a.newLogText(w)
				r.follow = follow
				emit := r.emit
				if a.json {
					if a.ui.outTTY { // a program gets the lines as they are recorded
						w = plainJSON{w}
					}
					enc := json.NewEncoder(w)
					enc.SetEscapeHTML(false)
					emit = func(e door.Event) error {
						if len(e.Line) == 0 {
							return enc.Encode(e)
						}
						_, err := w.Write(append(e.Line, '\n'))
						return err
					}
				}
				if all := emit; egress {
					emit = func(e door.Event) error {
						if !aboutEgress(e) {
							return nil
						}
						return all(e)
					}
				}
				_, err := do[*door.None](a, cmd, "", "log", &door.LogIn{Task: args[0], Follow: follow}, func(c *door.Call) { c.Emit = emit })
				if err != nil {
					return err
				}
				return r.end()
			}
			if follow {
				return emitTo(a.stdout())
			}
			return a.page(emitTo)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more events until the task ends")
	cmd.Flags().BoolVar(&propose, "propose", false, "rules that would let out what was refused; applies none")
	cmd.Flags().BoolVar(&egress, "egress", false, "only what left the task, and what was not let out")
	cmd.Flags().BoolVar(&a.noPager, "no-pager", false, "do not start a pager")
	return cmd
}

// versionResult is what `version --json` prints.
type versionResult struct {
	Schema  string `json:"schema"` // "caisson.version/1"
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "print the version",
		GroupID:           groupMachine,
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

func (a *app) printVersion() error {
	if a.json {
		a.writeJSON(versionResult{"caisson.version/1", a.cfg.Version, a.cfg.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH})
		return nil
	}
	commit := ""
	if a.cfg.Commit != "" {
		commit = " (" + a.cfg.Commit + ")"
	}
	_, err := fmt.Fprintf(a.stdout(), "caisson %s%s %s %s/%s\n", a.cfg.Version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
