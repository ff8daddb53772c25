//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/caisson-dev/caisson/internal/boundary"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// plan measures what a plan of a command on the large repository takes, and what
// the rules say of a call.
func (b *bench) plan(ctx context.Context) error {
	repo, err := b.large(ctx)
	if err != nil {
		return err
	}
	first, later := b.installation("plan-first"), b.installation("plan")
	argv := []string{b.o.caisson, "plan", "--json", "--repo", repo, "--", "make"}
	g := &group{key: "plan", title: fmt.Sprintf("A plan on a repository of %d files", b.o.files), base: "git ls-tree -r",
		note: "`caisson plan -- make`: the policy of every source, what detectors find in the files of the base commit, what this machine can give, the decision and its reasons; nothing is made. First: with a new state folder, so the files are looked at and the machine is tried; later: what was found of the same commit is known."}
	g.add(contender{name: "git ls-tree -r", what: "names of all files, by git", argv: []string{"git", "-C", repo, "ls-tree", "-r", "HEAD"}}, nil)
	g.add(contender{name: "caisson plan, first", what: "new state folder", argv: argv, env: first.env(), after: func(context.Context) error {
		return errors.Join(first.close(), os.RemoveAll(first.state))
	}}, nil)
	g.add(contender{name: "caisson plan, later", what: "the state folder of earlier plans", argv: argv, env: later.env()}, nil)
	if err := b.measure(ctx, g, b.some()); err != nil {
		return err
	}
	return b.verdicts()
}

// verdicts measures what the rules say of a call of shell, in this process.
func (b *bench) verdicts() error {
	t := table{title: "A verdict", note: "What rules of files say of one call of `shell`, in one process: half of the rules are about commands, half about paths, and none matches. With analysis: the script is taken apart first, as for every call; what follows is recorded and carried out, which is in the tables of calls.",
		head: []string{"rules", "script", "what", "median µs", "p99 µs"}}
	const calls = 2000
	for _, n := range []int{20, 200} {
		rules, err := someRules(n)
		if err != nil {
			return err
		}
		for _, s := range []string{"make test", "cd sub && env A=1 go vet ./... | tee out.txt; test -s out.txt && grep -c error out.txt"} {
			for _, whole := range []bool{false, true} {
				points := boundary.CommandPoints(nil, s, nil)
				took := make([]time.Duration, 0, calls)
				runtime.GC()
				for range calls {
					t0 := time.Now()
					if whole {
						points = boundary.CommandPoints(nil, s, nil)
					}
					a := rules.Judge(nil, policy.Call{Proved: true, Tool: "shell", Point: policy.ToolPoint{Commands: points}})
					took = append(took, time.Since(t0))
					if a.Verdict != task.VerdictAllow {
						return fmt.Errorf("%s: %s", s, a.Rule)
					}
				}
				slices.Sort(took)
				what, key := "the rules alone", "rules"
				if whole {
					what, key = "with analysis", "whole"
				}
				us := func(p int) float64 { return float64(took[len(took)*p/100]) / 1e3 }
				b.figures[fmt.Sprintf("verdict/%s/%d/%d", key, n, len(points))] = us(50)
				t.row(fmt.Sprint(n), "`"+s+"`", what, fmt.Sprintf("%.1f", us(50)), fmt.Sprintf("%.1f", us(99)))
			}
		}
	}
	b.tables = append(b.tables, t)
	return nil
}

// someRules are n rules that mean other commands and paths than those that are
// judged here.
func someRules(n int) (policy.Calls, error) {
	d := &policy.Document{Version: policy.Version, Tools: &policy.ToolRules{}}
	for i := range n / 2 {
		d.Tools.Deny = append(d.Tools.Deny, policy.CallRule{Command: policy.Argv{"git", fmt.Sprint("verb", i)}})
		d.Tools.Ask = append(d.Tools.Ask, policy.CallRule{Path: policy.Path(fmt.Sprint("/srv/", i))})
	}
	r, err := policy.Merge([]policy.Sourced{policy.Shipped(), {Document: d, Source: task.SourceOperator, File: "rules"}}, policy.Context{})
	if err != nil {
		return policy.Calls{}, err
	}
	return r.Calls(), nil
}
