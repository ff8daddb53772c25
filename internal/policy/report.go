package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// ReportSchema names a missing-boundary report.
const ReportSchema = "caisson.missing/1"

// Report says why nothing was executed. It is the Detail of the errors of
// Blocked and Compare; String is its form for a person.
type Report struct {
	Schema      string         `json:"schema"`
	Code        task.Code      `json:"code"` // boundary_missing or probe_mismatch
	Matrix      string         `json:"matrix"`
	Backend     string         `json:"backend"`
	Platform    string         `json:"platform"`
	PlanDigest  string         `json:"plan_digest"`
	Digest      string         `json:"report"` // what an acceptance is bound to: with the command
	Gap         string         `json:"gap"`    // the same without it
	Command     string         `json:"command_digest,omitempty"`
	Facts       []task.Fact    `json:"facts"`
	Missing     []task.Missing `json:"missing"`
	NotIsolated []string       `json:"not_isolated_even_then"`
	// Accept is the exact command that accepts the gaps; empty where none does.
	Accept string `json:"accept,omitempty"`
	// Considered are the backends and why each was not enough.
	Considered []task.Considered `json:"considered,omitempty"`
	Shared     []task.Instance   `json:"shared,omitempty"`
}

// String renders the report for a person, without a final newline.
func (r *Report) String() string { return Render(r) }

// Blocked returns nil when the plan is enough, and otherwise the error
// boundary_missing with the report as its Detail.
func (d *Decision) Blocked() error {
	if len(d.Plan.Missing) == 0 {
		return nil
	}
	return d.fail(task.CodeBoundaryMissing, d.Plan.Missing)
}

func (d *Decision) fail(code task.Code, ms []task.Missing) error {
	r := &Report{Schema: ReportSchema, Code: code, Matrix: Matrix, Backend: d.Plan.Backend, Platform: d.Platform, PlanDigest: d.Plan.Digest,
		Digest: d.Plan.Report, Gap: d.Plan.Gap, Command: d.command, Facts: d.Plan.Facts, Missing: ms, NotIsolated: d.Plan.NotIsolated, Considered: d.Plan.Considered, Shared: d.Plan.Shared}
	names := make([]string, len(ms))
	for i, m := range ms {
		names[i] = fmt.Sprintf("%s %d (has %d)", m.Axis, m.Required, m.Effective)
	}
	var err *task.Error
	if code == task.CodeProbeMismatch {
		err = task.Errorf(code, "policy.compare", "the boundary does not hold what was promised: %s; nothing was executed", strings.Join(names, ", "))
	} else {
		r.Accept = d.acceptCommand()
		err = task.Errorf(code, "policy.decide", "backend %s cannot give what this task needs: %s; nothing was created", orNone(d.Plan.Backend), strings.Join(names, ", "))
	}
	if len(ms[0].Options) > 0 {
		err = err.WithHint("%s", ms[0].Options[0])
	}
	err.Detail = r
	return err
}

// Compare sets what was proved beside what was promised and returns the
// levels complete. The error is probe_mismatch when any promise was not proved,
// whether or not a row needs it: a boundary that is not what it says is not
// used. seen says what each level rests on.
func (d *Decision) Compare(proved task.Vector, seen map[task.Axis]string, findings []task.Finding) ([]task.Level, error) {
	got, capped := task.Vector{}, map[task.Axis]string{}
	for _, a := range task.Axes {
		l := proved[a]
		for _, f := range findings {
			if f.Axis == a && l > max(f.Cap, 0) {
				l = max(f.Cap, 0)
				capped[a] = "finding " + f.ID + " (" + f.Text + ")"
			}
		}
		if l != 0 {
			got[a] = l
		}
	}
	levels := append([]task.Level(nil), d.Plan.Levels...)
	var ms []task.Missing
	for i := range levels {
		l := &levels[i]
		l.Proved, l.Seen = got[l.Axis], seen[l.Axis]
		if c := capped[l.Axis]; c != "" {
			l.Seen = strings.TrimPrefix(l.Seen+"; ", "; ") + "lowered by " + c
		}
		if l.Seen == "" {
			l.Seen = "unmeasured"
		}
		if l.Promised == task.LevelNA {
			l.Proved = task.LevelNA // nothing to prove
			continue
		}
		if len(task.Short(task.Vector{l.Axis: l.Promised}, got)) > 0 {
			need := max(l.Promised, l.Required)
			m := d.missing(l.Axis, need, got[l.Axis], "promised by "+orNone(d.Plan.Backend)+": "+l.How, l.Seen)
			m.Options = append([]string{"caisson doctor shows what this machine can enforce and how to get more"}, m.Options...)
			ms = append(ms, m)
		}
	}
	if len(ms) == 0 {
		return levels, nil
	}
	return levels, d.fail(task.CodeProbeMismatch, ms)
}

// Bounds of what is printed; the JSON form is complete.
const (
	maxLines = 6
	maxText  = 400
)

// Render writes a report for a person: what is short and why, what stays
// shared, what a command could reach, the ways out, and what is not isolated
// even then. It ends without a newline.
func Render(r *Report) string {
	var b strings.Builder
	verb := "needs"
	if r.Code == task.CodeProbeMismatch {
		verb = "was promised"
	}
	fmt.Fprintf(&b, "BLOCKED (%s): backend %s", r.Code, orNone(r.Backend))
	if r.Platform != "" {
		fmt.Fprintf(&b, " on %s", line(r.Platform))
	}
	same := common(r.Missing)
	if same.WhyLower != "" || same.WhyRequired != "" || len(same.Options) > 0 {
		b.WriteString("\nfor every layer below:\n")
		item(&b, "why", same.WhyRequired)
		item(&b, "but", same.WhyLower)
		list(&b, "way out", same.Options)
	}
	for _, m := range r.Missing {
		m = without(m, same)
		fmt.Fprintf(&b, "\n%s %s: %s %d, has %d\n", m.Axis, m.Axis.Title(), verb, m.Required, m.Effective)
		item(&b, "why", m.WhyRequired)
		item(&b, "but", m.WhyLower)
		list(&b, "stays shared", m.Shared)
		list(&b, "within reach", m.Blast)
		list(&b, "way out", m.Options)
		if len(m.Acceptable) > 0 {
			item(&b, "may accept the gap", strings.Join(m.Acceptable, ", "))
		}
	}
	if r.Accept != "" {
		fmt.Fprintf(&b, "\nor accept the gap, where that is yours to do; it is put on record:\n  %s\n", r.Accept)
	}
	if len(r.NotIsolated) > 0 {
		b.WriteString("\neven then not isolated:\n")
		for _, n := range r.NotIsolated {
			fmt.Fprintf(&b, "  - %s\n", line(n))
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// common returns what all of several gaps have in common, so that it is said
// once: a backend that is not usable at all has one reason, not ten.
func common(ms []task.Missing) task.Missing {
	if len(ms) < 3 {
		return task.Missing{}
	}
	same := task.Missing{WhyRequired: ms[0].WhyRequired, WhyLower: ms[0].WhyLower, Options: ms[0].Options}
	for _, m := range ms[1:] {
		if m.WhyRequired != same.WhyRequired {
			same.WhyRequired = ""
		}
		if m.WhyLower != same.WhyLower {
			same.WhyLower = ""
		}
		same.Options = slices.DeleteFunc(slices.Clone(same.Options), func(o string) bool { return !slices.Contains(m.Options, o) })
	}
	return same
}

// without leaves out of m what was said for all.
func without(m, same task.Missing) task.Missing {
	if m.WhyRequired == same.WhyRequired {
		m.WhyRequired = ""
	}
	if m.WhyLower == same.WhyLower {
		m.WhyLower = ""
	}
	m.Options = slices.DeleteFunc(slices.Clone(m.Options), func(o string) bool { return slices.Contains(same.Options, o) })
	return m
}

func item(b *strings.Builder, label, text string) {
	if text != "" {
		fmt.Fprintf(b, "  %s: %s\n", label, line(text))
	}
}

func list(b *strings.Builder, label string, l []string) {
	for i, s := range l {
		if i == maxLines {
			fmt.Fprintf(b, "  %s: and %d more\n", label, len(l)-i)
			return
		}
		item(b, label, s)
	}
}

// line makes text that may come from a file name or a boundary fit for one
// line of a terminal.
func line(s string) string {
	var b strings.Builder
	for _, c := range s {
		if b.Len() >= maxText {
			b.WriteString("…")
			break
		}
		// Controls, bidirectional overrides and other invisible marks.
		if c < 0x20 || c == 0x7f || c >= 0x80 && c < 0xa0 || c >= 0x200b && c <= 0x200f || c >= 0x2028 && c <= 0x202e || c >= 0x2060 && c <= 0x206f || c == 0xfeff || c == 0xfffd {
			c = '?'
		}
		b.WriteRune(c)
	}
	return b.String()
}
