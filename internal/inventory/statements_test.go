package inventory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// counted counts what a connection compiles.
type counted struct {
	driverConn
	texts []string
}

func (c *counted) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.texts = append(c.texts, query)
	return c.driverConn.PrepareContext(ctx, query)
}

type countingConnector struct {
	lazyConnector
	made []*counted
}

func (c *countingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.lazyConnector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	n := &counted{driverConn: inner.(*conn).driverConn}
	c.made = append(c.made, n)
	return keepStatements(n), nil
}

func TestStatementsAreCompiledOnce(t *testing.T) {
	ctx, path := t.Context(), dbPath(t)
	db := open(t, path)
	want := newTask("one")
	if err := db.CreateTask(ctx, want); err != nil {
		t.Fatal(err)
	}
	c := &countingConnector{lazyConnector: lazyConnector{dsn(path)}}
	mine := sql.OpenDB(c)
	defer mine.Close()
	mine.SetMaxOpenConns(1)
	read := func(nested bool) (names []string) {
		t.Helper()
		tx, err := mine.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		rows, err := tx.QueryContext(ctx, "SELECT * FROM instance JOIN tasks ORDER BY tasks.name")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		if names, err = rows.Columns(); err != nil {
			t.Fatal(err)
		}
		// The same text again while the first is being read.
		var inner int
		for rows.Next() && nested {
			again, err := tx.QueryContext(ctx, "SELECT * FROM instance JOIN tasks ORDER BY tasks.name")
			if err != nil {
				t.Fatal(err)
			}
			for again.Next() {
				inner++
			}
			again.Close()
		}
		if nested && inner == 0 {
			t.Error("the inner reading saw nothing")
		}
		return names
	}
	before := read(true)
	first := len(c.made[0].texts)
	if got := read(false); !slices.Equal(got, before) || len(c.made[0].texts) != first {
		t.Errorf("compiled again: %q", c.made[0].texts[first:])
	}
	// Whatever another process does to the tables meanwhile is seen: a kept
	// statement is no kept answer, and no kept plan.
	if err := db.CreateTask(ctx, newTask("two")); err != nil {
		t.Fatal(err)
	}
	if _, err := db.sql.ExecContext(ctx, "ALTER TABLE instance ADD COLUMN later TEXT DEFAULT 'x'"); err != nil {
		t.Fatal(err)
	}
	if got := read(true); !slices.Contains(got, "later") {
		t.Errorf("the table as it was: %q", got)
	}
	// One that failed can be used again.
	insert := "INSERT INTO instance (one, id, created, version) VALUES (?, 'x', 1, 'x')"
	for range 3 {
		if _, err := mine.ExecContext(ctx, insert, 1); sqliteCode(err) == 0 {
			t.Fatalf("a second instance: %v", err)
		}
	}
	// What is not asked for again is not kept.
	if _, err := mine.ExecContext(ctx, "PRAGMA user_version"); err != nil {
		t.Fatal(err)
	}
	err := withConn(ctx, mine, func(c *conn) {
		if len(c.idle) == 0 || c.idle["PRAGMA user_version"] != nil {
			t.Errorf("kept: %v", c.idle)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	// Closing ends them all: the last connection that goes away folds the log in.
	if err := mine.Close(); err != nil {
		t.Fatal(err)
	}
}

func withConn(ctx context.Context, db *sql.DB, use func(*conn)) error {
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Raw(func(raw any) error { use(raw.(*conn)); return nil })
}

func TestChildren(t *testing.T) {
	ctx := t.Context()
	db := open(t, dbPath(t))
	parent, other := newTask("parent"), newTask("other")
	a, b, c := newTask("a"), newTask("b"), newTask("c")
	a.View.Parent, b.View.Parent, c.View.Parent = parent.ID(), parent.ID(), other.ID()
	// A text that looks like it makes no child.
	c.View.Problem = `"parent":"` + string(parent.ID()) + `"`
	other.View.Command = []string{`"parent":"`, string(parent.ID()), `{"parent":"` + string(parent.ID()) + `"}`}
	for _, n := range []Task{parent, other, a, b, c} {
		if n.View.Name == "b" { // the clock was set back
			db.now = func() time.Time { return time.Unix(1, 0) }
		}
		if err := db.CreateTask(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []task.State{task.Creating, task.Closing, task.Closed} {
		if err := db.SetState(ctx, b.ID(), s, nil); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[task.ID][]task.ID{parent.ID(): {b.ID(), a.ID()}, other.ID(): {c.ID()}, a.ID(): nil} {
		ts, err := db.Children(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		var got []task.ID
		for _, n := range ts {
			got = append(got, n.ID())
		}
		if !slices.Equal(got, want) {
			t.Errorf("children of %s: %q, not %q", id, got, want)
		}
	}
}
