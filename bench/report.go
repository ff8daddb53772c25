//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// table is one part of the report.
type table struct {
	title, note string
	head        []string
	rows        [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// gone is the row of something that gave no figures.
func (t *table) gone(name, why string) {
	cells := []string{name}
	for len(cells) < len(t.head)-1 {
		cells = append(cells, "–")
	}
	t.row(append(cells, why)...)
}

func (t *table) write(w *strings.Builder) {
	fmt.Fprintf(w, "\n## %s\n\n%s\n\n| %s |\n|%s\n", t.title, t.note, strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, r := range t.rows {
		for i := range r {
			r[i] = cell(r[i])
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(r, " | "))
	}
}

// table renders the figures of a measured group.
func (g *group) table() table {
	t := table{title: g.title, note: g.note, head: []string{"command", "first byte p50 (min)", "exit p50 (min, p90)", "own CPU p50", "x " + g.base, "n", "what"}}
	var base time.Duration
	for _, r := range g.results {
		if r.name == g.base && r.failed == "" {
			base = r.p(50, atExit)
		}
	}
	for _, r := range g.results {
		if r.failed != "" || len(r.samples) == 0 {
			t.gone(r.name, r.failed)
			continue
		}
		first, ratio := "–", "–"
		if !r.silent {
			first = fmt.Sprintf("%s (%s)", ms(r.p(50, firstByte)), ms(r.p(0, firstByte)))
		}
		if base > 0 {
			ratio = fmt.Sprintf("%.2f", float64(r.p(50, atExit))/float64(base))
		}
		t.row(r.name, first, fmt.Sprintf("%s (%s, %s)", ms(r.p(50, atExit)), ms(r.p(0, atExit)), ms(r.p(90, atExit))), ms(r.p(50, cpuTime)), ratio, fmt.Sprint(len(r.samples)), r.what)
	}
	return t
}

const head = `# Benchmarks

Written by ` + "`make bench`" + `; do not edit. Times are milliseconds. Nothing here is asserted by a test.

How it is measured: the lines of one table are run in turn, each once per round and every round in another order, and the first round is dropped (a table ends early where the
machine is slow: column n); only ratios within one
table mean something. A command is timed from before its start to the first byte that the caller reads from a pipe, and to its exit. What it prints inside is
printed by a static program with one write, so no buffer holds it back. Durability is on: caisson records intents and outcomes with fsync on the file system named below.

What flatters or hurts whom:

- Commands are started with CLONE_VFORK, as posix_spawn does; a caller with much memory that forks plainly pays more, for all lines alike.
- The page and name caches are warm for all lines: a first use after a start of the machine costs disk reads on top, most for the large repository.
- "Own CPU" counts the command and children it waited for. The daemons of docker work elsewhere, on the same processors.
- Engines leave work behind after their exit (removal, unmounting); the changing order spreads it over all lines.
- crun refuses a machine with both kinds of control groups, so it, runc, podman and docker are started where the unified tree is unmounted.
- The others bring no clone of the repository, no measurement from inside, no evidence, no rescue of work; the bwrap, crun and runc lines have no seccomp filter and no limits.
`

func (b *bench) report() string {
	var w strings.Builder
	w.WriteString(head)
	b.machine.write(&w)
	if b.o.quick {
		fmt.Fprintf(&w, "\nA quick look (`-quick`): few rounds, a large repository of %d files; it judges no goal.\n", b.o.files)
	}
	for _, f := range b.failed {
		fmt.Fprintf(&w, "\nNo figures: %s.\n", cell(f))
	}
	goals := b.goals()
	goals.write(&w)
	for _, t := range b.tables {
		t.write(&w)
	}
	return strings.ReplaceAll(w.String(), b.dir, "DIR")
}

// raw is everything that was measured, for programs.
func (b *bench) raw() ([]byte, error) {
	type one struct {
		First float64 `json:"first_ms"`
		Exit  float64 `json:"exit_ms"`
		CPU   float64 `json:"cpu_ms"`
	}
	samples := map[string][]one{}
	for k, list := range b.samples {
		for _, s := range list {
			samples[k] = append(samples[k], one{float64(s.first) / 1e6, float64(s.exit) / 1e6, float64(s.cpu) / 1e6})
		}
	}
	out, err := json.MarshalIndent(map[string]any{
		"machine": b.machine.facts, "date": b.started.UTC().Format(time.RFC3339), "quick": b.o.quick, "files": b.o.files,
		"figures": b.figures, "samples": samples, "failed": b.failed,
	}, "", "  ")
	return append(out, '\n'), err
}

func ms(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.2f", float64(d)/1e6)
	}
	return fmt.Sprintf("%.1f", float64(d)/1e6)
}

func cell(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "\n", " "), "|", "\\|") }
