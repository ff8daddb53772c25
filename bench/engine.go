//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// engine is a docker daemon of this run alone: its own socket, folders and
// control group, so that one that serves the machine is not disturbed.
type engine struct {
	dir, socket string
	daemon      *exec.Cmd
	exited      chan error
}

const cgroupParent = "caisson-bench"

// startEngine returns an engine with the image loaded, or why there is none.
func startEngine(ctx context.Context, dir string) (*engine, string) {
	if os.Geteuid() != 0 {
		return nil, "not measured: a private docker daemon needs root"
	}
	for _, p := range []string{"docker", "dockerd", "busybox"} {
		if _, err := exec.LookPath(p); err != nil {
			return nil, "not measured: " + p + " is not on this machine"
		}
	}
	e := &engine{dir: dir, socket: "unix://" + filepath.Join(dir, "docker.sock"), exited: make(chan error, 1)}
	if err := e.start(ctx); err != nil {
		return nil, "not measured: " + err.Error()
	}
	if err := e.load(ctx); err != nil {
		return nil, "not measured: " + errors.Join(err, e.stop()).Error()
	}
	return e, ""
}

func (e *engine) argv(args ...string) []string {
	return append([]string{"docker", "-H", e.socket}, args...)
}

func (e *engine) start(ctx context.Context) error {
	if err := os.Mkdir(e.dir, 0o700); err != nil {
		return err
	}
	conf := filepath.Join(e.dir, "daemon.json")
	if err := os.WriteFile(conf, []byte(`{"bridge":"none","iptables":false,"ip-masq":false,"cgroup-parent":"/`+cgroupParent+`"}`), 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(e.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	e.daemon = exec.Command("dockerd", "--config-file", conf, "--data-root", filepath.Join(e.dir, "data"), "--exec-root", filepath.Join(e.dir, "exec"),
		"-H", e.socket, "--pidfile", filepath.Join(e.dir, "pid"))
	e.daemon.Stdout, e.daemon.Stderr = log, log
	if err := e.daemon.Start(); err != nil {
		return err
	}
	go func() { e.exited <- e.daemon.Wait() }()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		if exec.Command("docker", e.argv("version")[1:]...).Run() == nil {
			return nil
		}
		select {
		case err := <-e.exited:
			e.exited <- err
			b, _ := os.ReadFile(log.Name())
			return errors.Join(fmt.Errorf("dockerd ended: %s", lastLine(string(b))), e.stop())
		case <-deadline.C:
			return errors.Join(errors.New("dockerd was not ready after 30 s"), e.stop())
		case <-ctx.Done():
			return errors.Join(ctx.Err(), e.stop())
		case <-again.C:
		}
	}
}

// load makes an image of a static busybox; no registry is asked.
func (e *engine) load(ctx context.Context) error {
	script := `set -e; d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; mkdir "$d/bin" "$d/tmp"; cp "$(command -v busybox)" "$d/bin/busybox"
for a in sh echo sleep true; do ln -s busybox "$d/bin/$a"; done
tar -C "$d" -c . | docker -H "$0" import - ` + image
	out, err := exec.CommandContext(ctx, "sh", "-c", script, e.socket).CombinedOutput()
	if err != nil {
		return fmt.Errorf("image: %v: %s", err, lastLine(string(out)))
	}
	return nil
}

// stop ends the daemon by its own process and takes away what it leaves.
func (e *engine) stop() error {
	_ = e.daemon.Process.Signal(syscall.SIGTERM)
	select {
	case <-e.exited:
	case <-time.After(30 * time.Second):
		_ = e.daemon.Process.Kill()
		<-e.exited
	}
	mounts, err := mountsBelow(e.dir)
	for _, m := range mounts {
		err = errors.Join(err, syscall.Unmount(m, syscall.MNT_DETACH))
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroupParent)
	for _, g := range append(groups, "/sys/fs/cgroup/"+cgroupParent) {
		_ = os.Remove(g) // an empty one goes, another stays
	}
	return err
}

// mountsBelow lists mount points under dir, the deepest first.
func mountsBelow(dir string) ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			out = append(out, f[4])
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out, nil
}
