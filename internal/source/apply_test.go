//go:build linux

package source

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func (o *opened) applyOptions() ApplyOptions {
	return ApplyOptions{Source: o.p.Ref, Journal: o.ws.Dir + "/apply", Env: []string{"HOME=" + o.top + "/home", "GIT_CONFIG_NOSYSTEM=1"}}
}

func (o *opened) plan(r *Result) *ApplyPlan {
	o.t.Helper()
	p, err := r.PlanApply(context.Background(), o.applyOptions())
	if err != nil {
		o.t.Fatalf("plan: %v (hint: %s)", err, task.HintOf(err))
	}
	o.t.Cleanup(p.Close)
	return p
}

// apply brings the task's files into the checkout.
func (o *opened) apply() {
	o.t.Helper()
	p := o.plan(o.result())
	if len(p.Conflicts) > 0 {
		o.t.Fatalf("conflicts: %+v", p.Conflicts)
	}
	if err := p.Apply(context.Background()); err != nil {
		o.t.Fatalf("apply: %v (hint: %s)", err, task.HintOf(err))
	}
	o.clean()
}

// clean fails when an apply left anything of its own behind.
func (o *opened) clean() {
	o.t.Helper()
	for _, d := range []string{o.ws.Dir, o.repo, o.repo + "/.git"} {
		names, _ := os.ReadDir(d)
		for _, n := range names {
			if strings.HasPrefix(n.Name(), stageName) || strings.HasPrefix(n.Name(), scratchName) && d != o.ws.Dir || n.Name() == "apply" {
				o.t.Errorf("left behind: %s/%s", d, n.Name())
			}
		}
	}
}

func TestApplySimple(t *testing.T) {
	o := basic(t).open(Options{})
	o.file("README", "two\n")
	o.file("new/deep/file", "x\n")
	if err := os.Remove(o.p.Source + "/dir/a.txt"); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(o.p.Source + "/dir/b.txt"); err != nil {
		t.Fatal(err)
	}
	before := picture(t, o.repo+"/.git", nil)
	o.apply()
	if b, _ := os.ReadFile(o.repo + "/README"); string(b) != "two\n" {
		t.Errorf("README: %q", b)
	}
	if b, _ := os.ReadFile(o.repo + "/new/deep/file"); string(b) != "x\n" {
		t.Errorf("new: %q", b)
	}
	if exists(o.repo + "/dir") {
		t.Error("dir is still there")
	}
	if after := picture(t, o.repo+"/.git", nil); after != before {
		t.Errorf("the repository changed:\n%s\n---\n%s", before, after)
	}
	// Again: all is as wanted.
	p := o.plan(o.result())
	if len(p.Conflicts) > 0 || len(p.Changes) > 0 || p.Already != 4 {
		t.Errorf("again: %+v %+v %d", p.Conflicts, p.Changes, p.Already)
	}
	if err := p.Apply(context.Background()); err != nil {
		t.Error(err)
	}
}
