//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

const standing = "standing" // the name of what stands

// stands is one boundary of each kind that stays open while commands are run in it.
type stands struct {
	enter []door
	why   []error
	ends  []func() error
}

// door is a line that can take any command.
type door struct {
	contender
	argv0 func(stdin bool, cmd []string) []string
}

func (s *stands) end() (err error) {
	for _, f := range s.ends {
		err = errors.Join(err, f())
	}
	return err
}

// stand opens one of each, the task with more flags of open. The caller ends them.
func (b *bench) stand(ctx context.Context, in *installation, flags ...string) *stands {
	s := &stands{}
	add := func(c contender, why error, argv func(bool, []string) []string) {
		s.enter, s.why = append(s.enter, door{c, argv}), append(s.why, why)
	}
	prefix := func(argv ...string) func(bool, []string) []string {
		return func(_ bool, cmd []string) []string { return append(append(argv, hostBox()), cmd...) }
	}
	_, err := in.caisson(ctx, append([]string{"open", "-q", "--name", standing}, flags...)...)
	if err == nil {
		s.ends = append(s.ends, func() error {
			_, err := in.caisson(context.Background(), "close", "-q", "--discard", standing)
			return err
		})
	}
	add(contender{name: "caisson exec", what: "in an open task", env: in.env()}, err, prefix(b.o.caisson, "exec", standing, "--"))

	pid, end, err := holder(ctx)
	if err == nil {
		s.ends = append(s.ends, end)
	}
	add(contender{name: "nsenter", what: "into the namespaces of the unshare line"}, err, prefix(nsenterArgv(pid)...))
	for _, v := range b.engines.all {
		c := contender{name: v.name + " exec", what: "in a running container", on: b.engines.on()}
		why := v.why
		if why == nil {
			if _, why = do(ctx, v.stand(standing), nil, b.engines.on()); why == nil {
				s.ends = append(s.ends, func() error {
					_, err := do(context.Background(), v.remove(standing), nil, b.engines.on())
					return err
				})
			}
		}
		add(c, why, func(stdin bool, cmd []string) []string {
			return v.enter(standing, stdin, append([]string{"/bin/busybox"}, cmd...)...)
		})
	}
	return s
}

// lines returns what runs cmd, a command of busybox, in each of them.
func (s *stands) lines(g *group, shape contender, cmd ...string) {
	for i, c := range s.enter {
		if s.why[i] == nil {
			c.argv = c.argv0(shape.feed > 0, cmd)
		}
		c.silent, c.feed, c.bytes = shape.silent, shape.feed, shape.bytes
		g.add(c.contender, s.why[i])
	}
}

// nsenterArgv begins a command in all namespaces of a process.
func nsenterArgv(pid int) []string {
	return []string{"nsenter", "--user", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--target", fmt.Sprint(pid), "--"}
}

// holder starts unshare with a sleeping child and returns the child.
func holder(ctx context.Context) (pid int, end func() error, err error) {
	argv := unshareArgv("sh", "-c", "echo ready; exec sleep 100000")
	if _, err := exec.LookPath(argv[0]); err != nil {
		return 0, nil, fmt.Errorf("not present: there is no %s", argv[0])
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := c.Start(); err != nil {
		return 0, nil, err
	}
	end = func() error { // its child goes with it (--kill-child)
		_ = c.Process.Kill()
		_ = c.Wait()
		return nil
	}
	if line, rerr := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "ready" {
		return 0, nil, errors.Join(fmt.Errorf("unshare did not start (%v)", rerr), end())
	}
	tree, err := processTree()
	if err == nil && len(tree[c.Process.Pid]) == 1 {
		return tree[c.Process.Pid][0], end, nil
	}
	return 0, nil, errors.Join(errors.New("unshare has no child"), err, end())
}

// exec compares one more command in a boundary that already stands.
func (b *bench) exec(ctx context.Context) (err error) {
	in := b.installation("exec")
	s := b.stand(ctx, in, "--repo", b.small)
	defer func() { err = errors.Join(err, s.end()) }()
	g := &group{key: "exec", title: "One more command", base: "caisson version",
		note: "A command in a boundary that already stands. caisson records intent and outcome of each durably; the others record nothing."}
	g.add(contender{name: "caisson version", what: "the start of the program alone", argv: []string{b.o.caisson, "version"}, env: in.env()}, nil)
	s.lines(g, contender{}, "echo", "x")
	g.add(contender{name: "bare exec", what: "no boundary", argv: echo()}, nil)
	return b.measure(ctx, g, b.o.rounds)
}
