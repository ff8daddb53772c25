// Package inventory remembers every task and every resource caisson made,
// across crashes and for several processes at once.
//
// Its limit: it forgets nothing without being told that absence was observed,
// and it acts on nothing: it makes, probes and removes no resource.
//
// Cost: every change is one transaction and one fsync (a few milliseconds on a
// disk), however much it holds: put what belongs together into one Tx. The
// first change after the last process closed the database costs one more.
// Reads cost none.
package inventory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"modernc.org/sqlite"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Extended result codes of SQLite that are told apart here.
const (
	sqliteBusy      = 5
	sqliteReadOnly  = 8
	sqliteInterrupt = 9
	sqliteIO        = 10
	sqliteCorrupt   = 11
	sqliteFull      = 13
	sqliteCantOpen  = 14
	sqliteNotADB    = 26

	sqliteUnique  = 2067
	sqliteTrigger = 1811
)

var _ = sys.RegisterFaults("inventory.commit.before", "inventory.commit.after")

// DB is an open inventory. Safe for concurrent use; within a process, changes
// are made one at a time.
type DB struct {
	sql    *sql.DB
	path   string
	now    func() time.Time
	schema schema

	mu       sync.Mutex
	opened   bool   // guarded by mu: checked, and as this program expects it
	instance string // guarded by mu
}

// Open opens the inventory at path (an absolute path of a file), creating it
// and its folder when absent and bringing an older one up to date after a
// backup beside it. Errors have code state_store and a hint: network file
// system, folder not private or not writable, made by a newer version.
func Open(ctx context.Context, path string) (*DB, error) {
	return openSchema(ctx, path, current)
}

// Later is Open at the first use: nothing is touched before, and what Open would
// return is what that use returns. It is for a command that may not need the
// inventory at all; opening and closing it takes two milliseconds.
func Later(path string) *DB { return newDB(path, current) }

func newDB(path string, s schema) *DB {
	db := &DB{path: path, now: time.Now, schema: s, sql: sql.OpenDB(lazyConnector{dsn(path)})}
	db.sql.SetMaxOpenConns(1)
	db.sql.SetMaxIdleConns(1)
	db.sql.SetConnMaxLifetime(0)
	return db
}

func openSchema(ctx context.Context, path string, s schema) (*DB, error) {
	db := newDB(path, s)
	if err := db.ready(ctx); err != nil {
		_ = db.sql.Close()
		return nil, err
	}
	return db, nil
}

// ready does once what Open promises. A failure is tried again by the next use.
func (db *DB) ready(ctx context.Context) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.opened {
		return nil
	}
	_, serr := os.Stat(db.path)
	if err := db.checkPlace(); err != nil {
		return err
	}
	version := 0
	if serr == nil {
		var err error
		if version, err = db.readVersionLocked(ctx); err != nil {
			return err
		}
	}
	if version != db.schema.version {
		if err := db.migrateLocked(ctx); err != nil {
			return err
		}
	}
	db.opened = true
	return nil
}

// busySeconds is how long one command waits for the write lock. SQLite's waiters
// do not queue, they look again from time to time: of a hundred commands at once
// on a slow disk some wait many times as long as one transaction takes.
const busySeconds = 60

// dsn keeps to what every driver understands, so that the driver can change.
// journal_mode is not here: it is a property of the file, set at creation.
func dsn(path string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	if u.Path != "" && u.Path[0] != '/' {
		u.Path = "/" + u.Path // a drive letter
	}
	u.RawQuery = fmt.Sprintf("_txlock=immediate&_pragma=busy_timeout(%d)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&_pragma=journal_size_limit(0)", busySeconds*1000)
	return u.String()
}

const placeHint = "set CAISSON_STATE_DIR to a folder of your own on a local disk"

// CheckDisk refuses a folder, which need not exist yet, that cannot hold an
// inventory because of where it lies, without touching anything.
func CheckDisk(dir string) error {
	const op = "inventory.open"
	if !filepath.IsAbs(dir) {
		return task.Errorf(task.CodeStateStore, op, "the state folder %q is not an absolute path", dir).WithHint(placeHint)
	}
	name, network, err := sys.IsNetworkFS(dir)
	if err != nil {
		return task.Errorf(task.CodeStateStore, op, "cannot look at the state folder: %w", err).WithHint(placeHint)
	}
	if network {
		return task.Errorf(task.CodeStateStore, op, "the state folder %s lies on a network file system (%s), where locks between processes cannot be trusted", dir, name).WithHint(placeHint)
	}
	return nil
}

func (db *DB) checkPlace() error {
	const op = "inventory.open"
	dir, hint := filepath.Dir(db.path), placeHint
	if err := CheckDisk(dir); err != nil {
		return err
	}
	if err := sys.PrivateDir(dir); err != nil {
		h := hint
		if errors.Is(err, sys.ErrNotPrivate) {
			h = fmt.Sprintf("check who made it, then chmod 700 %s; or %s", dir, hint)
		}
		return task.Errorf(task.CodeStateStore, op, "cannot use the state folder: %w", err).WithHint("%s", h)
	}
	for _, p := range []string{dir, db.path} {
		if err := sys.Writable(p); err != nil && !(p == db.path && errors.Is(err, os.ErrNotExist)) {
			return task.Errorf(task.CodeStateStore, op, "cannot write to the state folder: %w", err).WithHint("%s", hint)
		}
	}
	return nil
}

// Close closes the inventory.
func (db *DB) Close() error {
	if err := db.sql.Close(); err != nil {
		return db.fail("inventory.close", err)
	}
	return nil
}

// RestAfter lets go of the connection, its memory and its descriptors when the
// inventory was not used for d; the next use opens one again. It is for
// a process that mostly sleeps. When no other process holds the database, that
// closes it: see Cost above.
func (db *DB) RestAfter(d time.Duration) { db.sql.SetConnMaxIdleTime(d) }

// Rest lets go of the connection now, where nobody uses it.
func (db *DB) Rest() {
	db.sql.SetMaxIdleConns(0)
	db.sql.SetMaxIdleConns(1)
}

// Instance returns the eight characters that name this installation in labels
// and resource names; empty before the first use of what Later returned.
func (db *DB) Instance() string {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.instance
}

// Path returns the file given to Open.
func (db *DB) Path() string { return db.path }

// Checkpoint folds the write-ahead log into the database file. It is never
// needed for durability.
func (db *DB) Checkpoint(ctx context.Context) error {
	if err := db.ready(ctx); err != nil {
		return err
	}
	if _, err := db.sql.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return db.fail("inventory.checkpoint", err)
	}
	return nil
}

// Tx makes every change that fn makes through its argument durable at once, or
// none when fn returns an error, at the cost of one fsync. It waits up to a
// minute for other processes. fn must not use the DB and should be quick: it
// holds the only write lock. When ctx ends before the commit nothing was changed
// and the error has code canceled.
func (db *DB) Tx(ctx context.Context, fn func(*Tx) error) error {
	if err := db.ready(ctx); err != nil {
		return err
	}
	return db.begin(ctx, fn)
}

// begin is Tx on a database that is being made ready.
func (db *DB) begin(ctx context.Context, fn func(*Tx) error) error {
	const op = "inventory.tx"
	stx, err := db.sql.BeginTx(ctx, nil)
	if err != nil {
		return db.fail(op, err)
	}
	// Also when fn panics: the only connection must not stay inside.
	defer func() { _ = stx.Rollback() }()
	if err := fn(&Tx{tx: stx, db: db, ctx: ctx}); err != nil {
		return err
	}
	if err := sys.Fault("inventory.commit.before"); err != nil {
		return db.fail(op, err)
	}
	if err := stx.Commit(); err != nil {
		return db.fail(op, err)
	}
	if err := sys.Fault("inventory.commit.after"); err != nil {
		return db.fail(op, err)
	}
	return nil
}

// fail turns an error of the database into one for a person.
func (db *DB) fail(op string, err error) error {
	var te *task.Error
	if errors.As(err, &te) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrTxDone) || sqliteCode(err) == sqliteInterrupt {
		return task.Errorf(task.CodeCanceled, op, "interrupted while waiting for the inventory: %w", err)
	}
	code := sqliteCode(err) & 0xff
	e := task.Errorf(task.CodeStateStore, op, "the inventory %s cannot be used: %w", db.path, db.cause(code, err))
	switch code {
	case sqliteBusy:
		return e.WithHint("other caisson processes held it for %d seconds; try again", busySeconds)
	case sqliteReadOnly, sqliteCantOpen:
		return e.WithHint("make the folder writable or set CAISSON_STATE_DIR to another; where it is writable, `ulimit -n` may be too low")
	case sqliteIO:
		return e.WithHint("check the disk that holds it")
	case sqliteCorrupt, sqliteNotADB:
		return e.WithHint("move the file aside; tasks it knew must then be looked after by hand")
	}
	return e
}

// cause names what the machine is out of where SQLite does not say it.
func (db *DB) cause(code int, err error) error {
	switch code {
	case sqliteFull:
		return &task.OutOf{Err: err, Errno: syscall.ENOSPC}
	case sqliteReadOnly, sqliteCantOpen, sqliteIO:
		var errno syscall.Errno
		if errors.As(sys.OutOfFiles(), &errno) {
			return &task.OutOf{Err: err, Errno: errno}
		}
		if errno = sys.Refuses(filepath.Dir(db.path)); errno != 0 {
			return &task.OutOf{Err: err, Errno: errno}
		}
		if code == sqliteIO {
			return &task.OutOf{Err: err, Errno: syscall.EIO}
		}
	}
	return err
}

func sqliteCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}
