package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) checkCommand() *cobra.Command {
	var dir, name string
	var env []string
	var list bool
	cmd := &cobra.Command{
		Use:     "check TASK [NAME | [--name NAME] [--] CMD…]",
		Short:   "verify a task's files with a command, on record",
		GroupID: groupTask,
		Long: `Runs CMD in an open task, or the check that the policy declares as NAME, alone, and has the host read the task's files before and
after. When the host itself saw CMD end with 0, on files that were the same before and
after, the check holds for exactly these files (level VER 2): apply, branch and export
say so, and any later change of the files makes it say nothing. Ignored files are no part
of that: CMD may write them, and use them.

A check is declared under checks in the .caisson.yaml of the commit that the task starts
from, or in a file of yours or the operator's: what the task writes changes nothing of
what NAME means. It runs as it is declared, from the top of the source. Without CMD and
NAME, or with --list, the declared checks are listed, with what each found last. One word
without -- is a NAME wherever any check is declared; after -- it is always a command.

It waits until other commands of the task have ended, and ends what earlier ones left
running: nothing else can change the files meanwhile. A failed check counts too: nothing
else makes these files verified, until the same check (the same CMD, or the same NAME)
succeeds on them. The NAME of a declared check is its own: no other command takes its place.

Without a check a result leaves all the same, and the report says that nobody verified
it; unless somebody demanded VER 2: with --need VER=2, in CAISSON_NEED, in a policy. Then it
stays (exit status 3), or leaves under an acceptance (caisson accept TASK --axis VER=0).

The exit status is CMD's own; 125 is a failure of caisson. With --json the result is one
line of JSON, the last line of standard error; of a list it is the document.`,
		Example: `  caisson check fix-login
  caisson check fix-login unit
  caisson check fix-login -- make test
  caisson check fix-login --name lint -- npm run lint && caisson apply fix-login
  caisson open --need VER=2 strict`,
		Annotations:       map[string]string{passes: "yes"},
		ValidArgsFunction: a.completeCheck,
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, argv, err := splitTask(cmd, args)
			if err != nil {
				return err
			}
			dashed := cmd.Flags().ArgsLenAtDash() >= 0
			switch {
			case list && len(argv) > 0:
				return usagef(cmd, "--list takes no command").WithHint("`caisson check %s` lists the declared checks", ref)
			case len(argv) == 0 && dashed:
				return usagef(cmd, "no command to check %s with", ref).WithHint("for example `caisson check %s -- make test`", ref)
			case list || len(argv) == 0 && name == "":
				if len(env) > 0 || dir != "" {
					return usagef(cmd, "--env and --dir belong to a command").WithHint("for example `caisson check %s -- make test`", ref)
				}
				return a.listChecks(cmd, ref)
			}
			named := !dashed && len(argv) == 1 && name == ""
			if named {
				name = argv[0]
			} else if len(argv) == 0 {
				named = true
			}
			if named && len(argv) > 0 && !checkNamed(name) {
				named, name = false, "" // a path, or another word that is no name
			}
			vars, err := a.variables(dir, env)
			if err != nil {
				return err
			}
			return a.inSession(cmd, false, "", func(s *session, c *door.Call) (*door.RunOut, error) {
				vars := append(s.terminalEnv(), vars...)
				out, err := door.Do[*door.CheckOut](s.ctx, c, "check", &door.CheckIn{Task: ref, Name: name, Named: named, Env: vars, Command: s.command(argv, dir, vars)})
				if !named || task.HintOf(err) == "" {
					err = a.explainStart(err, argv, dir, vars, true)
				}
				if out == nil {
					return nil, err
				}
				a.checked = out.Check
				return &out.RunOut, err
			})
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&name, "name", "", "what it is called: a later check of this name takes its place `NAME`")
	cmd.Flags().StringArrayVar(&env, "env", nil, "set a variable for this command, or pass yours on `K=V|K`")
	cmd.Flags().BoolVarP(&list, "list", "l", false, "list the checks that the policy declares")
	cmd.Flags().StringVar(&dir, "dir", "", "where the command starts inside (default: the source) `DIR`")
	_ = cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions)
	return cmd
}

// tellChecked says what a check is worth, in one line.
func (a *app) tellChecked(c *task.Check) {
	if c == nil || a.ui.quiet || a.json {
		return
	}
	word, color := "checked:", green
	if c.Level < 2 {
		word, color = "not verified:", yellow
	}
	text := c.Why
	if len(c.Changed) > 0 {
		text += ": " + strings.Join(c.Changed[:min(len(c.Changed), 5)], ", ")
		if n := len(c.Changed) - 5; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
	}
	a.ui.clear()
	fmt.Fprintf(a.ui.err, "caisson: %s %s (VER %d)\n", paint(a.ui.colorErr, color, word), clean(text), c.Level)
}

// tellVerified says in one line how far a result is verified. Where nobody asks
// for it, in a row or otherwise, and nothing was checked, there is nothing to say.
func (a *app) tellVerified(id task.ID, v *task.Verification) {
	if v == nil || a.ui.quiet || a.json || v.Required == 0 && len(v.Checks) == 0 {
		return
	}
	word, color := "verified:", green
	if v.Short() {
		word, color = "not verified:", yellow
	}
	a.ui.clear()
	fmt.Fprintf(a.ui.err, "caisson: %s %s\n", paint(a.ui.colorErr, color, word), verifiedText(id, v))
}

// verifiedText is a verification in one line.
func verifiedText(id task.ID, v *task.Verification) string {
	var good, bad []string
	for i := range v.Checks {
		c := &v.Checks[i]
		if c.Level >= 2 {
			good = append(good, checkTitle(c))
		} else {
			bad = append(bad, checkTitle(c)+" ("+clean(c.Why)+")")
		}
	}
	text := fmt.Sprintf("VER %d for exactly these files", v.Level)
	if v.Short() {
		text += fmt.Sprintf(", %d is asked for (%s)", v.Required, clean(v.Why))
	}
	if len(bad) > 0 {
		text += "; failed: " + strings.Join(bad, ", ")
	}
	if len(good) > 0 {
		text += "; holds: " + strings.Join(good, ", ")
	}
	if v.Accepted != nil {
		text += "; accepted by " + clean(v.Accepted.By.Login) + " (" + clean(v.Accepted.ID) + ")"
	}
	if v.Short() && len(v.Checks) == 0 {
		if v.Stale > 0 {
			text += fmt.Sprintf("; they were changed since %s", counted(v.Stale, "check"))
		}
		text += fmt.Sprintf(": `caisson check %s -- CMD`", id)
	}
	return text
}

// checkTitle names a check for a person.
func checkTitle(c *task.Check) string {
	if c.Name != "" {
		return clean(c.Name)
	}
	text := []rune(quoteArgv(c.Argv))
	if len(text) > 60 {
		return string(text[:59]) + "…"
	}
	return string(text)
}

// checks lists what verified a task's files, the newest last.
func (t *text) checks(list []task.Check) {
	if len(list) == 0 {
		return
	}
	const most = 10
	t.head("checks")
	if n := len(list) - most; n > 0 {
		t.printf("  and %d earlier ones (--json)\n", n)
	}
	var rows [][]string
	for _, c := range list[max(0, len(list)-most):] {
		rows = append(rows, []string{fmt.Sprintf("VER %d", c.Level), checkTitle(&c), "tree " + clean(c.Tree[:min(12, len(c.Tree))]), stamp(c.Begun), c.Duration.Round(time.Millisecond).String(), clean(c.Why)})
	}
	t.table("  ", rows, nil)
}

// checkBegins is the line before a check's command, which is a call of its own.
func (l *logText) checkBegins(b map[string]any) string {
	s := "check"
	if name, _ := b["name"].(string); name != "" {
		s += " " + clean(name)
	}
	tree, _ := b["tree"].(string)
	s += " of the files as they are, tree " + clean(tree[:min(12, len(tree))])
	if n, ok := asInt(b["ignored"]); ok && n > 0 {
		s += fmt.Sprintf(", beside %d ignored", n)
	}
	return s
}

// checkEnds is what the check is worth.
func (l *logText) checkEnds(b map[string]any) (string, string) {
	color := yellow
	level := number(b["level"])
	if level == "2" {
		color = green
	}
	why, _ := b["why"].(string)
	if why == "" {
		why, _ = b["error"].(string)
	}
	s := "  VER " + clean(level) + ": " + clean(why)
	if list := stringList(b["changed"]); len(list) > 0 {
		s += ": " + clean(strings.Join(list, ", "))
	}
	return s, color
}
