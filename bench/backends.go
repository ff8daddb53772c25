//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// served is an engine that caisson can use as a backend too.
type served interface {
	// service returns how caisson is told where the engine listens, and starts what
	// listens where nothing does yet.
	service(ctx context.Context) (env []string, err error)
	// like is the command line of a container for cmd that is made as a standing
	// one is: its root, its mounts, its limits.
	like(ctx context.Context, id string) (func(cmd ...string) []string, error)
	// ours lists the ids of the containers of a task of caisson.
	ours(ctx context.Context, task string) ([]string, error)
}

// beneath is one engine or runtime under caisson, beside itself.
type beneath struct {
	b    *bench
	name string // of the backend
	rival
	served // nil: a runtime that is started for each container, by bundle
	in     *installation
	env    []string
}

// backends compares each engine and runtime under caisson with its own command line.
func (b *bench) backends(ctx context.Context) error {
	t := table{title: "Engines under caisson, idle", head: []string{"boundary", "how many", "processes each", "PSS each", "USS each", "what"},
		note: "MiB per idle boundary, as in the table of idle memory; the daemons are not counted, what watches one container is."}
	var errs []error
	for _, v := range b.engines.all {
		name, has := map[string]string{"docker": "docker", "podman": "podman", "crun": "oci:crun", "runc": "oci:runc", "runsc": "gvisor"}[v.name]
		if !has {
			continue
		}
		if v.why != nil {
			b.absent(&t, name, v.why)
			continue
		}
		k := &beneath{b: b, name: name, rival: *v, in: b.installation("engines-" + v.name)}
		k.served, _ = v.engine.(served)
		if err := k.compare(ctx, &t); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
			b.absent(&t, name, err)
		}
	}
	b.tables = append(b.tables, t)
	return errors.Join(errs...)
}

// absent says why an engine has no tables.
func (b *bench) absent(t *table, name string, why error) {
	b.say("%s: %v", name, why)
	t.gone("caisson, "+name, why.Error())
}

func (k *beneath) environ() []string { return append(k.in.env(), k.env...) }

func (k *beneath) caisson(ctx context.Context, args ...string) (string, error) {
	return do(ctx, append([]string{k.b.o.caisson}, args...), k.environ(), nil)
}

func (k *beneath) open(ctx context.Context, name string) error {
	_, err := k.caisson(ctx, "open", "-q", "--backend", k.name, "--repo", k.b.empty, "--source", "copy", "--name", name)
	return err
}

func (k *beneath) close(name string) error {
	_, err := k.caisson(context.Background(), "close", "-q", "--discard", name)
	return err
}

func (k *beneath) compare(ctx context.Context, t *table) (err error) {
	if k.served != nil {
		if k.env, err = k.service(ctx); err != nil {
			return err
		}
	}
	if err := k.open(ctx, standing); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close(standing)) }()
	var like func(...string) []string
	if k.served != nil {
		live, err := k.in.list(ctx)
		if err != nil {
			return err
		}
		ids, err := k.ours(ctx, live[0].ID)
		if err != nil || len(ids) != 1 {
			return fmt.Errorf("the open task has the containers %q: %v", ids, err)
		}
		if like, err = k.like(ctx, ids[0]); err != nil {
			return err
		}
	}
	if err := k.cold(ctx, like); err != nil {
		return err
	}
	if err := k.calls(ctx); err != nil {
		return err
	}
	if err := k.atOnce(ctx, like); err != nil {
		return err
	}
	if k.served == nil {
		t.gone("caisson, "+k.name, "not measured: what of a container's processes is whose is an engine's to say")
		return nil
	}
	return k.idle(ctx, t)
}

// bare is the line that caisson is compared with first: a container that is made as
// those of tasks are, where there is one.
func (k *beneath) bare(like func(...string) []string) contender {
	c := contender{name: k.rival.name + " run", what: k.what, silent: true, on: k.b.engines.on()}
	if like != nil {
		c.name, c.what, c.argv = c.name+", the same container", "run --rm, the mounts and limits of a task", like(trueInside)
		return c
	}
	c.argv, c.silent = k.run("/bin/busybox", "true"), false
	return c
}

const trueInside = "/usr/bin/true" // a program of the system's, in every root here

// cold compares the whole life of one short command.
func (k *beneath) cold(ctx context.Context, like func(...string) []string) error {
	bare := k.bare(like)
	g := &group{key: "engines-" + k.name, title: "One short command with " + k.name, base: bare.name,
		note: "`caisson run --backend " + k.name + " --source copy` on an empty folder, beside the engine's own command line: with the root, the mounts, the limits and the missing rights of the container that caisson has it make, where it can be asked for them, and as in the first table."}
	g.add(contender{name: "caisson run --backend " + k.name, what: "with worker, measurement, record and removal", silent: true, env: k.environ(), after: k.in.settle,
		argv: []string{k.b.o.caisson, "run", "-q", "--backend", k.name, "--repo", k.b.empty, "--source", "copy", "--", "true"}}, nil)
	g.add(bare, nil)
	if like != nil {
		g.add(contender{name: k.rival.name + " run", what: k.what, silent: true, argv: k.run("/bin/busybox", "true"), on: k.b.engines.on()}, nil)
	}
	return k.b.measure(ctx, g, k.b.o.rounds)
}

// calls compares roads into what stands already.
func (k *beneath) calls(ctx context.Context) (err error) {
	if _, err := do(ctx, k.stand(standing), nil, k.b.engines.on()); err != nil {
		return err
	}
	defer func() {
		_, rerr := do(context.Background(), k.remove(standing), nil, k.b.engines.on())
		err = errors.Join(err, rerr)
	}()
	mcp, err := live([]string{k.b.o.caisson, "mcp", "--backend", k.name, "--repo", k.b.empty, "--source", "copy", "--keep", "never"}, k.environ())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mcp.end()) }()
	if err := mcp.greet(); err != nil {
		return err
	}
	argv := []string{trueInside}
	enter := func(cmd ...string) *way {
		return k.b.commands(ctx, contender{name: k.rival.name + " exec", what: "in a running container", silent: true, argv: k.enter(standing, false, cmd...), on: k.b.engines.on()}, nil)
	}
	if _, err := mcp.ask("tools/call", map[string]any{"name": "write_file", "arguments": map[string]any{"path": "small", "content": strings.Repeat("a line of forty bytes, as in a program\n", 25)}}); err != nil {
		return err
	}
	ways := []*way{
		{name: "MCP, shell", what: "a call of caisson mcp: judged, intent and outcome durable, output taken", burst: inTurn, do: of(mcp.tool, order{Tool: "shell", Args: map[string]any{"argv": argv}, Pause: breath})},
		{name: "MCP, read_file", what: "1 kB: the same, without a program", burst: inTurn, do: of(mcp.tool, order{Tool: "read_file", Args: map[string]any{"path": "small"}})},
		k.b.commands(ctx, contender{name: "caisson exec", what: "in an open task", silent: true, argv: []string{k.b.o.caisson, "exec", standing, "--", trueInside}, env: k.environ()}, nil),
		enter("/bin/busybox", "true"),
	}
	if err := k.b.rounds(ctx, ways, k.b.o.rounds); err != nil {
		return err
	}
	k.b.callTable("engines-"+k.name+"-call", "A call with "+k.name, "`true`, or a read of a small file, in what stands already; from the request to the answer, commands from their start to their exit.", k.rival.name+" exec", ways)
	return nil
}

// atOnce compares ten whole lives that begin together.
func (k *beneath) atOnce(ctx context.Context, like func(...string) []string) error {
	g := &group{key: "engines-" + k.name + "-many"}
	g.add(contender{name: "caisson run --backend " + k.name, silent: true, env: k.environ(),
		argv: []string{k.b.o.caisson, "run", "-q", "--backend", k.name, "--repo", k.b.empty, "--source", "copy", "--", "true"}}, nil)
	bare := k.bare(like)
	bare.what = ""
	g.add(bare, nil)
	if err := k.b.bursts(ctx, g, 10, k.b.few()); err != nil {
		return err
	}
	k.b.tables[len(k.b.tables)-1].title = "10 at once with " + k.name
	return k.in.settle(ctx)
}

// idle compares memory of tasks that do nothing with that of containers that do
// nothing.
func (k *beneath) idle(ctx context.Context, t *table) (err error) {
	const n = 3
	var roots, bare []int
	parts := map[string]share{}
	for i := range n {
		name := fmt.Sprintf("idle%d", i)
		if err := k.open(ctx, name); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, k.close(name)) }()
		if _, err := do(ctx, k.stand(name), nil, k.b.engines.on()); err != nil {
			return err
		}
		defer func() { _, _ = do(context.Background(), k.remove(name), nil, k.b.engines.on()) }()
		pid, err := k.pid(ctx, name)
		if err != nil {
			return err
		}
		bare = append(bare, pid)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(atRest):
	}
	live, err := k.in.list(ctx)
	if err != nil {
		return err
	}
	live = slices.DeleteFunc(live, func(l listed) bool { return !strings.HasPrefix(l.Name, "idle") })
	for _, l := range live {
		ids, err := k.ours(ctx, l.ID)
		if err != nil || len(ids) != 1 {
			return fmt.Errorf("task %s has the containers %q: %v", l.ID, ids, err)
		}
		pid, err := k.pid(ctx, ids[0])
		if err != nil {
			return err
		}
		roots = append(roots, pid)
		if err := sum(l.Supervisor.PID, n, parts, func(int, []string) string { return "supervisor" }); err != nil {
			return err
		}
	}
	if len(roots) != n {
		return fmt.Errorf("%d tasks of %d are open", len(roots), n)
	}
	for kind, list := range map[string][]int{"container": roots, "bare": bare} {
		for _, pid := range list {
			if err := sum(pid, n, parts, func(int, []string) string { return kind }); err != nil {
				return err
			}
		}
	}
	row := func(name, what string, p share) {
		t.row(name, fmt.Sprint(n), fmt.Sprintf("%.0f", p.processes), fmt.Sprintf("%.2f", p.pss), fmt.Sprintf("%.2f", p.uss), what)
		k.b.figures["engines-memory/"+name] = p.pss
	}
	s, c := parts["supervisor"], parts["container"]
	row("caisson, "+k.name+": supervisor", "the host's end of a task", s)
	row("caisson, "+k.name+": container", "worker, the next call, ready, and what watches the container", c)
	row("caisson, "+k.name+": together", "", share{s.processes + c.processes, s.pss + c.pss, s.uss + c.uss})
	row(k.rival.name, "an idle sleep and what watches it", parts["bare"])
	return nil
}

// made is what an engine says of a container, the part that like needs.
type made struct {
	Image      string
	HostConfig struct {
		Tmpfs            map[string]string
		Memory, NanoCpus int64
		PidsLimit        int64
	}
	Mounts []struct {
		Type, Source, Destination string
		RW                        bool
	}
}

// likeOf is the arguments of run for a container that is made as another one was.
func likeOf(text string) ([]string, error) {
	var list []made
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("%d containers were shown", len(list))
	}
	m := list[0]
	args := []string{"run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--log-driver", "none",
		"--memory", fmt.Sprint(m.HostConfig.Memory), "--memory-swap", fmt.Sprint(m.HostConfig.Memory), "--pids-limit", fmt.Sprint(m.HostConfig.PidsLimit), "--cpus", fmt.Sprintf("%.2f", float64(m.HostConfig.NanoCpus)/1e9)}
	for _, at := range slices.Sorted(maps.Keys(m.HostConfig.Tmpfs)) {
		args = append(args, "--tmpfs", at+":"+m.HostConfig.Tmpfs[at])
	}
	for _, x := range m.Mounts {
		if x.Type != "bind" {
			continue
		}
		if _, err := os.Stat(x.Source); err != nil {
			return nil, err
		}
		arg := "type=bind,source=" + x.Source + ",target=" + filepath.Clean(x.Destination)
		if !x.RW {
			arg += ",readonly"
		}
		args = append(args, "--mount", arg)
	}
	return append(args, m.Image), nil
}

// likeBy asks an engine by its command line and returns how it makes another one.
func likeBy(ctx context.Context, argv func(...string) []string, on func(func()), id string, more ...string) (func(...string) []string, error) {
	text, err := do(ctx, argv("inspect", id), nil, on)
	if err != nil {
		return nil, err
	}
	args, err := likeOf(text)
	if err != nil {
		return nil, err
	}
	args = append(append([]string{args[0]}, more...), args[1:]...)
	return func(cmd ...string) []string { return argv(append(slices.Clone(args), cmd...)...) }, nil
}

// oursBy lists the containers of a task by an engine's command line.
func oursBy(ctx context.Context, argv func(...string) []string, on func(func()), task string) ([]string, error) {
	out, err := do(ctx, argv("ps", "--all", "--no-trunc", "--quiet", "--filter", "label=caisson.task="+task), nil, on)
	return strings.Fields(out), err
}
