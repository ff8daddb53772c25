//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/caisson-dev/caisson/internal/worker"
)

// way is one road of a call, or what a call is compared with.
type way struct {
	name, what string
	burst      int // calls a round
	do         func(n int) ([]time.Duration, error)
	took       []time.Duration
	why        error // why it gave no numbers
}

// rounds makes the calls of all ways in turn, each round in another order. The
// first round is dropped.
func (b *bench) rounds(ctx context.Context, ways []*way, rounds int) error {
	shuffle := rand.New(rand.NewPCG(seed, uint64(rounds)))
	began := time.Now()
	for round := 0; round == 0 || b.another(round-1, rounds, began); round++ {
		for _, i := range shuffle.Perm(len(ways)) {
			w := ways[i]
			if w.why != nil {
				continue
			}
			took, err := w.do(w.burst)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				w.why = err
				b.say("%s: %v", w.name, err)
			case round > 0:
				w.took = append(w.took, took...)
			}
		}
	}
	return nil
}

// callers are the ways into tasks that stand, and the folder that they are on.
type callers struct {
	client  *worker.Client // of a boundary without a task
	api     *caller        // a program that uses the Go package
	mcp     *caller        // caisson mcp, whose client we are
	forker  *caller        // in the namespaces of the unshare line
	folder  string
	in      *installation
	stands  *stands
	ends    []func() error
	forkWhy error
}

func (c *callers) end() (err error) {
	for i := len(c.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, c.ends[i]())
	}
	return err
}

// callers opens everything that calls are made in. The caller ends them, also on
// an error.
func (b *bench) callers(ctx context.Context) (c *callers, err error) {
	c = &callers{in: b.installation("calls")}
	if c.folder, err = os.MkdirTemp(b.dir, "calls-"); err != nil {
		return c, err
	}
	line := []byte("a line of forty bytes, as in a program\n")
	if err = os.WriteFile(filepath.Join(c.folder, "small"), bytes.Repeat(line, 25), 0o666); err == nil {
		err = os.Chmod(c.folder, 0o777)
	}
	if err != nil {
		return c, err
	}
	client, end, err := b.standInside(ctx, c.folder)
	if err != nil {
		return c, err
	}
	c.client, c.ends = client, append(c.ends, end)
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	start := func(argv, env []string, first func(*caller) error) (*caller, error) {
		l, err := live(argv, env)
		if err != nil {
			return nil, err
		}
		c.ends = append(c.ends, l.end)
		return l, first(l)
	}
	goAPI := b.installation("calls-go") // whose worker is another program
	if c.api, err = start([]string{self, callerArg, "go", c.folder}, goAPI.env(), (*caller).began); err != nil {
		return c, err
	}
	if c.mcp, err = start([]string{b.o.caisson, "mcp", "--repo", c.folder, "--source", "copy", "--keep", "never"}, c.in.env(), (*caller).greet); err != nil {
		return c, err
	}
	c.stands = b.stand(ctx, c.in, "--repo", c.folder, "--source", "copy")
	c.ends = append(c.ends, c.stands.end)
	pid, stop, why := holder(ctx)
	if why == nil {
		c.ends = append(c.ends, stop)
		c.forker, why = start(append(nsenterArgv(pid), self, callerArg, "fork"), nil, (*caller).began)
	}
	c.forkWhy = why
	return c, nil
}

// each makes one call after the other.
func each(pause time.Duration, do func() error) func(int) ([]time.Duration, error) {
	return func(n int) (took []time.Duration, err error) {
		for range n {
			time.Sleep(pause)
			at := time.Now()
			if err := do(); err != nil {
				return took, err
			}
			took = append(took, time.Since(at))
		}
		return took, nil
	}
}

// of has a caller make the calls.
func of(do func(order) (answered, error), o order) func(int) ([]time.Duration, error) {
	return func(n int) ([]time.Duration, error) {
		o.N = n
		a, err := do(o)
		return a.Took, err
	}
}

// commands is a way that starts a program for each call.
func (b *bench) commands(ctx context.Context, c contender, why error) *way {
	return &way{name: c.name, what: c.what, burst: 1, why: why, do: func(n int) (took []time.Duration, err error) {
		for range n {
			s, err := b.once(ctx, c)
			if err != nil {
				return took, err
			}
			took = append(took, s.exit)
		}
		return took, nil
	}}
}

const (
	inTurn = 20 // calls a round of what takes no program start
	breath = 10 * time.Millisecond
)

// calls compares the roads of a tool call with each other and with commands in
// containers.
func (b *bench) calls(ctx context.Context) (err error) {
	c, err := b.callers(ctx)
	defer func() { err = errors.Join(err, c.end()) }()
	if err != nil {
		return err
	}
	if err := b.readCalls(ctx, c); err != nil {
		return err
	}
	if err := b.shellCalls(ctx, c); err != nil {
		return err
	}
	return b.bulkCalls(ctx, c)
}

// entering lists the commands in what stands.
func (b *bench) entering(ctx context.Context, c *callers, shape contender, cmd ...string) (out []*way) {
	g := &group{}
	c.stands.lines(g, shape, cmd...)
	for i, r := range g.results {
		out = append(out, b.commands(ctx, r.contender, c.stands.why[i]))
	}
	return out
}

func (b *bench) readCalls(ctx context.Context, c *callers) error {
	read := order{Tool: "read_file", Args: map[string]any{"path": "small"}}
	raw, err := json.Marshal(read.Args)
	if err != nil {
		return err
	}
	ways := []*way{
		{name: "worker", what: "the channel alone, from a Go program that holds it: nothing is recorded, nobody is asked", burst: inTurn, do: each(0, func() error {
			r, err := c.client.Tool(ctx, read.Tool, raw, nil)
			r.Close()
			if err == nil && r.Failure != nil {
				err = errors.New(r.Failure.Message)
			}
			return err
		})},
		{name: "Go package", what: "Task.Call: decoded, judged, intent and outcome durable", burst: inTurn, do: of(c.api.do, read)},
		{name: "MCP", what: "tools/call over standard input and output of `caisson mcp`: the same", burst: inTurn, do: of(c.mcp.tool, read)},
		b.commands(ctx, contender{name: "caisson tool", what: "the same, with a program start", argv: []string{b.o.caisson, "tool", standing, read.Tool, string(raw)}, env: c.in.env()}, c.stands.why[0]),
		{name: "host", what: "a Go program of the host reads the file itself", burst: inTurn, do: each(0, func() error { _, err := os.ReadFile(filepath.Join(c.folder, "small")); return err })},
	}
	// The engines' containers do not have the file; one of their own is as good.
	ways = append(ways, b.entering(ctx, c, contender{}, "cat", "/proc/self/stat")...)
	if err := b.rounds(ctx, ways, b.o.rounds); err != nil {
		return err
	}
	b.callTable("call-read", "Reading a small file, by its road", "One file of 1 kB, warm; from the request to the answer. Commands (`cat`) are timed from their start to their exit.", "worker", ways)
	return nil
}

func (b *bench) shellCalls(ctx context.Context, c *callers) error {
	argv := []string{hostBox(), "true"}
	vector, script := order{Tool: "shell", Args: map[string]any{"argv": argv}, Pause: breath}, order{Tool: "shell", Args: map[string]any{"command": "true"}, Pause: breath}
	atOnce := vector
	atOnce.Pause = 0
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	const recorded = "shell: judged, intent and outcome durable, output taken"
	raw, err := json.Marshal(vector.Args)
	if err != nil {
		return err
	}
	ways := []*way{
		{name: "fork and exec", what: "by a Go program that lives in the namespaces of the unshare line", burst: inTurn, why: c.forkWhy, do: func(n int) ([]time.Duration, error) {
			return of(c.forker.do, order{Argv: argv, Pause: breath})(n)
		}},
		{name: "worker", what: "the channel alone: nothing is recorded, no output is taken", burst: inTurn, do: each(breath, func() error {
			call, err := c.client.Exec(ctx, worker.Command{Argv: argv}, []*os.File{null, null, null})
			if err != nil {
				return err
			}
			_, err = call.Wait(ctx)
			return err
		})},
		{name: "Go package", what: recorded, burst: inTurn, do: of(c.api.do, vector)},
		{name: "Go package, without pause", what: "the same at once after the one before: the guardian of a call is still being started when it comes", burst: inTurn, do: of(c.api.do, atOnce)},
		{name: "MCP", what: recorded, burst: inTurn, do: of(c.mcp.tool, vector)},
		{name: "fork and exec, bash -c", what: "as the first line", burst: inTurn, why: c.forkWhy, do: func(n int) ([]time.Duration, error) {
			return of(c.forker.do, order{Argv: []string{"/bin/bash", "-c", "true"}, Pause: breath})(n)
		}},
		{name: "Go package, bash -c", what: "the same by a script", burst: inTurn, do: of(c.api.do, script)},
		{name: "MCP, bash -c", what: "the same by a script", burst: inTurn, do: of(c.mcp.tool, script)},
		b.commands(ctx, contender{name: "caisson tool", what: "the same, with a program start", silent: true, argv: []string{b.o.caisson, "tool", standing, "shell", string(raw), "-q"}, env: c.in.env()}, c.stands.why[0]),
	}
	ways = append(ways, b.entering(ctx, c, contender{silent: true}, "true")...)
	if err := b.rounds(ctx, ways, b.o.rounds); err != nil {
		return err
	}
	b.callTable("call-shell", "`shell true`, by its road", "`true` of a static program, or of a shell where it says so; from the request to the answer. Ten milliseconds lie between two calls, as a model lies between them, but where the line says so. Commands are timed from their start to their exit.", "fork and exec", ways)
	return nil
}

// bulkCalls moves 100 MB each.
func (b *bench) bulkCalls(ctx context.Context, c *callers) error {
	blocks := strconv.Itoa(bulk >> 16)
	argv := []string{hostBox(), "dd", "if=/dev/zero", "bs=64k", "count=" + blocks}
	if err := os.WriteFile(filepath.Join(c.folder, "large"), make([]byte, bulk), 0o666); err != nil {
		return err
	}
	raw := []byte(`{"path": "large", "limit": 1}`)
	buf := make([]byte, 1<<20)
	out := order{Tool: "shell", Args: map[string]any{"argv": argv}}
	ways := []*way{
		{name: "read_file", what: "the channel alone; the host reads the file that comes with the answer", burst: 1, do: each(0, func() error {
			r, err := c.client.Tool(ctx, "read_file", raw, nil)
			if err != nil {
				return err
			}
			defer r.Close()
			if r.File == nil {
				return errors.New("no file came with the answer")
			}
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r.File}, buf)
			if err == nil && n != bulk {
				err = fmt.Errorf("%d bytes of %d came", n, int64(bulk))
			}
			return err
		})},
		{name: "shell, Go package", what: "Task.Call: the sum of all, the first 64 MiB in a file, the ends in the answer", burst: 1, do: of(c.api.do, out)},
		{name: "shell, Go package, stream", what: "Task.Stream: the same, and every byte to the caller", burst: 1, do: func(n int) ([]time.Duration, error) {
			a, err := c.api.do(order{Tool: out.Tool, Args: out.Args, Stream: true, N: n})
			if err == nil && a.Bytes < int64(n)*bulk {
				err = fmt.Errorf("%d bytes of %d came", a.Bytes, int64(n)*bulk)
			}
			return a.Took, err
		}},
		{name: "shell, MCP", what: "as Task.Call", burst: 1, do: of(c.mcp.tool, out)},
		b.commands(ctx, contender{name: "bare", what: "no boundary", argv: argv, bytes: bulk}, nil),
	}
	ways = append(ways, b.entering(ctx, c, contender{bytes: bulk}, argv[1:]...)...)
	if err := b.rounds(ctx, ways, b.some()); err != nil {
		return err
	}
	t := table{title: "100 MB", head: []string{"road", "MB/s p50", "ms p50", "ms min", "n", "what"},
		note: fmt.Sprintf("%d bytes, of a warm file or of `dd` with 64 KiB blocks; the time of the whole call or command counts.", int64(bulk))}
	for _, w := range ways {
		if w.why != nil || len(w.took) == 0 {
			t.gone(w.name, reason(w.why))
			continue
		}
		p50 := percentile(w.took, 50)
		b.figures["bulk/"+w.name] = bulk / 1e6 / p50.Seconds()
		t.row(w.name, fmt.Sprintf("%.0f", b.figures["bulk/"+w.name]), ms(p50), ms(percentile(w.took, 0)), fmt.Sprint(len(w.took)), w.what)
	}
	b.tables = append(b.tables, t)
	return nil
}

// bulk is about 100 MB, in whole blocks.
const bulk = 1526 << 16

func reason(err error) string {
	if err == nil {
		return "no round was measured"
	}
	return err.Error()
}

// callTable renders ways whose calls are short.
func (b *bench) callTable(key, title, note, base string, ways []*way) {
	t := table{title: title, note: note, head: []string{"road", "p50 ms", "min ms", "p99 ms", "x " + base, "n", "what"}}
	var one time.Duration
	for _, w := range ways {
		if w.name == base {
			one = percentile(w.took, 50)
		}
	}
	for _, w := range ways {
		if w.why != nil || len(w.took) == 0 {
			t.gone(w.name, reason(w.why))
			continue
		}
		p50, p99 := percentile(w.took, 50), percentile(w.took, 99)
		ratio := "–"
		if one > 0 {
			ratio = fmt.Sprintf("%.2f", float64(p50)/float64(one))
		}
		t.row(w.name, fine(p50), fine(percentile(w.took, 0)), fine(p99), ratio, fmt.Sprint(len(w.took)), w.what)
		b.figures[key+"/"+w.name+"/p50"], b.figures[key+"/"+w.name+"/p99"] = float64(p50)/1e6, float64(p99)/1e6
	}
	b.tables = append(b.tables, t)
}

// fine is milliseconds with microseconds.
func fine(d time.Duration) string { return fmt.Sprintf("%.3f", float64(d)/1e6) }
