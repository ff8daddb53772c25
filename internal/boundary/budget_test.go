package boundary

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// waiting is a decision about a task that takes one of most places.
func waiting(most int, full policy.Full) *decided {
	d := &decided{budget: policy.MergedBudget{Tasks: policy.Set[policy.Count]{Value: policy.Count(most)}, WhenFull: policy.Set[policy.Full]{Value: full}}}
	return d
}

// another is a manager with its own connection, as another process has.
func another(t *testing.T, state string) *Manager {
	t.Helper()
	db, err := inventory.Open(t.Context(), filepath.Join(state, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return New(Config{StateDir: state, DB: db})
}

// try records one task, or says what is in the way.
func (r *room) try(ctx context.Context, d *decided) (full *noRoom, err error) {
	p, err := sys.Self()
	if err != nil {
		return nil, err
	}
	err = r.m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) (err error) {
		if full, err = r.enter(tx, d); err != nil || full != nil {
			return err
		}
		if err := tx.CreateTask(inventory.Task{View: task.View{ID: r.id, Name: r.name, Limits: d.spec.Limits}, OwnerUID: os.Getuid()}); err != nil {
			return err
		}
		return tx.SetSupervisor(r.id, inventory.Supervisor{Process: inventory.ProcessOf(p)})
	})
	return full, err
}

func end(ctx context.Context, m *Manager, id task.ID) error {
	return m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		if err := tx.SetState(id, task.Closing, nil); err != nil {
			return err
		}
		return tx.SetState(id, task.Closed, nil)
	})
}

// TestRoomAtOnce has twenty ask at once for three places: three get one. Without
// a budget all do.
func TestRoomAtOnce(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{3: 3, 0: 20} {
		state := filepath.Join(t.TempDir(), "state")
		var wg sync.WaitGroup
		var mu sync.Mutex
		in, refused := 0, 0
		managers := make([]*Manager, 20)
		for i := range managers {
			managers[i] = another(t, state)
		}
		for _, m := range managers {
			wg.Go(func() {
				r := &room{m: m, id: task.NewID()}
				full, err := r.try(t.Context(), waiting(most, policy.FullRefuse))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && full == nil:
					in++
				case task.CodeOf(err) == task.CodeUnavailable:
					refused++
				default:
					t.Errorf("%v, %v", full, err)
				}
			})
		}
		wg.Wait()
		ts, ws, err := managers[0].cfg.DB.Holders(t.Context())
		if in != want || refused != 20-want || len(ts) != want || len(ws) != 0 || err != nil {
			t.Errorf("%d of 20 got one of %d places, %d were refused, %d are on record, %d wait (%v)", in, most, refused, len(ts), len(ws), err)
		}
	}
}

// TestRoomInTurn has several wait for one place, among them one that gives up and
// one whose process is dead: the others get it in the order in which they came.
func TestRoomInTurn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	state := filepath.Join(t.TempDir(), "state")
	first := another(t, state)
	holder := &room{m: first, id: task.NewID()}
	if full, err := holder.try(ctx, waiting(1, policy.FullWait)); full != nil || err != nil {
		t.Fatal(full, err)
	}
	var mu sync.Mutex
	var order []int
	var wg sync.WaitGroup
	gone, giveUp := context.WithCancel(ctx)
	tickets := func() int {
		_, ws, err := first.cfg.DB.Holders(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(ws)
	}
	for i := range 5 {
		m := another(t, state)
		mine := ctx
		if i == 1 {
			mine = gone
		}
		wg.Go(func() {
			r := &room{m: m, id: task.NewID(), name: fmt.Sprint("n", i)}
			defer r.leave(ctx)
			d := waiting(1, policy.FullWait)
			for {
				full, err := r.try(mine, d)
				if full == nil && err == nil {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					if err := end(ctx, m, r.id); err != nil {
						t.Error(err)
					}
					return
				}
				if err == nil {
					err = r.wait(mine, d, full, nil)
				}
				if err != nil {
					if i != 1 || task.CodeOf(err) != task.CodeCanceled {
						t.Errorf("%d: %v", i, err)
					}
					return
				}
			}
		})
		for end := time.Now().Add(time.Minute); tickets() != i+1; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d does not wait", i)
			}
		}
		if i == 2 {
			plantDead(t, first)
		}
	}
	// Who did not wait finds that others do.
	if _, err := (&room{m: first, id: task.NewID()}).try(ctx, waiting(2, policy.FullRefuse)); task.CodeOf(err) != task.CodeUnavailable {
		t.Errorf("one that came last got in before those who wait: %v", err)
	}
	giveUp()
	if err := end(ctx, first, holder.id); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if !slices.Equal(order, []int{0, 2, 3, 4}) {
		t.Errorf("in order %v", order)
	}
	if err := first.cfg.DB.Forget(ctx); err != nil {
		t.Fatal(err)
	}
	if ts, ws, err := first.cfg.DB.Holders(ctx); len(ts)+len(ws) != 0 || err != nil {
		t.Errorf("left: %d tasks, %d tickets, %v", len(ts), len(ws), err)
	}
}

// plantDead leaves the place of a process that ended.
func plantDead(t *testing.T, m *Manager) {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := sys.Identify(cmd.Process.Pid)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	err = m.cfg.DB.Tx(t.Context(), func(tx *inventory.Tx) error {
		_, err := tx.Queue(inventory.ProcessOf(id), "dead")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRoomOfAParent: children take theirs from their parent, and never wait.
func TestRoomOfAParent(t *testing.T) {
	t.Parallel()
	m := another(t, filepath.Join(t.TempDir(), "state"))
	g := int64(1 << 30)
	b := policy.MergedBudget{Memory: policy.Set[policy.Size]{Value: policy.Size(100 * g)}, WhenFull: policy.Set[policy.Full]{Value: policy.FullWait}}
	parent := &task.View{ID: task.NewID(), Limits: task.Limits{MemoryBytes: 2 * g}}
	child := func(memory int64) error {
		d := &decided{budget: b, parent: parent, req: task.Request{Parent: string(parent.ID)}}
		d.spec.Limits.MemoryBytes = memory
		r := &room{m: m, id: task.NewID()}
		var full *noRoom
		err := m.cfg.DB.Tx(t.Context(), func(tx *inventory.Tx) (err error) {
			if full, err = r.enter(tx, d); err != nil {
				return err
			}
			return tx.CreateTask(inventory.Task{View: task.View{ID: r.id, Parent: parent.ID, Limits: d.spec.Limits}, OwnerUID: os.Getuid()})
		})
		if full != nil {
			t.Error("a child waits")
		}
		return err
	}
	for i, c := range []struct {
		memory int64
		code   task.Code
	}{{g, ""}, {g + 1, task.CodeUnavailable}, {g, ""}, {1, task.CodeUnavailable}} {
		if err := child(c.memory); task.CodeOf(err) != c.code {
			t.Errorf("child %d: %v", i, err)
		}
	}
}
