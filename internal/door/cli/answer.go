package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// askOne bounds the wait for the process of the one task that is asked for its
// questions; a busy one takes its time.
const askOne = 15 * time.Second

var errSilent = errors.New("it said nothing in time")

// questionsOf lists what waits in one task, or with an empty ref in all.
func (a *app) questionsOf(ctx context.Context, e door.Engine, ref string) (*door.QuestionsOut, error) {
	if ref != "" {
		var done context.CancelFunc
		ctx, done = context.WithTimeoutCause(ctx, askOne, errSilent)
		defer done()
	}
	l, err := door.Do[*door.QuestionsOut](ctx, a.call(e), "questions", &door.QuestionsIn{Task: ref})
	a.ui.clear()
	return l, err
}

// answerOne answers the question that args name, or lists what waits.
func (a *app) answerOne(cmd *cobra.Command, args []string, ans task.Answer) error {
	ctx := a.interruptible(cmd.Context())
	e, err := a.open(ctx, "", false)
	if err != nil {
		return canceled(ctx, err)
	}
	if len(args) == 0 {
		l, err := a.questionsOf(ctx, e, "")
		if err != nil {
			return canceled(ctx, err)
		}
		return a.listQuestions(cmd, l)
	}
	q, named, err := a.findQuestion(ctx, e, args[0])
	if err != nil {
		return canceled(ctx, err)
	}
	if named && ans.Scope != "" {
		return usagef(cmd, "--scope needs the ID of a question: %s", q.ID)
	}
	if named && ans.Allow && a.mayAsk() {
		// What waits in a task can change until its name is typed: a yes is for what was read.
		a.showQuestion(a.stdout(), q)
		_, err := a.askAbout(ctx, e, q, a.cfg.Stdin, a.ui.err)
		return err
	}
	// The answer is for what is shown here, and for nothing else.
	ans.ID, ans.Digest = q.ID, q.Digest
	if !a.json && !a.quiet {
		a.showQuestion(a.ui.err, q)
	}
	done, err := door.Do[*task.Question](ctx, a.call(e), "answer", &door.AnswerIn{Answer: ans})
	a.ui.clear()
	if err != nil {
		return canceled(ctx, err)
	}
	if a.json {
		a.writeJSON(done)
		return nil
	}
	if a.quiet {
		return nil
	}
	t := &text{w: a.stdout(), u: a.ui}
	t.printf("%s: %s\n", clean(done.ID), answeredText(ans))
	return t.err
}

// answeredText says what an answer did.
func answeredText(ans task.Answer) string {
	switch {
	case !ans.Allow:
		return "denied"
	case ans.Scope == "tool":
		return "allowed, and the same tool until the task ends"
	case ans.Scope == "exact":
		return "allowed, and the very same again"
	}
	return "allowed, this once"
}

// findQuestion returns the question that what means: its id or the beginning of
// it, or a task of which only one waits (named). The task of an id is asked alone:
// others may not answer.
func (a *app) findQuestion(ctx context.Context, e door.Engine, what string) (q *task.Question, named bool, err error) {
	id, _, dotted := strings.Cut(what, ".")
	if dotted && id != "" {
		l, err := a.questionsOf(ctx, e, id)
		switch task.CodeOf(err) {
		case "":
			if found := beginning(l.Questions, what); len(found) > 0 {
				return onlyOne(found, what)
			}
		case task.CodeNotFound, task.CodeConflict, task.CodeUsage: // no task's id
		default:
			return nil, false, err
		}
	}
	l, err := a.questionsOf(ctx, e, what)
	switch task.CodeOf(err) {
	case "":
		if len(l.Questions) == 0 {
			return nil, false, task.Errorf(task.CodeNotFound, "cli", "nothing in task %q waits for an answer", what).WithHint("`caisson approve` lists what waits in all")
		}
		if len(l.Questions) > 1 {
			return a.severalIn(l, what)
		}
		return &l.Questions[0], true, nil
	case task.CodeNotFound, task.CodeConflict, task.CodeUsage:
	default:
		return nil, false, err
	}
	found := []task.Question(nil)
	if !dotted && what != "" { // the beginning of ids
		if l, err = a.questionsOf(ctx, e, ""); err != nil {
			return nil, false, err
		}
		found = beginning(l.Questions, what)
	}
	if len(found) == 0 {
		return nil, false, task.Errorf(task.CodeNotFound, "cli", "no question %q waits: it was answered, its time is over, or the call that asked has ended", what).
			WithHint("`caisson approve` lists what waits")
	}
	return onlyOne(found, what)
}

// beginning are the questions whose id begins with what, or the one of that id.
func beginning(qs []task.Question, what string) (found []task.Question) {
	if i := slices.IndexFunc(qs, func(q task.Question) bool { return q.ID == what }); i >= 0 {
		return qs[i : i+1]
	}
	for _, q := range qs {
		if strings.HasPrefix(q.ID, what) {
			found = append(found, q)
		}
	}
	return found
}

func onlyOne(found []task.Question, what string) (*task.Question, bool, error) {
	if len(found) > 1 {
		return nil, false, task.Errorf(task.CodeConflict, "cli", "%q is the beginning of %d questions", what, len(found)).WithHint("write more of it; `caisson approve` lists them")
	}
	return &found[0], false, nil
}

// severalIn lists the questions of a task that asks more than one.
func (a *app) severalIn(l *door.QuestionsOut, what string) (*task.Question, bool, error) {
	if !a.json && !a.quiet {
		for i := range l.Questions {
			a.showQuestion(a.ui.err, &l.Questions[i])
		}
	}
	return nil, false, task.Errorf(task.CodeConflict, "cli", "%d questions of task %q wait", len(l.Questions), what).
		WithHint("name one: `caisson approve ID` or `caisson deny ID`; `caisson approve` lists them")
}

func (a *app) listQuestions(cmd *cobra.Command, l *door.QuestionsOut) error {
	if a.json {
		a.writeJSON(l)
		return nil
	}
	if len(l.Questions) == 0 {
		a.ui.note("nothing waits for an answer")
		return nil
	}
	asks := cmd.Name() == "approve" && a.mayAsk()
	for i := range l.Questions {
		q := &l.Questions[i]
		a.showQuestion(a.stdout(), q)
		if !asks {
			continue
		}
		if _, err := a.askAbout(cmd.Context(), a.engine, q, a.cfg.Stdin, a.ui.err); err != nil {
			return err
		}
	}
	if asks || a.quiet {
		return nil
	}
	id := "ID"
	if len(l.Questions) == 1 {
		id = clean(l.Questions[0].ID)
	}
	t := &text{w: a.stdout(), u: a.ui}
	t.printf("answer with `caisson approve %s` or `caisson deny %s`\n", id, id)
	return t.err
}

// taskTitle names the task that asks as a person calls it.
func taskTitle(q *task.Question) string {
	if q.Name == "" {
		return clean(string(q.Task))
	}
	return clean(q.Name) + " (" + clean(string(q.Task)) + ")"
}
