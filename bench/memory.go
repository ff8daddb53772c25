//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// share is the memory of one kind of process, MiB per boundary.
type share struct {
	processes float64
	pss       float64 // proportional share of pages that others map too
	uss       float64 // private pages
}

// memory opens idle tasks and sums what their processes use.
func (b *bench) memory(ctx context.Context) error {
	t := table{title: "Idle memory", head: []string{"boundary", "how many", "processes each", "PSS each", "USS each", "what"},
		note: "MiB per idle boundary. PSS counts a page that n processes map as 1/n in each, so it falls with the number of tasks; USS is private pages. Measured four seconds after the last one was opened. Kernel memory is not in it. The daemons of docker are not counted; podman's monitor and docker's shim are."}
	counts := []int{1, 10, 100}
	if b.o.quick {
		counts = counts[:2]
	}
	in := b.installation("memory")
	var open []string
	err := func() error {
		for _, n := range counts {
			err := atOnce(n-len(open), 4, func(i int) error {
				_, err := in.caisson(ctx, "open", "-q", "--repo", b.small, "--name", fmt.Sprintf("idle%d", len(open)+i))
				return err
			})
			if err != nil {
				return err
			}
			for len(open) < n {
				open = append(open, fmt.Sprintf("idle%d", len(open)))
			}
			if err := b.idleTasks(ctx, in, n, &t); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		t.gone("caisson", err.Error())
	}
	closing := atOnce(len(open), 4, func(i int) error {
		_, err := in.caisson(context.WithoutCancel(ctx), "close", "-q", "--discard", open[i])
		return err
	})
	b.idleRivals(ctx, &t)
	b.tables = append(b.tables, t)
	return closing
}

// atRest is how long a task has done nothing when it counts as idle: its
// processes give back what their work took after a second.
const atRest = 4 * time.Second

// idleTasks measures the n tasks that are open.
func (b *bench) idleTasks(ctx context.Context, in *installation, n int, t *table) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(atRest):
	}
	live, err := in.list(ctx)
	if err != nil {
		return err
	}
	parts := map[string]share{}
	for _, l := range live {
		if l.Supervisor.PID == 0 {
			return fmt.Errorf("task %s names no supervisor", l.ID)
		}
		err := sum(l.Supervisor.PID, n, parts, func(pid int, argv []string) string {
			switch {
			case pid == l.Supervisor.PID:
				return "supervisor"
			case len(argv) > 1 && (argv[1] == "init" || argv[1] == "relay"):
				return "worker"
			}
			return "tool space"
		})
		if err != nil {
			return err
		}
	}
	what := map[string]string{"supervisor": "the host's end of a task", "worker": "pid 1 of the boundary", "tool space": "pid 1 of the tools, and the next call, ready"}
	var all share
	for _, k := range []string{"supervisor", "worker", "tool space"} {
		p := parts[k]
		t.row("caisson: "+k, fmt.Sprint(n), fmt.Sprintf("%.0f", p.processes), fmt.Sprintf("%.2f", p.pss), fmt.Sprintf("%.2f", p.uss), what[k])
		b.figures[fmt.Sprintf("memory/%d/%s", n, k)] = p.pss
		all.processes, all.pss, all.uss = all.processes+p.processes, all.pss+p.pss, all.uss+p.uss
	}
	t.row("caisson: together", fmt.Sprint(n), fmt.Sprintf("%.0f", all.processes), fmt.Sprintf("%.2f", all.pss), fmt.Sprintf("%.2f", all.uss), "")
	b.figures[fmt.Sprintf("memory/%d/all", n)] = all.pss
	return nil
}

// idleRivals does the same for ten of each other kind.
func (b *bench) idleRivals(ctx context.Context, t *table) {
	n := 10
	if b.o.quick {
		n = 3
	}
	row := func(name, what string, roots []int, err error) {
		parts := map[string]share{}
		for _, r := range roots {
			err = errors.Join(err, sum(r, n, parts, func(int, []string) string { return "" }))
		}
		if err != nil {
			t.gone(name, err.Error())
			return
		}
		p := parts[""]
		t.row(name, fmt.Sprint(n), fmt.Sprintf("%.0f", p.processes), fmt.Sprintf("%.2f", p.pss), fmt.Sprintf("%.2f", p.uss), what)
		b.figures["memory/"+name] = p.pss
	}
	roots, end, err := sleepers(ctx, n)
	row("bwrap", "monitor, pid 1, an idle sleep", roots, err)
	end()
	for _, v := range b.engines.all {
		if v.why != nil {
			t.gone(v.name, v.why.Error())
			continue
		}
		var roots []int
		var err error
		for i := range n {
			name := fmt.Sprintf("idle%d", i)
			if _, err = do(ctx, v.stand(name), nil, b.engines.on()); err != nil {
				break
			}
			defer func() { _, _ = do(context.WithoutCancel(ctx), v.remove(name), nil, b.engines.on()) }()
			var pid int
			if pid, err = v.pid(ctx, name); err != nil {
				break
			}
			roots = append(roots, pid)
		}
		row(v.name, "an idle sleep and what watches it", roots, err)
	}
}

// sleepers starts n idle bwraps.
func sleepers(ctx context.Context, n int) (roots []int, end func(), err error) {
	var cmds []*exec.Cmd
	end = func() {
		for _, c := range cmds {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	argv := bwrapArgv("/bin/sh", "-c", "echo x; exec "+hostBox()+" sleep 100000")
	for range n {
		c := exec.CommandContext(ctx, argv[0], argv[1:]...)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			return roots, end, err
		}
		cmds, roots = append(cmds, c), append(roots, c.Process.Pid)
		if _, err := out.Read(make([]byte, 1)); err != nil {
			return roots, end, errors.New("bwrap did not start")
		}
	}
	return roots, end, nil
}

// sum adds the processes at and below root to their kinds, as a share of n.
func sum(root, n int, parts map[string]share, kind func(pid int, argv []string) string) error {
	children, err := processTree()
	if err != nil {
		return err
	}
	for list := []int{root}; len(list) > 0; {
		pid := list[0]
		list = append(list[1:], children[pid]...)
		cmdline, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		pss, uss, err := rollup(pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			// An unprivileged bench may not read its own non-dumpable worker.
			return fmt.Errorf("process %d cannot be read: %w", pid, err)
		}
		k := kind(pid, strings.Split(string(cmdline), "\x00"))
		p := parts[k]
		p.processes, p.pss, p.uss = p.processes+1/float64(n), p.pss+pss/float64(n), p.uss+uss/float64(n)
		parts[k] = p
	}
	return nil
}

// rollup returns proportional and private memory of one process in MiB.
func rollup(pid int) (pss, uss float64, err error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseFloat(f[1], 64)
		switch f[0] {
		case "Pss:":
			pss = kb / 1024
		case "Private_Clean:", "Private_Dirty:":
			uss += kb / 1024
		}
	}
	return pss, uss, nil
}

// atOnce calls f n times, at most so many at a time, and joins what failed.
func atOnce(n, width int, f func(i int) error) error {
	errs := make([]error, max(n, 0))
	slots := make(chan struct{}, width)
	var wg sync.WaitGroup
	for i := range errs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = f(i)
		})
	}
	wg.Wait()
	return errors.Join(slices.DeleteFunc(errs, func(e error) bool { return e == nil })...)
}
