//go:build linux

package source

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// ended rescues the task's work and removes its files, as its end does.
func (o *opened) ended() []task.ResultRef {
	o.t.Helper()
	ctx := context.Background()
	rs := o.imports(o.bundle())
	snap, err := MakeSnapshot(ctx, o.ws)
	if err != nil {
		o.t.Fatal(err)
	}
	more, err := PublishSnapshot(ctx, o.ws, snap)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, d := range []string{o.ws.source(), o.ws.shadow()} {
		if err := RemoveTree(ctx, d); err != nil {
			o.t.Fatal(err)
		}
	}
	return append(rs, more...)
}

func (o *opened) recall(rs []task.ResultRef) *Result {
	o.t.Helper()
	r, err := Recall(context.Background(), o.ws, o.p.Ref, rs)
	if err != nil {
		o.t.Fatalf("recall: %v (hint: %s)", err, task.HintOf(err))
	}
	o.t.Cleanup(r.Close)
	return r
}

func TestRecallFiles(t *testing.T) {
	o := basic(t).open(Options{})
	o.file("README", "committed\n")
	o.in("commit", "-qam", "inside")
	o.file("new/file", "not committed\n")
	live := o.result()
	rs := o.ended()
	before := picture(t, o.repo, nil)
	r := o.recall(rs)
	if r.Tree != live.Tree || r.Start != live.Start || len(r.Changes) != len(live.Changes) || r.From != FromRefs {
		t.Errorf("%+v\n%+v", r, live)
	}
	var out bytes.Buffer
	if err := r.Diff(context.Background(), &out, DiffOptions{NameStatus: true}); err != nil || out.String() != "M\tREADME\nA\tnew/file\n" {
		t.Errorf("%q %v", out.String(), err)
	}
	if picture(t, o.repo, nil) != before {
		t.Error("the repository changed")
	}
	p := o.plan(r)
	if err := p.Apply(context.Background()); err != nil || len(p.Conflicts) > 0 {
		t.Fatalf("%v %+v", err, p.Conflicts)
	}
	if b, _ := os.ReadFile(o.repo + "/new/file"); string(b) != "not committed\n" {
		t.Errorf("%q", b)
	}
	p.Close()
	r.Close()
	names, _ := os.ReadDir(o.ws.Dir)
	if len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestRecallRefusesMovedRefs(t *testing.T) {
	for name, c := range map[string]struct {
		change func(o *opened, ref task.ResultRef)
		code   task.Code
	}{
		"moved":   {func(o *opened, r task.ResultRef) { o.git("update-ref", r.Name, "HEAD") }, task.CodeConflict},
		"deleted": {func(o *opened, r task.ResultRef) { o.git("update-ref", "-d", r.Name) }, task.CodeState},
		"symbolic": {func(o *opened, r task.ResultRef) {
			o.git("update-ref", "refs/heads/there", r.Object)
			o.git("symbolic-ref", r.Name, "refs/heads/there")
		}, task.CodeConflict},
		"no commit": {func(o *opened, r task.ResultRef) {
			_ = os.WriteFile(o.repo+"/.git/"+r.Name, []byte(o.git("rev-parse", "HEAD^{tree}")+"\n"), 0o644)
		}, task.CodeConflict},
	} {
		t.Run(name, func(t *testing.T) {
			o := basic(t).open(Options{})
			o.file("README", "x\n")
			rs := o.ended()
			c.change(o, rs[0])
			_, err := Recall(context.Background(), o.ws, o.p.Ref, rs)
			if task.CodeOf(err) != c.code || task.HintOf(err) == "" {
				t.Errorf("%v", err)
			}
			if names, _ := os.ReadDir(o.ws.Dir); len(names) != 0 {
				t.Errorf("left behind: %v", names)
			}
		})
	}
	o := basic(t).open(Options{})
	if _, err := Recall(context.Background(), o.ws, o.p.Ref, nil); task.CodeOf(err) != task.CodeState {
		t.Errorf("%v", err)
	}
}

// TestRecallCommits has results without a snapshot: the files ended as they
// began, the commits did not.
func TestRecallCommits(t *testing.T) {
	o := basic(t).open(Options{})
	o.in("checkout", "-qb", "one")
	o.file("a", "1\n")
	o.in("add", "a")
	o.in("commit", "-qm", "one")
	one := o.in("rev-parse", "HEAD^{tree}")
	o.in("checkout", "-q", "main")
	rs := o.ended()
	if r := o.recall(rs); r.Tree != one {
		t.Errorf("%s, not %s", r.Tree, one)
	}

	o = basic(t).open(Options{})
	for _, b := range []string{"one", "two"} {
		o.in("checkout", "-qb", b, "main")
		o.file("a", b+"\n")
		o.in("add", "a")
		o.in("commit", "-qm", b)
	}
	o.in("checkout", "-q", "main")
	rs = o.ended()
	_, err := Recall(context.Background(), o.ws, o.p.Ref, rs)
	if task.CodeOf(err) != task.CodeConflict || !strings.Contains(err.Error(), "heads/one") || !strings.Contains(err.Error(), "heads/two") {
		t.Errorf("%v", err)
	}
	ref := o.p.Ref
	ref.Branch = "two"
	r, err := Recall(context.Background(), o.ws, ref, rs)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

// TestRecallBundle has a result that could not go into the repository.
func TestRecallBundle(t *testing.T) {
	o := basic(t).open(Options{})
	o.file("README", "x\n")
	live := o.result()
	s, err := o.ws.loadState()
	if err != nil {
		t.Fatal(err)
	}
	snap, err := MakeSnapshot(context.Background(), o.ws)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := o.ws.keepBundle(context.Background(), live.g, s, []result{{kind: "worktree", name: "worktree", object: snap.Commit}}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{o.ws.source(), o.ws.shadow()} {
		if err := RemoveTree(context.Background(), d); err != nil {
			t.Fatal(err)
		}
	}
	if r := o.recall(rs); r.Tree != live.Tree || r.Start != live.Start {
		t.Errorf("%+v", r)
	}
	path := rs[0].Name
	b, _ := os.ReadFile(path)
	for name, bad := range map[string][]byte{"cut": b[:len(b)-30], "changed": append(append([]byte(nil), b[:len(b)-40]...), make([]byte, 40)...), "empty": nil, "text": []byte("no bundle\n")} {
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Recall(context.Background(), o.ws, o.p.Ref, rs); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	rs[0].Name = o.top + "/elsewhere.bundle"
	if _, err := Recall(context.Background(), o.ws, o.p.Ref, rs); task.CodeOf(err) != task.CodeState {
		t.Errorf("a bundle from elsewhere: %v", err)
	}
}
