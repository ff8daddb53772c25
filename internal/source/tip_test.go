//go:build linux

package source

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func TestTipOfWorktree(t *testing.T) {
	l := basic(t)
	o := l.open(Options{Strategy: task.StrategyWorktree})
	o.file("new", "new\n")
	rep := o.branch("")
	if rep.Branch != "refs/heads/caisson/"+string(o.ws.Task)+"-result" || rep.Commits != 1 {
		t.Errorf("%+v", rep)
	}
	o.refused("the worktree's own branch", BranchOptions{Name: DefaultBranch(o.ws.Task), Force: true}, task.CodeConflict)
	// What the user commits there is what the branch is made of.
	o.in("add", "new")
	o.in("commit", "-qm", "by the user")
	if rep := o.branch("mine"); rep.Object != o.in("rev-parse", "HEAD") {
		t.Errorf("%+v", rep)
	}
}

// TestTipOfEndedTask: what was rescued gives the branch that the files gave.
func TestTipOfEndedTask(t *testing.T) {
	ctx := context.Background()
	for name, loose := range map[string]bool{"committed": false, "committed and not": true, "files alone": true} {
		t.Run(name, func(t *testing.T) {
			l := basic(t)
			o := l.open(Options{})
			o.file("in", "in\n")
			if name != "files alone" {
				o.in("add", "in")
				o.in("commit", "-qm", "inside")
			}
			if loose {
				o.file("loose", "loose\n")
			}
			want := o.branch("while-it-was-there")
			snap, err := MakeSnapshot(ctx, o.ws)
			if err != nil {
				t.Fatal(err)
			}
			rs, err := PublishSnapshot(ctx, o.ws, snap)
			if err != nil {
				t.Fatal(err)
			}
			if name != "files alone" {
				rs = append(rs, o.imports(o.bundle())...)
			}
			for _, d := range []string{o.p.Source, o.p.Shadow} {
				if err := RemoveTree(ctx, d); err != nil {
					t.Fatal(err)
				}
			}
			if err := Unpin(ctx, o.r.Ref.CommonDir, o.ws.Task); err != nil {
				t.Fatal(err)
			}
			r, err := Recall(ctx, o.ws, o.r.Ref, rs)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var made []string
			for _, n := range []string{"afterwards", "again"} {
				rep, err := r.Branch(ctx, BranchOptions{Repo: o.r.Ref, Name: n})
				if err != nil || rep.Commits != want.Commits || rep.Files != want.Files || rep.From != FromRefs {
					t.Fatalf("%+v %v, want %+v", rep, err, want)
				}
				made = append(made, rep.Object)
			}
			if l.git("rev-parse", "afterwards^{tree}") != l.git("rev-parse", "while-it-was-there^{tree}") || made[0] != made[1] {
				t.Errorf("%q", made)
			}
			if name == "committed" && made[0] != want.Object {
				t.Errorf("%s, not the task's own commit %s", made[0], want.Object)
			}
			var b bytes.Buffer
			if _, err := r.Export(ctx, ExportOptions{Form: FormBundle, W: &b}); err != nil {
				t.Error(err)
			}
			if _, err := r.Export(ctx, ExportOptions{Form: FormDir, Dir: l.top + "/out"}); err != nil || !exists2(l.top+"/out/in") {
				t.Error(err)
			}
			l.git("fsck", "--strict", "--full")
		})
	}
}

// TestTipOnCarriedFiles: a task that began with uncommitted files has them in a
// commit of their own below its own.
func TestTipOnCarriedFiles(t *testing.T) {
	l := basic(t)
	o := l.open(Options{})
	o.file("carried", "of the user\n")
	r := o.result()
	s := *r.s
	s.StartTree = r.Tree
	var err error
	if s.Start, err = commitTree(context.Background(), r.g, commitSpec{dir: r.dir, tree: r.Tree, parent: r.Base, message: "carried\n", who: s.Identity, when: 1}); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(o.p.Shadow+"/"+stateFile, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if rep := o.branch("nothing-done"); rep.Object != s.Start || rep.Commits != 1 || rep.Files != 1 {
		t.Errorf("%+v", rep)
	}
	o.file("own", "of the task\n")
	rep := o.branch("done")
	if rep.Commits != 2 || rep.Files != 2 || l.git("rev-parse", rep.Object+"^") != s.Start || !strings.Contains(strings.Join(rep.Notes, "\n"), "uncommitted files of the checkout") {
		t.Errorf("%+v", rep)
	}
	if got := l.git("diff", "--name-status", s.Start, rep.Object); got != "A\town" {
		t.Error(got)
	}
	o.bundleFits("carried")
}
