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
	"strings"

	"golang.org/x/sys/unix"
)

// engine is something that makes containers, private to this run.
type engine interface {
	// run is the command line that starts a container for cmd, waits and
	// removes it; stand leaves one running that is called name; enter is one
	// more command in it, with or without standard input; remove takes it away.
	run(cmd ...string) []string
	stand(name string) []string
	enter(name string, stdin bool, cmd ...string) []string
	remove(name string) []string
	// pid is a process of the standing container at or below which all of its
	// processes are, its monitor too.
	pid(ctx context.Context, name string) (int, error)
	stop() error
}

// rival is one engine or the reason why it is not there.
type rival struct {
	name, what string
	engine
	why error
}

// engines is all that caisson is compared with, and where it is started.
type engines struct {
	thread *thread
	mark   string   // begins the names of containers and control groups of this run
	all    []*rival // of those with containers: crun, runc, runsc, podman, docker
}

const image = "caisson-bench:1"

// busybox is the one program that prints and sleeps inside: it is static, so
// that a container without a system has it too. Looked up once.
var busybox = func() string {
	p, err := exec.LookPath("busybox")
	if err != nil {
		return ""
	}
	return p
}()

// hostBox is busybox for where the host's files are. Without one, env finds
// the same commands among the system's, which are linked dynamically.
func hostBox() string {
	if busybox == "" {
		return "/usr/bin/env"
	}
	return busybox
}

// echo prints one line by one write.
func echo() []string { return []string{hostBox(), "echo", "x"} }

var errNoBusybox = errors.New("not present: its image is made of a static busybox, and there is none")

// startEngines tries what is on this machine. An engine that does not work
// becomes a line that says why.
func startEngines(ctx context.Context, b *bench) *engines {
	e := &engines{mark: filepath.Base(b.dir)}
	var nots error
	e.thread, nots = newThread()
	for _, r := range []struct {
		name, what string
		needs      []string
		make       func() (engine, error)
	}{
		{"crun", "OCI bundle: the mounts of the bwrap line, no seccomp, no limits", []string{"crun"}, func() (engine, error) { return newOCI(b, e, "crun") }},
		{"runc", "the same bundle", []string{"runc"}, func() (engine, error) { return newOCI(b, e, "runc") }},
		{"runsc", "the same bundle, with a kernel of its own", []string{"runsc"}, func() (engine, error) { return newOCI(b, e, "runsc") }},
		{"podman", "2 MB image, no network, its defaults otherwise", []string{"podman"}, func() (engine, error) { return newPodman(ctx, b, e) }},
		{"docker", "2 MB image, no network, private daemon, its defaults otherwise", []string{"docker", "dockerd"}, func() (engine, error) { return newDocker(ctx, b, e) }},
	} {
		v := &rival{name: r.name, what: r.what}
		e.all = append(e.all, v)
		for _, n := range r.needs {
			if _, err := exec.LookPath(n); err != nil && v.why == nil {
				v.why = fmt.Errorf("not present: there is no %s", n)
			}
		}
		switch {
		case v.why != nil:
		case os.Geteuid() != 0:
			v.why = errors.New("not measured: a private one is started by root only")
		case busybox == "":
			v.why = errNoBusybox
		case nots != nil:
			v.why = fmt.Errorf("not measured: %w", nots)
		default:
			if v.engine, v.why = r.make(); v.why == nil {
				v.why = e.trial(ctx, v)
			}
			if v.why != nil {
				v.why = fmt.Errorf("not measured: %w", v.why)
			}
		}
		if v.why != nil {
			b.say("%s: %v", v.name, v.why)
		}
	}
	return e
}

// trial finds out whether a container starts at all.
func (e *engines) trial(ctx context.Context, v *rival) error {
	argv := v.run("/bin/busybox", "echo", "x")
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "{n}", "trial")
	}
	out, err := do(ctx, argv, nil, e.thread.on)
	if err == nil && strings.TrimSpace(out) != "x" {
		err = fmt.Errorf("a trial printed %q", out)
	}
	return err
}

// on is where commands of engines are started.
func (e *engines) on() func(func()) {
	if e.thread == nil {
		return nil
	}
	return e.thread.on
}

// stop ends every engine that was started.
func (e *engines) stop() (err error) {
	for _, v := range e.all {
		if v.engine != nil {
			err = errors.Join(err, v.engine.stop())
		}
	}
	if e.thread != nil {
		e.thread.end()
		e.thread = nil
	}
	return errors.Join(err, e.removeGroups())
}

// removeGroups takes away the control groups of this run. A group that is not
// empty cannot be removed.
func (e *engines) removeGroups() (err error) {
	if e.mark == "" {
		return nil
	}
	var dirs []string
	for _, top := range []string{"/sys/fs/cgroup/" + e.mark + "*", "/sys/fs/cgroup/*/" + e.mark + "*"} {
		found, _ := filepath.Glob(top)
		for _, f := range found {
			_ = filepath.WalkDir(f, func(p string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, p)
				}
				return nil
			})
		}
	}
	for _, d := range slices.Backward(dirs) { // the deepest first
		if e := unix.Rmdir(d); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("control group %s: %w", d, e))
		}
	}
	return err
}

// mountsBelow lists mount points under dir that a process sees, the deepest first.
func mountsBelow(dir string) ([]string, error) {
	b, err := os.ReadFile("/proc/thread-self/mountinfo")
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

// unmountBelow takes away, as seen from here, what is mounted under dir.
func (e *engines) unmountBelow(dir string) (err error) {
	e.thread.on(func() {
		var mounts []string
		mounts, err = mountsBelow(dir)
		for _, m := range mounts {
			err = errors.Join(err, unix.Unmount(m, unix.MNT_DETACH))
		}
	})
	return err
}

// bwrapArgv is what people use bwrap for: all namespaces, system folders
// read-only, private temporary folders.
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
	return append([]string{"unshare", "-UrmpiunC", "--fork", "--kill-child", "--mount-proc"}, cmd...)
}

// install puts the programs to compare with in place, when a person asked.
func install(ctx context.Context) error {
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return errors.New("-install works as root on Debian")
	}
	_, err := do(ctx, []string{"apt-get", "install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120",
		"docker.io", "podman", "runc", "crun", "bubblewrap", "busybox-static", "strace", "util-linux", "ripgrep", "slirp4netns", "passt"}, []string{"DEBIAN_FRONTEND=noninteractive"}, nil)
	return err
}
