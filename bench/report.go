//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

func (b *bench) report(groups []*group, mem []memLine) string {
	var w strings.Builder
	fmt.Fprintf(&w, "# Benchmarks\n\nWritten by `make bench`; do not edit. Milliseconds, %d rounds, every line of a table run once per round in turn, first round dropped.\n", b.n)
	fmt.Fprintf(&w, "Only ratios within one table mean something: the machine was shared. Nothing here is asserted by a test.\n\n")
	fmt.Fprintf(&w, "%s, %d CPUs, %s, load %s, %s; uid %d; %s\n", time.Now().UTC().Format("2 January 2006"), runtime.NumCPU(), cpu(), load(), kernel(), os.Geteuid(), versions())
	for _, g := range groups {
		fmt.Fprintf(&w, "\n## %s\n\n%s\n\n| command | first byte p50 (min) | exit p50 (min, p90) | x %s | what |\n|---|---|---|---|---|\n", g.title, g.note, g.base)
		base := g.baseExit()
		for _, r := range g.results {
			if r.failed != "" || len(r.samples) == 0 {
				fmt.Fprintf(&w, "| %s | – | – | – | %s |\n", r.name, cell(r.failed))
				continue
			}
			first, exit := sorted(r.samples, func(s sample) time.Duration { return s.first }), sorted(r.samples, func(s sample) time.Duration { return s.exit })
			ratio := "–"
			if base > 0 {
				ratio = fmt.Sprintf("%.2f", float64(at(exit, 50))/float64(base))
			}
			fmt.Fprintf(&w, "| %s | %s (%s) | %s (%s, %s) | %s | %s |\n", r.name, ms(at(first, 50)), ms(first[0]), ms(at(exit, 50)), ms(exit[0]), ms(at(exit, 90)), ratio, cell(r.what))
		}
	}
	fmt.Fprintf(&w, "\n## idle memory\n\nMiB per idle boundary, sum over its processes; PSS shares pages with others, USS is private.\n\n| boundary | opened | processes each | PSS | USS | what |\n|---|---|---|---|---|---|\n")
	for _, l := range mem {
		if l.failed != "" {
			fmt.Fprintf(&w, "| %s | – | – | – | – | %s |\n", l.name, cell(l.failed))
			continue
		}
		fmt.Fprintf(&w, "| %s | %d | %d | %.1f | %.1f | %s |\n", l.name, l.n, l.processes, l.pss, l.uss, cell(l.what))
	}
	return strings.ReplaceAll(w.String(), b.dir, "DIR")
}

func (g *group) baseExit() time.Duration {
	for _, r := range g.results {
		if r.name == g.base && r.failed == "" && len(r.samples) > 0 {
			return at(sorted(r.samples, func(s sample) time.Duration { return s.exit }), 50)
		}
	}
	return 0
}

func sorted(samples []sample, pick func(sample) time.Duration) []time.Duration {
	out := make([]time.Duration, len(samples))
	for i, s := range samples {
		out[i] = pick(s)
	}
	slices.Sort(out)
	return out
}

// at returns the p-th percentile of sorted values.
func at(d []time.Duration, p int) time.Duration { return d[(len(d)-1)*p/100] }

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

func cell(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "\n", " "), "|", "\\|") }

func cpu() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

func load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

func kernel() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return "Linux " + strings.TrimSpace(string(b))
}

// versions names what was compared.
func versions() string {
	var out []string
	for _, argv := range [][]string{{"bwrap", "--version"}, {"unshare", "--version"}, {"docker", "--version"}, {"dockerd", "--version"}} {
		b, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			out = append(out, argv[0]+" absent")
			continue
		}
		out = append(out, strings.TrimSpace(string(b)))
	}
	return runtime.Version() + "; " + strings.Join(out, "; ")
}
