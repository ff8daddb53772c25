package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sort"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// PlanSchema names a plan report.
const PlanSchema = "caisson.plan/1"

// Input is everything that a decision depends on.
type Input struct {
	Rows []string    // that fired; the base row always counts
	Need task.Vector // asked for by a person; can only raise

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
	in        Input
}

// Decide compares what is required with what is promised. Missing layers are
// not an error of Decide but part of the plan, see Blocked; the error says that
// the question itself is not allowed (a need below a row, an unknown row).
func Decide(in Input) (*Decision, error) {
	req, why, err := Required(in.Rows, in.Need)
	if err != nil {
		return nil, err
	}
	d := &Decision{Required: req, Platform: in.Platform, in: in}
	eff, capped := effective(req, in.Promised, in.Findings)
	d.Effective = eff

	p := &d.Plan
	p.Schema, p.Matrix, p.Backend = PlanSchema, Matrix, in.Backend
	p.Rows = rowNames(in.Rows)
	p.Limits, p.Source = in.Limits, in.Source
	p.Findings = sortedFindings(in.Findings)
	p.Grants = sortedGrants(in.Grants)
	for _, a := range task.Axes {
		how := in.How[a]
		if capped[a] != "" {
			how = strings.TrimPrefix(how+"; ", "; ") + "lowered by " + capped[a]
		}
		if how == "" {
			how = "nothing"
		}
		w := why[a]
		if w == "" {
			w = "no row needs it"
		}
		p.Levels = append(p.Levels, task.Level{Axis: a, Required: req[a], Promised: eff[a], Why: w, How: how})
	}
	p.Missing = []task.Missing{}
	for _, a := range task.Short(req, eff) {
		lower := capped[a]
		if lower == "" {
			if lower = in.How[a]; lower == "" {
				lower = "backend " + orNone(in.Backend) + " promises nothing here"
			}
		}
		p.Missing = append(p.Missing, missing(&in, a, req[a], eff[a], why[a], lower))
	}
	p.NotIsolated = notIsolated(&in, eff)
	if len(in.Command) > 0 {
		d.command = digest(in.Command)
	}
	p.Digest = PlanDigest(p)
	return d, nil
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

// rowNames lists the fired rows in the matrix's order.
func rowNames(names []string) []string {
	out := []string{}
	for _, r := range matrix {
		fired := r.Name == RowBase
		for _, n := range names {
			fired = fired || n == r.Name
		}
		if fired {
			out = append(out, r.Name)
		}
	}
	return out
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
	c.Findings, c.Grants = sortedFindings(p.Findings), sortedGrants(p.Grants)
	c.Levels = append([]task.Level(nil), p.Levels...)
	for i := range c.Levels {
		c.Levels[i].Proved, c.Levels[i].Seen = 0, ""
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
