package inventory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

func open(t *testing.T, path string) *DB {
	t.Helper()
	db, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func dbPath(t *testing.T) string { return filepath.Join(t.TempDir(), "state", "state.db") }

func newTask(name string) Task {
	return Task{View: task.View{Schema: "caisson.task/1", ID: task.NewID(), Name: name, Backend: "linux"}, Repo: "/r", OwnerUID: os.Getuid()}
}

func res(kind, name string) Resource {
	return Resource{Resource: task.Resource{Kind: kind, Name: name, Token: task.NewToken()}, Provider: "linux"}
}

func wantCode(t *testing.T, err error, code task.Code) {
	t.Helper()
	if task.CodeOf(err) != code {
		t.Fatalf("error %v has code %q, want %q", err, task.CodeOf(err), code)
	}
}

func TestLife(t *testing.T) {
	ctx, path := t.Context(), dbPath(t)
	db := open(t, path)
	if len(db.Instance()) != 8 {
		t.Fatalf("instance %q", db.Instance())
	}
	self, err := sys.Self()
	if err != nil {
		t.Fatal(err)
	}
	want := newTask("demo")
	want.Repo = "/home/\xff\xfe/repo"
	want.View.Source.Repo = want.Repo
	want.View.Command = []string{"a\xffb", rawPrefix + "x", "plain"}
	a, b := res("cgroup", "caisson-a"), res("process", "caisson-b")
	err = db.Tx(ctx, func(tx *Tx) error {
		return errors.Join(tx.CreateTask(want), tx.Intend(want.ID(), []Resource{a, b}),
			tx.SetSupervisor(want.ID(), Supervisor{Process: ProcessOf(self), LockPath: "/l"}), tx.SetState(want.ID(), task.Creating, nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, db.CreateTask(ctx, newTask("demo")), task.CodeConflict)
	if err := db.SetResources(ctx, want.ID(), []ResourceChange{{Kind: "cgroup", Name: "caisson-a", State: task.Present, External: "x1"}, {Kind: "process", Name: "caisson-b", State: task.Present}}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []task.State{task.Probing, task.Ready, task.Closing} {
		if err := db.SetState(ctx, want.ID(), s, nil); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, db.SetState(ctx, want.ID(), task.Ready, nil), task.CodeState)
	wantCode(t, db.SetState(ctx, want.ID(), task.Closed, nil), task.CodeState) // resources remain
	got, err := db.Find(ctx, "demo")
	if err != nil {
		t.Fatal(err)
	}
	if got.Repo != want.Repo || got.View.Source.Repo != want.Repo || !reflect.DeepEqual(got.View.Command, want.View.Command) {
		t.Fatalf("bytes were changed: %+v", got.View)
	}
	if got.View.State != task.Closing || len(got.View.Resources) != 2 || got.View.Resources[0].External != "x1" || got.View.Supervisor.PID != os.Getpid() {
		t.Fatalf("got %+v", got.View)
	}
	if due, err := db.Due(ctx, time.Now().Add(100*time.Hour)); err != nil || len(due) != 0 {
		t.Fatalf("a living supervisor's task is due: %v %v", due, err)
	}
	dead := ProcessOf(self)
	dead.BootID = "earlier"
	if err := db.SetSupervisor(ctx, want.ID(), Supervisor{Process: dead}); err != nil {
		t.Fatal(err)
	}
	if due, err := db.Due(ctx, time.Now()); err != nil || len(due) != 1 || due[0].Why != Abandoned {
		t.Fatalf("due %v %v", due, err)
	}
	if err := db.SetResource(ctx, want.ID(), "cgroup", "caisson-a", task.RStuck, "", errors.New("busy")); err != nil {
		t.Fatal(err)
	}
	if err := db.SetState(ctx, want.ID(), task.Stuck, func(v *task.View) { v.Problem = "cgroup busy" }); err != nil {
		t.Fatal(err)
	}
	if due, _ := db.Due(ctx, time.Now()); len(due) != 0 {
		t.Fatalf("due before the backoff: %v", due)
	}
	if due, _ := db.Due(ctx, time.Now().Add(61*time.Second)); len(due) != 1 || due[0].Why != Retry || due[0].Task.LastError != "cgroup busy" {
		t.Fatalf("due after the backoff: %v", due)
	}
	for _, r := range []string{"cgroup caisson-a", "process caisson-b", "cgroup caisson-a"} { // gone twice is fine
		kind, name, _ := strings.Cut(r, " ")
		if err := db.SetResource(ctx, want.ID(), kind, name, task.Gone, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, db.SetResource(ctx, want.ID(), "cgroup", "caisson-a", task.Present, "", nil), task.CodeState)
	if err := errors.Join(db.ClearSupervisor(ctx, want.ID()), db.SetState(ctx, want.ID(), task.Closing, nil), db.SetState(ctx, want.ID(), task.Closed, nil)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, db.Update(ctx, want.ID(), func(v *task.View) { v.Problem = "x" }), task.CodeState)
	if err := db.CreateTask(ctx, newTask("demo")); err != nil {
		t.Fatalf("the name of a closed task stays taken: %v", err)
	}
}

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "state", "state.db")
	db, err := Open(context.Background(), path)
	if err != nil {
		b.Fatal(err)
	}
	_ = db.Close()
	for i := 0; b.Loop(); i++ {
		db, err := Open(context.Background(), path)
		if err != nil {
			b.Fatal(err)
		}
		_ = db.Close()
	}
}

func BenchmarkOpenTx(b *testing.B) {
	path := filepath.Join(b.TempDir(), "state", "state.db")
	for i := 0; b.Loop(); i++ {
		db, err := Open(context.Background(), path)
		if err != nil {
			b.Fatal(err)
		}
		if err := db.CreateTask(context.Background(), newTask(fmt.Sprint("n", i))); err != nil {
			b.Fatal(err)
		}
		_ = db.Close()
	}
}

func BenchmarkTx(b *testing.B) {
	db, err := Open(context.Background(), filepath.Join(b.TempDir(), "state", "state.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for i := 0; b.Loop(); i++ {
		if err := db.CreateTask(context.Background(), newTask(fmt.Sprint("n", i))); err != nil {
			b.Fatal(err)
		}
	}
}

func TestCancelAndPanic(t *testing.T) {
	db := open(t, dbPath(t))
	ctx, cancel := context.WithCancel(t.Context())
	a := newTask("a")
	err := db.Tx(ctx, func(tx *Tx) error {
		if err := tx.CreateTask(a); err != nil {
			return err
		}
		cancel()
		return tx.Intend(a.ID(), []Resource{res("k", "n")})
	})
	wantCode(t, err, task.CodeCanceled)
	func() {
		defer func() { _ = recover() }()
		_ = db.Tx(t.Context(), func(tx *Tx) error {
			if err := tx.CreateTask(a); err != nil {
				return err
			}
			panic("x")
		})
	}()
	if ts, err := db.List(t.Context(), true); err != nil || len(ts) != 0 {
		t.Fatalf("%v %v", ts, err)
	}
	if err := db.CreateTask(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

// Files that are kept for a while must not block the next attempt under the
// same name, and the name then means the task that lives.
func TestNameIsFreeOnceKept(t *testing.T) {
	ctx := context.Background()
	db, err := Open(ctx, filepath.Join(t.TempDir(), "s", "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	make := func() task.ID {
		id := task.NewID()
		if err := db.CreateTask(ctx, Task{View: task.View{ID: id, Name: "fix", Created: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		return id
	}
	old := make()
	if err := db.CreateTask(ctx, Task{View: task.View{ID: task.NewID(), Name: "fix", Created: time.Now()}}); task.CodeOf(err) != task.CodeConflict {
		t.Fatalf("a name of a living task was given again: %v", err)
	}
	if err := db.CreateTask(ctx, Task{View: task.View{ID: task.NewID(), Name: string(old), Created: time.Now()}}); task.CodeOf(err) != task.CodeConflict {
		t.Fatalf("a task is named as another one's id: %v", err)
	}
	for _, s := range []task.State{task.Closing, task.Kept} {
		if err := db.SetState(ctx, old, s, func(v *task.View) { v.Retention = &task.Retention{Until: time.Now().Add(time.Hour)} }); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := db.Find(ctx, "fix"); err != nil || got.ID() != old {
		t.Fatalf("the kept task alone: %v, %v", got.ID(), err)
	}
	young := make()
	if got, err := db.Find(ctx, "fix"); err != nil || got.ID() != young {
		t.Fatalf("kept and living: %v, %v", got.ID(), err)
	}
	// The kept one ends while the other holds the name.
	if err := db.SetState(ctx, old, task.Closing, nil); err != nil {
		t.Fatal(err)
	}
	// Of two that are over the newer is meant, whichever changed last.
	for _, s := range []task.State{task.Closing, task.Kept} {
		if err := db.SetState(ctx, young, s, func(v *task.View) { v.Retention = &task.Retention{Until: time.Now().Add(time.Hour)} }); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Update(ctx, old, func(v *task.View) {}); err != nil {
		t.Fatal(err)
	}
	if got, err := db.Find(ctx, "fix"); err != nil || got.ID() != young {
		t.Fatalf("two that are over: %v, %v", got.ID(), err)
	}
}
