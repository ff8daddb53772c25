package inventory

import (
	"context"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Waiter is somebody who waits for room for one more task.
type Waiter struct {
	Ticket  int64 // higher ones came later
	Process task.ProcessRef
	Name    string // of the task to be, may be empty
	Since   time.Time
}

// Queue puts a process at the end of those who wait and returns its ticket.
func (tx *Tx) Queue(p task.ProcessRef, name string) (int64, error) {
	const op = "inventory.queue"
	r, err := tx.tx.ExecContext(tx.ctx, `INSERT INTO waiting (boot_id, pid, start_ticks, pidns_inode, name, since) VALUES (?,?,?,?,?,?)`,
		p.BootID, p.PID, int64(p.Start), int64(p.PIDNS), name, tx.db.now().UnixNano())
	if err != nil {
		return 0, tx.db.fail(op, err)
	}
	ticket, err := r.LastInsertId()
	if err != nil {
		return 0, tx.db.fail(op, err)
	}
	return ticket, nil
}

// Unqueue takes a ticket back, and those of processes that died. One that is not
// there is no error.
func (tx *Tx) Unqueue(ticket int64) error {
	const op = "inventory.unqueue"
	all, err := tx.waiting()
	if err != nil {
		return err
	}
	for _, w := range all {
		if w.Ticket == ticket || dead(w) {
			if _, err := tx.exec(op, `DELETE FROM waiting WHERE ticket = ?`, w.Ticket); err != nil {
				return err
			}
		}
	}
	return nil
}

func dead(w Waiter) bool { return sys.Look(sys.Ident(w.Process)) == sys.Dead }

// Waiting returns who waits, the first first. Processes that died are left out.
func (tx *Tx) Waiting() ([]Waiter, error) {
	all, err := tx.waiting()
	if err != nil {
		return nil, err
	}
	out := all[:0]
	for _, w := range all {
		if !dead(w) {
			out = append(out, w)
		}
	}
	return out, nil
}

func (tx *Tx) waiting() ([]Waiter, error) {
	const op = "inventory.waiting"
	rows, err := tx.tx.QueryContext(tx.ctx, `SELECT ticket, boot_id, pid, start_ticks, pidns_inode, name, since FROM waiting ORDER BY ticket`)
	if err != nil {
		return nil, tx.db.fail(op, err)
	}
	defer rows.Close()
	var out []Waiter
	for rows.Next() {
		var w Waiter
		var start, ns, since int64
		if err := rows.Scan(&w.Ticket, &w.Process.BootID, &w.Process.PID, &start, &ns, &w.Name, &since); err != nil {
			return nil, tx.db.fail(op, err)
		}
		w.Process.Start, w.Process.PIDNS, w.Since = uint64(start), uint64(ns), fromNano(since)
		out = append(out, w)
	}
	if err := rows.Err(); err != nil {
		return nil, tx.db.fail(op, err)
	}
	return out, nil
}

// Holding returns every task that is not closed, without resources, oldest first.
func (tx *Tx) Holding() ([]Task, error) {
	return tx.query("WHERE t.state <> 'closed' ORDER BY t.created, t.id")
}

// Holders is Tx.Holding and Tx.Waiting of one moment.
func (db *DB) Holders(ctx context.Context) (ts []Task, ws []Waiter, err error) {
	err = db.snapshot(ctx, func(tx *Tx) error {
		if ts, err = tx.Holding(); err == nil {
			ws, err = tx.Waiting()
		}
		return err
	})
	return ts, ws, err
}

// Forget removes the tickets of processes that died. It writes only where there
// are some.
func (db *DB) Forget(ctx context.Context) error {
	any := false
	err := db.snapshot(ctx, func(tx *Tx) error {
		all, err := tx.waiting()
		for _, w := range all {
			any = any || dead(w)
		}
		return err
	})
	if err != nil || !any {
		return err
	}
	return db.Tx(ctx, func(tx *Tx) error { return tx.Unqueue(0) })
}
