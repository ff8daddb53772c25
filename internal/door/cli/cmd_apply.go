package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) applyCommand() *cobra.Command {
	var in door.ApplyIn
	var yes bool
	cmd := &cobra.Command{
		Use:     "apply TASK",
		Short:   "bring a task's result into your checkout, all of it or nothing",
		GroupID: groupTask,
		Long: `Changes the files of your checkout as the task changed its own: contents, modes, links,
additions and deletions, byte for byte. Nothing is committed or staged. Where the
checkout has moved on, both changes are joined; where they collide, or a file that is
not committed would be touched, nothing is changed and the collisions are printed.
Applying again changes nothing.

Files that tools on your machine would execute or trust once they are in a checkout are
shown first, and applied only when you say so: on a terminal you are asked, elsewhere it
takes --allow-risky (exit status 4 without). docs/risky-files.md has the rules.

Works while the task is open (its result as of now), kept, and after it was closed.`,
		Example: `  caisson apply --dry-run fix-login
  caisson apply fix-login
  caisson apply --allow-risky t5k`,
		Args:              exact(1, "a task"),
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Task = args[0]
			r, err := a.applyAsking(cmd, in, yes)
			if r != nil && a.json {
				if err == nil {
					a.writeJSON(r)
				}
				fillLists(reflect.ValueOf(r))
				var e *task.Error
				if errors.As(err, &e) && e.Detail == nil {
					e.Detail = r
				}
				return err
			}
			if r != nil {
				if rerr := a.renderApply(a.stdout(), r); rerr != nil && err == nil {
					return rerr
				}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&in.DryRun, "dry-run", "n", false, "only say what would be changed, and what collides")
	f.BoolVar(&in.AllowRisky, "allow-risky", false, "also files that tools on this machine would execute or trust")
	f.BoolVarP(&yes, "yes", "y", false, "answer the question that a terminal would be asked with yes")
	return cmd
}

// maxAsked bounds how often a result that changes all the time is shown anew.
const maxAsked = 5

// maxQuestion is how many risky files a person can be asked about at once; more
// are no question but a list to read.
const maxQuestion = 200

// applyAsking applies, and asks a person at a terminal about risky files. Their
// yes is for exactly the change that they were shown.
func (a *app) applyAsking(cmd *cobra.Command, in door.ApplyIn, yes bool) (*task.ApplyReport, error) {
	for range maxAsked {
		r, err := do[*task.ApplyReport](a, cmd, "", "apply", &in, nil)
		refused := r != nil && !r.Applied && len(r.Conflicts) == 0 && len(r.Changes) > 0 && task.CodeOf(err) == task.CodeDenied
		if !refused || r.Digest == in.Agreed || !a.mayAsk() || task.RiskyFiles(r.Risky) > maxQuestion {
			if r != nil && (in.Agreed == "" || r.Digest != in.Agreed) { // what was agreed to was shown
				a.tellRisky(r.Risky)
			}
			if r != nil && len(r.Changes) > 0 && len(r.Conflicts) == 0 && task.CodeOf(err) != task.CodeBoundaryMissing {
				a.tellVerified(r.ID, r.Verification)
			}
			return r, err
		}
		// Every one of them, also with -q: the yes must not cover what was not shown.
		a.listRisky(r.Risky, len(r.Risky))
		if !yes {
			t := &text{w: a.ui.err, u: &ui{colorOut: a.ui.colorErr, utf8: a.ui.utf8}}
			t.changes(r.Changes)
			answer, aerr := a.ask(cmd.Context(), fmt.Sprintf("bring %s into %s, %d of them risky?", counted(len(r.Changes), "changed file"), r.Checkout, task.RiskyFiles(r.Risky)))
			if aerr != nil {
				return nil, aerr
			}
			if !answer {
				return nil, task.Errorf(task.CodeDenied, "cli.apply", "not applied: the answer was not yes").WithHint("nothing was changed; `caisson diff %s` shows the result", r.ID)
			}
		}
		in.Agreed = r.Digest
	}
	return nil, task.Errorf(task.CodeDenied, "cli.apply", "the result or the checkout changes all the time; nothing was changed")
}

// mayAsk reports whether a person is there to answer.
func (a *app) mayAsk() bool {
	v, _ := lookup(a.cfg.Env, "CAISSON_UNATTENDED")
	unattended, _ := strconv.ParseBool(v)
	return !unattended && !a.json && a.ui.errTTY && isTerminal(a.cfg.Stdin)
}

// ask puts a question to the person at the terminal. Only yes is a yes.
func (a *app) ask(ctx context.Context, question string) (bool, error) {
	a.ui.clear()
	ctx = a.interruptible(ctx)
	fmt.Fprintf(a.ui.err, "caisson: %s [y/N] ", clean(question))
	line := make(chan string, 1)
	go func() {
		s, err := bufio.NewReader(a.cfg.Stdin).ReadString('\n')
		if err != nil && s == "" {
			fmt.Fprintln(a.ui.err)
		}
		line <- s
	}()
	select {
	case s := <-line:
		s = strings.ToLower(strings.TrimSpace(s))
		return s == "y" || s == "yes", nil
	case <-ctx.Done():
		fmt.Fprintln(a.ui.err)
		return false, canceled(ctx, context.Cause(ctx))
	}
}

// maxChanges is how many changes a person is shown; --json lists all.
const maxChanges = 50

// changes lists a change set, one line a file.
func (t *text) changes(cs []task.FileChange) {
	for i, c := range cs {
		if i == maxChanges {
			t.printf("  … and %d more (--json lists them)\n", len(cs)-i)
			return
		}
		mode := ""
		if c.OldMode != c.NewMode && c.Status == "M" {
			mode = "  mode " + c.OldMode + " → " + c.NewMode
		}
		t.printf("  %s %s%s\n", clean(c.Status), clean(c.Path), mode)
	}
}

func (a *app) renderApply(w io.Writer, r *task.ApplyReport) error {
	t := &text{w: w, u: a.ui}
	if a.quiet && !r.DryRun && len(r.Conflicts) == 0 {
		return nil
	}
	switch {
	case len(r.Conflicts) > 0:
		for _, c := range r.Conflicts {
			t.printf("%s %s: %s\n", a.ui.paint(red, "conflict:"), clean(c.Path), clean(c.Why))
			if c.Hunks != "" {
				t.printf("%s", indent(cleanSource(strings.TrimRight(c.Hunks, "\n"))))
			}
		}
		t.notes(r.Notes)
		return t.err
	case len(r.Changes) == 0 && r.Already > 0:
		t.printf("nothing to change in %s: %s as wanted already\n", clean(r.Checkout), counted(r.Already, "file"))
	case len(r.Changes) == 0:
		t.printf("nothing to change in %s: the task changed no file\n", clean(r.Checkout))
	case r.Applied:
		t.printf("%s changed in %s\n", counted(len(r.Changes), "file"), clean(r.Checkout))
	case r.DryRun:
		t.printf("%s would be changed in %s\n", counted(len(r.Changes), "file"), clean(r.Checkout))
	default:
		return nil // refused: the error says why
	}
	t.changes(r.Changes)
	if len(r.Changes) > 0 && r.Already > 0 {
		t.printf("  and %s as wanted already\n", counted(r.Already, "file"))
	}
	if n := task.RiskyFiles(r.Risky); r.DryRun && n > 0 && len(r.Changes) > 0 && !a.quiet {
		t.notes([]string{fmt.Sprintf("risky files (%d): on a terminal `apply` asks before it changes anything, elsewhere it takes --allow-risky", n)})
	}
	t.notes(r.Notes)
	return t.err
}

// notes prints what a report says beside its result.
func (t *text) notes(list []string) {
	for _, n := range list {
		t.printf("%s %s\n", t.u.paint(yellow, "note:"), clean(n))
	}
}

// indent moves a text of several lines to the right.
func indent(s string) string {
	var b strings.Builder
	for _, l := range strings.Split(strings.TrimSuffix(s, "\n"), "\n") {
		b.WriteString("  " + l + "\n")
	}
	return b.String()
}
