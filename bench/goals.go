//go:build linux

package main

import "fmt"

// goal is what one figure should be.
type goal struct {
	figure, want string
	needs        []string // keys of figures; any absent: not measured
	judge        func(f map[string]float64) (got string, reached bool)
}

// under judges one figure by a limit.
func under(name, want, key, unit string, limit float64) goal {
	return goal{name, want, []string{key}, func(f map[string]float64) (string, bool) {
		return fmt.Sprintf("%.1f %s", f[key], unit), f[key] <= limit
	}}
}

// ratio judges how many times as much one figure is as another.
func ratio(name, want, a, b string, ok func(float64) bool) goal {
	return goal{name, want, []string{a, b}, func(f map[string]float64) (string, bool) {
		x := f[a] / f[b]
		return fmt.Sprintf("%.1f / %.1f = %.2fx", f[a], f[b], x), ok(x)
	}}
}

// more judges how much more one figure is than another, in milliseconds.
func more(name, want, a, b string, limit float64) goal {
	return goal{name, want, []string{a, b}, func(f map[string]float64) (string, bool) {
		d := f[a] - f[b]
		return fmt.Sprintf("%.1f - %.1f = %.1f ms", f[a], f[b], d), d <= limit
	}}
}

// least judges a rate in MB/s.
func least(name, key string, limit float64) goal {
	return goal{name, fmt.Sprintf("at least %.0f MB/s", limit), []string{key}, func(f map[string]float64) (string, bool) {
		return fmt.Sprintf("%.0f MB/s", f[key]), f[key] >= limit
	}}
}

var goals = []goal{
	under("in-process: boundary open to worker hello", "within 10 ms", "inside/hello", "ms", 10),
	ratio("`caisson run --source copy` on an empty folder, first byte, beside bwrap", "at most 2x", "start/caisson run --source copy/first", "start/bwrap/first", func(x float64) bool { return x <= 2 }),
	ratio("docker run beside `caisson run --source copy`, first byte", "at least 15x", "start/docker run/first", "start/caisson run --source copy/first", func(x float64) bool { return x >= 15 }),
	under("`caisson run -- true` on a small repository, later runs", "under 60 ms", "small/caisson run, later/exit", "ms", 60),
	ratio("`caisson run -- true` on the large repository, later runs, beside `git clone --shared` with checkout", "within 1.3x", "large/caisson run, later/exit", "large/git clone --shared/exit", func(x float64) bool { return x <= 1.3 }),
	more("`caisson exec` beside `caisson version`, exit", "at most 5 ms more", "exec/caisson exec/exit", "exec/caisson version/exit", 5),
	under("`caisson version`, exit", "under 12 ms", "start/caisson version/exit", "ms", 12),
	under("`caisson plan` on the large repository with a new state folder, exit", "under 300 ms", "plan/caisson plan, first/exit", "ms", 300),
	under("a verdict by 20 rules, the script's analysis included", "under 20 µs", "verdict/whole/20/1", "µs", 20),
	under("small read_file by the worker, median", "within 100 µs", "tools/read/p50", "µs", 100),
	under("small read_file by the worker, of a hundred the slowest but one", "within 500 µs", "tools/read/p99", "µs", 500),
	least("100 MB through read_file", "bulk/read_file", 500),
	more("`shell true` by the Go package beside a fork and exec in a namespace", "at most 3 ms more", "call-shell/Go package/p50", "call-shell/fork and exec/p50", 3),
	more("`shell true` by MCP beside a fork and exec in a namespace", "at most 3 ms more", "call-shell/MCP/p50", "call-shell/fork and exec/p50", 3),
	ratio("docker exec beside `shell true` by MCP", "at least 20x", "call-shell/docker exec/p50", "call-shell/MCP/p50", func(x float64) bool { return x >= 20 }),
	least("100 MB of a command's output, `shell` by the Go package", "bulk/shell, Go package", 500),
	least("the same, every byte handed on", "bulk/shell, Go package, stream", 500),
	least("the same by `caisson exec`", "bulk/caisson exec", 500),
	under("PSS of the worker of an idle open task, at 100 tasks", "under 1.5 MiB", "memory/100/worker", "MiB", 1.5),
	under("PSS of an idle open task, all together, at 100 tasks", "under 8 MiB", "memory/100/all", "MiB", 8),
	ratio("grep over the large repository for a text, beside ripgrep", "within 1.5x", "search-rare/grep tool/exit", "search-rare/rg/exit", func(x float64) bool { return x <= 1.5 }),
	ratio("the same for a pattern without a text in it", "within 1.5x", "search-class/grep tool/exit", "search-class/rg/exit", func(x float64) bool { return x <= 1.5 }),
	more("a connection out of a task to its first byte, by the proxy, beside a direct one", "at most 1 ms more", "egress/caisson, proxy/p50", "egress/direct/p50", 1),
	more("the same connection of a client that knows no proxy", "at most 1 ms more", "egress/caisson, caught/p50", "egress/direct/p50", 1),
	ratio("bytes out of a task on one connection, by the proxy, beside a direct one", "at least 0.6x", "egress/caisson, proxy/MiB per s", "egress/direct/MiB per s", func(x float64) bool { return x >= 0.6 }),
	ratio("the same bytes of a client that knows no proxy", "at least 0.6x", "egress/caisson, caught/MiB per s", "egress/direct/MiB per s", func(x float64) bool { return x >= 0.6 }),
	ratio("the same bytes beside slirp4netns", "at least 3x", "egress/caisson, caught/MiB per s", "egress/slirp4netns/MiB per s", func(x float64) bool { return x >= 3 }),
	more("PSS of an idle task with a way out beside one without", "at most 1 MiB more", "egress/idle/--net registries", "egress/idle/no network", 1),
	more("`caisson run --backend docker` beside docker run of the same container, exit", "at most 60 ms more", "engines-docker/caisson run --backend docker/exit", "engines-docker/docker run, the same container/exit", 60),
	more("`caisson run --backend podman` beside podman run of the same container, exit", "at most 60 ms more", "engines-podman/caisson run --backend podman/exit", "engines-podman/podman run, the same container/exit", 60),
	ratio("docker exec beside `shell true` by MCP with --backend docker", "at least 20x", "engines-docker-call/docker exec/p50", "engines-docker-call/MCP, shell/p50", func(x float64) bool { return x >= 20 }),
	ratio("podman exec beside `shell true` by MCP with --backend podman", "at least 20x", "engines-podman-call/podman exec/p50", "engines-podman-call/MCP, shell/p50", func(x float64) bool { return x >= 20 }),
	under("`caisson close` of an unchanged task on the large repository returns", "within 300 ms", "result/close/exit", "ms", 300),
}

// goals compares what was measured with what it should be.
func (b *bench) goals() *table {
	t := &table{title: "Goals", note: "Medians of this run.", head: []string{"figure", "goal", "measured", "reached"}}
	for _, g := range goals {
		got, reached := "–", "not measured"
		all := true
		for _, k := range g.needs {
			if f, ok := b.figures[k]; !ok || f == 0 {
				all = false
			}
		}
		if all {
			var ok bool
			got, ok = g.judge(b.figures)
			switch {
			case b.o.quick:
				reached = "not judged"
			case ok:
				reached = "yes"
			default:
				reached = "no"
			}
		}
		t.row(g.figure, g.want, got, reached)
	}
	return t
}
