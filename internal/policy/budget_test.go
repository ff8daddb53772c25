package policy

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func budgetOf(tasks int, memory, disk int64, cpus float64) MergedBudget {
	o := Origin{Source: task.SourceOperator, Where: "/etc/x.yaml:3"}
	return MergedBudget{Tasks: Set[Count]{Count(tasks), o}, Memory: Set[Size]{Size(memory), o}, Disk: Set[Size]{Size(disk), o}, CPUs: Set[Number]{Number(cpus), o}}
}

func TestBudgetFits(t *testing.T) {
	g := int64(1 << 30)
	live := func(id string, l task.Limits) Share { return Share{Task: task.ID(id), State: task.Ready, Limits: l} }
	two := []Share{live("a", task.Limits{MemoryBytes: g, CPUs: 1.1, DiskBytes: g}), live("b", task.Limits{MemoryBytes: g, CPUs: 2.2, DiskBytes: g})}
	for name, c := range map[string]struct {
		b     MergedBudget
		want  task.Limits
		held  []Share
		over  string
		never bool
	}{
		"no budget":                 {MergedBudget{}, task.Limits{}, two, "", false},
		"tasks to the last":         {budgetOf(3, 0, 0, 0), task.Limits{}, two, "", false},
		"one task too many":         {budgetOf(2, 0, 0, 0), task.Limits{}, two, "tasks", false},
		"memory to the last byte":   {budgetOf(0, 3*g, 0, 0), task.Limits{MemoryBytes: g}, two, "", false},
		"one byte too many":         {budgetOf(0, 3*g, 0, 0), task.Limits{MemoryBytes: g + 1}, two, "memory", false},
		"more than all of it":       {budgetOf(0, 3*g, 0, 0), task.Limits{MemoryBytes: 4 * g}, nil, "memory", true},
		"unlimited in a budget":     {budgetOf(0, 0, 3*g, 0), task.Limits{}, nil, "disk", true},
		"most of 64 bits":           {budgetOf(0, 3*g, 0, 0), task.Limits{MemoryBytes: 1<<63 - 1}, two, "memory", true},
		"fractions add up":          {budgetOf(0, 0, 0, 3.4), task.Limits{CPUs: 0.1}, two, "", false},
		"and are over":              {budgetOf(0, 0, 0, 3.4), task.Limits{CPUs: 0.2}, two, "cpus", false},
		"kept: no memory":           {budgetOf(1, g, 0, 0), task.Limits{MemoryBytes: g}, []Share{{Task: "k", State: task.Kept, Limits: task.Limits{MemoryBytes: g}, Used: 9}}, "", false},
		"kept: what its files take": {budgetOf(0, 0, g, 0), task.Limits{DiskBytes: g - 8}, []Share{{Task: "k", State: task.Kept, Limits: task.Limits{DiskBytes: 1}, Used: 9}}, "disk", false},
		"live without a limit":      {budgetOf(0, 0, g, 0), task.Limits{DiskBytes: g - 8}, []Share{{Task: "k", State: task.Ready, Used: 9}}, "disk", false},
		"stuck counts":              {budgetOf(1, 0, 0, 0), task.Limits{}, []Share{{Task: "k", State: task.Stuck}}, "tasks", false},
	} {
		over := c.b.Fits(Share{Limits: c.want}, c.held)
		got, never := "", false
		for _, o := range over {
			got, never = got+o.What, never || o.Never
		}
		if got != c.over || never != c.never {
			t.Errorf("%s: %q, never %v", name, got, never)
		}
		if len(over) == 0 {
			continue
		}
		err := c.b.Full(over, c.held, 0)
		want := task.CodeUnavailable
		if c.never {
			want = task.CodeDenied
		}
		if task.CodeOf(err) != want || !strings.Contains(err.Error(), "/etc/x.yaml:3") || task.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		for _, h := range c.held {
			if !c.never && (h.State != task.Kept || c.over == "disk") && !strings.Contains(err.Error(), string(h.Task)) {
				t.Errorf("%s: the message does not name %s: %v", name, h.Task, err)
			}
		}
	}
}

// TestBudgetNeverExceeded opens and closes tasks at random: what is let in never
// sums to more than the budget, and what is refused would.
func TestBudgetNeverExceeded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		b := budgetOf(1+r.IntN(8), 1+r.Int64N(1000), 1+r.Int64N(1000), float64(1+r.IntN(9)))
		var in []Share
		for range 100 {
			if len(in) > 0 && r.IntN(3) == 0 {
				i := r.IntN(len(in))
				in = append(in[:i], in[i+1:]...)
				continue
			}
			s := Share{State: task.Ready, Limits: task.Limits{MemoryBytes: 1 + r.Int64N(400), DiskBytes: 1 + r.Int64N(400), CPUs: float64(1+r.IntN(30)) / 10}}
			over := b.Fits(s, in)
			sum := func(in []Share) (m, d int64, c float64) {
				for _, x := range in {
					m, d, c = m+x.Limits.MemoryBytes, d+x.Limits.DiskBytes, c+x.Limits.CPUs
				}
				return m, d, c
			}
			m, d, c := sum(append(in[:len(in):len(in)], s))
			fits := len(in) < int(b.Tasks.Value) && m <= int64(b.Memory.Value) && d <= int64(b.Disk.Value) && c <= float64(b.CPUs.Value)+1e-6
			if fits != (len(over) == 0) {
				t.Fatalf("%+v beside %d: %v", s.Limits, len(in), over)
			}
			if len(over) == 0 {
				in = append(in, s)
			}
		}
	}
}

func TestBudgetDivide(t *testing.T) {
	g := int64(1 << 30)
	full := task.Limits{MemoryBytes: 64 * g, CPUs: 8}
	for name, c := range map[string]struct {
		b     MergedBudget
		asked task.Limits
		want  task.Limits
	}{
		"no budget":                {MergedBudget{}, task.Limits{}, full},
		"a quarter":                {budgetOf(0, 8*g, 4*g, 4), task.Limits{}, task.Limits{MemoryBytes: 2 * g, CPUs: 1, DiskBytes: g}},
		"one of two":               {budgetOf(2, 8*g, 4*g, 4), task.Limits{}, task.Limits{MemoryBytes: 4 * g, CPUs: 2, DiskBytes: 2 * g}},
		"what was asked for stays": {budgetOf(2, 8*g, 4*g, 4), task.Limits{MemoryBytes: 64 * g, CPUs: 8, DiskBytes: 5}, task.Limits{MemoryBytes: 64 * g, CPUs: 8, DiskBytes: 5}},
		"less than the part stays": {budgetOf(0, 1024*g, 0, 100), task.Limits{}, full},
	} {
		l := full
		l.DiskBytes = c.asked.DiskBytes
		if got := c.b.Divide(c.asked, l); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestBudgetQuota(t *testing.T) {
	g := int64(1 << 30)
	own := task.Limits{MemoryBytes: g, DiskBytes: g}
	for name, c := range map[string]struct {
		b    MergedBudget
		l    task.Limits
		held []Share
		want bool
	}{
		"without a budget":   {MergedBudget{}, own, nil, false},
		"without disk in it": {budgetOf(3, g, 0, 1), own, nil, false},
		"without a limit":    {budgetOf(0, 0, 3*g, 0), task.Limits{MemoryBytes: g}, nil, false},
		"bounded":            {budgetOf(0, 0, 3*g, 0), own, []Share{{State: task.Ready, Limits: own}}, true},
		"beside one without": {budgetOf(0, 0, 3*g, 0), own, []Share{{State: task.Ready, Used: 1}}, false},
		"beside kept files":  {budgetOf(0, 0, 3*g, 0), own, []Share{{State: task.Kept, Used: 1}}, true},
	} {
		if got, why := c.b.Quota(c.l, c.held); got != c.want || why == "" {
			t.Errorf("%s: %v, %s", name, got, why)
		}
	}
}
