package inventory

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Find returns the task that ref means, with resources: an id, the name of a
// task that lives, of the newest that is being ended or kept, a unique prefix of
// an id, or the name of a closed task, in this order. Several matches are an
// error with code usage that lists them.
func (db *DB) Find(ctx context.Context, ref string) (t Task, err error) {
	err = db.snapshot(ctx, func(tx *Tx) error {
		t, err = tx.Find(ref)
		return err
	})
	return t, err
}

// Find is DB.Find within a transaction.
func (tx *Tx) Find(ref string) (Task, error) {
	if ref == "" {
		return Task{}, task.Errorf(task.CodeUsage, "inventory.find", "no task was named").WithHint("give an id, the beginning of one, or a name")
	}
	if id, ok := task.ParseID(ref); ok {
		if t, err := tx.Task(id); task.CodeOf(err) != task.CodeNotFound {
			return t, err
		}
	}
	tries := []struct {
		where string
		args  []any
	}{
		{"WHERE t.name = ? AND t.state IN " + holdsName, []any{ref}},
		// None is ever removed, so the rows are in order, whatever the clock says.
		{"WHERE t.name = ? AND t.state <> 'closed' ORDER BY t.rowid DESC LIMIT 1", []any{ref}},
		{"WHERE substr(t.id, 1, length(?1)) = ?1 ORDER BY t.created", []any{ref}},
		{"WHERE t.name = ? AND t.state = 'closed' ORDER BY t.created", []any{ref}},
	}
	for _, try := range tries {
		ts, err := tx.query(try.where, try.args...)
		switch {
		case err != nil:
			return Task{}, err
		case len(ts) == 1:
			return tx.Task(ts[0].ID())
		case len(ts) > 1:
			return Task{}, ambiguous(ref, ts)
		}
	}
	return Task{}, notFound(ref)
}

func ambiguous(ref string, ts []Task) error {
	var b strings.Builder
	for i, t := range ts {
		if i == 10 {
			fmt.Fprintf(&b, " and %d more", len(ts)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s", t.View.ID, t.View.State)
		if t.View.Name != "" {
			fmt.Fprintf(&b, ", %q", t.View.Name)
		}
		b.WriteString(")")
	}
	return task.Errorf(task.CodeUsage, "inventory.find", "%q could be any of %s", ref, b.String()).WithHint("give the whole id")
}

// List returns tasks without their resources, oldest first; closed ones only
// when all is set.
func (db *DB) List(ctx context.Context, all bool) (ts []Task, err error) {
	where := "WHERE t.state <> 'closed' ORDER BY t.created, t.id"
	if all {
		where = "ORDER BY t.created, t.id"
	}
	err = db.snapshot(ctx, func(tx *Tx) error {
		ts, err = tx.query(where)
		return err
	})
	return ts, err
}

// Children returns the tasks whose parent is id, closed ones too, without their
// resources, oldest first. The views of all others are not decoded: there may be
// thousands.
func (db *DB) Children(ctx context.Context, id task.ID) (ts []Task, err error) {
	err = db.snapshot(ctx, func(tx *Tx) error {
		// A task is recorded after its parent, and none is ever removed, so the rows
		// are in order, whatever the clock says. A view holds these bytes wherever it
		// names that parent, and perhaps where it does not.
		all, err := tx.query("WHERE t.rowid > (SELECT rowid FROM tasks WHERE id = ?1) AND instr(t.view, ?2) > 0 ORDER BY t.created, t.id", string(id), []byte(`"parent":"`+string(id)+`"`))
		for _, t := range all {
			if t.View.Parent == id {
				ts = append(ts, t)
			}
		}
		return err
	})
	return ts, err
}

// Why says why a task is due.
type Why string

// The reasons.
const (
	Abandoned Why = "abandoned" // live, and its supervisor may be dead
	Expired   Why = "expired"   // kept, and its time is over
	Retry     Why = "retry"     // stuck, and the next attempt is due
	// Interrupted: kept or closed, and a process that worked on what is left of
	// it may have died before it was done.
	Interrupted Why = "interrupted"
)

// DueTask is a task that a reap must look at.
type DueTask struct {
	Task Task
	Why  Why
}

// Due returns the tasks that a reap must look at now, without resources. A
// live task is due unless its supervisor is certainly alive; the caller must
// take the task's lock before it acts, and look again once it has it.
func (db *DB) Due(ctx context.Context, now time.Time) (due []DueTask, err error) {
	err = db.snapshot(ctx, func(tx *Tx) error {
		ts, err := tx.query(`WHERE t.state IN ('planned','blocked','creating','probing','ready','paused','closing')
 OR t.state = 'kept' AND t.retain_until <= ?1 OR t.state = 'stuck' AND t.next_try <= ?1
 OR t.state IN ('kept','closed') AND s.task IS NOT NULL ORDER BY t.created, t.id`, now.UnixNano())
		if err != nil {
			return err
		}
		for _, t := range ts {
			switch {
			case t.Supervisor != nil && sys.Look(sys.Ident(t.Supervisor.Process)) == sys.Living:
				// In good hands, whatever the state.
			case t.View.State == task.Closed, t.View.State == task.Kept && t.Supervisor != nil:
				due = append(due, DueTask{t, Interrupted})
			case t.View.State == task.Kept:
				due = append(due, DueTask{t, Expired})
			case t.View.State == task.Stuck:
				due = append(due, DueTask{t, Retry})
			default:
				due = append(due, DueTask{t, Abandoned})
			}
		}
		return nil
	})
	return due, err
}

// CreateTask is Tx.CreateTask in a transaction of its own.
func (db *DB) CreateTask(ctx context.Context, t Task) error {
	return db.Tx(ctx, func(tx *Tx) error { return tx.CreateTask(t) })
}

// Task returns the task with this id, with supervisor and resources.
func (db *DB) Task(ctx context.Context, id task.ID) (t Task, err error) {
	err = db.snapshot(ctx, func(tx *Tx) error {
		t, err = tx.Task(id)
		return err
	})
	return t, err
}

// SetState is Tx.SetState in a transaction of its own.
func (db *DB) SetState(ctx context.Context, id task.ID, to task.State, mutate func(*task.View)) error {
	return db.Tx(ctx, func(tx *Tx) error { return tx.SetState(id, to, mutate) })
}

// Update is Tx.Update in a transaction of its own.
func (db *DB) Update(ctx context.Context, id task.ID, mutate func(*task.View)) error {
	return db.Tx(ctx, func(tx *Tx) error { return tx.Update(id, mutate) })
}

// Intend is Tx.Intend in a transaction of its own.
func (db *DB) Intend(ctx context.Context, id task.ID, rs []Resource) error {
	return db.Tx(ctx, func(tx *Tx) error { return tx.Intend(id, rs) })
}

// SetResource records what became of one resource: see Tx.SetResources.
func (db *DB) SetResource(ctx context.Context, id task.ID, kind, name string, state task.ResourceState, external string, cause error) error {
	return db.SetResources(ctx, id, []ResourceChange{{Kind: kind, Name: name, State: state, External: external, Err: cause}})
}

// SetResources is Tx.SetResources in a transaction of its own.
func (db *DB) SetResources(ctx context.Context, id task.ID, changes []ResourceChange) error {
	return db.Tx(ctx, func(tx *Tx) error { return tx.SetResources(id, changes) })
}

// Resources returns what was recorded for a task: see Tx.Resources.
func (db *DB) Resources(ctx context.Context, id task.ID) (rs []Resource, err error) {
	err = db.snapshot(ctx, func(tx *Tx) error {
		rs, err = tx.Resources(id)
		return err
	})
	return rs, err
}

// AllResources returns every resource that is not gone, of all tasks.
func (db *DB) AllResources(ctx context.Context) (rs []Resource, err error) {
	err = db.snapshot(ctx, func(tx *Tx) error {
		rs, err = tx.resources(`WHERE state <> 'gone' ORDER BY id`)
		return err
	})
	return rs, err
}

// SetSupervisor is Tx.SetSupervisor in a transaction of its own.
func (db *DB) SetSupervisor(ctx context.Context, id task.ID, s Supervisor) error {
	return db.Tx(ctx, func(tx *Tx) error { return tx.SetSupervisor(id, s) })
}

// ClearSupervisor is Tx.ClearSupervisor in a transaction of its own.
func (db *DB) ClearSupervisor(ctx context.Context, id task.ID) error {
	return db.Tx(ctx, func(tx *Tx) error { return tx.ClearSupervisor(id) })
}

// SetHead is Tx.SetHead in a transaction of its own.
func (db *DB) SetHead(ctx context.Context, id task.ID, seq uint64, hash string) error {
	return db.Tx(ctx, func(tx *Tx) error { return tx.SetHead(id, seq, hash) })
}

// Head returns what SetHead recorded last: see Tx.Head.
func (db *DB) Head(ctx context.Context, id task.ID) (seq uint64, hash string, err error) {
	err = db.snapshot(ctx, func(tx *Tx) error {
		seq, hash, err = tx.Head(id)
		return err
	})
	return seq, hash, err
}
