//go:build linux

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

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// TestApplyFolder brings changes back into a folder without git, whatever its
// .gitattributes says.
func TestApplyFolder(t *testing.T) {
	l := newLab(t)
	l.write("a.txt", "one\r\ntwo\n")
	l.write(".gitattributes", "* text=auto eol=crlf\n")
	l.write("gone/x", "x\n")
	l.write("kept", "kept\n")
	p, ws, err := copied(t, l.repo, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{lab: l, ws: ws, p: p}
	o.file("a.txt", "one\ntwo\r\nthree\n")
	o.file("new/b", "b\n")
	if err := os.RemoveAll(p.Source + "/gone"); err != nil {
		t.Fatal(err)
	}
	want := facts(t, p.Source)
	r, err := Look(context.Background(), ws)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pl := o.plan(r)
	if len(pl.Conflicts) > 0 {
		t.Fatalf("%+v", pl.Conflicts)
	}
	// Changed by the user meanwhile: nothing is done.
	l.write("a.txt", "mine\n")
	before := picture(t, l.repo, nil)
	if err := pl.Apply(context.Background()); task.CodeOf(err) != task.CodeConflict || picture(t, l.repo, nil) != before {
		t.Errorf("%v", err)
	}
	l.write("a.txt", "one\r\ntwo\n")
	if err := pl.Apply(context.Background()); err != nil {
		t.Fatal(err)
	}
	o.clean()
	differ(t, "folder", facts(t, l.repo), want)
}

// TestApplyDirty has a task that began with uncommitted changes of the user's:
// those it did not touch stay, those it changed are not overwritten.
func TestApplyDirty(t *testing.T) {
	l := basic(t)
	l.write("README", "mine\n")
	l.write("dir/mine", "untracked\n")
	o := l.open(Options{Dirty: task.DirtyChanged})
	o.file("dir/a.txt", "task\n")
	o.apply()
	if b, _ := os.ReadFile(l.repo + "/README"); string(b) != "mine\n" {
		t.Errorf("%q", b)
	}
	o.file("README", "mine and the task's\n")
	p := o.plan(o.result())
	if len(p.Conflicts) != 1 || p.Conflicts[0].Path != "README" || !strings.Contains(p.Conflicts[0].Why, "commit yours first") || len(p.Notes) == 0 {
		t.Errorf("%+v %q", p.Conflicts, p.Notes)
	}
	p.Close()
	// Committed as it was carried in: now it can be.
	l.git("add", "README")
	l.git("commit", "-qm", "mine")
	o.apply()
	if b, _ := os.ReadFile(l.repo + "/README"); string(b) != "mine and the task's\n" {
		t.Errorf("%q", b)
	}
	// Committed otherwise: a conflict like any other.
	l.write("README", "another\n")
	l.git("commit", "-qam", "another")
	p = o.plan(o.result())
	if len(p.Conflicts) != 1 || !strings.Contains(p.Conflicts[0].Why, "both") || p.Conflicts[0].Hunks == "" {
		t.Errorf("%+v", p.Conflicts)
	}
	p.Close()
}

// TestApplyKilled kills the whole apply of a task and recovers. It needs the
// build tag faults.
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
	if len(sys.FaultPoints()) == 0 {
		t.Skip("needs -tags faults")
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

// TestLockCheckout lets one process in at a time, and writes nothing.
func TestLockCheckout(t *testing.T) {
	l := basic(t)
	before := picture(t, l.repo, nil)
	release, err := LockCheckout(l.repo)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockCheckout(l.repo); task.CodeOf(err) != task.CodeConflict || task.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	release()
	again, err := LockCheckout(l.repo)
	if err != nil {
		t.Fatal(err)
	}
	again()
	if picture(t, l.repo, nil) != before {
		t.Error("something was written")
	}
	if err := os.Symlink(l.repo, l.top+"/link"); err != nil {
		t.Fatal(err)
	}
	if _, err := LockCheckout(l.top + "/link"); err == nil {
		t.Error("a link was followed")
	}
}
