//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/caisson-dev/caisson/internal/backend/linux"
	"github.com/caisson-dev/caisson/internal/worker"
)

// search compares the worker's grep with ripgrep and GNU grep on the same files.
func (b *bench) search(ctx context.Context) (err error) {
	repo, err := b.large(ctx)
	if err != nil {
		return err
	}
	prog, err := b.workerProgram(ctx)
	if err != nil {
		return err
	}
	spec, err := b.spec(prog)
	if err != nil {
		return err
	}
	spec.Source.Source = repo
	inst, err := linux.New(linux.Config{Worker: func() (string, error) { return prog, nil }}).Create(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, inst.Destroy(context.WithoutCancel(ctx))) }()
	conn, err := inst.Dial(ctx)
	if err != nil {
		return err
	}
	seen, err := inst.Observe(ctx)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	client, err := worker.Start(ctx, conn, worker.Options{WorkerPID: seen.WorkerPID})
	if err != nil {
		return err
	}
	defer client.Close()
	for _, q := range []struct {
		key, what, pattern string
		fold               bool
	}{
		{"rare", "text that no file has", "rareNeedle42", false},
		{"some", "text that some files have", "boundary source layer", false},
		{"fold", "text in either case", "LEVEL CALL", true},
		{"class", "no text in the pattern to look for", "[0-9]{4}$", false},
	} {
		if err := b.searchFor(ctx, client, repo, q.key, q.what, q.pattern, q.fold); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) searchFor(ctx context.Context, client *worker.Client, repo, key, what, pattern string, fold bool) error {
	g := &group{key: "search-" + key, base: "rg", title: fmt.Sprintf("grep over %d files: %s", b.o.files, what),
		note: fmt.Sprintf("How many files have a line that matches `%s`; output `files`. The worker's call is measured from its request to its result on the host, the others from their start to their end. All with warm caches.", pattern)}
	rg, gnu := []string{"rg", "--no-config", "-l", "-e", pattern, repo}, []string{"grep", "-rIlE", "--exclude-dir=.git", "-e", pattern, repo}
	if fold {
		rg, gnu = append(rg, "-i"), append(gnu, "-i")
	}
	// A program that finds nothing ends with 1.
	add := func(name, what string, argv []string) {
		_, err := exec.LookPath(argv[0])
		g.add(contender{name: name, what: what, argv: append([]string{"sh", "-c", `"$@"; [ $? -le 1 ]`, "sh"}, argv...), silent: true}, err)
	}
	add("rg", "ripgrep, on the host", rg)
	add("grep -rIlE", "GNU grep, on the host", gnu)
	args, err := json.Marshal(map[string]any{"pattern": pattern, "ignore_case": fold, "output": "files", "limit": 1 << 20, "path": "/home/bench/project"})
	if err != nil {
		return err
	}
	tool := &result{contender: contender{name: "grep tool", what: "in a boundary, by the worker"}}
	rounds, began := b.few(), time.Now()
	for round := 0; round == 0 || b.another(round-1, rounds, began); round++ {
		t0 := time.Now()
		r, err := client.Tool(ctx, "grep", args, nil)
		took := time.Since(t0)
		if err != nil {
			return err
		}
		r.Close()
		if r.Failure != nil {
			return fmt.Errorf("%s: %s", r.Failure.Code, r.Failure.Message)
		}
		if round > 0 {
			tool.samples = append(tool.samples, sample{first: took, exit: took})
		}
		for _, other := range g.results {
			if other.failed != "" {
				continue
			}
			s, err := b.once(ctx, other.contender)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				other.failed = err.Error()
			case round > 0:
				other.samples = append(other.samples, s)
			}
		}
	}
	g.results = append(g.results, tool)
	b.keep(g)
	return nil
}
