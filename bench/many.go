//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// burst is what came of many starts at once.
type burst struct {
	wall   time.Duration
	took   []time.Duration // of those that worked
	failed int
	why    string // of the last that failed
}

// many compares ten and a hundred starts at once.
func (b *bench) many(ctx context.Context) error {
	in := b.installation("many")
	run := append([]string{b.o.caisson, "run", "-q", "--repo", b.empty, "--source", "copy", "--"}, echo()...)
	sizes := map[int]int{10: b.few(), 100: 1}
	for _, n := range []int{10, 100} {
		if n > 10 && b.o.quick {
			break
		}
		g := &group{key: fmt.Sprintf("many%d", n)}
		g.add(contender{name: "caisson run --source copy", argv: run, env: in.env()}, nil)
		g.add(contender{name: "bwrap", argv: bwrapArgv(echo()...)}, nil)
		for _, v := range b.engines.all {
			c := contender{name: v.name + " run", on: b.engines.on()}
			if v.why == nil {
				c.argv = v.run("/bin/busybox", "echo", "x")
			}
			g.add(c, v.why)
		}
		if err := b.bursts(ctx, g, n, sizes[n]); err != nil {
			return err
		}
	}
	return nil
}

// bursts starts n of each line at once, line after line, in rounds.
func (b *bench) bursts(ctx context.Context, g *group, n, rounds int) error {
	all := make([]burst, len(g.results))
	walls := make([][]time.Duration, len(g.results))
	for _, r := range g.results {
		// What ten took says what a hundred would.
		rate := b.figures["many10/"+r.name+"/per second"]
		if expected := time.Duration(float64(n) / rate * float64(time.Second)); r.failed == "" && rate > 0 && expected > b.o.limit {
			r.failed = fmt.Sprintf("not measured: it would take about %v here (-limit)", expected.Round(time.Second))
		}
	}
	began, round := time.Now(), 0
	for ; b.another(round, rounds, began); round++ {
		for i, r := range g.results {
			if r.failed != "" {
				continue
			}
			one := b.burst(ctx, r.contender, n)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			walls[i] = append(walls[i], one.wall)
			all[i].took = append(all[i].took, one.took...)
			all[i].failed += one.failed
			if one.why != "" {
				all[i].why = one.why
			}
		}
	}
	t := table{title: fmt.Sprintf("%d at once", n), head: []string{"command", "per second", "latency p50 (p90)", "failed", "what"},
		note: fmt.Sprintf("So many commands started at once, each timed from its start to its exit; the time until the last is done gives the rate. %d rounds.", round)}
	for i, r := range g.results {
		if r.failed != "" {
			t.gone(r.name, r.failed)
			continue
		}
		wall := percentile(walls[i], 50).Seconds()
		rate := float64(n) / wall
		t.row(r.name, fmt.Sprintf("%.1f", rate), fmt.Sprintf("%s (%s)", ms(percentile(all[i].took, 50)), ms(percentile(all[i].took, 90))), fmt.Sprintf("%d of %d", all[i].failed, n*round), all[i].why)
		key := g.key + "/" + r.name
		b.figures[key+"/per second"], b.figures[key+"/failed"] = rate, float64(all[i].failed)
		b.figures[key+"/p50"], b.figures[key+"/p90"] = float64(percentile(all[i].took, 50))/1e6, float64(percentile(all[i].took, 90))/1e6
	}
	b.tables = append(b.tables, t)
	return nil
}

func (b *bench) burst(ctx context.Context, c contender, n int) (out burst) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	t0 := time.Now()
	for range n {
		b.n++
		id := b.n
		wg.Go(func() {
			s, err := c.time(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out.failed, out.why = out.failed+1, err.Error()
				return
			}
			out.took = append(out.took, s.exit)
		})
	}
	wg.Wait()
	out.wall = time.Since(t0)
	return out
}
