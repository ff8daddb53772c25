package inventory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Task is one task as recorded.
type Task struct {
	// View is what people see. ID, Name, State, Created, Supervisor and
	// Resources come from the inventory's own columns when read; what a caller
	// puts there is not stored (State by SetState alone).
	View     task.View
	Repo     string // the user's repository, any bytes
	Base     string // full object name, or empty
	OwnerUID int
	Updated  time.Time
	Sealed   time.Time // zero until closed or kept for the first time

	Supervisor *Supervisor // of whom owns the task now; nil: nobody
	Attempts   int         // cleanups that failed in a row
	NextTry    time.Time   // when stuck: not before this
	LastError  string
}

// ID returns the task's id.
func (t *Task) ID() task.ID { return t.View.ID }

// Supervisor is the process that owns a task, and the lock it holds.
type Supervisor struct {
	Process  task.ProcessRef
	LockPath string
	Started  time.Time
}

// Tx is one transaction: see DB.Tx.
type Tx struct {
	tx    *sql.Tx
	db    *DB
	ctx   context.Context
	stmts map[string]*sql.Stmt // end with the transaction
}

// prepared returns a statement that is compiled once for the transaction:
// compiling one takes longer than executing it.
func (tx *Tx) prepared(query string) (*sql.Stmt, error) {
	if s := tx.stmts[query]; s != nil {
		return s, nil
	}
	s, err := tx.tx.PrepareContext(tx.ctx, query)
	if err != nil {
		return nil, err
	}
	if tx.stmts == nil {
		tx.stmts = map[string]*sql.Stmt{}
	}
	tx.stmts[query] = s
	return s, nil
}

func (tx *Tx) exec(op, query string, args ...any) (int64, error) {
	s, err := tx.prepared(query)
	if err != nil {
		return 0, tx.db.fail(op, err)
	}
	r, err := s.ExecContext(tx.ctx, args...)
	if err != nil {
		return 0, tx.db.fail(op, err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return 0, tx.db.fail(op, err)
	}
	return n, nil
}

// CreateTask records a new task in state planned. View.ID must be set and
// fresh. A name that another task holds, which is not yet being ended, or that is
// the id of another one, is an error with code conflict; of two processes with one name exactly one wins. In the same
// Tx call SetSupervisor: a task without one looks abandoned to Due.
func (tx *Tx) CreateTask(t Task) error {
	const op = "inventory.create"
	if _, ok := task.ParseID(string(t.View.ID)); !ok {
		return task.Errorf(task.CodeInternal, op, "%q is not a task id", t.View.ID)
	}
	// An id comes first when a task is asked for, so such a name would never be heard.
	if id, ok := task.ParseID(t.View.Name); ok {
		if _, err := tx.Task(id); err == nil {
			return task.Errorf(task.CodeConflict, op, "the name %q is the id of another task", t.View.Name).WithHint("choose another name")
		} else if task.CodeOf(err) != task.CodeNotFound {
			return err
		}
	}
	if t.View.Created.IsZero() {
		t.View.Created = tx.db.now()
	}
	t.View.State = task.Planned
	view, err := encodeView(&t.View)
	if err != nil {
		return task.Errorf(task.CodeInternal, op, "cannot record the task: %v", err)
	}
	now := tx.db.now().UnixNano()
	_, err = tx.tx.ExecContext(tx.ctx, `INSERT INTO tasks (id, name, state, repo, base, owner_uid, created, updated, view) VALUES (?,?,?,?,?,?,?,?,?)`,
		string(t.View.ID), t.View.Name, string(task.Planned), t.Repo, t.Base, t.OwnerUID, t.View.Created.UnixNano(), now, view)
	if sqliteCode(err) == sqliteUnique {
		var other, state string
		if err := tx.tx.QueryRowContext(tx.ctx, `SELECT id, state FROM tasks WHERE name = ? AND name <> '' AND state IN `+holdsName, t.View.Name).Scan(&other, &state); err != nil {
			return tx.db.fail(op, err)
		}
		return task.Errorf(task.CodeConflict, op, "the name %q is taken by task %s (%s)", t.View.Name, other, state).
			WithHint("choose another name, or caisson close %s first", other)
	}
	if err != nil {
		return tx.db.fail(op, err)
	}
	return nil
}

// Task returns the task with this id, with supervisor and resources.
func (tx *Tx) Task(id task.ID) (Task, error) {
	ts, err := tx.query("WHERE t.id = ?", string(id))
	if err != nil {
		return Task{}, err
	}
	if len(ts) == 0 {
		return Task{}, notFound(string(id))
	}
	t := ts[0]
	rs, err := tx.Resources(id)
	if err != nil {
		return Task{}, err
	}
	for _, r := range rs {
		t.View.Resources = append(t.View.Resources, r.Resource)
	}
	return t, nil
}

func notFound(ref string) error {
	return task.Errorf(task.CodeNotFound, "inventory.find", "no task %q", ref).WithHint("caisson ls --all lists every task")
}

// holdsName lists the states in which a task's name is taken, as the unique
// index of the schema has them.
const holdsName = `('planned','blocked','creating','probing','ready','paused')`

const taskColumns = `SELECT t.id, t.name, t.state, t.repo, t.base, t.owner_uid, t.created, t.updated, t.sealed, t.attempts, t.next_try, t.last_error, t.view,
 s.boot_id, s.pid, s.start_ticks, s.pidns_inode, s.lock_path, s.started FROM tasks t LEFT JOIN supervisors s ON s.task = t.id `

// query reads tasks without their resources.
func (tx *Tx) query(where string, args ...any) ([]Task, error) {
	const op = "inventory.read"
	rows, err := tx.tx.QueryContext(tx.ctx, taskColumns+where, args...)
	if err != nil {
		return nil, tx.db.fail(op, err)
	}
	defer rows.Close()
	var out []Task
	for rows.Next() {
		var (
			t                   Task
			id, name, state     string
			view                []byte
			created, updated    int64
			sealed, nextTry     sql.NullInt64
			boot, lock          sql.NullString
			pid, start, ns, sup sql.NullInt64
		)
		if err := rows.Scan(&id, &name, &state, &t.Repo, &t.Base, &t.OwnerUID, &created, &updated, &sealed, &t.Attempts, &nextTry, &t.LastError, &view,
			&boot, &pid, &start, &ns, &lock, &sup); err != nil {
			return nil, tx.db.fail(op, err)
		}
		if err := decodeView(view, &t.View); err != nil {
			return nil, task.Errorf(task.CodeStateStore, op, "the record of task %s cannot be read: %v", id, err)
		}
		t.View.ID, t.View.Name, t.View.State = task.ID(id), name, task.State(state)
		t.View.Created, t.Updated = fromNano(created), fromNano(updated)
		t.Sealed, t.NextTry = fromNull(sealed), fromNull(nextTry)
		if boot.Valid {
			t.Supervisor = &Supervisor{
				Process:  task.ProcessRef{BootID: boot.String, PID: int(pid.Int64), Start: uint64(start.Int64), PIDNS: uint64(ns.Int64)},
				LockPath: lock.String, Started: fromNano(sup.Int64),
			}
			p := t.Supervisor.Process
			t.View.Supervisor = &p
		}
		out = append(out, t)
	}
	if err := rows.Err(); err != nil {
		return nil, tx.db.fail(op, err)
	}
	return out, nil
}

func fromNano(n int64) time.Time { return time.Unix(0, n).UTC() }

func fromNull(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return fromNano(n.Int64)
}

func toNull(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixNano(), Valid: !t.IsZero()}
}

// SetState moves a task to another state and lets mutate (may be nil) change
// the rest of its view in the same step. A transition that task.State does not
// allow is an error with code wrong_state and changes nothing. Becoming kept
// needs View.Retention; becoming stuck counts an attempt, sets the time of the
// next and takes View.Problem as the last error; becoming closed needs every
// resource to be gone.
func (tx *Tx) SetState(id task.ID, to task.State, mutate func(*task.View)) error {
	return tx.change(id, to, mutate)
}

// Update lets mutate change a task's view without changing its state.
func (tx *Tx) Update(id task.ID, mutate func(*task.View)) error {
	return tx.change(id, "", mutate)
}

func (tx *Tx) change(id task.ID, to task.State, mutate func(*task.View)) error {
	const op = "inventory.state"
	ts, err := tx.query("WHERE t.id = ?", string(id))
	if err != nil {
		return err
	}
	if len(ts) == 0 {
		return notFound(string(id))
	}
	t := ts[0]
	from := t.View.State
	move := to != ""
	if !move {
		to = from
		if from == task.Closed {
			return task.Errorf(task.CodeState, op, "task %s is closed and does not change any more", id)
		}
	} else if !from.MayBecome(to) {
		return task.Errorf(task.CodeState, op, "task %s is %s and cannot become %s", id, from, to)
	} else if to == task.Closed {
		if err := tx.allGone(id); err != nil {
			return err
		}
	}
	created := t.View.Created
	t.View.State = to
	if mutate != nil {
		mutate(&t.View)
	}
	t.View.ID, t.View.State, t.View.Created = id, to, created
	now := tx.db.now()
	var until time.Time
	var why sql.NullString
	if r := t.View.Retention; r != nil {
		until, why = r.Until, sql.NullString{String: r.Why, Valid: true}
	}
	if to == task.Kept && until.IsZero() {
		return task.Errorf(task.CodeInternal, op, "task %s cannot be kept without an end", id)
	}
	if t.Sealed.IsZero() && (to == task.Kept || to == task.Closed) {
		t.Sealed = now
	}
	switch to {
	case task.Stuck:
		if move {
			t.Attempts++
			t.NextTry = now.Add(Backoff(t.Attempts))
		}
		t.LastError = t.View.Problem
	case task.Closed, task.Kept:
		t.Attempts, t.NextTry, t.LastError = 0, time.Time{}, ""
	}
	view, err := encodeView(&t.View)
	if err != nil {
		return task.Errorf(task.CodeInternal, op, "cannot record the task: %v", err)
	}
	_, err = tx.tx.ExecContext(tx.ctx, `UPDATE tasks SET name=?, state=?, updated=?, sealed=?, retain_until=?, retain_reason=?, attempts=?, next_try=?, last_error=?, view=? WHERE id=?`,
		t.View.Name, string(to), now.UnixNano(), toNull(t.Sealed), toNull(until), why, t.Attempts, toNull(t.NextTry), t.LastError, view, string(id))
	switch sqliteCode(err) {
	case sqliteUnique:
		return task.Errorf(task.CodeConflict, op, "the name %q is taken by another task", t.View.Name)
	case sqliteTrigger:
		return task.Errorf(task.CodeState, op, "task %s cannot go from %s to %s: %v", id, from, to, err)
	}
	if err != nil {
		return tx.db.fail(op, err)
	}
	return nil
}

func (tx *Tx) allGone(id task.ID) error {
	rs, err := tx.Resources(id)
	if err != nil {
		return err
	}
	var left []string
	for _, r := range rs {
		if r.State != task.Gone {
			left = append(left, fmt.Sprintf("%s %s (%s)", r.Kind, r.Name, r.State))
		}
	}
	if len(left) > 0 {
		return task.Errorf(task.CodeState, "inventory.state", "task %s still has %s", id, strings.Join(left, ", "))
	}
	return nil
}

// SetSupervisor records who owns the task, replacing an earlier owner.
func (tx *Tx) SetSupervisor(id task.ID, s Supervisor) error {
	if s.Started.IsZero() {
		s.Started = tx.db.now()
	}
	p := s.Process
	_, err := tx.exec("inventory.supervisor", `INSERT INTO supervisors (task, boot_id, pid, start_ticks, pidns_inode, lock_path, started) VALUES (?,?,?,?,?,?,?)
ON CONFLICT (task) DO UPDATE SET boot_id=excluded.boot_id, pid=excluded.pid, start_ticks=excluded.start_ticks, pidns_inode=excluded.pidns_inode, lock_path=excluded.lock_path, started=excluded.started`,
		string(id), p.BootID, p.PID, int64(p.Start), int64(p.PIDNS), s.LockPath, s.Started.UnixNano())
	return err
}

// ClearSupervisor records that nobody owns the task.
func (tx *Tx) ClearSupervisor(id task.ID) error {
	_, err := tx.exec("inventory.supervisor", `DELETE FROM supervisors WHERE task = ?`, string(id))
	return err
}

// SetHead records how far the evidence of a task reached. It never goes back.
func (tx *Tx) SetHead(id task.ID, seq uint64, hash string) error {
	_, err := tx.tx.ExecContext(tx.ctx, `INSERT INTO heads (task, seq, hash) VALUES (?,?,?)
ON CONFLICT (task) DO UPDATE SET seq=excluded.seq, hash=excluded.hash`, string(id), int64(seq), hash)
	if sqliteCode(err) == sqliteTrigger {
		return task.Errorf(task.CodeEvidence, "inventory.head", "the evidence of task %s reached further before than %d", id, seq)
	}
	if err != nil {
		return tx.db.fail("inventory.head", err)
	}
	return nil
}

// Head returns what SetHead recorded last; seq 0 and no hash when nothing was.
func (tx *Tx) Head(id task.ID) (seq uint64, hash string, err error) {
	var n int64
	err = tx.tx.QueryRowContext(tx.ctx, `SELECT seq, hash FROM heads WHERE task = ?`, string(id)).Scan(&n, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", tx.db.fail("inventory.head", err)
	}
	return uint64(n), hash, nil
}

// ProcessOf converts a process identity to its recorded form.
func ProcessOf(id sys.Ident) task.ProcessRef { return task.ProcessRef(id) }
