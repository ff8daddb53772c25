//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// contender is one command that is measured.
type contender struct {
	name   string
	what   string       // what the line does, for the report
	argv   []string     // "{n}" stands for a number that is used once
	dir    string       // where it starts; empty: here
	env    []string     // K=V on top of ours
	silent bool         // prints nothing: only its exit is timed
	feed   int64        // zero bytes that it gets on standard input; 0: none
	bytes  int64        // it must print exactly so many; 0: any number
	on     func(func()) // where it is started from; nil: here
	// before and after frame each sample and are not timed. after also runs
	// when the command failed.
	before, after func(ctx context.Context) error
}

// sample is one run of a contender. cpu is user and system time of the command
// and its children that it waited for, not of a daemon that works for it.
type sample struct{ first, exit, cpu time.Duration }

// result is what is reported of one contender.
type result struct {
	contender
	samples []sample
	failed  string // why it gave no numbers
}

// group is a set of contenders that are measured round robin and compared.
type group struct {
	key, title, note string
	base             string // the name that ratios refer to
	results          []*result
}

// add takes c in. A command that is not on this machine is named with the reason.
func (g *group) add(c contender, why error) {
	r := &result{contender: c}
	if why == nil && len(c.argv) > 0 {
		if _, err := exec.LookPath(c.argv[0]); err != nil {
			why = fmt.Errorf("not present: there is no %s", c.argv[0])
		}
	}
	if why != nil {
		r.failed = why.Error()
	}
	g.results = append(g.results, r)
}

// measure runs every contender of g once per round, so that what else the
// machine does falls on all alike. Each round has another order: what one
// leaves for the kernel to do in the background must not always fall on the
// same neighbour. The first round, which fills caches, is dropped.
func (b *bench) measure(ctx context.Context, g *group, rounds int) error {
	shuffle := rand.New(rand.NewPCG(seed, uint64(rounds)))
	began := time.Now()
	for round := 0; round == 0 || b.another(round-1, rounds, began); round++ {
		for _, i := range shuffle.Perm(len(g.results)) {
			r := g.results[i]
			if r.failed != "" {
				continue
			}
			s, err := b.once(ctx, r.contender)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				r.failed = err.Error()
				b.say("%s: %v", r.name, err)
			case round > 0:
				r.samples = append(r.samples, s)
			}
		}
	}
	b.keep(g)
	return nil
}

// keep takes the figures and the table of a measured group.
func (b *bench) keep(g *group) {
	for _, r := range g.results {
		if r.failed != "" || len(r.samples) == 0 {
			continue
		}
		key := g.key + "/" + r.name
		b.samples[key] = r.samples
		if !r.silent {
			b.figures[key+"/first"] = float64(r.p(50, firstByte)) / 1e6
		}
		b.figures[key+"/exit"] = float64(r.p(50, atExit)) / 1e6
	}
	b.tables = append(b.tables, g.table())
}

// once measures one command from before its fork to its first byte and to its exit.
func (b *bench) once(ctx context.Context, c contender) (s sample, err error) {
	if c.before != nil {
		if err := c.before(ctx); err != nil {
			return s, err
		}
	}
	if c.after != nil {
		defer func() { err = errors.Join(err, c.after(context.WithoutCancel(ctx))) }()
	}
	b.n++
	return c.time(ctx, b.n)
}

// time runs the command. It may be called from several goroutines.
func (c contender) time(ctx context.Context, n int) (s sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	argv := slices.Clone(c.argv)
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "{n}", strconv.Itoa(n))
	}
	// Go starts it with CLONE_VFORK and CLONE_VM, as posix_spawn does: what a
	// caller with a large heap pays for a plain fork is not in the figures.
	cmd := command(ctx, argv, c.env)
	cmd.Dir = c.dir
	stderr := &tail{}
	cmd.Stderr = stderr
	r, w, err := os.Pipe()
	if err != nil {
		return s, err
	}
	defer r.Close()
	cmd.Stdout = w
	var in *os.File
	if c.feed > 0 {
		var from *os.File
		if from, in, err = os.Pipe(); err != nil {
			w.Close()
			return s, err
		}
		defer from.Close()
		defer in.Close()
		cmd.Stdin = from
	}
	var t0 time.Time
	from(c.on, func() {
		t0 = time.Now()
		err = cmd.Start()
	})
	w.Close()
	if err != nil {
		return s, err
	}
	// An interrupted command may leave somebody who holds the pipe.
	defer context.AfterFunc(ctx, func() { time.AfterFunc(cmd.WaitDelay, func() { r.Close() }) })()
	if c.feed > 0 {
		go feed(in, c.feed)
	}
	buf := make([]byte, 1<<20) // larger than a pipe: what arrives is taken at once
	_, rerr := r.Read(buf[:1])
	s.first = time.Since(t0)
	// Not io.Copy: that would splice, and one line could get what others do not.
	printed := int64(1)
	for rerr == nil {
		n, err := r.Read(buf)
		printed += int64(n)
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	s.exit = time.Since(t0)
	s.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	switch {
	case err != nil:
		return s, fmt.Errorf("%s: %v: %s", short(argv), err, stderr)
	case rerr != nil && !c.silent:
		return s, fmt.Errorf("%s printed nothing", short(argv))
	case c.bytes > 0 && printed != c.bytes:
		return s, fmt.Errorf("%s printed %d bytes instead of %d", short(argv), printed, c.bytes)
	}
	return s, nil
}

// feed writes n zero bytes and closes. A reader that is gone ends it.
func feed(to *os.File, n int64) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for n > 0 {
		k, err := to.Write(buf[:min(n, int64(len(buf)))])
		if err != nil {
			return
		}
		n -= int64(k)
	}
}

// tail keeps the end of what a program wrote.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 4096 {
		t.b = slices.Delete(t.b, 0, len(t.b)-4096)
	}
	return len(p), nil
}

func (t *tail) String() string { return lastLine(string(t.b)) }

func firstByte(s sample) time.Duration { return s.first }
func atExit(s sample) time.Duration    { return s.exit }
func cpuTime(s sample) time.Duration   { return s.cpu }

// p returns the p-th percentile of one part of the samples.
func (r *result) p(p int, pick func(sample) time.Duration) time.Duration {
	out := make([]time.Duration, len(r.samples))
	for i, s := range r.samples {
		out[i] = pick(s)
	}
	return percentile(out, p)
}

// percentile returns the p-th percentile, between two values where it falls
// there; 0 of nothing.
func percentile(d []time.Duration, p int) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Clone(d)
	slices.Sort(d)
	at := float64((len(d)-1)*p) / 100
	low := int(at)
	high := min(low+1, len(d)-1)
	return d[low] + time.Duration((at-float64(low))*float64(d[high]-d[low]))
}
