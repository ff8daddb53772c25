//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// podman is used with folders of this run alone.
type podman struct {
	b     *bench
	e     *engines
	dir   string
	state string // its run root

	daemon *exec.Cmd // its service; nil: not started
}

func newPodman(ctx context.Context, b *bench, e *engines) (engine, error) {
	p := &podman{b: b, e: e, dir: filepath.Join(b.dir, "podman")}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	p.state = filepath.Join(p.dir, "run")
	if len(p.state) > 50 { // podman takes no longer one
		var err error
		if p.state, err = os.MkdirTemp("/tmp", "caisson-bench-podman-"); err != nil {
			return nil, err
		}
	}
	// Without the capability to raise limits, as in many containers and VMs,
	// podman's default limits end every start.
	conf := "[containers]\ndefault_ulimits = [\"nofile=1024:1024\",\"nproc=1000:1000\"]\n[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n"
	if err := os.WriteFile(filepath.Join(p.dir, "containers.conf"), []byte(conf), 0o600); err != nil {
		return nil, err
	}
	script := `tar -C "$0" -c . | ` + strings.Join(p.argv("import", "-", image), " ")
	if err := importImage(ctx, b, p.dir, script, e.thread.on); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *podman) argv(args ...string) []string {
	return append([]string{"env", "CONTAINERS_CONF=" + filepath.Join(p.dir, "containers.conf"), "podman",
		"--root", filepath.Join(p.dir, "root"), "--runroot", p.state, "--tmpdir", filepath.Join(p.dir, "tmp")}, args...)
}

func (p *podman) run(cmd ...string) []string {
	return p.argv(append([]string{"run", "--rm", "--network", "none", "--cgroup-parent", "/" + p.e.mark, "localhost/" + image}, cmd...)...)
}

func (p *podman) stand(name string) []string {
	return p.argv("run", "--detach", "--network", "none", "--cgroup-parent", "/"+p.e.mark, "--name", name, "localhost/"+image, "/bin/busybox", "sleep", "100000")
}

func (p *podman) enter(name string, stdin bool, cmd ...string) []string {
	return p.argv(append(execArgs(name, stdin), cmd...)...)
}

func (p *podman) remove(name string) []string { return p.argv("rm", "--force", "--time", "0", name) }

// pid is the container's monitor.
func (p *podman) pid(ctx context.Context, name string) (int, error) {
	out, err := do(ctx, p.argv("inspect", "--format", "{{.State.ConmonPid}}", name), nil, p.e.thread.on)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(out))
}

// service starts podman's service, which its command line does without.
func (p *podman) service(ctx context.Context) ([]string, error) {
	socket := filepath.Join(p.state, "service.sock")
	env := []string{"CAISSON_ENGINE=unix://" + socket}
	if p.daemon != nil {
		return env, nil
	}
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	argv := p.argv("system", "service", "--time", "0", "unix://"+socket)
	c := exec.Command(argv[0], argv[1:]...)
	c.Stdout, c.Stderr, c.Dir = log, log, p.dir // where its monitors leave files
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	p.e.thread.on(func() { err = c.Start() })
	if err != nil {
		return nil, err
	}
	p.daemon = c
	return env, until(ctx, time.Minute, "the service of podman was not ready", func() (bool, error) {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
}

func (p *podman) like(ctx context.Context, id string) (func(...string) []string, error) {
	return likeBy(ctx, p.argv, p.e.thread.on, id, "--cgroup-parent", "/"+p.e.mark)
}

func (p *podman) ours(ctx context.Context, task string) ([]string, error) {
	return oursBy(ctx, p.argv, p.e.thread.on, task)
}

// stop removes all containers of our folders, waits for their monitors and
// unmounts what is left.
func (p *podman) stop() error {
	ctx := context.Background()
	_, err := do(ctx, p.argv("rm", "--force", "--all", "--time", "0"), nil, p.e.thread.on)
	if p.daemon != nil {
		_ = p.daemon.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(time.Minute, func() { _ = p.daemon.Process.Kill() })
		_ = p.daemon.Wait() // it ends with the signal's status
		late.Stop()
	}
	err = errors.Join(err, until(ctx, 20*time.Second, "monitors of podman are still there", func() (bool, error) {
		left, err := mentioning(p.dir)
		return left == 0, err
	}))
	return errors.Join(err, p.e.unmountBelow(p.dir), p.e.unmountBelow(p.state), os.RemoveAll(p.state))
}

// mentioning counts processes that have dir in their command line.
func mentioning(dir string) (n int, err error) {
	ents, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range ents {
		if e.Name()[0] < '0' || e.Name()[0] > '9' || e.Name() == strconv.Itoa(os.Getpid()) {
			continue
		}
		if b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil && strings.Contains(string(b), dir+"/") {
			n++
		}
	}
	return n, nil
}

// importImage makes an image of a static busybox; no registry is asked. script
// packs the folder $0 and hands it over.
func importImage(ctx context.Context, b *bench, dir, script string, on func(func())) error {
	root := filepath.Join(dir, "image")
	for _, d := range []string{"bin", "tmp", "proc", "dev", "sys", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	data, err := os.ReadFile(busybox)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "bin/busybox"), data, 0o755)
	}
	if err != nil {
		return err
	}
	if _, err := do(ctx, []string{"sh", "-ec", script, root}, nil, on); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return os.RemoveAll(root)
}
