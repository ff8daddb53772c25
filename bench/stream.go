//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// stream compares what goes through the streams of one command.
func (b *bench) stream(ctx context.Context) (err error) {
	size := int64(1 << 30)
	if b.o.quick {
		size = 64 << 20
	}
	in := b.installation("stream")
	s := b.stand(ctx, in, "--repo", b.small)
	defer func() { err = errors.Join(err, s.end()) }()
	count := "count=" + strconv.FormatInt(size>>16, 10)
	out := &group{key: "out", base: "bare", title: "Output of a command"}
	out.add(contender{name: "bare", what: "no boundary", bytes: size, argv: []string{hostBox(), "dd", "if=/dev/zero", "bs=64k", count}}, nil)
	s.lines(out, contender{bytes: size}, "dd", "if=/dev/zero", "bs=64k", count)
	into := &group{key: "in", base: "bare", title: "Input of a command"}
	into.add(contender{name: "bare", what: "no boundary", feed: size, silent: true, argv: []string{hostBox(), "dd", "of=/dev/null", "bs=64k"}}, nil)
	s.lines(into, contender{feed: size, silent: true}, "dd", "of=/dev/null", "bs=64k")
	for _, g := range []*group{out, into} {
		if err := b.measure(ctx, g, b.few()); err != nil {
			return err
		}
		b.tables[len(b.tables)-1] = g.throughput(size)
		for _, r := range g.results {
			if t := r.p(50, atExit); t > 0 {
				b.figures[g.key+"/"+r.name+"/MiB per s"] = mibPerSecond(size, t.Seconds())
			}
		}
	}
	return nil
}

func mibPerSecond(size int64, seconds float64) float64 { return float64(size) / (1 << 20) / seconds }

// throughput renders the group as a rate.
func (g *group) throughput(size int64) table {
	t := table{title: fmt.Sprintf("%s: %d MiB", g.title, size>>20), head: []string{"command", "MiB/s p50", "seconds p50 (min)", "own CPU p50", "n", "what"},
		note: "`dd` with 64 KiB blocks against a pipe of the caller; the time of the whole command counts."}
	for _, r := range g.results {
		if r.failed != "" || len(r.samples) == 0 {
			t.gone(r.name, r.failed)
			continue
		}
		p50 := r.p(50, atExit).Seconds()
		t.row(r.name, fmt.Sprintf("%.0f", mibPerSecond(size, p50)), fmt.Sprintf("%.2f (%.2f)", p50, r.p(0, atExit).Seconds()), ms(r.p(50, cpuTime)), fmt.Sprint(len(r.samples)), r.what)
	}
	return t
}
