package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// resultWords are what a person reads.
var resultWords = map[task.VerifyResult]string{
	task.VerifyHeld: "held", task.VerifyBroken: "BROKEN", task.VerifyOpen: "open", task.VerifyNotShown: "not shown", task.VerifyNotTried: "not tried",
}

var resultColors = map[task.VerifyResult]string{task.VerifyHeld: green, task.VerifyBroken: red, task.VerifyOpen: yellow, task.VerifyNotShown: yellow, task.VerifyNotTried: dim}

func (a *app) renderVerify(w io.Writer, r *task.VerifyReport) error {
	t := &text{w: w, u: a.ui}
	t.head(strings.TrimSpace(fmt.Sprintf("%s %s", clean(r.Target.Kind), clean(r.Target.Name))))
	t.printf("  caisson %s on %s, by %s, %s, in %s\n", clean(r.Version), clean(r.Platform), a.userWord(r.User), r.Began.Local().Format("2006-01-02 15:04:05 MST"), r.Ended.Sub(r.Began).Round(100e6))
	if r.Why != "" {
		t.printf("  %s no boundary was had, so nothing was attacked: %s\n", a.ui.mark(false), clean(r.Why))
		return t.err
	}
	count := map[task.VerifyResult]int{}
	var axis task.Axis
	for _, p := range r.Probes {
		count[p.Result]++
		if p.Axis != axis {
			axis = p.Axis
			t.printf("  %s%s\n", a.ui.paint(bold, string(axis)), a.levelsOf(r, axis))
		}
		t.printf("    %s  %-5s %s%s\n", a.ui.paint(resultColors[p.Result], fmt.Sprintf("%-9s", resultWords[p.Result])), clean(p.ID), clean(p.Text), shownText(&p))
		for _, s := range p.Seen {
			t.printf("               %s %s\n", a.ui.paint(resultColors[p.Result], "the host saw reached:"), clean(s))
		}
		worked := append(append([]string{}, p.Broken...), p.Open...)
		for i, b := range worked {
			if i == 5 && !a.ui.verbose {
				t.printf("               and %d more (-v shows them)\n", len(worked)-i)
				break
			}
			t.printf("               %s %s\n", a.ui.paint(resultColors[p.Result], "worked:"), clean(b))
		}
		if p.Result != task.VerifyHeld && p.Result != task.VerifyBroken {
			t.printf("               %s\n", clean(p.Why))
		}
		if a.ui.verbose {
			for _, x := range p.Unclear {
				t.printf("               %s\n", clean(x))
			}
			for _, x := range append(append([]string{}, p.NoControl...), p.NotTried...) {
				t.printf("               without a control, %s\n", clean(x))
			}
		}
	}
	t.printf("  %s: %d held, %d broken, %d open, %d not shown, %d not tried\n", a.ui.paint(bold, "together"), count[task.VerifyHeld], count[task.VerifyBroken], count[task.VerifyOpen], count[task.VerifyNotShown], count[task.VerifyNotTried])
	if len(r.Questions) > 0 {
		t.head("the review checklist, answered with what was run")
		for i, q := range r.Questions {
			t.printf("  %2d. %s\n", i+1, clean(q.Question))
			for _, l := range q.Answer {
				t.printf("      %s\n", clean(l))
			}
		}
	}
	t.head("never tried by this command")
	for _, n := range r.NotTried {
		t.printf("  %s\n", clean(n))
	}
	return t.err
}

func (a *app) userWord(u string) string {
	if u == "root" {
		return "root"
	}
	return "an unprivileged user"
}

// levelsOf says what was promised and proved of an axis when the task was opened.
func (a *app) levelsOf(r *task.VerifyReport, axis task.Axis) string {
	for _, l := range r.Levels {
		if l.Axis == axis {
			return fmt.Sprintf("  promised %s, proved %s", level(l.Promised), level(l.Proved))
		}
	}
	return ""
}

func shownText(p *task.VerifyProbe) string {
	switch {
	case p.Attempts == 0:
		return ""
	case p.Result == task.VerifyOpen:
		return ""
	case p.Result == task.VerifyBroken:
		return fmt.Sprintf(" (%d of %d attempts)", len(p.Broken), p.Attempts)
	}
	return fmt.Sprintf(" (%d attempts refused, %d of them work outside)", p.Refused, p.Shown)
}
