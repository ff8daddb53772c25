//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// memLine is the memory of one kind of idle boundary.
type memLine struct {
	name, what string
	n          int
	processes  int     // per boundary
	pss        float64 // MiB per boundary, proportional share of shared pages
	uss        float64 // MiB per boundary, private pages
	failed     string
}

// memory opens idle boundaries and sums what their processes use.
func (b *bench) memory(ctx context.Context) []memLine {
	fmt.Fprintln(os.Stderr, "bench: memory of idle boundaries")
	lines := []memLine{b.idleCaisson(ctx), b.idleBwrap(ctx)}
	d := memLine{name: "docker", what: "shim and container process; the daemons are not counted", failed: b.noDocker}
	if b.docker != nil {
		d = b.idleDocker(ctx, d)
	}
	return append(lines, d)
}

func (b *bench) idleCaisson(ctx context.Context) memLine {
	l := memLine{name: "caisson", what: "all processes of an open task: supervisor, worker, tool space", n: b.idle}
	var roots []int
	var names []string
	defer func() {
		for _, n := range names {
			if _, err := b.cmd(context.Background(), b.caisson, "close", "--discard", n); err != nil && l.failed == "" {
				l.failed = err.Error()
			}
		}
	}()
	for i := range b.idle {
		name := "idle" + strconv.Itoa(i)
		if _, err := b.cmd(ctx, b.caisson, "open", "-q", "--repo", b.repo, name); err != nil {
			l.failed = err.Error()
			return l
		}
		names = append(names, name)
		out, err := b.cmd(ctx, b.caisson, "show", "--json", name)
		var view struct {
			Supervisor struct{ PID int } `json:"supervisor"`
		}
		if err == nil {
			err = json.Unmarshal([]byte(out), &view)
		}
		if err != nil || view.Supervisor.PID == 0 {
			l.failed = fmt.Sprintf("show names no supervisor (%v)", err)
			return l
		}
		roots = append(roots, view.Supervisor.PID)
	}
	l.sum(roots)
	return l
}

func (b *bench) idleBwrap(ctx context.Context) memLine {
	l := memLine{name: "bwrap", what: "monitor, pid 1 and an idle sleep", n: b.idle}
	var cmds []*exec.Cmd
	var roots []int
	defer func() {
		for _, c := range cmds {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	argv := bwrapArgv("/bin/sh", "-c", "echo x; exec sleep 100000")
	for range b.idle {
		c := exec.CommandContext(ctx, argv[0], argv[1:]...)
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			l.failed = err.Error()
			return l
		}
		cmds, roots = append(cmds, c), append(roots, c.Process.Pid)
		if _, err := out.Read(make([]byte, 1)); err != nil {
			l.failed = "did not start"
			return l
		}
	}
	l.sum(roots)
	return l
}

func (b *bench) idleDocker(ctx context.Context, l memLine) memLine {
	l.n = b.idle
	var ids []string
	defer func() {
		if len(ids) > 0 {
			_, _ = b.cmd(context.Background(), b.docker.argv(append([]string{"rm", "-f"}, ids...)...)...)
		}
	}()
	var roots []int
	for range b.idle {
		id, err := b.cmd(ctx, b.docker.argv("run", "-d", "--network", "none", image, "/bin/sleep", "100000")...)
		if err != nil {
			l.failed = err.Error()
			return l
		}
		id = strings.TrimSpace(id)
		ids = append(ids, id)
		out, err := b.cmd(ctx, b.docker.argv("inspect", "--format", "{{.State.Pid}}", id)...)
		pid, aerr := strconv.Atoi(strings.TrimSpace(out))
		if err = errors.Join(err, aerr); err != nil {
			l.failed = err.Error()
			return l
		}
		shim, err := parent(pid)
		if err != nil {
			l.failed = err.Error()
			return l
		}
		roots = append(roots, shim)
	}
	l.sum(roots)
	return l
}

// sum adds up the processes at and below roots.
func (l *memLine) sum(roots []int) {
	children, err := processTree()
	if err != nil {
		l.failed = err.Error()
		return
	}
	count := 0
	for len(roots) > 0 {
		pid := roots[0]
		roots = append(roots[1:], children[pid]...)
		pss, uss, err := rollup(pid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			// An unprivileged bench may not read its own non-dumpable worker.
			l.failed = fmt.Sprintf("process %d cannot be read: %v", pid, err)
			return
		}
		count++
		l.pss += pss / float64(l.n)
		l.uss += uss / float64(l.n)
	}
	l.processes = count / l.n
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

// processTree maps every process to its children.
func processTree() (map[int][]int, error) {
	ents, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	out := map[int][]int{}
	for _, e := range ents {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if up, err := parent(pid); err == nil {
			out[up] = append(out[up], pid)
		}
	}
	return out, nil
}

func parent(pid int) (int, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything, a closing parenthesis too.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 2 {
		return 0, errors.New("stat of a process cannot be read")
	}
	return strconv.Atoi(f[1])
}
