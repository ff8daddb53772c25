//go:build linux

package lifecycle

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the inventory's file, to move a date in it
)

// expire moves the end of a task's retention to an hour ago: there is no way
// to ask the program for it, and none is wanted.
func expire(t *testing.T, state, id string) {
	t.Helper()
	update(t, state, `UPDATE tasks SET retain_until = ?1, view = json_set(view, '$.retention.until', ?2) WHERE id = ?3`,
		time.Now().Add(-time.Hour).UnixNano(), time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano), id)
}

// update changes the inventory behind the program's back.
func update(t *testing.T, state, query string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+state+"/state.db?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// query returns the one value of a statement about the inventory.
func query(t *testing.T, state, q string) (value string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+state+"/state.db?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(context.Background(), q).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}
