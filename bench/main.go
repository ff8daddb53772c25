//go:build linux

//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command bench measures what caisson costs beside programs that do a
// comparable job and writes docs/BENCHMARKS.md.
//
// Its limit: it reports and never asserts; a number depends on the machine and
// its load, only the ratios of one table mean something.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson"
)

// options is what a person asks for.
type options struct {
	caisson string        // the program to measure
	out     string        // the report; "-": standard output
	json    string        // the raw figures; empty: none, "-": standard output
	only    []string      // keys of sections; empty: all
	rounds  int           // measured rounds of short commands
	limit   time.Duration // for the rounds of one table; at least one is measured
	time    time.Duration // after it no section is begun
	files   int           // in the large repository
	quick   bool
	install bool
}

// section is one part of the report.
type section struct {
	key, what string
	run       func(context.Context) error
}

func main() {
	caisson.Main()
	if len(os.Args) > 2 && os.Args[1] == callerArg {
		os.Exit(playCaller(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == dialArg {
		os.Exit(playDial(os.Args[2:]))
	}
	if len(os.Args) == 2 && os.Args[1] == proxyArg {
		os.Exit(playProxy())
	}
	var o options
	var only string
	flag.StringVar(&o.caisson, "caisson", "bin/caisson", "the program to measure")
	flag.StringVar(&o.out, "out", "docs/BENCHMARKS.md", "the report; - for standard output")
	flag.StringVar(&o.json, "json", "", "also write the raw figures to this file; - for standard output")
	flag.StringVar(&only, "only", "", "sections to measure, with commas: "+strings.Join(keys((&bench{}).sections()), ", "))
	flag.IntVar(&o.rounds, "rounds", 30, "measured rounds; one more is run first and dropped. What takes seconds is measured in fewer")
	flag.DurationVar(&o.limit, "limit", 3*time.Minute, "begin no further round of a table after this long; one is always measured")
	flag.DurationVar(&o.time, "time", time.Hour, "begin no further section after this long; the report names those that are left out")
	flag.BoolVar(&o.quick, "quick", false, "a look in under two minutes: few rounds, a small large repository, at most ten tasks; goals are not judged by it")
	flag.BoolVar(&o.install, "install", false, "as root on Debian: install the programs to compare with")
	flag.Parse()
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures and writes. Whatever ends it, what it started is gone when it returns.
func run(ctx context.Context, o options) (err error) {
	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	all := b.sections()
	for _, k := range o.only {
		if !slices.Contains(keys(all), k) {
			return fmt.Errorf("no section is called %q; there are %s", k, strings.Join(keys(all), ", "))
		}
	}
	if o.install {
		if err := install(ctx); err != nil {
			return err
		}
	}
	b.say("starting the engines to compare with")
	b.engines = startEngines(ctx, b)
	b.machine = look(ctx, b)
	for _, s := range all {
		if len(o.only) > 0 && !slices.Contains(o.only, s.key) {
			continue
		}
		b.say("measuring %s: %s", s.key, s.what)
		err := errors.New("left out: the time that was given (-time) is used up")
		if time.Since(b.started) < o.time {
			err = s.run(ctx)
		}
		if ctx.Err() != nil {
			return errors.New("interrupted; nothing was written")
		}
		if err != nil {
			// One part that cannot be measured does not take the others away.
			b.say("%s gave no figures: %v", s.key, err)
			b.failed = append(b.failed, fmt.Sprintf("%s: %v", s.key, err))
		}
	}
	b.machine.end()
	if o.json != "" {
		raw, err := b.raw()
		if err == nil {
			err = write(o.json, raw)
		}
		if err != nil {
			return err
		}
	}
	b.say("writing %s", o.out)
	return write(o.out, []byte(b.report()))
}

// sections lists the parts of the report in order.
func (b *bench) sections() []section {
	return []section{
		{"start", "one short command on an empty folder", b.start},
		{"repository", "one command on a small and on a large repository", b.repository},
		{"exec", "one more command in a boundary that stands", b.exec},
		{"inside", "a boundary and its calls without the command line", b.inProcess},
		{"plan", "a plan on the large repository, and a verdict", b.plan},
		{"where", "where the time goes", b.where},
		{"result", "diff and close on the large repository", b.result},
		{"memory", "idle open tasks", b.memory},
		{"many", "tasks at once", b.many},
		{"engines", "engines as backends, beside their own commands", b.backends},
		{"calls", "a tool call by each road, beside commands in containers", b.calls},
		{"tools", "file tools, from request to result", b.fileTools},
		{"search", "grep over the large repository", b.search},
		{"stream", "a gigabyte through a call's streams", b.stream},
		{"egress", "connections and bytes on the way out of a task", b.egress},
		{"disk", "bytes on disk per task", b.disk},
	}
}

func keys(s []section) (out []string) {
	for _, s := range s {
		out = append(out, s.key)
	}
	return out
}

func write(to string, b []byte) error {
	if to == "-" {
		_, err := os.Stdout.Write(b)
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// bench is one run: its folder, what it measures, what it found and what it
// has to end.
type bench struct {
	o       options
	dir     string
	started time.Time
	log     io.Writer // progress
	engines *engines
	machine *machine

	empty string // a folder without files
	small string // a repository of one file
	big   string // a repository of o.files files; made when first asked for
	tasks []*installation

	n       int // samples taken; names what must not be taken twice
	tables  []table
	figures map[string]float64
	samples map[string][]sample
	failed  []string
}

func newBench(o options) (*bench, error) {
	var err error
	if o.caisson, err = filepath.Abs(o.caisson); err != nil {
		return nil, err
	}
	if _, err := os.Stat(o.caisson); err != nil {
		return nil, fmt.Errorf("%s is not there; run make build", o.caisson)
	}
	if o.files == 0 {
		o.files = largeFiles
	}
	if o.quick {
		o.rounds, o.files, o.limit = min(o.rounds, 4), min(o.files, 2000), min(o.limit, 10*time.Second)
	}
	o.rounds = max(o.rounds, 1)
	dir, err := os.MkdirTemp("", "caisson-bench-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755) // as root a boundary is another user
	}
	if err != nil {
		return nil, err
	}
	b := &bench{o: o, dir: dir, started: time.Now(), log: os.Stderr, figures: map[string]float64{}, samples: map[string][]sample{},
		empty: filepath.Join(dir, "empty"), small: filepath.Join(dir, "small"), engines: &engines{}, machine: &machine{}}
	if err = os.Mkdir(b.empty, 0o755); err == nil {
		err = makeRepo(context.Background(), b.small, 1)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return b, nil
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.log, "bench: %5.1fs  %s\n", time.Since(b.started).Seconds(), fmt.Sprintf(format, args...))
}

// another says whether one more measured round may begin, after done of them.
func (b *bench) another(done, rounds int, since time.Time) bool {
	return done < rounds && (done == 0 || time.Since(since) < b.o.limit)
}

// few is the number of rounds for what takes seconds each.
func (b *bench) few() int { return max(1, min(b.o.rounds, 2+b.o.rounds/10)) }

// some is the number of rounds for what takes a part of a second and is not compared.
func (b *bench) some() int { return max(1, min(b.o.rounds, 2+b.o.rounds/4)) }

// close ends what this run started: tasks first, then engines, then the folder.
func (b *bench) close() (err error) {
	b.say("taking everything away")
	for _, in := range b.tasks {
		err = errors.Join(err, in.close())
	}
	err = errors.Join(err, b.engines.stop())
	if err != nil {
		return fmt.Errorf("what is left is in %s: %w", b.dir, err)
	}
	return os.RemoveAll(b.dir)
}
