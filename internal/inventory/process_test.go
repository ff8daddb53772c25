package inventory

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// The test program plays other processes when its first argument names a role.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && strings.HasPrefix(os.Args[1], "role-") {
		if err := role(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
			fmt.Fprintln(os.Stderr, os.Args[1], err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func self(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Stderr = os.Stderr
	return cmd
}

func role(name, path string, args []string) error {
	ctx := context.Background()
	db, err := Open(ctx, path)
	if err != nil {
		return err
	}
	defer db.Close()
	switch name {
	case "role-writer": // prints the id of each task after it is durable, for ever
		for {
			nt := newTask("")
			if err := db.Tx(ctx, func(tx *Tx) error {
				if err := tx.CreateTask(nt); err != nil {
					return err
				}
				return tx.Intend(nt.ID(), []Resource{res("cgroup", "a-"+string(nt.ID())), res("process", "b-"+string(nt.ID())), res("pin", "c-"+string(nt.ID()))})
			}); err != nil {
				return err
			}
			fmt.Println(nt.ID())
		}
	case "role-worker": // one whole life, and a name everybody wants
		nt := newTask("wanted")
		switch err := db.CreateTask(ctx, nt); task.CodeOf(err) {
		case "":
			fmt.Println("won")
		case task.CodeConflict:
			fmt.Println("lost")
		default:
			return err
		}
		nt = newTask("own-" + args[0])
		if err := db.CreateTask(ctx, nt); err != nil {
			return err
		}
		for i := range 5 {
			name := fmt.Sprintf("r%d-%s", i, args[0])
			if err := db.Intend(ctx, nt.ID(), []Resource{res("cgroup", name)}); err != nil {
				return err
			}
			for _, s := range []task.ResourceState{task.Present, task.Removing, task.Gone} {
				if err := db.SetResource(ctx, nt.ID(), "cgroup", name, s, "", nil); err != nil {
					return err
				}
			}
		}
		for _, s := range []task.State{task.Creating, task.Probing, task.Ready, task.Closing, task.Closed} {
			if err := db.SetState(ctx, nt.ID(), s, nil); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("no role %q", name)
}

// Twenty processes at once, the first of which also create the file.
func TestTwentyProcesses(t *testing.T) {
	path := dbPath(t)
	var wg sync.WaitGroup
	out := make([][]byte, 20)
	for i := range out {
		wg.Go(func() {
			var err error
			if out[i], err = self(t, "role-worker", path, fmt.Sprint(i)).Output(); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	won := 0
	for _, o := range out {
		won += strings.Count(string(o), "won")
	}
	if won != 1 {
		t.Errorf("%d processes got the same name", won)
	}
	db := open(t, path)
	ts, err := db.List(t.Context(), true)
	if err != nil || len(ts) != 21 {
		t.Fatalf("%d tasks, %v", len(ts), err)
	}
	if live, _ := db.List(t.Context(), false); len(live) != 1 || live[0].View.Name != "wanted" {
		t.Fatalf("live: %v", live)
	}
	if rs, _ := db.AllResources(t.Context()); len(rs) != 0 {
		t.Fatalf("left: %v", rs)
	}
	checkIntegrity(t, db)
}

func checkIntegrity(t *testing.T, db *DB) {
	t.Helper()
	var s string
	if err := db.sql.QueryRow("PRAGMA integrity_check").Scan(&s); err != nil || s != "ok" {
		t.Fatalf("integrity: %q %v", s, err)
	}
}

// Two writers are killed at random moments: what they had reported is there,
// whole, and nothing is there in part.
func TestKill(t *testing.T) {
	path := dbPath(t)
	acked := map[string]bool{}
	for range 6 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				cmd := self(t, "role-writer", path)
				pipe, err := cmd.StdoutPipe()
				if err != nil {
					t.Error(err)
					return
				}
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				after := rand.IntN(25)
				sc := bufio.NewScanner(pipe)
				for n := 0; sc.Scan(); n++ {
					mu.Lock()
					acked[sc.Text()] = true
					mu.Unlock()
					if n == after {
						for range rand.IntN(200_000) { // into the next transaction
							_ = n
						}
						_ = cmd.Process.Kill()
					}
				}
				_ = cmd.Wait()
			})
		}
		wg.Wait()
		db, err := Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		checkIntegrity(t, db)
		ts, err := db.List(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, x := range ts {
			have[string(x.ID())] = true
			if rs, err := db.Resources(t.Context(), x.ID()); err != nil || len(rs) != 3 {
				t.Fatalf("task %s has %d of 3 resources: %v", x.ID(), len(rs), err)
			}
		}
		for id := range acked {
			if !have[id] {
				t.Fatalf("task %s was reported durable and is lost", id)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d transactions reported, none lost", len(acked))
}
