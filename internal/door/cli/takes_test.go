package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestTakes holds the ways that are named for a result to those that work: a
// bare repository has no checkout to apply it to.
func TestTakes(t *testing.T) {
	for _, c := range []struct {
		name string
		rep  task.CloseReport
	}{
		{"rescued", task.CloseReport{State: task.Closed, Rescued: []task.ResultRef{{Kind: "branch", Name: "refs/caisson/x/heads/m"}}}},
		{"kept", task.CloseReport{State: task.Kept, Retention: &task.Retention{Why: "asked"}}},
	} {
		for _, bare := range []bool{false, true} {
			c.rep.Bare = bare
			var out bytes.Buffer
			if err := (&app{ui: &ui{}}).renderClose(&out, &c.rep); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), "caisson apply") == bare || !strings.Contains(out.String(), "caisson diff") {
				t.Errorf("%s, bare %v: %s", c.name, bare, out.String())
			}
			if bare && !strings.Contains(out.String(), "caisson branch") {
				t.Errorf("%s: %s", c.name, out.String())
			}
		}
	}
}
