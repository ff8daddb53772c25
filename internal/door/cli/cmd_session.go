package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) runCommand() *cobra.Command {
	var f requestFlags
	var dir string
	cmd := &cobra.Command{
		Use:     "run [flags] [--] CMD…",
		Short:   "run a command in a task of its own",
		GroupID: groupTask,
		Long: `Opens a task on the repository around the working directory, proves its boundary
by probing it from inside, runs CMD there and ends the task. Everything after CMD
belongs to CMD. The exit status is the command's own; 125 is a failure of caisson.

Processes die with the command. An unchanged, successful task is released; a changed
or failed one keeps its files for 24 hours, and its work is rescued in any case
(--keep, --discard).

With --json the result is one line of JSON, the last line of standard error:
standard output is the command's.`,
		Example: `  caisson run -- make test
  caisson run --source checkout --trust --timeout 10m -- make fmt
  caisson run --history base --memory 2g --timeout 30m -- npm test
  caisson run --ro "$(go env GOMODCACHE)" -- go test ./...`,
		Annotations: map[string]string{passes: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "no command to run").WithHint("for example `caisson run -- make test`; `caisson open` makes a task without one")
			}
			if dir != "" && dir[0] != '/' {
				return invalid("dir", dir, "must be an absolute path inside", "/tmp")
			}
			q, err := f.request(cmd, a.cfg.Env)
			if err != nil {
				return err
			}
			return a.inSession(cmd, true, f.repo, func(s *session, c *door.Call) (*door.RunOut, error) {
				out, err := door.Do[*door.RunOut](s.ctx, c, "run", &door.RunIn{Request: q, Env: q.Env, Command: s.command(args, dir, nil)})
				return out, a.explainStart(err, args, dir, q.Env, false)
			})
		},
	}
	cmd.Flags().SetInterspersed(false)
	f.add(a, cmd)
	cmd.Flags().StringVar(&dir, "dir", "", "where the command starts inside (default: the source) `DIR`")
	return cmd
}

// splitTask takes TASK off args and parses flags that stand between TASK and
// the command: "exec TASK --env K=V -- CMD".
func splitTask(cmd *cobra.Command, args []string) (string, []string, error) {
	if len(args) == 0 {
		return "", nil, usagef(cmd, "%s needs a task", cmd.CommandPath()).WithHint("`caisson ls` lists the open ones")
	}
	ref, rest := args[0], args[1:]
	if len(rest) > 0 && len(rest[0]) > 1 && rest[0][0] == '-' {
		if err := cmd.Flags().Parse(rest); err != nil {
			return "", nil, cmd.FlagErrorFunc()(cmd, err)
		}
		rest = cmd.Flags().Args()
	}
	return ref, rest, nil
}

func (a *app) execCommand() *cobra.Command {
	var dir string
	var env []string
	cmd := &cobra.Command{
		Use:     "exec TASK [--] CMD…",
		Short:   "run a command in an open task",
		GroupID: groupTask,
		Long: `Runs CMD in a task made by ` + "`caisson open`" + `. TASK is an id, the beginning of one, or a
name. All commands of a task share one boundary: a server that one starts is
reached by the next. The exit status is the command's own; 125 is a failure of caisson.`,
		Example: `  caisson exec t5k -- go build ./...
  caisson exec fix-login --env CI=1 -- npm test`,
		Annotations:       map[string]string{passes: "yes"},
		ValidArgsFunction: a.completeTaskThenFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, argv, err := splitTask(cmd, args)
			if err != nil {
				return err
			}
			if len(argv) == 0 {
				return usagef(cmd, "no command to run in %s", ref).WithHint("for example `caisson exec %s -- make test`; `caisson shell %s` opens a shell", ref, ref)
			}
			return a.execIn(cmd, ref, argv, dir, env)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringArrayVar(&env, "env", nil, "set a variable for this command, or pass yours on `K=V|K`")
	cmd.Flags().StringVar(&dir, "dir", "", "where the command starts inside (default: the source) `DIR`")
	return cmd
}

// shellArgv starts the best shell there is inside. An interactive one finds
// out by itself that it has a terminal. Its prompt names the task: the path is
// the one of the checkout, and nothing else tells a person where they type. A PS1
// of --env stays; "$ " and "# " are what dash sets by itself.
var shellArgv = []string{"/bin/sh", "-c", `case ${PS1-} in ''|'$ '|'# ') own=1;; *) own=;; esac
t="(caisson ${CAISSON_TASK-})"
for s in /bin/bash /usr/bin/bash; do [ -x "$s" ] && { [ -z "$own" ] || export PS1="$t \\w \\$ "; exec "$s"; }; done
[ -z "$own" ] || export PS1="$t \$ "; exec /bin/sh`}

func (a *app) shellCommand() *cobra.Command {
	var dir string
	var env []string
	cmd := &cobra.Command{
		Use:     "shell TASK",
		Short:   "an interactive shell in an open task",
		GroupID: groupTask,
		Long: `Opens a shell in a task made by ` + "`caisson open`" + `. On a terminal it has a pty of its own:
job control, resizing and Ctrl-C work as usual. Without one it reads commands from
standard input.`,
		Example:           `  caisson shell fix-login`,
		Annotations:       map[string]string{passes: "yes"},
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exact(1, "a task")(cmd, args); err != nil {
				return err
			}
			return a.execIn(cmd, args[0], shellArgv, dir, env)
		},
	}
	cmd.Flags().StringArrayVar(&env, "env", nil, "set a variable in the shell, or pass yours on `K=V|K`")
	cmd.Flags().StringVar(&dir, "dir", "", "where the shell starts inside (default: the source) `DIR`")
	return cmd
}

// variables reads --env, and refuses a --dir that is none.
func (a *app) variables(dir string, env []string) (vars []string, err error) {
	if dir != "" && dir[0] != '/' {
		return nil, invalid("dir", dir, "must be an absolute path inside", "/tmp")
	}
	for _, e := range env {
		kv, err := parseEnv(e, a.cfg.Env)
		if err != nil {
			return nil, err
		}
		vars = append(vars, kv)
	}
	return vars, nil
}

func (a *app) execIn(cmd *cobra.Command, ref string, argv []string, dir string, env []string) error {
	vars, err := a.variables(dir, env)
	if err != nil {
		return err
	}
	return a.inSession(cmd, false, "", func(s *session, c *door.Call) (*door.RunOut, error) {
		vars := append(s.terminalEnv(), vars...)
		out, err := door.Do[*door.RunOut](s.ctx, c, "exec", &door.ExecIn{Task: ref, Env: vars, Command: s.command(argv, dir, vars)})
		return out, a.explainStart(err, argv, dir, vars, true)
	})
}

// inSession runs one command with its streams and signals and returns what the
// program should end with.
func (a *app) inSession(cmd *cobra.Command, early bool, repo string, run func(*session, *door.Call) (*door.RunOut, error)) error {
	s, err := a.newSession(cmd.Context(), early)
	if err != nil {
		return err
	}
	defer s.close()
	e, err := a.open(s.ctx, repo, !early)
	if err != nil {
		return sessionCanceled(s, err)
	}
	s.caughtAll()
	c := a.call(e)
	c.IO = &s.io
	var ended *task.CloseReport
	s.io.Ended = func(r *task.CloseReport) { ended = r }
	out, err := run(s, c)
	s.close()
	if out == nil || !out.Ran {
		return sessionCanceled(s, err)
	}
	return a.sessionEnd(cmd, s, e, out.Outcome, ended, err)
}

// sessionCanceled names the person's signal as the reason of an error it caused.
func sessionCanceled(s *session, err error) error {
	if err == nil || !s.canceled() || outlives(err) {
		return err
	}
	e := task.Errorf(task.CodeCanceled, "cli", "canceled before the command started")
	var was *task.Error
	if errors.As(err, &was) && was.Op == "install" && was.Hint != "" {
		return e.WithHint("%s", was.Hint) // it may have waited for what it cannot reach
	}
	return e
}

// sessionEnd reports how a command that ran has ended.
func (a *app) sessionEnd(cmd *cobra.Command, s *session, e door.Engine, out task.Outcome, ended *task.CloseReport, after error) error {
	st := out.Exit
	if out.Signal > 0 && st == 0 {
		st = 128 + out.Signal
	}
	lost := s.lost()
	if lost != nil && st == 0 {
		st = statusOwn // success would be a lie: nobody has the output
	}
	if after == nil {
		after, lost = lost, nil
	}
	if a.json {
		res := sessionResult{Schema: schemaOf(cmd), Task: s.task(), Ran: true, Outcome: &out, Check: a.checked}
		if ended != nil {
			res.State, res.Retention, res.Results = ended.State, ended.Retention, ended.Rescued
		}
		if after != nil {
			res.Error = errorOf(after, st)
		}
		a.writeJSONLine(a.cfg.Stderr, res)
	} else {
		if out.Reason != "" && !strings.HasPrefix(out.Reason, "canceled") {
			fmt.Fprintf(a.cfg.Stderr, "caisson: %s the command was ended: %s (limit)\n", paint(a.ui.colorErr, red, "error:"), clean(out.Reason))
		}
		a.tellChecked(a.checked)
		for _, err := range []error{after, lost} {
			if err != nil {
				a.ui.errorLines(err)
			}
		}
		if ended != nil {
			for _, n := range ended.Notes {
				a.ui.note("%s", clean(n))
			}
		}
		if ended != nil && ended.Refused > 0 && cmd.Name() == "run" && !a.ui.quiet {
			fmt.Fprintf(a.cfg.Stderr, "caisson: %s refused: caisson log --egress %s\n", connectionsText(ended.Refused), s.task())
		}
		if cmd.Name() == "run" {
			a.noteKept(cmd, e, s.task())
		}
	}
	if st == 0 {
		return nil
	}
	return status(st)
}

// connectionsText counts connections in a sentence.
func connectionsText(n int64) string {
	if n == 1 {
		return "1 connection was"
	}
	return fmt.Sprintf("%d connections were", n)
}

// noteKept tells a person at a terminal what is left of a `run`.
func (a *app) noteKept(cmd *cobra.Command, e door.Engine, id task.ID) {
	if id == "" || !a.ui.errTTY || a.ui.quiet {
		return
	}
	v, err := door.Do[*task.View](cmd.Context(), a.call(e), "show", &door.TaskIn{Task: string(id)})
	if err != nil || v == nil {
		return
	}
	for _, r := range v.Results {
		if r.Kind != "ignored" {
			a.ui.note("rescued %s: %s", r.Kind, r.Name)
		}
	}
	if v.State != task.Kept || v.Retention == nil {
		return
	}
	until := v.Retention.Until.Local().Format(time.DateTime)
	if hasKind(v.Results, "ignored") {
		a.ui.note("task %s keeps ignored files until %s: `caisson show %s` says where, `caisson close --discard %s` removes them", id, until, id, id)
	} else {
		a.ui.note("task %s keeps its files until %s: `caisson diff %s` shows its result, %s; `caisson resume %s` goes on, `caisson close %s` ends it", id, until, id, takes(id, v.Source.Bare), id, id)
	}
}

func (a *app) openCommand() *cobra.Command {
	var f requestFlags
	cmd := &cobra.Command{
		Use:     "open [flags] [NAME]",
		Short:   "open a task that stays, print its id",
		GroupID: groupTask,
		Long: `Opens a task on the repository around the working directory, proves its boundary by
probing it from inside, leaves a small supervisor behind and prints the task's id.
` + "`exec`, `shell` and `close`" + ` act on it, by id, the beginning of one, or NAME.`,
		Example: `  id=$(caisson open --memory 2g)
  caisson open --base v1.4.0 bisect
  caisson exec bisect -- make test; caisson close bisect`,
		Args:              atMost(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := f.request(cmd, a.cfg.Env)
			if err != nil {
				return err
			}
			if cmd.ArgsLenAtDash() >= 0 {
				return usagef(cmd, "caisson open takes no command").WithHint("`caisson open NAME`, then `caisson exec NAME -- CMD…`; or `caisson run -- CMD…` in one")
			}
			if len(args) == 1 {
				if q.Name != "" && q.Name != args[0] {
					return usagef(cmd, "two names: %q and --name %q", args[0], q.Name)
				}
				if args[0] == "" {
					return usagef(cmd, "the name is empty")
				}
				if err := nameError(args[0]); err != nil {
					return err
				}
				q.Name, q.Origin["name"] = args[0], "argument"
			}
			v, err := do[*task.View](a, cmd, f.repo, "open", &door.OpenIn{Request: q, Env: q.Env}, nil)
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
	f.add(a, cmd)
	return cmd
}
