//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// docker is a daemon of this run alone: its own socket, folders and control
// group, so that one that serves the machine is not disturbed.
type docker struct {
	b           *bench
	e           *engines
	dir, socket string
	daemon      *exec.Cmd
	exited      chan error
}

func newDocker(ctx context.Context, b *bench, e *engines) (engine, error) {
	d := &docker{b: b, e: e, dir: filepath.Join(b.dir, "docker"), exited: make(chan error, 1)}
	d.socket = "unix://" + filepath.Join(d.dir, "docker.sock")
	err := d.start(ctx)
	if err == nil {
		err = importImage(ctx, b, d.dir, `tar -C "$0" -c . | docker -H `+d.socket+` import - `+image, e.thread.on)
	}
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

func (d *docker) start(ctx context.Context) error {
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		return err
	}
	conf := filepath.Join(d.dir, "daemon.json")
	if err := os.WriteFile(conf, []byte(`{"bridge":"none","iptables":false,"ip-masq":false,"cgroup-parent":"/`+d.e.mark+`"}`), 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command("dockerd", "--config-file", conf, "--data-root", filepath.Join(d.dir, "data"), "--exec-root", filepath.Join(d.dir, "exec"),
		"-H", d.socket, "--pidfile", filepath.Join(d.dir, "pid"))
	c.Stdout, c.Stderr = log, log
	// The thread stays for the life of the daemon, so that the daemon ends with
	// us even where we are killed.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	d.e.thread.on(func() { err = c.Start() })
	if err != nil {
		return err
	}
	d.daemon = c
	go func() { d.exited <- c.Wait() }()
	return until(ctx, time.Minute, "dockerd was not ready", func() (bool, error) {
		select {
		case err := <-d.exited:
			d.exited <- err
			b, _ := os.ReadFile(log.Name())
			return false, fmt.Errorf("dockerd ended: %s", lastLine(string(b)))
		default:
		}
		return exec.CommandContext(ctx, "docker", "-H", d.socket, "version").Run() == nil, nil
	})
}

func (d *docker) argv(args ...string) []string {
	return append([]string{"docker", "-H", d.socket}, args...)
}

func (d *docker) run(cmd ...string) []string {
	return d.argv(append([]string{"run", "--rm", "--network", "none", image}, cmd...)...)
}

func (d *docker) stand(name string) []string {
	return d.argv("run", "--detach", "--network", "none", "--name", name, image, "/bin/busybox", "sleep", "100000")
}

func (d *docker) enter(name string, stdin bool, cmd ...string) []string {
	return d.argv(append(execArgs(name, stdin), cmd...)...)
}

func execArgs(name string, stdin bool) []string {
	if stdin {
		return []string{"exec", "--interactive", name}
	}
	return []string{"exec", name}
}

func (d *docker) remove(name string) []string { return d.argv("rm", "--force", name) }

// pid is the container's shim.
func (d *docker) pid(ctx context.Context, name string) (int, error) {
	out, err := do(ctx, d.argv("inspect", "--format", "{{.State.Pid}}", name), nil, d.e.thread.on)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		return 0, err
	}
	return parent(pid)
}

func (d *docker) service(context.Context) ([]string, error) {
	return []string{"CAISSON_ENGINE=" + d.socket}, nil
}

func (d *docker) like(ctx context.Context, id string) (func(...string) []string, error) {
	return likeBy(ctx, d.argv, d.e.thread.on, id)
}

func (d *docker) ours(ctx context.Context, task string) ([]string, error) {
	return oursBy(ctx, d.argv, d.e.thread.on, task)
}

// stop removes our containers, ends the daemon by its own process and takes
// away what it leaves.
func (d *docker) stop() (err error) {
	if d.daemon == nil {
		return nil
	}
	ctx := context.Background()
	if out, e := do(ctx, d.argv("ps", "--all", "--quiet"), nil, d.e.thread.on); e == nil {
		if ids := strings.Fields(out); len(ids) > 0 {
			_, err = do(ctx, d.argv(append([]string{"rm", "--force"}, ids...)...), nil, d.e.thread.on)
		}
	}
	_ = d.daemon.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.exited:
	case <-time.After(time.Minute):
		_ = d.daemon.Process.Kill()
		<-d.exited
	}
	return errors.Join(err, d.e.unmountBelow(d.dir))
}
