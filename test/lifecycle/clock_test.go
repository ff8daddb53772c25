//go:build linux

package lifecycle

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/test/harness"
)

// TestClock moves every time that is on record into the future, as if the clock
// had been set back since, and into the past, while one task is open and one is
// kept. Both go on; nothing is lost but kept files whose time is over.
func TestClock(t *testing.T) {
	t.Parallel()
	const years = 10 * 365 * 24 * time.Hour
	for name, by := range map[string]time.Duration{"set back": years, "set forward": -years} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, harness.NewIdentity(t, "clock", os.Getuid()), harness.Bin())
			w.ok("run", "--name", "kept", "--", "sh", "-c", job)
			w.ok("open", "x")
			w.ok("exec", "x", "--", "sh", "-c", job)
			k, x := w.show("kept").ID, w.show("x").ID
			shift(t, w.State, by)
			for _, id := range []string{k, x} {
				move(t, w.State+"/tasks/"+id, by)
			}

			w.ok("exec", "x", "--", "sh", "-c", "echo later >later.txt")
			if out := w.ok("diff", "--stat", "x"); !strings.Contains(out, "later.txt") || !strings.Contains(out, "c.txt") {
				t.Errorf("diff: %s", out)
			}
			w.reap()
			state := w.show(k).State
			switch {
			case by > 0 && state != "kept":
				t.Errorf("what is to be kept is %s", state)
			case by > 0:
				w.ok("resume", k)
				w.ok("exec", k, "--", "test", "-f", "i.ignored")
				w.ok("keep", k, "--for", "1h", "--reason", "again")
				w.do(nil, "close", k)
			case state != "closed":
				t.Errorf("what was to be kept until ten years ago is %s", state)
			}
			for _, id := range []string{k, x} {
				if id == x {
					w.ok("apply", "--dry-run", x)
					w.do(nil, "close", x)
				}
				if got := w.blobs(id, "heads/main:c.txt", "worktree:u.txt"); got[0] != "committed\n" || got[1] != "uncommitted\n" {
					t.Errorf("%s: %q", id, got)
				}
				if _, err := evidence.Verify(w.State+"/tasks/"+id+"/evidence", evidence.Head{}); err != nil {
					t.Errorf("the record of %s: %v", id, err)
				}
				ev := strings.Join(w.events(id), " ")
				if !strings.HasPrefix(ev, "task.created ") || strings.Count(ev, "call.intent") != strings.Count(ev, "call.outcome") {
					t.Errorf("the record of %s: %s", id, ev)
				}
			}
			w.clean()
		})
	}
}

// stamp is a time in a task's view.
var stamp = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[0-9:.]+Z"`)

// shift adds to every time in the inventory.
func shift(t *testing.T, state string, by time.Duration) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+state+"/state.db?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it says so
	do := func(q string, args ...any) {
		t.Helper()
		if _, err := tx.Exec(q, args...); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	list := func(q string) (out [][2]string) {
		t.Helper()
		rows, err := tx.Query(q)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var r [2]string
			if err := rows.Scan(&r[0], &r[1]); err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
		return out
	}
	guards := list(`SELECT name, sql FROM sqlite_master WHERE type = 'trigger'`)
	for _, g := range guards {
		do(`DROP TRIGGER ` + g[0])
	}
	for table, columns := range map[string]string{"instance": "created", "tasks": "created updated retain_until next_try", "supervisors": "started", "resources": "created updated next_try"} {
		for _, c := range strings.Fields(columns) {
			do(fmt.Sprintf(`UPDATE %s SET %s = %s + ?`, table, c, c), int64(by))
		}
	}
	for _, v := range list(`SELECT id, view FROM tasks`) {
		do(`UPDATE tasks SET view = ? WHERE id = ?`, moved(t, v[1], by), v[0])
	}
	for _, g := range guards {
		do(g[1])
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// moved returns JSON with its times moved.
func moved(t *testing.T, text string, by time.Duration) string {
	t.Helper()
	return stamp.ReplaceAllStringFunc(text, func(s string) string {
		at, err := time.Parse(`"`+time.RFC3339Nano+`"`, s)
		if err != nil {
			t.Fatal(err)
		}
		return at.Add(by).Format(`"` + time.RFC3339Nano + `"`)
	})
}

// move moves the times of a task's source: those in the record of it, and the
// times of its files that can be set.
func move(t *testing.T, dir string, by time.Duration) {
	t.Helper()
	path := dir + "/shadow.git/caisson.json"
	text, err := os.ReadFile(path)
	var s map[string]any
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"cutoff_s", "begun_s"} {
		at, ok := s[k].(float64)
		if !ok {
			t.Fatalf("the record has no %s: %s", k, text)
		}
		s[k] = int64(at + by.Seconds())
	}
	if text, err = json.Marshal(s); err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(by)
	for _, p := range []string{"/lock", "/task.json", "/evidence/events.jsonl"} {
		if err := os.Chtimes(filepath.Join(dir, p), at, at); err != nil {
			t.Fatal(err)
		}
	}
}
