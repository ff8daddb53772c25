package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// PlanSchema names a plan report.
const PlanSchema = "caisson.plan/1"

// Input is everything that a decision depends on.
type Input struct {
	// Facts are all that is known of the task; what nothing is said about counts
	// as its riskiest value.
	Facts   []task.Fact
	Lowered []task.Fact // statements of the operator that take a characteristic down
	Floors  []Floor     // of policy files and definitions; can only raise
	Need    task.Vector // asked for by a person with --need; can only raise

	Backend  string
	Platform string               // for the report, e.g. "linux/amd64 6.18"
	Promised task.Vector          // by the backend and the other rooms, all axes
	How      map[task.Axis]string // what keeps each promise
	Findings []task.Finding       // each caps the axis it names
	Grants   []task.Grant         // authority a person gave
	Limits   task.Limits
	Source   task.SourceRef
	Command  []string // only its digest is reported; may be empty

	// Instances name, per axis, what a command could reach today where the
	// boundary is short: other tasks, sockets found, places with credentials.
	Instances map[task.Axis][]string
	// Shared are the things of today that a weaker boundary would share.
	Shared []task.Instance
	// Considered are the backends that were looked at; the chosen one among them.
	Considered []task.Considered
	Notes      []string
	// Budget is how much of it all tasks take, without this one.
	Budget []task.BudgetUse

	// What acceptances are held against.
	Acceptances []task.Acceptance
	Rules       AcceptRules
	Operator    task.Vector // the operator's floors, below which nothing is accepted
	Policy      string      // digest of the policy in force
	Task        task.ID
	Now         time.Time
	Unattended  bool
	NoTrust     bool // no person's word says that code is known

	// Ways are further ways out that the caller knows, per axis, as exact
	// commands or settings; they come before the built-in ones.
	Ways map[task.Axis][]string
}

// Decision is what Decide came to.
type Decision struct {
	Plan      task.PlanReport
	Required  task.Vector
	Effective task.Vector // promised, met with the cap of every finding
	Platform  string
	command   string // digest
	profile   Profile
	reasons   map[task.Axis][]task.Reason
	in        Input
}

// Decide compares what is required with what is promised. Missing layers are
// not an error of Decide but part of the plan, see Blocked; the error says that
// the question itself is not allowed (a need below a row, an unknown row).
func Decide(in Input) (*Decision, error) {
	profile := Weigh(in.Facts, in.Lowered)
	fired := Fire(profile)
	floors := append([]Floor(nil), in.Floors...)
	for _, a := range task.Axes {
		if l, asked := in.Need[a]; asked {
			floors = append(floors, Floor{Axis: a, Level: l, Source: task.SourceFlag, Where: fmt.Sprintf("--need %s=%d", a, l)})
		}
	}
	for a := range in.Need {
		if task.MaxLevel(a) < 0 {
			return nil, task.Errorf(task.CodePolicy, "policy.need", "no axis named %q", string(a))
		}
	}
	req, reasons, err := Required(fired, floors)
	if err != nil {
		return nil, err
	}
	d := &Decision{Required: req, Platform: in.Platform, profile: profile, reasons: reasons, in: in}
	eff, capped := effective(req, in.Promised, in.Findings)
	d.Effective = eff

	p := &d.Plan
	p.Schema, p.Matrix, p.Backend = PlanSchema, Matrix, in.Backend
	for _, f := range fired {
		p.Rows = append(p.Rows, f.Row.Name)
	}
	p.Limits, p.Source = in.Limits, in.Source
	p.Findings = sortedFindings(in.Findings)
	p.Grants = sortedGrants(in.Grants)
	p.Facts = telling(profile)
	p.Considered, p.Shared, p.Notes, p.Budget = in.Considered, in.Shared, in.Notes, in.Budget
	for _, a := range task.Axes {
		how := in.How[a]
		if capped[a] != "" {
			how = strings.TrimPrefix(how+"; ", "; ") + "lowered by " + capped[a]
		}
		if how == "" {
			how = "nothing"
		}
		w := whyText(reasons[a])
		if w == "" {
			w = "no row needs it"
		}
		l := task.Level{Axis: a, Required: req[a], Promised: eff[a], Why: w, How: how, Reasons: reasons[a]}
		if text, ok := leaving[a]; ok {
			l.How, l.Demanded, l.Asked = text, Demanded(a, floors), whoAsks(reasons[a])
		}
		p.Levels = append(p.Levels, l)
	}
	if len(in.Command) > 0 {
		d.command = digest(in.Command)
	}
	p.Gap, p.Report, p.Policy = d.report(eff, ""), d.report(eff, "command "+d.command), in.Policy
	p.Missing = []task.Missing{}
	for _, a := range task.Short(req, eff) {
		if acc := d.accepted(a, eff[a]); acc != nil {
			p.Accepted = append(p.Accepted, task.Covered{Axis: a, Required: req[a], Effective: eff[a], Acceptance: *acc})
			continue
		}
		lower := capped[a]
		if lower == "" {
			if lower = in.How[a]; lower == "" {
				lower = "backend " + orNone(in.Backend) + " promises nothing here"
			}
		}
		p.Missing = append(p.Missing, d.missing(a, req[a], eff[a], whyText(reasons[a]), lower))
	}
	p.NotIsolated = notIsolated(&in, eff)
	for _, c := range p.Accepted {
		p.NotIsolated = append(p.NotIsolated, fmt.Sprintf("accepted by %s until %s: %s %d where %d is needed (%s)", c.Acceptance.By.Login, c.Acceptance.Expires.UTC().Format(time.RFC3339), c.Axis, c.Effective, c.Required, c.Acceptance.Reason))
	}
	p.Digest = PlanDigest(p)
	return d, nil
}

// telling returns the facts that count, without those of the least risk.
func telling(p Profile) []task.Fact {
	out := []task.Fact{}
	for _, c := range task.Characteristics {
		h := p[c]
		if c.Risk(h.Value) > 0 || h.Lowered != nil {
			out = append(out, h.Facts...)
		}
	}
	return out
}

// report returns the digest of what an acceptance is bound to: what is needed,
// what there is, on what it rests and for what.
func (d *Decision) report(eff task.Vector, command string) string {
	type finding struct {
		ID, Location string
		Axis         task.Axis
		Cap          int
	}
	fs := []finding{}
	for _, f := range sortedFindings(d.in.Findings) {
		fs = append(fs, finding{f.ID, f.Location, f.Axis, f.Cap})
	}
	type fact struct {
		What                 task.Characteristic
		Value, Subject, Rule string
	}
	known := []fact{}
	for _, f := range telling(d.profile) {
		// Who watches and what runs beside changes by the minute; what comes of it is
		// in what is needed.
		if f.What != task.Concurrency && (f.What != task.Supervision || f.Value == "broad-unsupervised") {
			known = append(known, fact{f.What, f.Value, f.Subject, f.Rule})
		}
	}
	return digest(struct {
		Matrix, Backend, Repo string
		Strategy              task.Strategy
		Required, Effective   task.Vector
		Findings              []finding
		Facts                 []fact
		Grants                []task.Grant
		Command               string
	}{Matrix, d.in.Backend, d.in.Source.Repository(), d.in.Source.Strategy, d.Required, eff, fs, known, sortedGrants(d.in.Grants), command})
}

// claim is what acceptances of a gap on a are held against.
func (d *Decision) claim(a task.Axis, have int) Claim {
	return Claim{Axis: a, Required: d.Required[a], Have: have, Report: d.Plan.Report, Gap: d.Plan.Gap, Task: d.in.Task, Repo: d.in.Source.Repository(),
		Now: d.in.Now, Unattended: d.in.Unattended, Hostile: task.CodeTrust.Risk(d.profile[task.CodeTrust].Value) >= task.CodeTrust.Risk("hostile"), OperatorFloor: d.in.Operator[a], Rules: d.in.Rules}
}

func (d *Decision) accepted(a task.Axis, have int) *task.Acceptance {
	for i := range d.in.Acceptances {
		if acc := d.in.Acceptances[i]; Covers(&acc, d.claim(a, have)) == nil {
			return &acc
		}
	}
	return nil
}

// effective is promised ⊓ caps. Not applicable is kept only where it is true:
// never for an axis of this version's deferred ones that somebody asked for.
func effective(req, promised task.Vector, findings []task.Finding) (task.Vector, map[task.Axis]string) {
	eff, capped := task.Vector{}, map[task.Axis]string{}
	for _, a := range task.Axes {
		l := min(max(promised[a], task.LevelNA), task.MaxLevel(a))
		if _, off := deferred[a]; off {
			l = task.LevelNA
			if req[a] > 0 {
				l = max(promised[a], 0)
			}
		}
		if _, later := leaving[a]; later {
			l = task.LevelNA
		}
		for _, f := range findings {
			if f.Axis == a && l > max(f.Cap, 0) {
				l = max(f.Cap, 0)
				capped[a] = "finding " + f.ID + " (" + f.Text + ")"
			}
		}
		if l != 0 {
			eff[a] = l
		}
	}
	return eff, capped
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

func sortedFindings(fs []task.Finding) []task.Finding {
	out := append([]task.Finding{}, fs...)
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.ID != b.ID {
			return a.ID < b.ID
		}
		if a.Location != b.Location {
			return a.Location < b.Location
		}
		return a.Text < b.Text
	})
	return out
}

func sortedGrants(gs []task.Grant) []task.Grant {
	out := append([]task.Grant{}, gs...)
	sort.SliceStable(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if a.Kind != b.Kind {
			return a.Kind < b.Kind
		}
		if a.Value != b.Value {
			return a.Value < b.Value
		}
		return a.Source < b.Source
	})
	return out
}

// PlanDigest returns "sha256:" and the digest of p's canonical form: its JSON
// with fields in declared order, lists sorted, no HTML escapes, and without the
// digest itself and what was proved later.
func PlanDigest(p *task.PlanReport) string {
	c := *p
	c.Digest = ""
	c.Report, c.Gap = "", ""
	// What runs beside, which backends there were and who accepted a gap say
	// nothing about what the boundary is.
	c.Shared, c.Considered, c.Accepted, c.Notes, c.Missing, c.Budget = nil, nil, nil, nil, nil, nil
	c.Facts = slices.DeleteFunc(slices.Clone(p.Facts), func(f task.Fact) bool { return f.What == task.Concurrency })
	c.NotIsolated = nil
	c.Findings, c.Grants = sortedFindings(p.Findings), sortedGrants(p.Grants)
	c.Levels = append([]task.Level(nil), p.Levels...)
	for i := range c.Levels {
		c.Levels[i].Proved, c.Levels[i].Seen = 0, ""
		c.Levels[i].Why, c.Levels[i].Reasons = "", nil // rests on the facts, which are there
	}
	return digest(&c)
}

func digest(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// These are plain values of ours: encoding cannot fail, and if it did the
	// digest of the part that was written would match nothing.
	_ = enc.Encode(v)
	sum := sha256.Sum256(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return "sha256:" + hex.EncodeToString(sum[:])
}
