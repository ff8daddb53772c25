//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// start compares the whole life of one short command.
func (b *bench) start(ctx context.Context) error {
	in := b.installation("start")
	g := &group{key: "start", title: "One short command", base: "bwrap",
		note: "One command line: make the boundary, print one line inside, take everything away again. caisson copies an empty folder. `true` instead of the printing program has no first byte; its exit is the second line."}
	run := []string{b.o.caisson, "run", "-q", "--repo", b.empty, "--source", "copy", "--"}
	g.add(contender{name: "bare exec", what: "no boundary", argv: echo()}, nil)
	g.add(contender{name: "caisson version", what: "the start of the program alone", argv: []string{b.o.caisson, "version"}, env: in.env()}, nil)
	g.add(contender{name: "caisson run --source copy", what: "all layers", argv: append(run, echo()...), env: in.env()}, nil)
	g.add(contender{name: "caisson run --source copy -- true", what: "the same", argv: append(run, "true"), env: in.env(), silent: true}, nil)
	g.add(contender{name: "bwrap", what: "all namespaces, read-only /usr and /etc, no seccomp, no limits", argv: bwrapArgv(echo()...)}, nil)
	g.add(contender{name: "unshare", what: "all namespaces, the host's files", argv: unshareArgv(echo()...)}, nil)
	for _, v := range b.engines.all {
		c := contender{name: v.name + " run", what: v.what, on: b.engines.on()}
		if v.why == nil {
			c.argv = v.run("/bin/busybox", "echo", "x")
		}
		g.add(c, v.why)
	}
	return b.measure(ctx, g, b.o.rounds)
}

// repository compares a whole task on a repository with what git alone takes to
// make a second checkout of it.
func (b *bench) repository(ctx context.Context) error {
	if err := b.tasksOn(ctx, "small", b.small, "A task on a repository of one file", b.o.rounds); err != nil {
		return err
	}
	big, err := b.large(ctx)
	if err != nil {
		return err
	}
	return b.tasksOn(ctx, "large", big, fmt.Sprintf("A task on a repository of %d files", b.o.files), b.few())
}

func (b *bench) tasksOn(ctx context.Context, key, repo, title string, rounds int) error {
	later := b.installation(key)
	g := &group{key: key, title: title, base: "git clone --shared",
		note: "`caisson run -- true`: clone, boundary, probe, the command, a look for changes, removal. First: with a new state folder, so the worker program, the trials of the machine and the inventory are made too. Removal of the clones of plain git is not timed, but where the line says so."}
	run := []string{b.o.caisson, "run", "-q", "--repo", repo, "--", "true"}
	clone := filepath.Join(b.dir, key+"-clone")
	remove := func(context.Context) error { return os.RemoveAll(clone) }
	first := b.installation(key + "-first")
	g.add(contender{name: "git clone --shared", what: "with checkout", silent: true, argv: []string{"git", "clone", "-q", "--shared", repo, clone}, after: remove}, nil)
	if key == "small" {
		g.add(contender{name: "git clone --shared; rm -rf", what: "with checkout and removal", silent: true,
			argv: []string{"sh", "-ec", `git clone -q --shared "$0" "$1"; rm -rf "$1"`, repo, clone}, after: remove}, nil)
	}
	g.add(contender{name: "caisson run, first", what: "new state folder", silent: true, argv: run, env: first.env(), after: func(ctx context.Context) error {
		if err := first.close(); err != nil {
			return err
		}
		return os.RemoveAll(first.state)
	}}, nil)
	g.add(contender{name: "caisson run, later", what: "the state folder of earlier runs", silent: true, argv: run, env: later.env(), after: later.settle}, nil)
	return b.measure(ctx, g, rounds)
}
