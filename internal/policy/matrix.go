package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Matrix is the version of the table below.
const Matrix = "matrix/1"

// Cond is one condition of a row: the characteristic has this value or a
// riskier one.
type Cond struct {
	What task.Characteristic
	From string
}

// Row is one row of the matrix: when one of its conditions holds, Need must be
// there. A row without conditions always counts.
type Row struct {
	Name    string
	Trigger string // when it fires, for a person
	When    []Cond
	Need    task.Vector
}

// The rows. base is R1's vector taken unconditionally, and R2 has no bound on
// what is executed, for R3's vector is above its: so every condition is one of
// risk, and the join is monotone: more risk never needs less. What follows a
// slash is the part of a row that only some of its conditions ask for.
const (
	RowBase         = "base"
	Row2            = "R2"
	Row3            = "R3"
	Row4            = "R4"
	Row4Schema      = "R4/schema"
	Row5            = "R5"
	Row6            = "R6"
	Row6Mutation    = "R6/mutation"
	Row6Production  = "R6/production"
	Row6Destructive = "R6/destructive"
)

var row3 = task.Vector{task.SRC: 1, task.PRC: 2, task.FS: 2, task.NET: 1, task.RES: 1, task.KRN: 1, task.CPL: 2, task.CRD: 1, task.APR: 1, task.VER: 2, task.EVD: 2, task.CLN: 2}

var matrix = []Row{
	{RowBase, "every task", nil, task.Vector{task.APR: 1, task.EVD: 1}},
	{Row2, "work that is not watched, overlaps other work on the same source, or is hard to undo",
		[]Cond{{task.Supervision, "asynchronous"}, {task.Concurrency, "overlaps"}, {task.Recovery, "hard"}},
		task.Vector{task.SRC: 1, task.PRC: 1, task.RES: 1, task.APR: 1, task.VER: 2, task.EVD: 1, task.CLN: 2}},
	{Row3, "a free shell, generated or repository-defined commands, servers, installs, task state",
		[]Cond{{task.Executes, "repo-defined"}, {task.InstallsDeps, "yes"}, {task.StartsProcesses, "yes"}, {task.NeedsPorts, "yes"}, {task.TaskRuntimeState, "yes"},
			{task.CreatesContainers, "yes"}, {task.NeedsRuntimeAPI, "yes"}},
		row3},
	{Row4, "databases, queues, buckets or other state that outlives a command",
		[]Cond{{task.MutableState, "cache"}, {task.Migrations, "data"}},
		row3.Join(task.Vector{task.SVC: 1})},
	{Row4Schema, "migrations of a schema, of roles or of extensions",
		[]Cond{{task.Migrations, "schema"}},
		task.Vector{task.SVC: 2}},
	{Row5, "unfamiliar or hostile code, kernel or device work, broad unsupervised work",
		[]Cond{{task.CodeTrust, "unfamiliar"}, {task.KernelOrDevice, "yes"}, {task.Supervision, "broad-unsupervised"}},
		task.Vector{task.SRC: 3, task.PRC: 3, task.FS: 3, task.NET: 2, task.RES: 3, task.KRN: 3, task.CPL: 2, task.CHN: 1, task.SVC: 2, task.CRD: 3, task.APR: 1, task.VER: 2, task.EVD: 2, task.CLN: 3}},
	{Row6, "systems outside, credentials, personal data, effects that others see or that cannot be undone",
		[]Cond{{task.ExternalAccess, "read"}, {task.Credentials, "dev"}, {task.PersonalData, "yes"}, {task.ExternallyVisible, "yes"}, {task.Destructive, "yes"}},
		task.Vector{task.NET: 2, task.CRD: 2, task.APR: 1, task.EVD: 2}},
	{Row6Mutation, "changes to systems outside, personal data, effects that others see",
		[]Cond{{task.ExternalAccess, "mutate"}, {task.PersonalData, "yes"}, {task.ExternallyVisible, "yes"}, {task.Credentials, "prod"}},
		task.Vector{task.APR: 2}},
	{Row6Production, "credentials of production",
		[]Cond{{task.Credentials, "prod"}},
		task.Vector{task.CRD: 3}},
	{Row6Destructive, "effects that cannot be undone",
		[]Cond{{task.Destructive, "yes"}},
		task.Vector{task.APR: 3}},
}

// Rows returns the matrix. The caller must not change it.
func Rows() []Row { return append([]Row(nil), matrix...) }

// Fired is one row that counts for a task, with the facts that made it.
type Fired struct {
	Row     Row
	Because []task.Fact
}

// Fire says which rows count.
func Fire(p Profile) []Fired {
	var out []Fired
	for _, r := range matrix {
		f := Fired{Row: r}
		for _, c := range r.When {
			f.Because = append(f.Because, p.at(c.What, c.From)...)
		}
		if len(r.When) == 0 || len(f.Because) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// ShortWork is the longest that work in the user's own checkout may take to
// count as short.
const ShortWork = time.Hour

// Direct is how a task works that gets the user's own checkout.
type Direct struct {
	Trusted    bool          // a person said that they know the code
	Unattended bool          // nobody is there to answer
	Timeout    time.Duration // after which the task is ended
	Holder     string        // who else uses the checkout, for a person; empty: nobody
}

// Ways says what keeps such work from being row R1: trusted, supervised, short
// and the only one there. Each is a way out; none: it is.
func (d Direct) Ways() (ways []string) {
	if !d.Trusted {
		ways = append(ways, "add --trust, if you know this repository's code and stay with the task")
	}
	if d.Unattended {
		ways = append(ways, "leave --unattended out, and stay with the task")
	}
	if d.Timeout <= 0 || d.Timeout > ShortWork {
		ways = append(ways, "use --timeout "+ShortWork.String()+" or less")
	}
	if d.Holder != "" {
		ways = append(ways, "end what uses the checkout: "+d.Holder)
	}
	return ways
}

// deferred are axes whose mechanisms do not exist in this version. Rows ask
// nothing on them; a person who asks explicitly gets the honest answer that
// nothing is there.
var deferred = map[task.Axis]string{
	task.APR: "n/a: nothing inside can act outside, and --ask has tool calls wait for a person",
}

// leaving are axes that count when a result leaves and not before a command
// runs, with what is said of them until then.
var leaving = map[task.Axis]string{
	task.VER: LeavingText,
}

// LeavingText is what is said of verification before a result leaves.
const LeavingText = "checked when a result leaves: `caisson check TASK -- CMD` verifies the task's files"

// Floor is a level that somebody demands beyond the rows.
type Floor struct {
	Axis   task.Axis
	Level  int
	Source task.Source
	Where  string // FILE:LINE, or the flag
}

// Required joins the vectors of the rows that fired with the floors. Floors
// raise and never lower. A floor of a person's flag that is below what the rows
// need is refused, for it says that they expect less; so is a level that an axis
// does not have. why says for every axis with a requirement where it comes from.
func Required(fired []Fired, floors []Floor) (task.Vector, map[task.Axis][]task.Reason, error) {
	req, why := task.Vector{}, map[task.Axis][]task.Reason{}
	for _, f := range fired {
		for a, l := range f.Row.Need {
			if _, off := deferred[a]; off || l <= 0 {
				continue
			}
			if l > req[a] {
				req[a], why[a] = l, nil
			}
			if l == req[a] {
				why[a] = append(why[a], reasons(f)...)
			}
		}
	}
	rows := task.Vector{}.Join(req)
	for _, f := range floors {
		top := task.MaxLevel(f.Axis)
		if top < 0 {
			return nil, nil, task.Errorf(task.CodePolicy, "policy.need", "no axis named %q", string(f.Axis))
		}
		if f.Level < 0 || f.Level > top {
			return nil, nil, task.Errorf(task.CodePolicy, "policy.need", "%s has no level %d to ask for", f.Axis, f.Level).
				WithHint("levels of %s go from 0 to %d", f.Axis, top)
		}
		if row := rows[f.Axis]; f.Level < row && f.Source == task.SourceFlag {
			return nil, nil, task.Errorf(task.CodePolicy, "policy.need", "--need %s=%d is below %s %d, which %s needs: a need can raise the boundary, not lower it", f.Axis, f.Level, f.Axis, row, whyText(why[f.Axis])).
				WithHint("leave --need %s out, or ask for %d or more", f.Axis, row)
		}
		if f.Level > req[f.Axis] {
			req[f.Axis], why[f.Axis] = f.Level, nil
		}
		_, later := leaving[f.Axis] // there it makes a difference who asks
		if f.Level > 0 && f.Level == req[f.Axis] && (f.Level > rows[f.Axis] || later) {
			why[f.Axis] = append(why[f.Axis], task.Reason{Fact: task.Fact{Source: f.Source, Evidence: f.Where, Value: fmt.Sprint(f.Level), Confidence: task.Certain}})
		}
	}
	for a, text := range deferred {
		if req[a] == 0 {
			req[a], why[a] = task.LevelNA, []task.Reason{{Text: text}}
		}
	}
	for a := range why {
		why[a] = distinct(why[a])
	}
	return req, why, nil
}

// reasons of one row, one for each fact, for the row's own sake where it has none.
func reasons(f Fired) []task.Reason {
	if len(f.Because) == 0 {
		return []task.Reason{{Row: f.Row.Name, Trigger: f.Row.Trigger}}
	}
	var out []task.Reason
	for _, b := range f.Because {
		out = append(out, task.Reason{Row: f.Row.Name, Trigger: f.Row.Trigger, Fact: b})
	}
	return out
}

func distinct(rs []task.Reason) []task.Reason {
	var out []task.Reason
	for _, r := range rs {
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// whyText renders reasons in one line: the rows first, then what one of them
// rests on.
func whyText(rs []task.Reason) string {
	var rows, rest []string
	trigger := ""
	for _, r := range rs {
		switch {
		case r.Text != "":
			return r.Text
		case r.Row == "":
			rest = append(rest, fmt.Sprintf("asked for by %s (%s)", r.Fact.Source, r.Fact.Evidence))
		case !slices.Contains(rows, r.Row):
			rows, trigger = append(rows, r.Row), r.Trigger
		}
	}
	text := ""
	if len(rows) > 0 {
		text = fmt.Sprintf("row %s (%s)", strings.Join(rows, ", "), trigger)
		last := rows[len(rows)-1]
		n := 0
		for _, r := range rs {
			if r.Row == last && r.Fact.What != "" {
				if n == 0 {
					text += " because " + factText(r.Fact)
				}
				n++
			}
		}
		if n > 1 {
			text += fmt.Sprintf(", and %d more", n-1)
		}
	}
	if len(rest) > 0 {
		text = strings.TrimPrefix(text+"; "+strings.Join(rest, "; "), "; ")
	}
	return text
}
