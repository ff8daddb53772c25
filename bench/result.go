//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// result compares diff and close on the large repository with plain git and rm.
func (b *bench) result(ctx context.Context) error {
	repo, err := b.large(ctx)
	if err != nil {
		return err
	}
	in := b.installation("result")
	clone := filepath.Join(b.dir, "result-clone")
	sh := func(name, what, script string, silent bool) *result {
		return &result{contender: contender{name: name, what: what, silent: silent, argv: []string{"sh", "-ec", script, clone}}}
	}
	own := func(name, what string, silent bool, args ...string) *result {
		return &result{contender: contender{name: name, what: what, silent: silent, argv: append([]string{b.o.caisson}, args...), env: in.env()}}
	}
	const t = "result"
	diff, again := own("caisson diff", "first look at 100 edited, 100 added, 10 removed files", false, "diff", t), own("caisson diff, again", "", false, "diff", t)
	closed, closing := own("close", "of an unchanged task, until it returns", true, "close", "-q", t), own("close, changed", "with rescue to a ref, until it returns", true, "close", "-q", "--keep", "never", t)
	gdiff := sh("git add -A; git diff", "the same changes in a clone", `cd "$0"; git add -A; git diff --cached HEAD`, false)
	gagain := sh("git add -A; git diff, again", "", gdiff.argv[2], false)
	remove := sh("rm -rf", "of the clone", `rm -rf "$0"`, true)
	g := &group{key: "result", title: fmt.Sprintf("diff and close on %d files", b.o.files), base: "git add -A; git diff",
		note:    "caisson reads the task's files as hostile ones, into a repository of its own. The closed task's files may still be on their way out when close returns; the next round waits for them.",
		results: []*result{diff, again, closed, closing, gdiff, gagain, remove}}

	// What each line works on is made right before it, so the order is fixed.
	open := func() error { _, err := in.caisson(ctx, "open", "-q", "--repo", repo, "--name", t); return err }
	began := time.Now()
	for round := 0; round == 0 || b.another(round-1, b.few(), began); round++ {
		for _, part := range []struct {
			prepare func() error
			lines   []*result
			after   func(context.Context) error
		}{
			{func() error {
				if err := open(); err != nil {
					return err
				}
				_, err := in.caisson(ctx, "exec", t, "--", "sh", "-c", change(b.o.files))
				return err
			}, []*result{diff, again, closing}, in.settle},
			{open, []*result{closed}, in.settle},
			{func() error {
				_, err := b.do(ctx, "sh", "-ec", `git clone -q --shared "$1" "$0"; cd "$0"; `+change(b.o.files), clone, repo)
				return err
			}, []*result{gdiff, gagain, remove}, func(context.Context) error { return os.RemoveAll(clone) }},
		} {
			if err := part.prepare(); err != nil {
				return err
			}
			for _, r := range part.lines {
				s, err := b.once(ctx, r.contender)
				switch {
				case ctx.Err() != nil:
					return ctx.Err()
				case err != nil:
					return errors.Join(err, in.close())
				case round > 0:
					r.samples = append(r.samples, s)
				}
			}
			if err := part.after(ctx); err != nil {
				return err
			}
		}
	}
	b.keep(g)
	return nil
}
