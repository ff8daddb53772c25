package boundary

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("budget.queued", "budget.turn")

// A budget bounds what all tasks of one user take together. It is held against
// the inventory in the transaction that records a task, so that no two can take
// the same room.

const (
	// queueInterval is how often one who waits looks: it is a read of the
	// inventory, without an fsync.
	queueInterval = 200 * time.Millisecond
	// queueAgain is after how long a task that waits is decided anew: the policy,
	// and with it the budget, may have changed.
	queueAgain = 10 * time.Second
)

// held says what tasks other than id take of the budget.
func held(ts []inventory.Task, id task.ID, used map[task.ID]int64) []policy.Share {
	var out []policy.Share
	for _, t := range ts {
		v := &t.View
		if v.ID != id && v.State != task.Closed {
			out = append(out, policy.Share{Task: v.ID, Name: v.Name, State: v.State, Parent: v.Parent, Limits: v.Limits, Used: used[v.ID]})
		}
	}
	return out
}

// measured are the bytes of the tasks whose files no limit bounds, or which are
// only files; nil where no budget is about them.
func (m *Manager) measured(ctx context.Context, b policy.MergedBudget, ts []inventory.Task) (map[task.ID]int64, error) {
	if b.Disk.Value <= 0 || m.cfg.Usage == nil {
		return nil, nil
	}
	used := map[task.ID]int64{}
	for _, t := range ts {
		if t.View.State != task.Kept && t.View.Limits.DiskBytes > 0 || !exists(m.taskDir(t.ID())) {
			continue
		}
		n, err := m.cfg.Usage(ctx, m.taskDir(t.ID()))
		if err != nil {
			if !exists(m.taskDir(t.ID())) {
				continue // it went meanwhile
			}
			return nil, task.Errorf(task.CodeStateStore, "budget", "what the files of task %s take cannot be measured: %w", t.ID(), err)
		}
		used[t.ID()] = n
	}
	return used, nil
}

// room is what a task that is being opened needs of the budget.
type room struct {
	m      *Manager
	id     task.ID
	name   string
	ticket int64 // of its place in the queue; 0: none
	said   string
}

// noRoom is what enter found.
type noRoom struct {
	over  []policy.Over
	held  []policy.Share
	ahead int
}

// enter takes the room that d needs, as a part of the step that records it. Where
// there is none, and the budget lets tasks wait, it takes a place in the queue
// and returns what there is to wait for; the caller records nothing else then.
func (r *room) enter(tx *inventory.Tx, d *decided) (*noRoom, error) {
	if err := d.withinParent(tx); err != nil {
		return nil, err
	}
	if !d.budget.Set() {
		return nil, r.out(tx)
	}
	ts, err := tx.Holding()
	if err != nil {
		return nil, err
	}
	n := &noRoom{held: held(ts, r.id, d.used)}
	n.over = d.budget.Fits(d.share(r.id), n.held)
	ws, err := tx.Waiting()
	if err != nil {
		return nil, err
	}
	n.ahead = r.before(ws)
	if d.req.Parent != "" {
		n.ahead = 0 // whoever it works for may be what the others wait for
	}
	if len(n.over) == 0 && n.ahead == 0 {
		return nil, r.out(tx)
	}
	if !d.mayWait(n.over) {
		return nil, d.budget.Full(n.over, n.held, n.ahead)
	}
	if r.ticket == 0 {
		p, err := sys.Self()
		if err != nil {
			return nil, task.Errorf(task.CodeInternal, "budget", "cannot identify the own process: %w", err)
		}
		if r.ticket, err = tx.Queue(inventory.ProcessOf(p), r.name); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// before counts who came earlier.
func (r *room) before(ws []inventory.Waiter) (n int) {
	for _, w := range ws {
		if r.ticket == 0 || w.Ticket < r.ticket {
			n++
		}
	}
	return n
}

func (r *room) out(tx *inventory.Tx) error {
	if r.ticket == 0 {
		return nil
	}
	return tx.Unqueue(r.ticket)
}

// leave gives the place in the queue back, if it has one still.
func (r *room) leave(ctx context.Context) {
	if r.ticket == 0 {
		return
	}
	dctx, done := sys.Detach(ctx, time.Minute)
	defer done()
	if err := r.m.cfg.DB.Tx(dctx, func(tx *inventory.Tx) error { return tx.Unqueue(r.ticket) }); err != nil {
		// It ends with this process at the latest.
		r.m.cfg.Log("a place among the tasks that wait could not be given back: " + err.Error())
	}
	r.ticket = 0
}

// wait returns when there seems to be room, or when it is time to decide anew.
func (r *room) wait(ctx context.Context, d *decided, n *noRoom, progress func(string)) error {
	if err := sys.Fault("budget.queued"); err != nil {
		return err
	}
	again := time.After(queueAgain)
	tick := time.NewTicker(queueInterval)
	defer tick.Stop()
	for {
		if text := waitingFor(n); text != r.said {
			r.said = text
			tell(progress, text)
		}
		select {
		case <-ctx.Done():
			return task.Errorf(task.CodeCanceled, "budget", "canceled while it waited for room in the budget: %w", context.Cause(ctx))
		case <-again:
			return nil
		case <-tick.C:
		}
		ts, ws, err := r.m.cfg.DB.Holders(ctx)
		if err != nil {
			return err
		}
		n = &noRoom{held: held(ts, r.id, d.used), ahead: r.before(ws)}
		if n.over = d.budget.Fits(d.share(r.id), n.held); len(n.over) == 0 && n.ahead == 0 {
			return sys.Fault("budget.turn")
		}
	}
}

func waitingFor(n *noRoom) string {
	if len(n.over) == 0 {
		return fmt.Sprintf("waiting for %d tasks that asked earlier", n.ahead)
	}
	what := make([]string, len(n.over))
	for i, o := range n.over {
		what[i] = o.String()
	}
	text := fmt.Sprintf("waiting for %d tasks: %s (%s)", len(n.held), policy.Holders(n.held, n.over), strings.Join(what, "; "))
	if n.ahead > 0 {
		text += fmt.Sprintf("; %d asked earlier", n.ahead)
	}
	return text
}

// share is what the task takes.
func (d *decided) share(id task.ID) policy.Share {
	return policy.Share{Task: id, Limits: d.spec.Limits, Parent: task.ID(d.req.Parent)}
}

// mayWait says whether a task that does not fit waits for its turn. A child does
// not, for what would have to end may be waiting for it, nor one that is resumed,
// which nobody else could end meanwhile.
func (d *decided) mayWait(over []policy.Over) bool {
	for _, o := range over {
		if o.Never {
			return false
		}
	}
	return d.budget.WhenFull.Value == policy.FullWait && d.req.Parent == "" && !d.again
}

// afford learns what the budget leaves to a task: it bounds what was not asked
// for, and says whether the sum of all tasks is bounded too.
func (m *Manager) afford(ctx context.Context, d *decided, id task.ID, b policy.MergedBudget, promised task.Vector, how map[task.Axis]string) error {
	d.budget = b
	if !b.Set() {
		return nil
	}
	d.spec.Limits = b.Divide(d.asked, d.spec.Limits)
	if d.parent != nil {
		d.spec.Limits = policy.ShareOf(d.parent.Limits).Divide(d.asked, d.spec.Limits)
	}
	ts, _, err := m.cfg.DB.Holders(ctx)
	if err != nil {
		return err
	}
	if d.used, err = m.measured(ctx, b, ts); err != nil {
		return err
	}
	others := held(ts, id, d.used)
	d.uses = b.Use(others)
	if promised[task.RES] == 2 && m.cfg.Usage != nil {
		ok, why := b.Quota(d.spec.Limits, others)
		if ok {
			promised[task.RES], d.quota = 3, true
		}
		how[task.RES] += "; " + why
	}
	return nil
}

// quota observes, on the host, that a task's files and the sum of all tasks are
// bounded as was promised.
func (m *Manager) seesQuota(ctx context.Context, l *live, d *decided) (bool, string) {
	used, err := m.cfg.Usage(ctx, l.dir)
	if err != nil {
		return false, "what the task's files take cannot be measured: " + err.Error()
	}
	ts, _, err := m.cfg.DB.Holders(ctx)
	if err != nil {
		return false, "the inventory cannot be read: " + err.Error()
	}
	recorded := false
	for _, t := range ts {
		recorded = recorded || t.ID() == l.id && t.View.Limits.DiskBytes == l.spec.Limits.DiskBytes && t.View.Limits.MemoryBytes == l.spec.Limits.MemoryBytes
	}
	ok, text := d.budget.Quota(l.spec.Limits, held(ts, l.id, d.used))
	if !recorded {
		return false, "the task's share is not on record"
	}
	return ok, fmt.Sprintf("the task's files take %d bytes now; %s", used, text)
}

// withinParent refuses a child that would have, together with its parent's other
// children, more than the parent has.
func (d *decided) withinParent(tx *inventory.Tx) error {
	if d.parent == nil || !d.budget.Set() {
		return nil
	}
	ts, err := tx.Holding()
	if err != nil {
		return err
	}
	var siblings []policy.Share
	for _, s := range held(ts, "", nil) {
		if s.Parent == d.parent.ID && s.State != task.Kept {
			siblings = append(siblings, s)
		}
	}
	if over := policy.ShareOf(d.parent.Limits).Fits(d.share(""), siblings); len(over) > 0 {
		return task.Errorf(task.CodeUnavailable, "budget", "a child takes its share from its parent %s, which has no more: %s. It is held by %s; nothing was created", d.parent.ID, over[0], policy.Holders(siblings, over)).
			WithHint("ask for less with --memory, --cpus or --disk, or close another child")
	}
	return nil
}

// Budget implements door.Engine.
func (m *Manager) Budget(ctx context.Context) (*task.BudgetReport, error) {
	rep := &task.BudgetReport{}
	rules, err := m.rulesOf(ctx, nil)
	if err != nil || !rules.Budget.Set() {
		return rep, err
	}
	ts, ws, err := m.cfg.DB.Holders(ctx)
	if err != nil {
		return rep, err
	}
	used, err := m.measured(ctx, rules.Budget, ts)
	if err != nil {
		return rep, err
	}
	rep.Uses, rep.Waiting = rules.Budget.Use(held(ts, "", used)), len(ws)
	return rep, nil
}
