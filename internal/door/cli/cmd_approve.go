package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) approveCommand() *cobra.Command {
	var ans task.Answer
	var watch bool
	ans.Allow = true
	cmd := &cobra.Command{
		Use:     "approve [ID|TASK]",
		Short:   "allow a tool call that waits for a person",
		GroupID: groupTask,
		Long: `Shows the question ID and allows the call that it is about: this one call, with these
arguments, on the files that it names as they are now. --scope exact also allows the very
same call again while its files are as they were, --scope tool this tool with any arguments
until the task ends. TASK stands for its only question, which a terminal asks you about.
Without either it lists what waits; at a terminal it asks you about each.`,
		Example:           "  caisson approve\n  caisson approve t5k2m9.x7f3ab\n  caisson approve --watch",
		Args:              atMost(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch {
				if len(args) > 0 {
					return usagef(cmd, "--watch takes no ID")
				}
				return a.watchQuestions(cmd)
			}
			return a.answerOne(cmd, args, ans)
		},
	}
	cmd.Flags().StringVar(&ans.Scope, "scope", "", "also later calls: tool or exact `SCOPE`")
	cmd.Flags().BoolVar(&watch, "watch", false, "wait for questions and ask about each at this terminal, until interrupted")
	return cmd
}

func (a *app) denyCommand() *cobra.Command {
	var ans task.Answer
	cmd := &cobra.Command{
		Use:     "deny [ID|TASK]",
		Short:   "deny a tool call that waits for a person",
		GroupID: groupTask,
		Long: `Denies the call that the question ID is about. Whoever asked, a model for example, is told
the reason. TASK stands for its only question. Without either it lists what waits.`,
		Example:           "  caisson deny t5k2m9.x7f3ab --reason 'use the staging branch'",
		Args:              atMost(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.answerOne(cmd, args, ans) },
	}
	cmd.Flags().StringVar(&ans.Reason, "reason", "", "what the caller is told `TEXT`")
	return cmd
}

// showQuestion renders a question. Its texts were made visible by the host that
// asked; they are made so again, for a terminal must not depend on it.
func (a *app) showQuestion(w io.Writer, q *task.Question) {
	t := &text{w: w, u: a.ui}
	t.printf("%s  %s wants to call %s in task %s\n", a.ui.paint(bold, clean(q.ID)), clean(q.Actor), a.ui.paint(bold, clean(q.Tool)), taskTitle(q))
	switch {
	case q.Script != "":
		for _, l := range strings.Split(q.Script, "\n") {
			t.printf("  $ %s\n", cleanSource(l))
		}
	case len(q.Argv) > 0:
		t.printf("  $ %s\n", quoteArgv(q.Argv))
	}
	if q.Dir != "" {
		t.printf("  in %s\n", clean(q.Dir))
	}
	for _, f := range q.Files {
		line := "  " + clean(f.Path) + ": " + clean(f.State)
		if f.State == "file" {
			line += ", " + bytesText(f.Size)
			if len(f.SHA256) >= 12 {
				line += ", sha256 " + clean(f.SHA256[:12])
			}
		}
		t.printf("%s\n", line)
	}
	if q.Diff != "" {
		for _, l := range strings.Split(strings.TrimSuffix(q.Diff, "\n"), "\n") {
			color := ""
			switch {
			case strings.HasPrefix(l, "+"):
				color = green
			case strings.HasPrefix(l, "-"):
				color = red
			}
			t.printf("    %s\n", a.ui.paint(color, cleanSource(l)))
		}
	}
	if q.Tree != "" {
		t.printf("  files of the task: tree %s\n", clean(q.Tree[:min(12, len(q.Tree))]))
	}
	t.printf("  because of %s; call %s, plan %s; until %s\n", clean(q.Rule), clean(q.Digest[:min(12, len(q.Digest))]), clean(q.Plan[:min(12, len(q.Plan))]), q.Expires.Local().Format(time.TimeOnly))
}

// askAbout puts one question to the person at a terminal. Nothing but a word
// that says so is a yes. over: it needs no answer any more, and the person was
// told so in the place of the prompt.
func (a *app) askAbout(ctx context.Context, e door.Engine, q *task.Question, in io.Reader, out io.Writer) (over bool, err error) {
	ctx = a.interruptible(ctx)
	prompt := fmt.Sprintf("caisson: allow it? yes, no, exact (also the same again), tool (all of %s) [y/N/e/t] ", clean(q.Tool))
	line, given := make(chan string, 1), make(chan struct{})
	wait, stop := context.WithCancel(ctx)
	defer stop()
	f, terminal := in.(*os.File)
	if terminal {
		dropTyped(f) // it was typed before this question was there to be read
	}
	fmt.Fprint(out, prompt)
	go func() {
		defer close(given)
		if terminal {
			if s, ok := typedLine(wait, f); ok {
				line <- s
			}
			return
		}
		s, _ := bufio.NewReader(in).ReadString('\n')
		line <- s
	}()
	var look <-chan time.Time
	if terminal && givesUp {
		t := time.NewTicker(watchInterval)
		defer t.Stop()
		look = t.C
	}
	ans := task.Answer{ID: q.ID, Digest: q.Digest}
	for answered := false; !answered; {
		select {
		case <-ctx.Done():
			fmt.Fprintln(out)
			return false, canceled(ctx, context.Cause(ctx))
		case <-look:
			waits, err := a.waits(ctx, e, q)
			if err == nil && waits || ctx.Err() != nil {
				continue
			}
			stop()
			<-given // what is typed now is nobody's answer
			a.unprompt(out, prompt)
			if err != nil {
				return false, err
			}
			how := "it was answered elsewhere, or the call that asked has ended"
			if !time.Now().Before(q.Expires) {
				how = "its time is over"
			}
			fmt.Fprintf(out, "caisson: note: %s needs no answer any more: %s\n", clean(q.ID), how)
			return true, nil
		case s := <-line:
			answered = true
			switch strings.ToLower(strings.TrimSpace(s)) {
			case "y", "yes":
				ans.Allow = true
			case "e", "exact":
				ans.Allow, ans.Scope = true, "exact"
			case "t", "tool":
				ans.Allow, ans.Scope = true, "tool"
			}
		}
	}
	c := a.call(e)
	c.Actor = door.Actor{Door: "terminal", Role: door.RolePerson}
	_, err = door.Do[*task.Question](ctx, c, "answer", &door.AnswerIn{Answer: ans})
	if task.CodeOf(err) == task.CodeNotFound { // too late, which is no failure of the person's
		a.ui.note("%s", clean(err.Error()))
		return false, nil
	}
	return false, err
}

// waits reports whether a question still waits for an answer.
func (a *app) waits(ctx context.Context, e door.Engine, q *task.Question) (bool, error) {
	l, err := door.Do[*door.QuestionsOut](ctx, a.call(e), "questions", &door.QuestionsIn{Task: string(q.Task)})
	switch task.CodeOf(err) {
	case "":
		return slices.ContainsFunc(l.Questions, func(o task.Question) bool { return o.ID == q.ID }), nil
	case task.CodeNotFound, task.CodeState: // the task is over, and its questions with it
		return false, nil
	}
	return false, err
}

// unprompt takes a prompt from a terminal, with what was typed behind it.
func (a *app) unprompt(out io.Writer, prompt string) {
	f, ok := out.(*os.File)
	if kind, _ := lookup(a.cfg.Env, "TERM"); !ok || !isTerminal(f) || kind == "dumb" {
		fmt.Fprintln(out)
		return
	}
	up := ""
	if w, _, err := term.GetSize(fdOf(f)); err == nil && w > 0 {
		if n := utf8.RuneCountInString(strings.TrimRight(prompt, " ")) / w; n > 0 {
			up = fmt.Sprintf("\x1b[%dA", n)
		}
	}
	fmt.Fprint(f, "\r"+up+"\x1b[J")
}

// watchInterval is how often a terminal looks for new questions.
const watchInterval = 250 * time.Millisecond

// watchQuestions asks a person about every question that comes up.
func (a *app) watchQuestions(cmd *cobra.Command) error {
	if !a.mayAsk() {
		return task.Errorf(task.CodeUsage, "cli", "--watch needs a terminal to ask at").WithHint("elsewhere: `caisson approve --json` lists what waits")
	}
	ctx := a.interruptible(cmd.Context())
	e, err := a.open(ctx, "", false)
	if err != nil {
		return canceled(ctx, err)
	}
	a.ui.note("waiting for questions")
	return a.answerAt(ctx, e, "", a.cfg.Stdin, a.ui.err)
}

// answerAt asks at a terminal about the questions of one task, or of all, until
// ctx ends. It is another door than that of the calls, also in one process.
func (a *app) answerAt(ctx context.Context, e door.Engine, ref string, in io.Reader, out *os.File) error {
	asked := map[string]bool{}
	t := time.NewTicker(watchInterval)
	defer t.Stop()
	for {
		l, err := door.Do[*door.QuestionsOut](ctx, a.call(e), "questions", &door.QuestionsIn{Task: ref})
		if err != nil {
			return canceled(ctx, err)
		}
		for i := range l.Questions {
			q := &l.Questions[i]
			if asked[q.ID] {
				continue
			}
			asked[q.ID] = true
			a.showQuestion(out, q)
			over, err := a.askAbout(ctx, e, q, in, out)
			if err != nil {
				return err
			}
			if over { // should it wait again, whoever took it could not answer
				delete(asked, q.ID)
			}
		}
		select {
		case <-ctx.Done():
			return canceled(ctx, context.Cause(ctx))
		case <-t.C:
		}
	}
}
