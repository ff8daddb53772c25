package inventory

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Accept records an acceptance. One with the same id is a conflict.
func (db *DB) Accept(ctx context.Context, a task.Acceptance) error {
	const op = "inventory.accept"
	a.Uses, a.Revoked = 0, nil
	text, err := json.Marshal(a)
	if err != nil {
		return db.fail(op, err)
	}
	return db.Tx(ctx, func(tx *Tx) error {
		n, err := tx.exec(op, `INSERT INTO acceptances (id, created, expires, record) VALUES (?,?,?,?) ON CONFLICT (id) DO NOTHING`,
			a.ID, a.Created.UnixNano(), a.Expires.UnixNano(), string(text))
		if err == nil && n == 0 {
			err = task.Errorf(task.CodeConflict, op, "there is an acceptance %s already", a.ID)
		}
		return err
	})
}

// Acceptances returns all that are on record, the newest first; those that are
// expired, used up or revoked too.
func (db *DB) Acceptances(ctx context.Context) (out []task.Acceptance, err error) {
	const op = "inventory.acceptances"
	err = db.snapshot(ctx, func(tx *Tx) error {
		rows, err := tx.tx.QueryContext(ctx, `SELECT record, uses, revoked FROM acceptances ORDER BY created DESC, id LIMIT 1000`)
		if err != nil {
			return db.fail(op, err)
		}
		defer rows.Close()
		for rows.Next() {
			var (
				text    string
				uses    int
				revoked sql.NullInt64
				a       task.Acceptance
			)
			if err := rows.Scan(&text, &uses, &revoked); err != nil {
				return db.fail(op, err)
			}
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				continue // covers nothing
			}
			a.Uses = uses
			if revoked.Valid {
				at := time.Unix(0, revoked.Int64).UTC()
				a.Revoked = &at
			}
			out = append(out, a)
		}
		return rows.Err()
	})
	return out, err
}

// Use counts one use of an acceptance, which must not be revoked or used up.
func (tx *Tx) Use(id string, most int) error {
	const op = "inventory.use"
	n, err := tx.exec(op, `UPDATE acceptances SET uses = uses + 1 WHERE id = ? AND revoked IS NULL AND (? = 0 OR uses < ?)`, id, most, most)
	if err == nil && n == 0 {
		err = task.Errorf(task.CodeBoundaryMissing, op, "the acceptance %s was revoked or used up meanwhile", id).WithHint("`caisson plan` shows what is missing now")
	}
	return err
}

// Revoke takes an acceptance back; what runs under it already runs on.
func (db *DB) Revoke(ctx context.Context, id string) error {
	const op = "inventory.revoke"
	return db.Tx(ctx, func(tx *Tx) error {
		n, err := tx.exec(op, `UPDATE acceptances SET revoked = ? WHERE id = ? AND revoked IS NULL`, db.now().UnixNano(), id)
		if err == nil && n == 0 {
			err = task.Errorf(task.CodeNotFound, op, "no acceptance %s is in force", id).WithHint("`caisson accept --list` shows them")
		}
		return err
	})
}
