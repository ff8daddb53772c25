//go:build linux && faults

package source

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// Death and failure at every named step of branch and export; the same call
// again ends as if nothing had happened: go test -tags faults.
func TestKilledBranchAndExport(t *testing.T) {
	ctx := context.Background()
	if dir := os.Getenv("SOURCE_TEST_TASK"); dir != "" {
		r, err := Look(ctx, Workspace{Task: task.ID(filepath.Base(dir)), Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if to := os.Getenv("SOURCE_TEST_DIR"); to != "" {
			_, err = r.Export(ctx, ExportOptions{Form: FormDir, Dir: to})
		} else {
			_, err = r.Branch(ctx, BranchOptions{Name: "made"})
		}
		if !errors.Is(err, sys.ErrFault) {
			t.Fatalf("the injected failure was lost: %v", err)
		}
		return
	}
	n := 0
	for _, p := range sys.FaultPoints() {
		export := strings.HasPrefix(p, "source.export")
		if !export && !strings.HasPrefix(p, "source.branchm") && !strings.HasPrefix(p, "source.branchs") {
			continue
		}
		n++
		for _, action := range []string{"kill", "error"} {
			t.Run(p+" "+action, func(t *testing.T) {
				l := basic(t)
				o := l.open(Options{})
				o.file("new", "new\n")
				o.in("add", "new")
				o.in("commit", "-qm", "inside")
				o.file("loose", "loose\n")
				o.result()
				to := l.top + "/out"
				cmd := exec.Command(os.Args[0], "-test.run=^TestKilledBranchAndExport$")
				cmd.Env = append(os.Environ(), "SOURCE_TEST_TASK="+o.ws.Dir, "CAISSON_FAULT="+p+":"+action)
				if export {
					cmd.Env = append(cmd.Env, "SOURCE_TEST_DIR="+to)
				}
				if out, err := cmd.CombinedOutput(); (err == nil) != (action == "error") {
					t.Fatalf("%v\n%s", err, out)
				}
				l.git("fsck", "--strict", "--full")
				r := o.result()
				if export {
					o.exportAgain(r, to, p == "source.exported")
					return
				}
				rep, err := r.Branch(ctx, BranchOptions{Name: "made"})
				if err != nil || rep.Created != (p != "source.branchmade") || l.git("rev-parse", "made") != rep.Object {
					t.Errorf("%+v %v", rep, err)
				}
				// The hold on the objects goes with the task.
				if err := Unpin(ctx, o.r.Ref.CommonDir, o.ws.Task); err != nil {
					t.Error(err)
				}
				for _, glob := range []string{"*.keep", tempPrefix(o.ws.Task) + "*"} {
					if left, _ := filepath.Glob(l.repo + "/.git/objects/pack/" + glob); len(left) > 0 {
						t.Errorf("left: %q", left)
					}
				}
				l.git("fsck", "--strict", "--full")
			})
		}
	}
	if n < 5 {
		t.Errorf("%d points", n)
	}
}

// exportAgain expects that nothing, or all, is there, and that the next export
// to the same place leaves no trace of the first.
func (o *opened) exportAgain(r *Result, to string, done bool) {
	o.t.Helper()
	want := listing(o.t, o.p.Source)
	if done != exists2(to) {
		o.t.Fatalf("there: %v", !done)
	}
	if done {
		if got := listing(o.t, to); got != want {
			o.t.Errorf("exported\n%s", got)
		}
		_ = os.RemoveAll(to)
	}
	if _, err := r.Export(context.Background(), ExportOptions{Form: FormDir, Dir: to, W: &bytes.Buffer{}}); err != nil {
		o.t.Fatal(err)
	}
	if got := listing(o.t, to); got != want {
		o.t.Errorf("exported\n%s", got)
	}
	if left, _ := filepath.Glob(filepath.Dir(to) + "/" + exportPrefix + "*"); len(left) > 0 {
		o.t.Errorf("left: %q", left)
	}
}
