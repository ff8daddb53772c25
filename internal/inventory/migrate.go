package inventory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"modernc.org/sqlite"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schema is a numbered list of migrations: migrations/0001.sql and so on.
// Migrations that were released are never edited.
type schema struct {
	files   fs.FS
	version int // of the newest
}

var current = schema{migrations, 3}

var _ = sys.RegisterFaults("inventory.migrate.before", "inventory.migrate.after")

// lazyConnector opens a connection only when one is used.
type lazyConnector struct{ dsn string }

func (c lazyConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Driver().Open(c.dsn)
	if err != nil {
		return nil, err
	}
	// The last one that closes leaves the two files beside the database, emptied:
	// on a disk that fails later nobody could make them, and so nobody read it.
	if f, ok := conn.(sqlite.FileControl); ok {
		_, err = f.FileControlPersistWAL("main", 1)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return keepStatements(conn), nil
}

func (c lazyConnector) Driver() driver.Driver { return theDriver }

var theDriver = &sqlite.Driver{}

// readVersionLocked reads version and instance. A file without tables is version
// 0. Needs mu.
func (db *DB) readVersionLocked(ctx context.Context) (int, error) {
	const op = "inventory.open"
	var version int
	if err := db.sql.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return 0, db.fail(op, err)
	}
	if version > db.schema.version {
		return 0, task.Errorf(task.CodeStateStore, op, "the inventory %s was made by a newer caisson (schema %d, this one knows %d)", db.path, version, db.schema.version).
			WithHint("use the newer caisson, or set CAISSON_STATE_DIR to another folder")
	}
	if version == 0 {
		return 0, nil
	}
	if err := db.sql.QueryRowContext(ctx, "SELECT id FROM instance").Scan(&db.instance); err != nil {
		return 0, db.fail(op, err)
	}
	return version, nil
}

// migrateLocked creates the inventory or brings it up to date, one process at a
// time. Needs mu.
func (db *DB) migrateLocked(ctx context.Context) error {
	const op = "inventory.migrate"
	lock, err := sys.Lock(ctx, filepath.Join(filepath.Dir(db.path), "migrate.lock"))
	if err != nil {
		return db.fail(op, err)
	}
	defer lock.Unlock()
	// Made here so that nobody else can read it; SQLite gives its other files
	// the same mode.
	f, err := os.OpenFile(db.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return db.fail(op, err)
	}
	if err := f.Close(); err != nil {
		return db.fail(op, err)
	}
	version, err := db.readVersionLocked(ctx) // again: another process may have been faster
	if err != nil || version == db.schema.version {
		return err
	}
	if version == 0 {
		if _, err := db.sql.ExecContext(ctx, "PRAGMA journal_mode=WAL"); err != nil {
			return db.fail(op, err)
		}
	} else if err := db.backup(ctx, version); err != nil {
		return err
	}
	for v := version + 1; v <= db.schema.version; v++ {
		if err := db.step(ctx, v); err != nil {
			return err
		}
	}
	if err := sys.SyncDir(filepath.Dir(db.path)); err != nil {
		return db.fail(op, err)
	}
	_, err = db.readVersionLocked(ctx)
	return err
}

// step runs migration v in one transaction with its number.
func (db *DB) step(ctx context.Context, v int) error {
	const op = "inventory.migrate"
	text, err := fs.ReadFile(db.schema.files, fmt.Sprintf("migrations/%04d.sql", v))
	if err != nil {
		return db.fail(op, err)
	}
	if err := sys.Fault("inventory.migrate.before"); err != nil {
		return db.fail(op, err)
	}
	err = db.begin(ctx, func(tx *Tx) error {
		if _, err := tx.tx.ExecContext(ctx, string(text)); err != nil {
			return db.fail(op, err)
		}
		if v == 1 {
			if _, err := tx.tx.ExecContext(ctx, "INSERT INTO instance (one, id, created, version) VALUES (1, ?, ?, ?)",
				task.NewToken()[:8], db.now().UnixNano(), fmt.Sprint("schema/", v)); err != nil {
				return db.fail(op, err)
			}
		}
		if _, err := tx.tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", v)); err != nil {
			return db.fail(op, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := sys.Fault("inventory.migrate.after"); err != nil {
		return db.fail(op, err)
	}
	return nil
}

// backup copies the database beside itself before it is changed.
func (db *DB) backup(ctx context.Context, version int) error {
	const op = "inventory.backup"
	to := fmt.Sprintf("%s.before-%d", db.path, db.schema.version)
	// One of an attempt that was cut short is worth nothing.
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return db.fail(op, err)
	}
	if _, err := db.sql.ExecContext(ctx, "VACUUM INTO ?", to); err != nil {
		return db.fail(op, err)
	}
	if err := os.Chmod(to, 0o600); err != nil {
		return db.fail(op, err)
	}
	return nil
}

// snapshot runs fn on one consistent state of the database, without a write
// lock and without an fsync.
func (db *DB) snapshot(ctx context.Context, fn func(*Tx) error) error {
	if err := db.ready(ctx); err != nil {
		return err
	}
	stx, err := db.sql.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return db.fail("inventory.read", err)
	}
	defer stx.Rollback()
	return fn(&Tx{tx: stx, db: db, ctx: ctx})
}
