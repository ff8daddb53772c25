//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// bench is one run: its folder, what it measures and what it has to end.
type bench struct {
	dir, caisson, repo string
	n, idle            int
	docker             *engine
	noDocker           string // why docker is not measured
	open               bool   // the task "bench" is open
	container          bool   // the container "bench" is running
}

const (
	image = "caisson-bench:1"
	task  = "bench"
)

// env points caisson at folders of this run.
func (b *bench) env() []string {
	return []string{"CAISSON_STATE_DIR=" + filepath.Join(b.dir, "state"), "CAISSON_RUNTIME_DIR=" + filepath.Join(b.dir, "run")}
}

func (b *bench) cmd(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Env = append(os.Environ(), b.env()...)
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %v: %s", strings.Join(argv[:min(3, len(argv))], " "), err, lastLine(string(out)))
	}
	return string(out), nil
}

// prepare makes a repository as small as one gets, and a private docker daemon where that is possible.
func (b *bench) prepare(ctx context.Context) error {
	b.repo = filepath.Join(b.dir, "repo")
	if err := os.Mkdir(b.repo, 0o755); err != nil {
		return err
	}
	// As a user would type it.
	script := `cd "$0" && git init -q . && echo hello >README && git add README && git -c user.name=Bench -c user.email=bench@example.org commit -qm Start`
	if _, err := b.cmd(ctx, "sh", "-c", script, b.repo); err != nil {
		return err
	}
	b.docker, b.noDocker = startEngine(ctx, filepath.Join(b.dir, "docker"))
	return nil
}

// start compares the whole life of one short command.
func (b *bench) start() *group {
	g := &group{title: "start", base: "bwrap",
		note: "One command line: make the boundary, run `echo`, take everything away again. caisson also makes a private clone, measures the boundary from inside, writes durable evidence and inventory, and rescues work; the others do none of that."}
	g.add(contender{name: "bare exec", what: "no boundary", argv: []string{"/bin/echo", "x"}})
	g.add(contender{name: "caisson run", what: "all layers, clone of a one-file repository",
		argv: []string{b.caisson, "run", "-q", "--repo", b.repo, "--", "/bin/echo", "x"}, env: b.env()})
	g.add(contender{name: "bwrap", what: "all namespaces, read-only /usr, no seccomp, no limits", argv: bwrapArgv("/bin/echo", "x")})
	g.add(contender{name: "unshare", what: "all namespaces, the host's files", argv: unshareArgv("/bin/echo", "x")})
	g.add(b.dockerLine("docker run", "2 MB image, no network, private daemon", "run", "--rm", "--network", "none", image, "/bin/echo", "x"))
	return g
}

// call compares one more command in a boundary that stands.
func (b *bench) call(ctx context.Context) *group {
	g := &group{title: "exec", base: "docker exec", note: "One more command in a boundary that already stands. caisson records intent and outcome durably for each."}
	_, err := b.cmd(ctx, b.caisson, "open", "-q", "--repo", b.repo, task)
	b.open = err == nil
	c := contender{name: "caisson exec", what: "in an open task", argv: []string{b.caisson, "exec", task, "--", "/bin/echo", "x"}, env: b.env()}
	g.results = append(g.results, &result{contender: c, failed: text(err)})
	c = b.dockerLine("docker exec", "in a running container", "exec", task, "/bin/echo", "x")
	r := &result{contender: c, failed: b.noDocker}
	if b.docker != nil {
		_, err := b.cmd(ctx, b.docker.argv("run", "-d", "--name", task, "--network", "none", image, "/bin/sleep", "100000")...)
		b.container, r.failed = err == nil, text(err)
	}
	g.results = append(g.results, r)
	return g
}

// program is the floor of every command of ours.
func (b *bench) program() *group {
	g := &group{title: "program", base: "bare exec", note: "The start of the program itself."}
	g.add(contender{name: "bare exec", what: "a C program", argv: []string{"/bin/echo", "x"}})
	g.add(contender{name: "caisson version", what: "our start-up alone", argv: []string{b.caisson, "version"}, env: b.env()})
	return g
}

func (g *group) add(c contender) {
	r := &result{contender: c}
	switch {
	case len(c.argv) == 0:
		r.failed = c.what
	default:
		if _, err := exec.LookPath(c.argv[0]); err != nil {
			r.failed = c.argv[0] + " is not on this machine"
		}
	}
	g.results = append(g.results, r)
}

func (b *bench) dockerLine(name, what string, args ...string) contender {
	if b.docker == nil {
		return contender{name: name, what: b.noDocker}
	}
	return contender{name: name, what: what, argv: b.docker.argv(args...)}
}

func bwrapArgv(cmd ...string) []string {
	argv := []string{"bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"}
	for _, l := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		if to, err := os.Readlink(l); err == nil {
			argv = append(argv, "--symlink", to, l)
		} else if _, err := os.Stat(l); err == nil {
			argv = append(argv, "--ro-bind", l, l)
		}
	}
	return append(append(argv, "--tmpfs", "/tmp", "--tmpfs", "/home", "--dev", "/dev", "--proc", "/proc", "--chdir", "/tmp"), cmd...)
}

func unshareArgv(cmd ...string) []string {
	return append([]string{"unshare", "-UrmpiunC", "--fork", "--mount-proc"}, cmd...)
}

// close ends what this run started.
func (b *bench) close() (err error) {
	ctx := context.Background() // also after an interrupt
	if b.open {
		_, e := b.cmd(ctx, b.caisson, "close", "--discard", task)
		err = errors.Join(err, e)
	}
	if b.docker != nil {
		if b.container {
			_, e := b.cmd(ctx, b.docker.argv("rm", "-f", task)...)
			err = errors.Join(err, e)
		}
		err = errors.Join(err, b.docker.stop())
	}
	return err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
