//go:build linux

// Command bench measures what caisson costs beside programs that do a
// comparable job, in one interleaved run, and writes docs/BENCHMARKS.md.
//
// Its limit: it reports and never asserts; a number depends on the machine and
// its load, only the ratios of one run mean something.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// contender is one command that is measured.
type contender struct {
	name string
	what string   // what the line does, for the report
	argv []string // prints at least one byte on stdout
	dir  string
	env  []string
}

// sample is one run of a contender.
type sample struct{ first, exit time.Duration }

// result is what is reported of one contender.
type result struct {
	contender
	samples []sample
	failed  string // why it gave no numbers
}

// group is a set of contenders that are measured round robin and compared.
type group struct {
	title, note string
	base        string // the name that ratios refer to
	results     []*result
}

func main() {
	caisson := flag.String("caisson", "bin/caisson", "the program to measure")
	out := flag.String("out", "docs/BENCHMARKS.md", "the report; - for standard output")
	n := flag.Int("n", 30, "measured rounds; one more is run first and dropped")
	idle := flag.Int("idle", 5, "idle open tasks for the memory figure")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *caisson, *out, *n, *idle); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, caisson, out string, n, idle int) (err error) {
	caisson, err = filepath.Abs(caisson)
	if err != nil {
		return err
	}
	if _, err := os.Stat(caisson); err != nil {
		return fmt.Errorf("%s is not there; run make build", caisson)
	}
	dir, err := os.MkdirTemp("", "caisson-bench-")
	if err != nil {
		return err
	}
	b := &bench{dir: dir, caisson: caisson, n: n, idle: idle}
	defer func() { err = errors.Join(err, b.close(), os.RemoveAll(dir)) }()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	groups := []*group{b.start(), b.call(ctx), b.program()}
	for _, g := range groups {
		if err := b.measure(ctx, g); err != nil {
			return err
		}
	}
	mem := b.memory(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	text := b.report(groups, mem)
	if out == "-" {
		_, err = io.WriteString(os.Stdout, text)
		return err
	}
	fmt.Fprintln(os.Stderr, "bench: writing", out)
	return os.WriteFile(out, []byte(text), 0o644)
}

// measure runs every contender of g once per round, so that what else the
// machine does falls on all alike. The first round is dropped.
func (b *bench) measure(ctx context.Context, g *group) error {
	fmt.Fprintln(os.Stderr, "bench: measuring", g.title)
	for round := range b.n + 1 {
		for _, r := range g.results {
			if r.failed != "" {
				continue
			}
			s, err := once(ctx, r.contender)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				r.failed = err.Error()
			case round > 0:
				r.samples = append(r.samples, s)
			}
		}
	}
	return nil
}

// once measures one command from before the fork to its first byte and to its exit.
func once(ctx context.Context, c contender) (s sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
	stderr := &tail{}
	cmd.Stderr = stderr
	r, w, err := os.Pipe()
	if err != nil {
		return s, err
	}
	defer r.Close()
	cmd.Stdout = w
	t0 := time.Now()
	err = cmd.Start()
	w.Close()
	if err != nil {
		return s, err
	}
	_, rerr := r.Read(make([]byte, 1))
	s.first = time.Since(t0)
	_, _ = io.Copy(io.Discard, r)
	err = cmd.Wait()
	s.exit = time.Since(t0)
	switch {
	case err != nil:
		return s, fmt.Errorf("%v: %s", err, stderr)
	case rerr != nil:
		return s, errors.New("printed nothing")
	}
	return s, nil
}

// tail keeps the last line a program wrote.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 4096 {
		t.b = slices.Delete(t.b, 0, len(t.b)-4096)
	}
	return len(p), nil
}

func (t *tail) String() string { return lastLine(string(t.b)) }
