package inventory

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-dev/caisson/internal/task"
)

var taskStates = []task.State{task.Planned, task.Blocked, task.Creating, task.Probing, task.Ready, task.Paused, task.Closing, task.Closed, task.Kept, task.Stuck}
var resourceStates = []task.ResourceState{task.Intent, task.Present, task.Removing, task.Gone, task.RStuck}

// allowed asks the database itself, below our own checks, whether a row may go
// from one state to another. It brings the row to from with the triggers off.
func allowed(t *testing.T, db *DB, table, from, to string) bool {
	t.Helper()
	tx, err := db.sql.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	must := func(q string) {
		t.Helper()
		if _, err := tx.Exec(q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	extra := ", next_try=1"
	if table == "tasks" {
		extra += ", retain_until=1"
	}
	// Everything is rolled back, also what becomes of the triggers.
	rows, err := tx.Query("SELECT name, sql FROM sqlite_schema WHERE type='trigger'")
	if err != nil {
		t.Fatal(err)
	}
	triggers := map[string]string{}
	for rows.Next() {
		var n, s string
		if err := rows.Scan(&n, &s); err != nil {
			t.Fatal(err)
		}
		triggers[n] = s
	}
	rows.Close()
	for n := range triggers {
		must("DROP TRIGGER " + n)
	}
	must(fmt.Sprintf("UPDATE %s SET state='%s'%s", table, from, extra))
	for _, s := range triggers {
		must(s)
	}
	_, err = tx.Exec(fmt.Sprintf("UPDATE %s SET state=?%s", table, extra), to)
	return err == nil
}

func TestTriggersAgreeWithTables(t *testing.T) {
	db := open(t, dbPath(t))
	nt := newTask("")
	if err := db.CreateTask(t.Context(), nt); err != nil {
		t.Fatal(err)
	}
	for _, a := range taskStates {
		for _, b := range taskStates {
			want := a.MayBecome(b) || a == b && a != task.Closed
			if got := allowed(t, db, "tasks", string(a), string(b)); got != want {
				t.Errorf("task %s to %s: the database says %v, package task %v", a, b, got, want)
			}
		}
		if allowed(t, db, "tasks", string(a), "dreaming") {
			t.Errorf("task %s to a state that does not exist", a)
		}
	}
	if err := db.Intend(t.Context(), nt.ID(), []Resource{res("k", "n")}); err != nil {
		t.Fatal(err)
	}
	for _, a := range resourceStates {
		for _, b := range resourceStates {
			want := mayBecome(a, b) || a == b && a != task.Gone
			if got := allowed(t, db, "resources", string(a), string(b)); got != want {
				t.Errorf("resource %s to %s: the database says %v, the table %v", a, b, got, want)
			}
		}
	}
}

// What the triggers forbid, tried below our own checks; each with a control.
func TestTriggers(t *testing.T) {
	db := open(t, dbPath(t))
	nt, over := newTask("n"), newTask("over")
	if err := errors.Join(db.CreateTask(t.Context(), nt), db.Intend(t.Context(), nt.ID(), []Resource{res("k", "n")}), db.SetHead(t.Context(), nt.ID(), 5, "h5"),
		db.CreateTask(t.Context(), over), db.SetState(t.Context(), over.ID(), task.Closing, nil), db.SetState(t.Context(), over.ID(), task.Closed, nil)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q  string
		ok bool
	}{
		{"UPDATE tasks SET last_error='x' WHERE name='n'", true},
		{"UPDATE tasks SET last_error='x' WHERE name='over'", false},
		{"UPDATE tasks SET id='taaaaaaaaaa' WHERE name='n'", false},
		{"UPDATE tasks SET owner_uid=12345 WHERE name='n'", false},
		{"UPDATE tasks SET state='closing' WHERE name='n'", true},
		{"UPDATE tasks SET state='closed' WHERE name='n'", false}, // resources remain
		{"UPDATE tasks SET state='kept' WHERE name='n'", false},   // without an end
		{"DELETE FROM tasks", false},
		{"DELETE FROM resources", false},
		{"UPDATE resources SET last_error='x'", true},
		{"UPDATE resources SET token='ffffffffffffffffffffffffff'", false},
		{"UPDATE resources SET name='other'", false},
		{"INSERT INTO resources (task,kind,provider,name,token,state,durable,created,updated) SELECT task,kind,provider,'n2',token,'intent',0,1,1 FROM resources", true},
		{"INSERT INTO resources (task,kind,provider,name,token,state,durable,created,updated) SELECT task,kind,provider,'n3',token,'present',0,1,1 FROM resources", false},
		{"INSERT INTO resources (task,kind,provider,name,token,state,durable,created,updated) SELECT '" + string(over.ID()) + "',kind,provider,'n4',token,'intent',0,1,1 FROM resources", false},
		{"INSERT INTO resources (task,kind,provider,name,token,state,durable,created,updated) SELECT 'tbbbbbbbbbb',kind,provider,'n5',token,'intent',0,1,1 FROM resources", false},
		{"UPDATE heads SET seq=6, hash='h6'", true},
		{"UPDATE heads SET seq=5", false},
		{"UPDATE heads SET hash='other'", false},
		{"DELETE FROM heads", false},
		{"DELETE FROM supervisors", true},
	} {
		if _, err := db.sql.Exec(c.q); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.q, err)
		}
	}
}

func TestNames(t *testing.T) {
	ctx, db := t.Context(), open(t, dbPath(t))
	a, b := newTask("a"), newTask("b")
	a.View.ID, b.View.ID = "taaaabbbbcc", "taaaaccccdd"
	if err := errors.Join(db.CreateTask(ctx, a), db.CreateTask(ctx, b)); err != nil {
		t.Fatal(err)
	}
	odd := newTask("%")
	if err := db.CreateTask(ctx, odd); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]task.ID{"a": "taaaabbbbcc", "taaaab": "taaaabbbbcc", "taaaaccccdd": "taaaaccccdd", "%": odd.ID()} {
		if got, err := db.Find(ctx, ref); err != nil || got.ID() != want {
			t.Errorf("find %q: %v %v", ref, got.ID(), err)
		}
	}
	for ref, code := range map[string]task.Code{"taaaa": task.CodeUsage, "": task.CodeUsage, "zzz": task.CodeNotFound, "t_": task.CodeNotFound, "taaaabbbbcd": task.CodeNotFound} {
		_, err := db.Find(ctx, ref)
		wantCode(t, err, code)
		if ref == "taaaa" && (!strings.Contains(err.Error(), "taaaabbbbcc") || !strings.Contains(err.Error(), `"b"`)) {
			t.Errorf("the candidates are not named: %v", err)
		}
	}
	r := res("cgroup", "one")
	if err := db.Intend(ctx, a.ID(), []Resource{r}); err != nil {
		t.Fatal(err)
	}
	if err := db.Intend(ctx, a.ID(), []Resource{r, res("cgroup", "two")}); err != nil {
		t.Fatalf("resuming an intent: %v", err)
	}
	foreign := res("cgroup", "one")
	wantCode(t, db.Intend(ctx, b.ID(), []Resource{res("cgroup", "three"), foreign}), task.CodeConflict)
	wantCode(t, db.Intend(ctx, a.ID(), []Resource{foreign}), task.CodeConflict)
	if rs, _ := db.Resources(ctx, b.ID()); len(rs) != 0 {
		t.Fatalf("a refused intent left %v", rs)
	}
	wantCode(t, db.Intend(ctx, a.ID(), []Resource{{Resource: task.Resource{Kind: "k", Name: "n"}}}), task.CodeInternal)
	// Gone frees the name, keeps the row.
	if err := errors.Join(db.SetResource(ctx, a.ID(), "cgroup", "one", task.Gone, "", nil), db.Intend(ctx, b.ID(), []Resource{foreign})); err != nil {
		t.Fatal(err)
	}
	if rs, _ := db.Resources(ctx, a.ID()); len(rs) != 2 || rs[0].State != task.Gone {
		t.Fatalf("%v", rs)
	}
	wantCode(t, db.SetResource(ctx, b.ID(), "cgroup", "nine", task.Gone, "", nil), task.CodeNotFound)
}

func TestBackoff(t *testing.T) {
	prev := Backoff(0)
	for n := 1; n < 20; n++ {
		b := Backoff(n)
		if b < prev || b > backoff[len(backoff)-1] {
			t.Errorf("backoff %d: %v after %v", n, b, prev)
		}
		prev = b
	}
	if Backoff(1) != backoff[0] || Backoff(1<<40) != backoff[len(backoff)-1] {
		t.Error("ends")
	}
}

func TestMigration(t *testing.T) {
	ctx, path := t.Context(), dbPath(t)
	db := open(t, path)
	nt := newTask("old")
	if err := errors.Join(db.CreateTask(ctx, nt), db.Close()); err != nil {
		t.Fatal(err)
	}
	files, next := fstest.MapFS{}, current.version+1
	for v := 1; v < next; v++ {
		name := fmt.Sprintf("migrations/%04d.sql", v)
		text, err := migrations.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	step := fmt.Sprintf("migrations/%04d.sql", next)
	files[step] = &fstest.MapFile{Data: []byte("CREATE TABLE two (x); INSERT INTO two VALUES (1); SELECT broken")}
	if _, err := openSchema(ctx, path, schema{files, next}); task.CodeOf(err) != task.CodeStateStore {
		t.Fatalf("a broken migration: %v", err)
	}
	open(t, path).Close() // the old one still works: the step was undone
	files[step].Data = []byte("CREATE TABLE two (x); INSERT INTO two VALUES (1)")
	newer, err := openSchema(ctx, path, schema{files, next})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := newer.Find(ctx, "old"); err != nil || got.ID() != nt.ID() || newer.Instance() != db.Instance() {
		t.Fatalf("after the migration: %v %v", got, err)
	}
	_ = newer.Close()
	_, err = Open(ctx, path)
	wantCode(t, err, task.CodeStateStore)
	if !strings.Contains(err.Error(), "newer") || task.HintOf(err) == "" {
		t.Fatalf("newer schema: %v", err)
	}
	backup := fmt.Sprintf("%s.before-%d", path, next)
	if fi, err := os.Stat(backup); err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("backup: %v %v", fi, err)
	}
	old, err := sql.Open("sqlite", backup)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	var n int
	if err := old.QueryRow("SELECT count(*) FROM tasks").Scan(&n); err != nil || n != 1 {
		t.Fatalf("backup has %d tasks: %v", n, err)
	}
}

func TestPlaces(t *testing.T) {
	base := t.TempDir()
	bad := func(name, path string) {
		t.Helper()
		db, err := Open(t.Context(), path)
		if err == nil {
			_ = db.Close()
			t.Errorf("%s was accepted", name)
			return
		}
		if task.CodeOf(err) != task.CodeStateStore || task.HintOf(err) == "" {
			t.Errorf("%s: %v (code %s, hint %q)", name, err, task.CodeOf(err), task.HintOf(err))
		}
	}
	open(t, filepath.Join(base, "a b?c#d%41", "state.db")) // control, and odd characters
	if _, err := os.Stat(filepath.Join(base, "a b?c#d%41", "state.db")); err != nil {
		t.Error(err)
	}
	bad("a relative path", "state.db")
	real := filepath.Join(base, "real")
	if err := errors.Join(os.Mkdir(real, 0o700), os.Symlink(real, filepath.Join(base, "link"))); err != nil {
		t.Fatal(err)
	}
	bad("a link", filepath.Join(base, "link", "state.db"))
	wide := filepath.Join(base, "wide")
	if err := errors.Join(os.Mkdir(wide, 0o700), os.Chmod(wide, 0o777)); err != nil {
		t.Fatal(err)
	}
	bad("a folder that others write to", filepath.Join(wide, "state.db"))
	junk := filepath.Join(base, "junk", "state.db")
	if err := errors.Join(os.Mkdir(filepath.Dir(junk), 0o700), os.WriteFile(junk, []byte(strings.Repeat("not a database ", 100)), 0o600)); err != nil {
		t.Fatal(err)
	}
	bad("a file that is no database", junk)
	if os.Geteuid() == 0 {
		if err := os.Chown(real, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		bad("a folder of another user", filepath.Join(real, "state.db"))
		t.Log("as root every folder is writable: the read-only folder is tried by the unprivileged run")
		return
	}
	if err := os.Chmod(real, 0o500); err != nil {
		t.Fatal(err)
	}
	bad("a read-only folder", filepath.Join(real, "state.db"))
}
