package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Matrix is the version of the table below.
const Matrix = "matrix/1"

// Row is one row of the matrix: when the trigger holds, Need must be there.
type Row struct {
	Name    string
	Trigger string // when it fires, for a person
	Need    task.Vector
}

// The rows of this release. base is R1's vector taken unconditionally, which
// keeps the join monotone: more risk never needs less.
const (
	RowBase = "base"
	Row2    = "R2"
	Row3    = "R3"
	Row5    = "R5"
)

var matrix = []Row{
	{RowBase, "every task", task.Vector{task.APR: 1, task.EVD: 1}},
	{Row2, "work that is not watched, or that overlaps other work on the same source",
		task.Vector{task.SRC: 1, task.PRC: 1, task.RES: 1, task.APR: 1, task.VER: 2, task.EVD: 1, task.CLN: 2}},
	{Row3, "a free shell, generated or repository-defined commands, servers, task state",
		task.Vector{task.SRC: 1, task.PRC: 2, task.FS: 2, task.NET: 1, task.RES: 1, task.KRN: 1, task.CPL: 2, task.CRD: 1, task.APR: 1, task.VER: 2, task.EVD: 2, task.CLN: 2}},
	{Row5, "unfamiliar or hostile code, kernel or device work, broad unsupervised work",
		task.Vector{task.SRC: 3, task.PRC: 3, task.FS: 3, task.NET: 2, task.RES: 3, task.KRN: 3, task.CPL: 2, task.CHN: 1, task.SVC: 2, task.CRD: 3, task.APR: 1, task.VER: 2, task.EVD: 2, task.CLN: 3}},
}

// Rows returns the matrix.
func Rows() []Row { return append([]Row(nil), matrix...) }

// DefaultRows are the rows that a task of this release triggers: a command
// given to it can be anything, which is row R3.
func DefaultRows() []string { return []string{RowBase, Row3} }

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

// DirectRows are the rows of such work: the base row alone when it is trusted,
// supervised, short and the only one there, else those of every task. ways says
// what would make it so.
func DirectRows(d Direct) (rows, ways []string) {
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
	if len(ways) > 0 {
		return DefaultRows(), ways
	}
	return []string{RowBase}, nil
}

// deferred are axes whose mechanisms do not exist in this version. Rows ask
// nothing on them; a person who asks explicitly gets the honest answer that
// nothing is there.
var deferred = map[task.Axis]string{
	task.APR: "n/a: nothing in this version asks for approval",
	task.VER: "n/a before a result leaves: checking results is not in this version",
}

// Required joins the vectors of the named rows with what a person needs beyond
// them. The base row always counts. need raises and never lowers: a level in it
// that is below the rows' is refused, and so is an unknown row. why says for
// every axis with a requirement where it comes from.
func Required(rows []string, need task.Vector) (task.Vector, map[task.Axis]string, error) {
	req, why, err := join(rows)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range task.Axes {
		n, asked := need[a]
		if !asked {
			continue
		}
		if n == task.LevelNA || n > task.MaxLevel(a) {
			return nil, nil, task.Errorf(task.CodePolicy, "policy.need", "%s has no level %d to ask for", a, n).
				WithHint("levels of %s go from 0 to %d", a, task.MaxLevel(a))
		}
		if row := req[a]; n < row {
			return nil, nil, task.Errorf(task.CodePolicy, "policy.need", "--need %s=%d is below %s %d, which %s needs: a need can raise the boundary, not lower it", a, n, a, row, why[a]).
				WithHint("leave --need %s out, or ask for %d or more", a, row)
		}
		if n > req[a] {
			req[a], why[a] = n, "asked for (--need)"
		}
	}
	for a := range need {
		if task.MaxLevel(a) < 0 {
			return nil, nil, task.Errorf(task.CodePolicy, "policy.need", "no axis named %q", string(a))
		}
	}
	for a, text := range deferred {
		if req[a] == 0 {
			req[a], why[a] = task.LevelNA, text
		}
	}
	return req, why, nil
}

// join is the component-wise maximum over the rows, without deferred axes.
func join(names []string) (task.Vector, map[task.Axis]string, error) {
	fired := map[string]bool{RowBase: true}
	for _, n := range names {
		fired[n] = true
	}
	req, from := task.Vector{}, map[task.Axis][]string{}
	for _, r := range matrix {
		if !fired[r.Name] {
			continue
		}
		delete(fired, r.Name)
		for a, l := range r.Need {
			if _, off := deferred[a]; off {
				continue
			}
			switch {
			case l > req[a]:
				req[a], from[a] = l, []string{r.Name}
			case l == req[a] && l > 0:
				from[a] = append(from[a], r.Name)
			}
		}
	}
	for n := range fired {
		return nil, nil, task.Errorf(task.CodePolicy, "policy.rows", "%s has no row %q", Matrix, n)
	}
	why := map[task.Axis]string{}
	for a, names := range from {
		last := names[len(names)-1]
		why[a] = fmt.Sprintf("row %s (%s)", strings.Join(names, ", "), trigger(last))
	}
	return req, why, nil
}

func trigger(name string) string {
	for _, r := range matrix {
		if r.Name == name {
			return r.Trigger
		}
	}
	return ""
}
