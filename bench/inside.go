//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/linux"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
)

// inProcess measures the boundary without the command line around it: no
// program start, no inventory, no evidence, no probe.
func (b *bench) inProcess(ctx context.Context) error {
	prog, err := b.workerProgram(ctx)
	if err != nil {
		return err
	}
	d := linux.New(linux.Config{Worker: func() (string, error) { return prog, nil }})
	steps := []string{"boundary open to worker hello", "of that: create", "ping", "call of a static program that does nothing", "destroy", "bare exec of that program", "bwrap around it, to exit"}
	took := map[string][]time.Duration{}
	began := time.Now()
	for round := 0; round == 0 || b.another(round-1, b.o.rounds, began); round++ {
		one, err := b.lifeInside(ctx, d, prog)
		if err != nil {
			return err
		}
		for i, argv := range [][]string{{hostBox(), "true"}, bwrapArgv(hostBox(), "true")} {
			s, err := b.once(ctx, contender{argv: argv, silent: true})
			if err == nil {
				one[steps[5+i]] = []time.Duration{s.exit}
			}
		}
		if round == 0 {
			continue // dropped
		}
		for k, v := range one {
			took[k] = append(took[k], v...)
		}
	}
	t := table{title: "In-process", head: []string{"step", "p50", "min", "p90", "n"},
		note: "The backend and the channel alone, called from a long-lived Go process with a small heap, as a harness author would. A heap that is large makes the first step slower: Go copies the page tables of a parent whose child gets a user namespace."}
	for _, s := range steps {
		if len(took[s]) == 0 {
			t.row(s, "–", "–", "–", "0")
			continue
		}
		t.row(s, ms(percentile(took[s], 50)), ms(percentile(took[s], 0)), ms(percentile(took[s], 90)), fmt.Sprint(len(took[s])))
		b.figures["inside/"+s] = float64(percentile(took[s], 50)) / 1e6
	}
	b.figures["inside/hello"] = b.figures["inside/"+steps[0]]
	b.tables = append(b.tables, t)
	return nil
}

// lifeInside makes one boundary, calls into it and takes it away.
func (b *bench) lifeInside(ctx context.Context, d backend.Driver, prog string) (took map[string][]time.Duration, err error) {
	s, err := b.spec(prog)
	if err != nil {
		return nil, err
	}
	took = map[string][]time.Duration{}
	note := func(step string, since time.Time) { took[step] = append(took[step], time.Since(since)) }
	t0 := time.Now()
	inst, err := d.Create(ctx, s)
	if err != nil {
		return nil, err
	}
	note("of that: create", t0)
	var client *worker.Client
	defer func() {
		t0 := time.Now()
		if client != nil {
			client.Close()
		}
		err = errors.Join(err, inst.Destroy(context.WithoutCancel(ctx)))
		note("destroy", t0)
	}()
	conn, err := inst.Dial(ctx)
	if err != nil {
		return took, err
	}
	seen, err := inst.Observe(ctx)
	if err != nil {
		return took, errors.Join(err, conn.Close())
	}
	if client, err = worker.Start(ctx, conn, worker.Options{WorkerPID: seen.WorkerPID}); err != nil {
		return took, err
	}
	note("boundary open to worker hello", t0)
	for range 20 {
		t0 := time.Now()
		if err := client.Ping(ctx); err != nil {
			return took, err
		}
		note("ping", t0)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return took, err
	}
	defer null.Close()
	for range 5 {
		t0 := time.Now()
		call, err := client.Exec(ctx, worker.Command{Argv: []string{hostBox(), "true"}}, []*os.File{null, null, null})
		if err != nil {
			return took, err
		}
		if _, err := call.Wait(ctx); err != nil {
			return took, err
		}
		note("call of a static program that does nothing", t0)
	}
	return took, nil
}

// spec is a boundary as a task on a folder has it, without toolchains.
func (b *bench) spec(prog string) (backend.Spec, error) {
	dir, err := os.MkdirTemp(b.dir, "inside-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return backend.Spec{}, err
	}
	for _, d := range []string{filepath.Join(dir, "source"), filepath.Join(dir, "out")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return backend.Spec{}, err
		}
	}
	const home = "/home/bench"
	return backend.Spec{
		Task: task.NewID(), Instance: "benchrun", Token: task.NewToken(),
		Identity: task.Identity{UID: os.Getuid(), GID: os.Getgid(), Login: "bench", Home: home},
		Source:   backend.Mount{Source: filepath.Join(dir, "source"), Target: home + "/project", Writable: true},
		Out:      backend.Mount{Source: filepath.Join(dir, "out"), Target: backend.OutDir, Writable: true},
		Home:     home, WorkerPath: prog, Hostname: "bench",
		Env: []string{"HOME=" + home, "PATH=/usr/local/bin:/usr/bin:/bin"},
	}, nil
}

// workerProgram is the worker that the measured program put in place itself.
func (b *bench) workerProgram(ctx context.Context) (string, error) {
	in := b.installation("inside")
	if _, err := in.caisson(ctx, "run", "-q", "--repo", b.empty, "--source", "copy", "--", "true"); err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(in.state, "bin", "worker-*"))
	if err != nil {
		return "", err
	}
	for _, f := range found {
		if !strings.HasSuffix(f, ".ok") {
			return f, nil
		}
	}
	return "", errors.New("the program put no worker in place")
}
