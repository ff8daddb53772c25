package guarantees

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify"
	"github.com/caisson-dev/caisson/internal/verify/attack"
)

// measured is one run, as the documents keep it.
type measured struct {
	Name              string   `json:"name"`            // the column
	Command           string   `json:"command"`         // that makes it again
	Notes             []string `json:"notes,omitempty"` // what to know of the column
	task.VerifyReport `json:"report"`
}

// slim takes out of a report what only this machine has.
func slim(r task.VerifyReport) task.VerifyReport {
	r.Mounts, r.Head, r.Findings, r.Lacks = nil, "", nil, nil
	for i, q := range r.Questions {
		var lines []string
		for _, l := range q.Answer {
			if head, _, is := strings.Cut(l, "hash is "); is {
				l = head + "in its report"
			}
			lines = append(lines, ownFolders.ReplaceAllString(l, "(this run's own)"))
		}
		r.Questions[i].Answer = lines
	}
	r.Target.Name = strings.TrimSpace(r.Target.Name)
	r.Probes = slices.Clone(r.Probes)
	for i := range r.Probes {
		p := &r.Probes[i]
		p.Broken, p.Open, p.Seen, p.Unclear, p.NoControl, p.NotTried = short(p.Broken), short(p.Open), short(p.Seen), nil, nil, nil
	}
	var levels []task.Level
	for _, l := range r.Levels {
		levels = append(levels, task.Level{Axis: l.Axis, Required: l.Required, Promised: l.Promised, Proved: l.Proved})
	}
	r.Levels = levels
	return r
}

// ownFolders are names that one run has made, and a user's home.
var ownFolders = regexp.MustCompile(`/[^ ]*(?:caisson-verify-|/harness-)[^ ]*`)

// answers are the questions of the review checklist, with what each run says; one
// line for all that say the same.
func answers(b *strings.Builder, ms []measured) {
	if !slices.ContainsFunc(ms, func(m measured) bool { return len(m.Questions) > 0 }) {
		return
	}
	b.WriteString("\n## Ten questions\n\nThe [review checklist](review-checklist.md), answered by each run with what it ran.\n")
	for i, q := range verify.Questions() {
		fmt.Fprintf(b, "\n### %s\n\n", q)
		by := map[string][]string{}
		var order []string
		for _, m := range ms {
			if i >= len(m.Questions) {
				continue
			}
			for _, line := range m.Questions[i].Answer {
				if by[line] == nil {
					order = append(order, line)
				}
				by[line] = append(by[line], m.Name)
			}
		}
		for _, line := range order {
			who := strings.Join(by[line], "; ")
			if len(by[line]) == len(ms) {
				who = "all"
			}
			fmt.Fprintf(b, "- %s: %s\n", who, line)
		}
	}
}

// short keeps how many there were, without their names: these hold paths of one run.
func short(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return []string{fmt.Sprint(len(list))}
}

var marks = map[task.VerifyResult]string{
	task.VerifyHeld: "held", task.VerifyBroken: "**broken**", task.VerifyOpen: "open", task.VerifyNotShown: "not shown", task.VerifyNotTried: "–",
}

func cell(m *measured, id string) string {
	for _, p := range m.Probes {
		if p.ID == id {
			text := marks[p.Result]
			worked := 0
			for _, l := range [][]string{p.Broken, p.Open} {
				if len(l) > 0 {
					n := 0
					_, _ = fmt.Sscan(l[0], &n)
					worked += n
				}
			}
			switch {
			case worked > 0:
				return fmt.Sprintf("%s %d of %d", text, worked, p.Attempts)
			case p.Attempts > 0:
				return fmt.Sprintf("%s %d/%d", text, p.Shown, p.Attempts)
			}
			return text
		}
	}
	return "?"
}

func table(b *strings.Builder, ms []measured) {
	head, line := "| | tried |", "|---|---|"
	for _, m := range ms {
		head, line = head+" "+m.Name+" |", line+"---|"
	}
	fmt.Fprintf(b, "%s\n%s\n", head, line)
	var axis task.Axis
	for _, p := range attack.Properties {
		if p.Axis != axis {
			axis = p.Axis
			row := fmt.Sprintf("| **%s** | |", axis)
			for _, m := range ms {
				row += levelCell(&m, axis)
			}
			b.WriteString(row + "\n")
		}
		row := fmt.Sprintf("| %s | %s |", p.ID, p.Text)
		for _, m := range ms {
			row += " " + cell(&m, p.ID) + " |"
		}
		b.WriteString(row + "\n")
	}
}

func levelCell(m *measured, a task.Axis) string {
	for _, l := range m.Levels {
		if l.Axis == a {
			if l.Proved == task.LevelNA {
				return " n/a |"
			}
			return fmt.Sprintf(" %d |", max(l.Proved, 0))
		}
	}
	return " |"
}

const legend = `Each cell: what came of it, and how many of the attempts were shown to work outside (` + "`held 41/65`" + `: 65 attempts, all refused; 41 of them work without a boundary, the others count as nothing) or how many worked inside.
*open*: worked, and the backend does not promise the level that rules it out. *not shown*: refused, without a control that works. –: not tried. A number beside an axis is the level that was proved when the task was opened. What the words mean, and how a
run changes nothing: [review-checklist.md](review-checklist.md).
`

func runs(b *strings.Builder, ms []measured) {
	b.WriteString("\n## The runs\n\n| column | by | date | on | with | verdict | command |\n|---|---|---|---|---|---|---|\n")
	for _, m := range ms {
		with := "caisson " + m.Version
		if m.Target.Version != "" {
			with += "; " + m.Target.Version
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | `%s` |\n", m.Name, m.User, m.Began.Format("2006-01-02"), m.Platform, with, strings.ReplaceAll(string(m.Verdict), "_", " "), strings.ReplaceAll(m.Command, "|", `\|`))
	}
	b.WriteString("\n")
	for _, m := range ms {
		for _, n := range m.Notes {
			fmt.Fprintf(b, "- %s: %s\n", m.Name, n)
		}
		if m.Why != "" {
			fmt.Fprintf(b, "- %s: no boundary was had: %s\n", m.Name, m.Why)
		}
		why := map[string][]string{} // one line for all that have one reason
		var order []string
		for _, p := range m.Probes {
			if (p.Result == task.VerifyNotShown || p.Result == task.VerifyNotTried) && m.Target.Kind == "backend" {
				text := strings.ReplaceAll(string(p.Result), "_", " ") + ": " + p.Why
				if why[text] == nil {
					order = append(order, text)
				}
				why[text] = append(why[text], p.ID)
			}
		}
		for _, text := range order {
			fmt.Fprintf(b, "- %s, %s: %s\n", m.Name, strings.Join(why[text], " "), text)
		}

	}
}

// renderGuarantees is docs/GUARANTEES.md.
func renderGuarantees(ms []measured) string {
	var b strings.Builder
	b.WriteString("# Guarantees\n\nWhat held when each backend was attacked, per axis. Made from runs of `caisson verify` by `make guarantees`; a test holds this page to those runs and to the list of attacks. It says what one machine showed on one day: `caisson verify` says it of yours.\n\n" + legend + "\n")
	table(&b, ms)
	answers(&b, ms)
	runs(&b, ms)
	b.WriteString("\n## Never tried by these runs\n\n")
	seen := map[string]bool{}
	for _, m := range ms {
		for _, n := range m.NotTried {
			if !seen[n] {
				seen[n] = true
				fmt.Fprintf(&b, "- %s\n", n)
			}
		}
	}
	return b.String()
}

// renderComparison is docs/comparison.md.
func renderComparison(ms []measured) string {
	var b strings.Builder
	b.WriteString("# Side by side\n\nThe same attacks, by the same program, in boundaries of caisson's and in ways in which agents are run otherwise. Made by `make guarantees`. The yardstick is caisson's: the others were made for other ends, and \"broken\" says that something is possible there which a task of caisson's cannot do, never that they fail at what they promise.\nWhat is about caisson's own part (its channel, its record, its git) has no counterpart and is not tried elsewhere.\n\n" + legend + "\n")
	table(&b, ms)
	runs(&b, ms)
	b.WriteString("\nEach command runs a program of yours in the same way: put it in the place of `{}`; `{dir}` is the folder of the hostile program, which must be visible inside.\n")
	return b.String()
}
