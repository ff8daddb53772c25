package verify

import (
	"fmt"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// The questions of the review checklist; docs/review-checklist.md says what a good
// answer is.
var checklist = []string{
	"who owns the policy",
	"what actually moved",
	"what stays on the host",
	"what is mounted",
	"what happens on failure",
	"how is the worker authenticated",
	"who owns cleanup",
	"which features lose parity",
	"what was actually tested",
	"which protocol claim is made",
}

// Questions returns the questions of the review checklist.
func Questions() []string { return append([]string(nil), checklist...) }

// questions answers the checklist with what r says was run. Nothing is answered from
// what a backend is believed to do.
func questions(r *task.VerifyReport) []task.VerifyQuestion {
	ours := r.Target.Kind == "backend"
	answers := [][]string{owns(r, ours), moved(r, ours), stays(r), mounted(r), failing(r, ours), worker(r, ours), cleanup(r, ours), parity(r, ours), tested(r), protocol(ours)}
	out := make([]task.VerifyQuestion, len(checklist))
	for i, q := range checklist {
		out[i] = task.VerifyQuestion{Question: q, Answer: answers[i]}
	}
	return out
}

const notOurs = "not measured: it is not caisson's, and this command saw it from inside only"

// said is what came of some properties, one line each.
func said(r *task.VerifyReport, ids ...string) []string {
	var out []string
	for _, id := range ids {
		for _, p := range r.Probes {
			if p.ID != id {
				continue
			}
			line := fmt.Sprintf("%s (%s): %s", p.Text, p.ID, strings.ReplaceAll(string(p.Result), "_", " "))
			if p.Result == task.VerifyHeld {
				line += fmt.Sprintf(", %d attempts refused, %d of them work outside", p.Refused, p.Shown)
			} else if p.Why != "" {
				line += ", " + p.Why
			}
			out = append(out, line)
		}
	}
	return out
}

func levelLine(r *task.VerifyReport, a task.Axis) []string {
	for _, l := range r.Levels {
		if l.Axis == a {
			return []string{strings.TrimSpace(fmt.Sprintf("%s promised %s, proved %s: %s", a, levelText(l.Promised), levelText(l.Proved), l.How))}
		}
	}
	return nil
}

func levelText(l int) string {
	if l == task.LevelNA {
		return "n/a"
	}
	return fmt.Sprint(max(l, 0))
}

func owns(r *task.VerifyReport, ours bool) []string {
	if !ours {
		return []string{"whoever wrote the command line or started the container; nothing else decided here"}
	}
	return append([]string{"the host: it decided before anything was made, from its own files and from flags of a person (--trust, and what this command says of the backend)"},
		said(r, "P44", "P66")...)
}

func moved(r *task.VerifyReport, ours bool) []string {
	if !ours {
		return []string{"one static program, and its output; nothing of yours"}
	}
	return append([]string{"a repository made for this run, with the hostile program and one other file; the output of the program; nothing of yours"}, levelLine(r, task.SRC)...)
}

func stays(r *task.VerifyReport) []string {
	return append(levelLine(r, task.CRD), said(r, "ENV", "KEY", "P20", "P45", "P46", "P01", "P10")...)
}

func mounted(r *task.VerifyReport) []string {
	if len(r.Mounts) == 0 {
		return []string{"not known: the mount table inside could not be read"}
	}
	var rw, ro []string
	for _, m := range r.Mounts {
		where, rest, _ := strings.Cut(m, " ")
		if strings.HasPrefix(rest, "writable") {
			rw = append(rw, where)
		} else {
			ro = append(ro, where)
		}
	}
	return []string{fmt.Sprintf("writable (%d): %s", len(rw), strings.Join(rw, " ")), fmt.Sprintf("read-only (%d): %s", len(ro), strings.Join(ro, " ")), "as the mount table says that was read inside"}
}

func failing(r *task.VerifyReport, ours bool) []string {
	if !ours {
		return []string{notOurs}
	}
	if r.Refusal == "" {
		return []string{"not tried"}
	}
	return []string{r.Refusal}
}

func worker(r *task.VerifyReport, ours bool) []string {
	if !ours {
		return []string{"there is none: commands are run by whatever makes the boundary"}
	}
	return append(levelLine(r, task.CHN), said(r, "P59", "P27")...)
}

func cleanup(r *task.VerifyReport, ours bool) []string {
	if !ours {
		return []string{notOurs}
	}
	out := append(levelLine(r, task.CLN), said(r, "P56")...)
	if r.Head != "" {
		out = append(out, "the record of the task ends with the line whose hash is "+r.Head)
	}
	return out
}

func parity(r *task.VerifyReport, ours bool) []string {
	if !ours {
		return []string{notOurs}
	}
	var out []string
	for _, f := range r.Findings {
		out = append(out, fmt.Sprintf("%s is %d at most: %s", f.Axis, f.Cap, f.Text))
	}
	for _, f := range r.Lacks {
		out = append(out, f.Name+": "+f.Detail)
	}
	if len(out) == 0 {
		return []string{"none that `caisson doctor` knows of here"}
	}
	return out
}

func tested(r *task.VerifyReport) []string {
	count, attempts, shown := map[task.VerifyResult]int{}, 0, 0
	var open []string
	for _, p := range r.Probes {
		count[p.Result]++
		attempts, shown = attempts+p.Attempts, shown+p.Shown
		if p.Result == task.VerifyNotShown || p.Result == task.VerifyNotTried {
			open = append(open, p.ID)
		}
	}
	by := "an unprivileged user"
	if r.User == "root" {
		by = "root"
	}
	out := []string{
		fmt.Sprintf("%d attempts at %d properties, %d of them shown to work outside: %d held, %d broken, %d open, %d not shown, %d not tried", attempts, len(r.Probes), shown,
			count[task.VerifyHeld], count[task.VerifyBroken], count[task.VerifyOpen], count[task.VerifyNotShown], count[task.VerifyNotTried]),
		strings.TrimSpace(fmt.Sprintf("by %s on %s, on %s, with caisson %s %s", by, r.Began.Format("2006-01-02"), r.Platform, r.Version, versionText(r))),
	}
	if len(open) > 0 {
		out = append(out, "not shown or not tried: "+strings.Join(open, " "))
	}
	return append(out, fmt.Sprintf("never tried by this command: %d kinds of attempts, listed below", len(r.NotTried)))
}

func versionText(r *task.VerifyReport) string {
	if r.Target.Version == "" {
		return ""
	}
	return "and " + r.Target.Name + " " + r.Target.Version
}

func protocol(ours bool) []string {
	if !ours {
		return []string{"none"}
	}
	return []string{"none: commands went through caisson's own channel; no protocol of agents was spoken in this run"}
}
