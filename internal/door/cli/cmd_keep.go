package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) keepCommand() *cobra.Command {
	var span string
	var in door.KeepIn
	cmd := &cobra.Command{
		Use:     "keep TASK --for DURATION --reason TEXT",
		Short:   "say until when a task's files stay, and why",
		GroupID: groupTask,
		Long: `Sets how long the files of a task stay: from now on, longer or shorter than before. Of a
task that is open the wish is recorded and honoured when it ends, whatever --keep says;
only ` + "`close --discard`" + ` goes over it. Closing a task that is kept already ends the keeping.
Reason and end are shown by ls and show, the owner by show; all are part of the record.
When the time is over the files go; results in refs stay.`,
		Example: `  caisson keep fix-login --for 72h --reason "waits for review"
  caisson keep t5k --for 2w --reason "reproduces the race"
  caisson keep fix-login --for 1m --reason "done with it"`,
		Args:              exact(1, "a task"),
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if span == "" || strings.TrimSpace(in.Reason) == "" {
				return usagef(cmd, "caisson keep needs --for and --reason").WithHint("for example --for 72h --reason \"waits for review\"")
			}
			if in.For, err = parseSpan("for", span); err != nil {
				return err
			}
			in.Task = args[0]
			v, err := do[*task.View](a, cmd, "", "keep", &in, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(v)
				return nil
			}
			if a.quiet {
				return nil
			}
			if r := v.Asked; r != nil {
				_, err = fmt.Fprintf(a.stdout(), "%s stays %s; when it ends its files are kept until %s\n", v.ID, v.State, stamp(r.Until))
			} else if r := v.Retention; r != nil {
				_, err = fmt.Fprintf(a.stdout(), "%s kept until %s\n", v.ID, stamp(r.Until))
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&span, "for", "", "how long from now: 90m, 72h, 10d, 2w, 1w3d `DURATION`")
	f.StringVar(&in.Reason, "reason", "", "why, for whoever finds the files later `TEXT`")
	_ = cmd.RegisterFlagCompletionFunc("for", fixed([]string{"24h", "72h", "1w", "4w"}))
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	var env []string
	cmd := &cobra.Command{
		Use:     "resume TASK",
		Short:   "open a kept task again, with its files as it left them",
		GroupID: groupTask,
		Long: `Makes a new boundary around the files of a task that was kept: same id, name, source,
limits, grants and record; its processes are new. The boundary is decided anew for this
machine as it is today and proved before a command runs. When that fails the task stays
kept as it was.

Values of variables that were passed with --env are never recorded: give them again.
Results that were rescued when it ended are brought up to date when it ends again.`,
		Example: `  caisson resume fix-login
  caisson resume t5k --env API_MODE=test && caisson shell t5k`,
		Args:              exact(1, "a task"),
		ValidArgsFunction: a.completeTaskIn(task.Kept, task.Stuck),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := &door.ResumeIn{Task: args[0]}
			for _, s := range env {
				kv, err := parseEnv(s, a.cfg.Env)
				if err != nil {
					return err
				}
				in.Env = append(in.Env, kv)
			}
			v, err := do[*task.View](a, cmd, "", "resume", in, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(v)
				return nil
			}
			_, err = fmt.Fprintln(a.stdout(), v.ID)
			return err
		},
	}
	cmd.Flags().StringArrayVar(&env, "env", nil, "set a variable inside, or pass yours on `K=V|K`")
	_ = cmd.RegisterFlagCompletionFunc("env", cobra.NoFileCompletions)
	return cmd
}

// stamp is a moment as a person here reads it.
func stamp(t time.Time) string { return t.Local().Format(time.DateTime) }

// parseSpan reads a time to come: numbers with the units w, d, h, m, s, largest
// first, as in 1w3d.
func parseSpan(flag, s string) (time.Duration, error) {
	const example = "90m, 72h, 10d or 2w"
	units := []struct {
		name byte
		d    time.Duration
	}{{'w', 7 * 24 * time.Hour}, {'d', 24 * time.Hour}, {'h', time.Hour}, {'m', time.Minute}, {'s', time.Second}}
	total, rest, next := time.Duration(0), s, 0
	for rest != "" {
		i := 0
		for i < len(rest) && (rest[i] >= '0' && rest[i] <= '9' || rest[i] == '.') {
			i++
		}
		switch {
		case i == 0 && strings.HasPrefix(rest, "-"):
			return 0, invalid(flag, s, "the past is over; the time is counted from now", example)
		case i == 0 || !plainNumber(rest[:i]):
			return 0, invalid(flag, s, "not a duration", example)
		case i == len(rest):
			return 0, invalid(flag, s, "a unit is missing", example)
		}
		for next < len(units) && units[next].name != rest[i] {
			next++
		}
		if next == len(units) {
			return 0, invalid(flag, s, "units are w, d, h, m and s, each once, the largest first", example)
		}
		n, err := strconv.ParseFloat(rest[:i], 64)
		if err != nil || n*float64(units[next].d)+float64(total) > float64(maxSpan) {
			return 0, invalid(flag, s, "more than ten years", example)
		}
		total += time.Duration(n * float64(units[next].d))
		rest, next = rest[i+1:], next+1
	}
	if total <= 0 {
		return 0, invalid(flag, s, "must be above zero", example)
	}
	return total, nil
}

// maxSpan is what the engine admits, too.
const maxSpan = 10 * 365 * 24 * time.Hour
