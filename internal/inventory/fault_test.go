//go:build faults

package inventory

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/sys"
)

// Death and failure at every named step, of creation and of a change:
// go test -tags faults.
func TestFaultPoints(t *testing.T) {
	if path := os.Getenv("INVENTORY_TEST_DB"); path != "" {
		db, err := Open(t.Context(), path)
		if err == nil {
			err = db.CreateTask(t.Context(), newTask("second"))
			_ = db.Close()
		}
		if !errors.Is(err, sys.ErrFault) {
			t.Fatalf("the injected failure was lost: %v", err)
		}
		return
	}
	n := 0
	for _, p := range sys.FaultPoints() {
		if !strings.HasPrefix(p, "inventory.") {
			continue
		}
		n++
		for _, action := range []string{"kill", "error"} {
			for _, fresh := range []bool{true, false} {
				if !fresh && strings.Contains(p, "migrate") {
					continue // nothing to migrate
				}
				path := dbPath(t)
				want := 0
				if !fresh {
					db := open(t, path)
					if err := errors.Join(db.CreateTask(t.Context(), newTask("first")), db.Close()); err != nil {
						t.Fatal(err)
					}
					want = 1
				}
				cmd := exec.Command(os.Args[0], "-test.run=^TestFaultPoints$")
				cmd.Env = append(os.Environ(), "INVENTORY_TEST_DB="+path, "CAISSON_FAULT="+p+":"+action)
				out, err := cmd.CombinedOutput()
				if (err == nil) != (action == "error") {
					t.Fatalf("%s %s: %v\n%s", p, action, err, out)
				}
				db := open(t, path)
				checkIntegrity(t, db)
				ts, err := db.List(t.Context(), true)
				if err != nil || len(ts) < want || len(ts) > want+1 {
					t.Fatalf("%s %s: %d tasks %v", p, action, len(ts), err)
				}
				if len(ts) == want {
					if err := db.CreateTask(t.Context(), newTask("second")); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	if n < 4 {
		t.Fatalf("only %d fault points", n)
	}
}
