package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Share is what one task takes of its user's budget.
type Share struct {
	Task  task.ID
	Name  string
	State task.State
	// Parent is the task that it is a child of, which takes it from its own.
	Parent task.ID
	Limits task.Limits
	// Used are the bytes that its files take, where that is known: they count
	// where no limit bounds them.
	Used int64
}

// Disk is what counts of its files.
func (s Share) Disk() int64 {
	if s.Limits.DiskBytes > 0 && s.State != task.Kept {
		return s.Limits.DiskBytes
	}
	return s.Used
}

// Over is one part of a budget that has no room for a task.
type Over struct {
	What             string // "tasks", "memory", "cpus", "disk"
	Want, Held, Most string // for a person
	From             Origin // who set the budget
	// Never: also without all others there is no room.
	Never bool
}

// String renders it on one line.
func (o Over) String() string {
	return fmt.Sprintf("%s: it takes %s, others hold %s of %s", o.What, o.Want, o.Held, o.Most)
}

// Set says whether the budget bounds anything.
func (b MergedBudget) Set() bool {
	return b.Tasks.Value > 0 || b.Memory.Value > 0 || b.CPUs.Value > 0 || b.Disk.Value > 0
}

// shares is into how many parts a budget is divided for those who ask for
// nothing, where the number of tasks is not bounded.
const shares = 4

// part is the share of one task that did not say how much it needs.
func (b MergedBudget) part() int64 {
	if n := int64(b.Tasks.Value); n > 0 {
		return n
	}
	return shares
}

// Divide bounds what a task gets that asked for nothing: a fair part of what all
// tasks have together. What it did ask for stays.
func (b MergedBudget) Divide(asked, l task.Limits) task.Limits {
	least := func(have, asked, most int64) int64 {
		if most <= 0 || asked > 0 {
			return have
		}
		if p := max(most/b.part(), 1); have == 0 || have > p {
			return p
		}
		return have
	}
	l.MemoryBytes = least(l.MemoryBytes, asked.MemoryBytes, int64(b.Memory.Value)) &^ 0xffff
	l.DiskBytes = least(l.DiskBytes, asked.DiskBytes, int64(b.Disk.Value))
	if most := float64(b.CPUs.Value); most > 0 && asked.CPUs == 0 {
		if p := most / float64(b.part()); l.CPUs == 0 || l.CPUs > p {
			l.CPUs = p
		}
	}
	return l
}

// Fits says what of the budget has no room for want beside held: nothing, when
// it fits. A kept task holds only its files. A task whose size on one axis is
// unlimited, where the budget bounds it, never fits.
func (b MergedBudget) Fits(want Share, held []Share) (over []Over) {
	var tasks, memory, disk int64
	var cpus float64
	for _, h := range held {
		disk += h.Disk()
		if h.State == task.Kept {
			continue
		}
		tasks++
		memory += h.Limits.MemoryBytes
		cpus += h.Limits.CPUs
	}
	check := func(what string, most, want, held int64, from Origin, text func(int64) string) {
		if most > 0 && (want <= 0 || held > most-want) {
			o := Over{What: what, Want: text(want), Held: text(held), Most: text(most), From: from, Never: want <= 0 || want > most}
			if want <= 0 {
				o.Want = "an unlimited amount"
			}
			over = append(over, o)
		}
	}
	check("tasks", int64(b.Tasks.Value), 1, tasks, b.Tasks.From, func(n int64) string { return fmt.Sprint(n) })
	size := func(n int64) string { return Size(n).String() }
	check("memory", int64(b.Memory.Value), want.Limits.MemoryBytes, memory, b.Memory.From, size)
	check("disk", int64(b.Disk.Value), want.Limits.DiskBytes, disk, b.Disk.From, size)
	// In thousandths: sums of fractions are not exact.
	milli := func(f float64) int64 { return int64(f*1000 + 0.5) }
	check("cpus", milli(float64(b.CPUs.Value)), milli(want.Limits.CPUs), milli(cpus), b.CPUs.From, func(n int64) string { return fmt.Sprintf("%g", float64(n)/1000) })
	return over
}

// Full is the error of a task that a budget has no room for. waiting are tasks
// that were there before it and wait too. It has code denied where waiting would
// not help, and unavailable where it would.
func (b MergedBudget) Full(over []Over, held []Share, waiting int) error {
	var what []string
	from := Origin{}
	never := false
	for _, o := range over {
		if o.Never && !never {
			what, never = nil, true
		}
		if o.Never || !never {
			what, from = append(what, o.String()), o.From
		}
	}
	where := from.Where
	if where == "" {
		where = string(from.Source)
	}
	if never {
		return task.Errorf(task.CodeDenied, "budget", "the budget of all tasks together (%s) is smaller than this task: %s; nothing was created", where, strings.Join(what, "; ")).
			WithHint("ask for less with --memory, --cpus or --disk, or have the budget changed")
	}
	if len(over) == 0 {
		return task.Errorf(task.CodeUnavailable, "budget", "%s for room in the budget of all tasks together; nothing was created", count(waiting, "task waits", "tasks wait")).
			WithHint("try again later")
	}
	return task.Errorf(task.CodeUnavailable, "budget", "the budget of all tasks together (%s) is full: %s. It is held by %s; nothing was created", where, strings.Join(what, "; "), Holders(held, over)).
		WithHint("`caisson close TASK` makes room, or ask for less with --memory, --cpus or --disk; with `when_full: wait` in the budget a task waits for its turn")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// maxHolders bounds how many tasks are named to a person.
const maxHolders = 8

// Holders names the tasks that hold what over is about, the largest first.
func Holders(held []Share, over []Over) string {
	about := func(what string) bool {
		return len(over) == 0 || slices.ContainsFunc(over, func(o Over) bool { return o.What == what })
	}
	weight := func(s Share) (w float64) {
		if about("memory") && s.State != task.Kept {
			w += float64(s.Limits.MemoryBytes)
		}
		if about("disk") {
			w += float64(s.Disk())
		}
		return w
	}
	list := slices.DeleteFunc(slices.Clone(held), func(s Share) bool { return s.State == task.Kept && !about("disk") })
	slices.SortStableFunc(list, func(a, b Share) int {
		switch d := weight(b) - weight(a); {
		case d > 0:
			return 1
		case d < 0:
			return -1
		}
		return strings.Compare(string(a.Task), string(b.Task))
	})
	var names []string
	for i, s := range list {
		if i == maxHolders {
			names = append(names, fmt.Sprintf("and %d more", len(list)-i))
			break
		}
		n := string(s.Task)
		if s.Name != "" {
			n += " (" + s.Name + ")"
		}
		var has []string
		if s.State != task.Kept {
			if about("memory") && s.Limits.MemoryBytes > 0 {
				has = append(has, Size(s.Limits.MemoryBytes).String()+" memory")
			}
			if about("cpus") && s.Limits.CPUs > 0 {
				has = append(has, fmt.Sprintf("%g cpus", s.Limits.CPUs))
			}
		}
		if about("disk") && s.Disk() > 0 {
			has = append(has, Size(s.Disk()).String()+" disk")
		}
		if s.State == task.Kept {
			has = append(has, "kept")
		}
		if len(has) > 0 {
			n += ": " + strings.Join(has, ", ")
		}
		names = append(names, n)
	}
	if len(names) == 0 {
		return "no task"
	}
	return strings.Join(names, "; ")
}

// Use says how much of the budget is taken, for a person; nil without a budget.
func (b MergedBudget) Use(held []Share) []task.BudgetUse {
	var out []task.BudgetUse
	var tasks, memory, disk int64
	var cpus float64
	for _, h := range held {
		disk += h.Disk()
		if h.State != task.Kept {
			tasks, memory, cpus = tasks+1, memory+h.Limits.MemoryBytes, cpus+h.Limits.CPUs
		}
	}
	add := func(what string, most, used float64, from Origin) {
		if most > 0 {
			out = append(out, task.BudgetUse{What: what, Used: used, Most: most, From: from.place()})
		}
	}
	add("tasks", float64(b.Tasks.Value), float64(tasks), b.Tasks.From)
	add("memory_bytes", float64(b.Memory.Value), float64(memory), b.Memory.From)
	add("cpus", float64(b.CPUs.Value), cpus, b.CPUs.From)
	add("disk_bytes", float64(b.Disk.Value), float64(disk), b.Disk.From)
	return out
}

// Quota says whether a task with these limits beside held can be said to be
// bounded on disk and by what all tasks may take together; the text says how,
// or what is short.
func (b MergedBudget) Quota(l task.Limits, held []Share) (bool, string) {
	switch {
	case b.Disk.Value <= 0:
		return false, "no budget bounds the disk of all tasks together"
	case l.DiskBytes <= 0 || l.MemoryBytes <= 0:
		return false, "the task itself has no limit on disk"
	}
	for _, h := range held {
		if h.State != task.Kept && h.Limits.DiskBytes <= 0 {
			return false, "task " + string(h.Task) + " has no limit on disk, and began before there was a budget"
		}
	}
	return true, fmt.Sprintf("its files at most %s, watched; all tasks together at most %s (%s), checked as each begins", Size(l.DiskBytes), Size(b.Disk.Value), b.Disk.From.place())
}

// ShareOf is a task's own limits as the budget of its children.
func ShareOf(l task.Limits) MergedBudget {
	return MergedBudget{Memory: Set[Size]{Value: Size(l.MemoryBytes)}, CPUs: Set[Number]{Value: Number(l.CPUs)}, Disk: Set[Size]{Value: Size(l.DiskBytes)}}
}
