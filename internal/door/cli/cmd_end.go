package cli

import (
	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) closeCommand() *cobra.Command {
	var in door.CloseIn
	var keep string
	cmd := &cobra.Command{
		Use:     "close TASK",
		Short:   "end a task: rescue its work, seal the record, release the rest",
		GroupID: groupTask,
		Long: `Ends every process of the task, brings its work to safety (refs in your repository
below refs/caisson/, a bundle where that is not possible), and removes what caisson
made for it. --dry-run shows what there is to lose. The exit status is 7 when files
stay on disk as kept, or when something could not be removed. Closing a kept
task ends what ` + "`keep`" + ` asked for: what is not in a ref yet is rescued, then its files go
(with --keep never also those of a task that was made with --keep always). Many files
are removed after it has returned, by a process of its own: the task is "removing"
then, and closing it again waits for it.`,
		Example: `  caisson close --dry-run fix-login
  caisson close fix-login
  caisson close --keep always t5k`,
		Args:              exact(1, "a task"),
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := closed("keep", keep, keepModes, nil); err != nil {
				return err
			}
			if err := discardError(in.Discard, keep); err != nil {
				return err
			}
			in.Task, in.Keep = args[0], task.Keep(keep)
			r, err := do[*task.CloseReport](a, cmd, "", "close", &in, nil)
			if task.CodeOf(err) == task.CodeOutcomeUnknown && a.sig != nil && a.sig.count.Load() > 0 {
				// The supervisor does not stop half way because its caller went away.
				err = task.Errorf(task.CodeCanceled, "close", "not waited for: the task may still be closing").WithHint("`caisson ls` shows whether it has ended")
			}
			if r != nil && (err == nil || !a.json) {
				if a.json {
					a.writeJSON(r)
				} else if rerr := a.renderClose(a.stdout(), r); rerr != nil && err == nil {
					return rerr
				}
			}
			if err != nil {
				return err
			}
			if !r.DryRun && (r.State == task.Kept || r.State == task.Stuck || len(r.Stuck) > 0) {
				return status(task.CodeKept.ExitStatus())
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&in.DryRun, "dry-run", "n", false, "only say what would happen and what there is to lose")
	f.BoolVar(&in.Discard, "discard", false, "give up what is not in a ref yet: rescue nothing, remove kept files")
	f.StringVar(&keep, "keep", "", "instead of the task's own mode: auto, always, on-failure or never `MODE`")
	_ = cmd.RegisterFlagCompletionFunc("keep", fixed(keepModes))
	return cmd
}

func (a *app) reapCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:     "reap",
		Short:   "finish cleanups, expire retention, report what is stuck",
		GroupID: groupMachine,
		Long: `Compares what is on record with what is there: ends tasks whose supervisor died,
retries cleanups, removes what was kept beyond its time. Things that look like ours
but cannot be proven ours are reported and never touched. The exit status is 7 while
something stays stuck.`,
		Example:           "  caisson reap --dry-run\n  caisson reap",
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := do[*task.ReapReport](a, cmd, "", "reap", &door.ReapIn{DryRun: dry}, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(r)
			} else if err := a.renderReap(a.stdout(), r); err != nil {
				return err
			}
			if r.StillHeld > 0 {
				return status(task.CodeStuck.ExitStatus())
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&dry, "dry-run", "n", false, "only say what would happen")
	return cmd
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "doctor",
		Short:   "what this machine can enforce, and how to get more",
		GroupID: groupMachine,
		Long: `Tries, per backend, what this machine can enforce; nothing is looked up or guessed.
Prints the levels that result and how to get what is missing. The exit status is 5
when no backend is usable.`,
		Example:           "  caisson doctor\n  caisson doctor --json",
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := do[*task.DoctorReport](a, cmd, "", "doctor", &door.None{}, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(r)
			} else if err := a.renderDoctor(a.stdout(), r); err != nil {
				return err
			}
			for _, b := range r.Backends {
				if b.Usable {
					return nil
				}
			}
			return status(task.CodeUnavailable.ExitStatus())
		},
	}
}

func (a *app) planCommand() *cobra.Command {
	var f requestFlags
	cmd := &cobra.Command{
		Use:     "plan [flags] [--] [CMD…]",
		Short:   "the decision alone: levels, reasons, missing layers; makes no task",
		GroupID: groupMachine,
		Long: `Decides as ` + "`run`" + ` would and prints what is required and why, what the chosen backend
promises, and which layers are missing with the ways out. The exit status is 3 when a
layer is missing. It makes no task and no boundary: it only fills caisson's own caches
in its state folder.`,
		Example: "  caisson plan -- npm test\n  caisson plan --need NET=2 --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := f.request(cmd, a.cfg.Env)
			if err != nil {
				return err
			}
			r, err := do[*task.PlanReport](a, cmd, f.repo, "plan", &door.PlanIn{Request: q, Env: q.Env, Argv: args}, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(r)
			} else if err := a.renderPlan(a.stdout(), r); err != nil {
				return err
			}
			if len(r.Missing) > 0 {
				return status(task.CodeBoundaryMissing.ExitStatus())
			}
			return nil
		},
	}
	cmd.Flags().SetInterspersed(false)
	f.add(a, cmd)
	return cmd
}
