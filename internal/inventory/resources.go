package inventory

import (
	"database/sql"
	"errors"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Resource is one thing that is made for a task, or was.
type Resource struct {
	task.Resource         // Kind, Name and Token identify it
	Task          task.ID // set when read
	Provider      string  // what makes and removes it: a backend's name, "source", …
	Parent        string  // kind/name of what it lies in; informative
	Durable       bool    // survives a reboot (files, refs); false: a kernel object
	Observed      string  // what was last seen of it
	Created       time.Time
	Updated       time.Time
}

// ResourceChange is what became of one resource.
type ResourceChange struct {
	Kind, Name string
	State      task.ResourceState
	External   string // empty: unchanged
	Observed   string // empty: unchanged
	Err        error  // recorded with stuck; nil clears an earlier one
}

// backoff is the wait after each failed cleanup in a row; the last repeats.
var backoff = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour}

// Backoff returns how long to wait after the nth failure in a row (from 1).
func Backoff(n int) time.Duration { return backoff[max(0, min(n, len(backoff))-1)] }

// resourceNext lists the legal transitions. Stuck may be reached from
// everywhere: it gives nothing up. Gone may too: it says that absence was
// observed, for example that the machine was restarted.
var resourceNext = map[task.ResourceState][]task.ResourceState{
	task.Intent:   {task.Present, task.Removing, task.Gone, task.RStuck},
	task.Present:  {task.Removing, task.Gone, task.RStuck},
	task.Removing: {task.Gone, task.RStuck},
	task.RStuck:   {task.Removing, task.Gone},
	task.Gone:     nil,
}

func mayBecome(from, to task.ResourceState) bool {
	for _, n := range resourceNext[from] {
		if n == to {
			return true
		}
	}
	return false
}

// Intend records resources that are about to be made, in this order, each with
// a token. One that is recorded already for the same task with the same token
// is left as it is (a resumed creation); with another task or token the call
// fails with code conflict and records nothing.
func (tx *Tx) Intend(id task.ID, rs []Resource) error {
	const op = "inventory.intend"
	now := tx.db.now().UnixNano()
	for _, r := range rs {
		if r.Kind == "" || r.Name == "" || len(r.Token) < 16 {
			return task.Errorf(task.CodeInternal, op, "resource %q %q has no kind, name or token", r.Kind, r.Name)
		}
		n, err := tx.exec(op, `INSERT INTO resources (task, kind, provider, name, external_id, token, state, observed, parent, durable, created, updated)
VALUES (?,?,?,?,?,?,'intent',?,?,?,?,?) ON CONFLICT (kind, name) WHERE state <> 'gone' DO NOTHING`,
			string(id), r.Kind, r.Provider, r.Name, r.External, r.Token, r.Observed, r.Parent, r.Durable, now, now)
		if err != nil {
			return err
		}
		if n == 1 {
			continue
		}
		var owner, token string
		if err := tx.tx.QueryRowContext(tx.ctx, `SELECT task, token FROM resources WHERE kind = ? AND name = ? AND state <> 'gone'`, r.Kind, r.Name).Scan(&owner, &token); err != nil {
			return tx.db.fail(op, err)
		}
		if owner != string(id) || token != r.Token {
			return task.Errorf(task.CodeConflict, op, "%s %s belongs to task %s already", r.Kind, r.Name, owner).
				WithHint("caisson show %s tells what it is; caisson reap removes what is over", owner)
		}
	}
	return nil
}

// SetResources records what became of resources of one task. Repeating a
// state is allowed, as is reporting something gone twice. Stuck counts an
// attempt and sets the time of the next by Backoff. A transition that is not
// legal is an error with code wrong_state and records nothing.
func (tx *Tx) SetResources(id task.ID, changes []ResourceChange) error {
	const op = "inventory.resource"
	now := tx.db.now()
	for _, c := range changes {
		var row int64
		var from string
		var attempts int
		last, err := tx.prepared(`SELECT id, state, attempts FROM resources WHERE task = ? AND kind = ? AND name = ? ORDER BY id DESC LIMIT 1`)
		if err == nil {
			err = last.QueryRowContext(tx.ctx, string(id), c.Kind, c.Name).Scan(&row, &from, &attempts)
		}
		if errors.Is(err, sql.ErrNoRows) {
			return task.Errorf(task.CodeNotFound, op, "task %s has no recorded %s %s", id, c.Kind, c.Name)
		}
		if err != nil {
			return tx.db.fail(op, err)
		}
		if c.State == task.Gone && from == string(task.Gone) {
			continue
		}
		if from != string(c.State) && !mayBecome(task.ResourceState(from), c.State) || from == string(task.Gone) {
			return task.Errorf(task.CodeState, op, "%s %s is %s and cannot become %s", c.Kind, c.Name, from, c.State)
		}
		var next time.Time
		msg := ""
		if c.Err != nil {
			msg = c.Err.Error()
		}
		if c.State == task.RStuck {
			attempts++
			next = now.Add(Backoff(attempts))
		}
		if _, err := tx.exec(op, `UPDATE resources SET state = ?, external_id = CASE WHEN ?2 <> '' THEN ?2 ELSE external_id END,
observed = CASE WHEN ?3 <> '' THEN ?3 ELSE observed END, attempts = ?4, next_try = ?5, last_error = ?6, updated = ?7 WHERE id = ?8`,
			string(c.State), c.External, c.Observed, attempts, toNull(next), msg, now.UnixNano(), row); err != nil {
			return err
		}
	}
	return nil
}

// Resources returns what was recorded for a task, in the order of Intend, gone
// ones too. Remove in reverse.
func (tx *Tx) Resources(id task.ID) ([]Resource, error) {
	return tx.resources(`WHERE task = ? ORDER BY id`, string(id))
}

// OfKind returns every resource of a kind that is not gone, of all tasks.
func (tx *Tx) OfKind(kind string) ([]Resource, error) {
	return tx.resources(`WHERE kind = ? AND state <> 'gone' ORDER BY id`, kind)
}

func (tx *Tx) resources(where string, args ...any) ([]Resource, error) {
	const op = "inventory.read"
	rows, err := tx.tx.QueryContext(tx.ctx, `SELECT task, kind, provider, name, external_id, token, state, observed, parent, durable, attempts, next_try, last_error, created, updated FROM resources `+where, args...)
	if err != nil {
		return nil, tx.db.fail(op, err)
	}
	defer rows.Close()
	var out []Resource
	for rows.Next() {
		var (
			r                Resource
			owner, state     string
			next             sql.NullInt64
			created, updated int64
		)
		if err := rows.Scan(&owner, &r.Kind, &r.Provider, &r.Name, &r.External, &r.Token, &state, &r.Observed, &r.Parent, &r.Durable, &r.Attempts, &next, &r.Error, &created, &updated); err != nil {
			return nil, tx.db.fail(op, err)
		}
		r.Task, r.State = task.ID(owner), task.ResourceState(state)
		if next.Valid {
			t := fromNano(next.Int64)
			r.NextTry = &t
		}
		r.Created, r.Updated = fromNano(created), fromNano(updated)
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, tx.db.fail(op, err)
	}
	return out, nil
}
