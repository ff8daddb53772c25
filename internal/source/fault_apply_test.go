//go:build linux && faults

package source

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestApplyKilled kills the whole apply of a task and recovers.
func TestApplyKilled(t *testing.T) {
	if spec := os.Getenv("SOURCE_TEST_APPLY"); spec != "" {
		var o struct {
			WS Workspace
			Op ApplyOptions
		}
		if err := json.Unmarshal([]byte(spec), &o); err != nil {
			t.Fatal(err)
		}
		r, err := Look(context.Background(), o.WS)
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.PlanApply(context.Background(), o.Op)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Apply(context.Background()); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, c := range []struct {
		fault string
		done  bool
	}{
		{"apply.locked:kill", false}, {"swap.journaled:kill", false}, {"swap.stepped:kill:2", false}, {"swap.exchanged:kill", false},
		{"swap.durable:kill", false}, {"swap.committed:kill", true}, {"apply.done:kill", true},
	} {
		t.Run(c.fault, func(t *testing.T) {
			o := basic(t).open(Options{})
			o.file("README", "task\n")
			o.file("new/file", "task\n")
			if err := os.RemoveAll(o.p.Source + "/dir"); err != nil {
				t.Fatal(err)
			}
			want := facts(t, o.repo)
			if c.done {
				want = facts(t, o.p.Source)
			}
			git := picture(t, o.repo+"/.git", nil)
			ws := o.ws
			ws.Progress = nil
			op := o.applyOptions()
			spec, err := json.Marshal(map[string]any{
				"WS": map[string]any{"Task": ws.Task, "Dir": ws.Dir}, "Op": map[string]any{"Source": op.Source, "Journal": op.Journal, "Env": op.Env},
			})
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestApplyKilled$")
			cmd.Env = append(os.Environ(), "SOURCE_TEST_APPLY="+string(spec), "CAISSON_FAULT="+c.fault)
			out, err := cmd.CombinedOutput()
			var ee *exec.ExitError
			if !errors.As(err, &ee) || !ee.Sys().(syscall.WaitStatus).Signaled() {
				t.Fatalf("it was not killed: %v %s", err, out)
			}
			if _, err := RecoverApply(context.Background(), op.Journal); err != nil {
				t.Fatal(err)
			}
			differ(t, "after recovery", facts(t, o.repo), want)
			differ(t, "repository", picture(t, o.repo+"/.git", nil), git)
			o.clean()
			if did, err := RecoverApply(context.Background(), op.Journal); did || err != nil {
				t.Errorf("again: %v %v", did, err)
			}
			// What it left in the task's folder is taken away by the next one.
			o.apply()
			left := 0
			names, _ := os.ReadDir(o.ws.Dir)
			for _, n := range names {
				if strings.HasPrefix(n.Name(), scratchName) {
					left++
				}
			}
			if left > 1 { // the plan of o.apply is closed at the end of the test
				t.Errorf("%d folders are left", left)
			}
		})
	}
}
