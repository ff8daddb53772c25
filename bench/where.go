//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// where says what a run spends its time on: phases by the times of the
// evidence, and what it asks of the kernel by strace.
func (b *bench) where(ctx context.Context) error {
	big, err := b.large(ctx)
	if err != nil {
		return err
	}
	runs := []struct {
		name string
		args []string
		n    int
	}{
		{"copy of an empty folder", []string{"--repo", b.empty, "--source", "copy"}, b.some()},
		{"small repository", []string{"--repo", b.small}, b.some()},
		{"large repository", []string{"--repo", big}, b.few()},
	}
	in := b.installation("where")
	took := make([]map[string][]time.Duration, len(runs))
	var order []string
	for i, r := range runs {
		took[i] = map[string][]time.Duration{}
		began := time.Now()
		// The first is dropped; where it took long, caches were warm already.
		for round := 0; round == 0 || b.another(len(took[i][ended]), r.n, began); round++ {
			phases, err := b.phases(ctx, in, fmt.Sprintf("w%d-%d", i, round), r.args)
			if err != nil {
				return err
			}
			for _, p := range phases {
				if !slices.Contains(order, p.name) {
					order = append(order, p.name)
				}
				if round > 0 || time.Since(began) > b.o.limit/4 {
					took[i][p.name] = append(took[i][p.name], p.took)
				}
			}
			if err := in.settle(ctx); err != nil {
				return err
			}
		}
	}
	t := table{title: "Where the time goes: phases", head: []string{"phase of `caisson run -- true`"},
		note: "Medians, from the times in the evidence of the tasks and from start and exit of the command. Each phase ends with the durable record of an event, so its fsync is in it. How much of the boundary and its probe is the boundary alone is the first line of the in-process table."}
	for _, r := range runs {
		t.head = append(t.head, r.name)
	}
	for _, p := range order {
		row := []string{p}
		for i, r := range runs {
			v := percentile(took[i][p], 50)
			row = append(row, ms(v))
			b.figures["where/"+r.name+"/"+p] = float64(v) / 1e6
		}
		t.row(row...)
	}
	if hello := b.figures["inside/hello"]; hello > 0 {
		t.row("of boundary and probe the boundary alone (in-process)", ms(time.Duration(hello*1e6)), "–", "–")
	}
	for i, r := range runs {
		t.note += "\n\n" + strings.ToUpper(r.name[:1]) + r.name[1:] + ": " + largest(took[i]) + "."
	}
	b.tables = append(b.tables, t)
	return b.counts(ctx, in, big)
}

// largest names the phases that most of the time goes to.
func largest(took map[string][]time.Duration) string {
	type part struct {
		name string
		p50  time.Duration
	}
	var parts []part
	var all time.Duration
	for name, d := range took {
		p := part{name, percentile(d, 50)}
		parts, all = append(parts, p), all+p.p50
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(b.p50, a.p50), cmp.Compare(a.name, b.name)) })
	var out []string
	for _, p := range parts[:min(3, len(parts))] {
		out = append(out, fmt.Sprintf("%s %.0f %%", p.name, 100*float64(p.p50)/float64(max(all, 1))))
	}
	return fmt.Sprintf("of %s ms, ", ms(all)) + strings.Join(out, "; ")
}

// phase is the time from one event to the next.
type phase struct {
	name string
	took time.Duration
}

// reached names the phase that ends with an event.
var reached = map[string]string{
	"task.created":    "program start, due cleanups, look at the source",
	"plan.decided":    "decision",
	"source.prepared": "source made",
	"boundary.intent": "intent recorded",
	"probe.reported":  "boundary made, worker started, probe from inside",
	"call.intent":     "ready recorded, intent of the call",
	"call.outcome":    "the command",
	"cleanup.intent":  "look for changes, rescue",
	"boundary.ended":  "boundary gone",
	"task.sealed":     "files removed, record sealed",
	"task.closed":     "closed",
}

const ended = "to exit"

// phases runs one task and reads its evidence.
func (b *bench) phases(ctx context.Context, in *installation, name string, args []string) ([]phase, error) {
	argv := append(append([]string{"run", "-q", "--name", name}, args...), "--", "true")
	at := time.Now().Round(0) // evidence has the clock of the wall
	if _, err := in.caisson(ctx, argv...); err != nil {
		return nil, err
	}
	exit := time.Now().Round(0)
	out, err := in.caisson(ctx, "log", "--json", name)
	if err != nil {
		return nil, err
	}
	return readPhases(out, at, exit)
}

// readPhases cuts the time from start to exit at the events of a log.
func readPhases(log string, at, exit time.Time) (out []phase, err error) {
	for line := range strings.Lines(log) {
		var e struct {
			TS   time.Time `json:"ts"`
			Type string    `json:"type"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("a line of the log: %w", err)
		}
		name := reached[e.Type]
		if name == "" {
			name = "to " + e.Type
		}
		out = append(out, phase{name, e.TS.Sub(at)})
		at = e.TS
	}
	return append(out, phase{ended, exit.Sub(at)}), nil
}

// counts traces one run of each kind: figures that no load disturbs.
func (b *bench) counts(ctx context.Context, in *installation, big string) error {
	t := table{title: "Where the time goes: what is asked of the kernel", head: []string{"command", "programs started", "processes", "threads", "mount calls", "fsync", "at the fsync of this machine, ms", "programs"},
		note: "One run each under strace, which follows all children; daemons are not followed. Programs: how often which was started. Mount calls: mount, move_mount, open_tree, mount_setattr, umount2, pivot_root."}
	clone := filepath.Join(b.dir, "where-clone")
	lines := []contender{
		{name: "caisson version", argv: []string{b.o.caisson, "version"}},
		{name: "caisson run, copy of an empty folder", argv: []string{b.o.caisson, "run", "-q", "--repo", b.empty, "--source", "copy", "--", hostBox(), "true"}, env: in.env()},
		{name: "caisson run, small repository", argv: []string{b.o.caisson, "run", "-q", "--repo", b.small, "--", hostBox(), "true"}, env: in.env()},
		{name: "caisson run, large repository", argv: []string{b.o.caisson, "run", "-q", "--repo", big, "--", hostBox(), "true"}, env: in.env()},
		{name: "git clone --shared, small repository", argv: []string{"git", "clone", "-q", "--shared", b.small, clone}},
		{name: "bwrap", argv: bwrapArgv(hostBox(), "true")},
	}
	for _, v := range b.engines.all {
		if v.why == nil && v.name != "docker" {
			lines = append(lines, contender{name: v.name + " run", argv: v.run("/bin/busybox", "true"), on: b.engines.on()})
		}
	}
	for _, c := range lines {
		k, err := b.trace(ctx, c)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			t.gone(c.name, err.Error())
			continue
		}
		cost := time.Duration(k.fsync) * b.machine.fsync
		t.row(c.name, fmt.Sprint(k.execs()), fmt.Sprint(k.processes), fmt.Sprint(k.threads), fmt.Sprint(k.mounts), fmt.Sprint(k.fsync), ms(cost), k.names())
		b.figures["where/"+c.name+"/fsync"], b.figures["where/"+c.name+"/programs"] = float64(k.fsync), float64(k.execs())
	}
	b.tables = append(b.tables, t)
	return os.RemoveAll(clone)
}

// kernel is what a command asked of the kernel.
type kernel struct {
	programs                          map[string]int
	processes, threads, mounts, fsync int
}

func (k *kernel) execs() (n int) {
	for _, v := range k.programs {
		n += v
	}
	return n
}

// names lists programs, the most frequent first.
func (k *kernel) names() string {
	var list []string
	for p := range k.programs {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b string) int {
		if d := k.programs[b] - k.programs[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, p := range list {
		list[i] = p + " " + strconv.Itoa(k.programs[p])
	}
	return strings.Join(list, ", ")
}

func (b *bench) trace(ctx context.Context, c contender) (*kernel, error) {
	if _, err := exec.LookPath("strace"); err != nil {
		return nil, fmt.Errorf("not measured: there is no strace")
	}
	b.n++
	out := filepath.Join(b.dir, fmt.Sprintf("trace-%d", b.n))
	defer os.Remove(out)
	argv := []string{"strace", "-f", "-qq", "-s", "200", "-o", out, "-e", "trace=execve,clone,clone3,fork,vfork,fsync,fdatasync,mount,move_mount,open_tree,mount_setattr,umount2,pivot_root"}
	for _, a := range c.argv {
		argv = append(argv, strings.ReplaceAll(a, "{n}", "trace"+strconv.Itoa(b.n)))
	}
	if _, err := do(ctx, argv, c.env, c.on); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	return readTrace(string(text)), nil
}

var (
	callLine = regexp.MustCompile(`^\d+\s+(\w+)\(`)
	execLine = regexp.MustCompile(`^\d+\s+execve\("([^"]*)", \["([^"]*)"(?:, "([^"]*)")?`)
)

// readTrace counts the calls in the output of strace. A call in two lines is
// counted at the first; one that failed is not, where its line says so.
func readTrace(text string) *kernel {
	k := &kernel{programs: map[string]int{}}
	for line := range strings.Lines(text) {
		m := callLine.FindStringSubmatch(line)
		if m == nil || strings.Contains(line, "= -1 ") {
			continue
		}
		switch m[1] {
		case "execve":
			k.programs[programOf(line)]++
		case "clone", "clone3", "fork", "vfork":
			if strings.Contains(line, "CLONE_THREAD") {
				k.threads++
			} else {
				k.processes++
			}
		case "fsync", "fdatasync":
			k.fsync++
		default:
			k.mounts++
		}
	}
	return k
}

// programOf names what an execve starts: a file opened before by its first
// argument, our worker with its role.
func programOf(line string) string {
	m := execLine.FindStringSubmatch(line)
	if m == nil {
		return "?"
	}
	name := filepath.Base(m[1])
	if strings.HasPrefix(m[1], "/proc/") {
		name = filepath.Base(m[2])
	}
	if name == "caisson-worker" && m[3] != "" {
		name += " " + m[3]
	}
	return name
}
