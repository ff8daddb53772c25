//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// oci drives crun, runc or runsc by bundle, without an engine above it.
type oci struct {
	b       *bench
	e       *engines
	program string
	dir     string
}

func newOCI(b *bench, e *engines, program string) (engine, error) {
	o := &oci{b: b, e: e, program: program, dir: filepath.Join(b.dir, program)}
	if err := o.bundle("run", echo()); err != nil {
		return nil, err
	}
	return o, o.bundle("stand", []string{busybox, "sleep", "100000"})
}

// bundle writes a bundle whose container runs cmd in the mounts that the bwrap
// line has too.
func (o *oci) bundle(name string, cmd []string) error {
	dir := filepath.Join(o.dir, name)
	root := filepath.Join(dir, "rootfs")
	type mount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	bind := func(p string) mount {
		return mount{p, "bind", p, []string{"rbind", "ro", "nosuid", "nodev"}}
	}
	tmpfs := func(p, mode string) mount {
		return mount{p, "tmpfs", "tmpfs", []string{"nosuid", "nodev", "mode=" + mode}}
	}
	mounts := []mount{bind("/usr"), bind("/etc"), tmpfs("/tmp", "1777"), tmpfs("/home", "755"), {"/proc", "proc", "proc", nil},
		{"/dev", "tmpfs", "tmpfs", []string{"nosuid", "mode=755"}},
		{"/dev/pts", "devpts", "devpts", []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}}}
	for _, d := range []string{"usr", "etc", "tmp", "home", "proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	for _, l := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		to, err := os.Readlink(l)
		if err == nil {
			err = os.Symlink(to, filepath.Join(root, l))
		} else if _, serr := os.Stat(l); serr == nil {
			err = os.Mkdir(filepath.Join(root, l), 0o755)
			mounts = append(mounts, bind(l))
		} else {
			err = nil // not on this machine
		}
		if err != nil {
			return err
		}
	}
	spaces := []map[string]string{}
	for _, n := range []string{"pid", "ipc", "uts", "mount", "network", "cgroup"} {
		spaces = append(spaces, map[string]string{"type": n})
	}
	spec := map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{"args": cmd, "cwd": "/tmp", "env": []string{"PATH=/usr/bin:/bin"}, "noNewPrivileges": true,
			"user": map[string]int{"uid": 0, "gid": 0}, "capabilities": map[string]any{}},
		"root":     map[string]any{"path": "rootfs", "readonly": true},
		"hostname": "bench",
		"mounts":   mounts,
		// The control group is named after the container: many run at once.
		"linux": map[string]any{"namespaces": spaces, "resources": map[string]any{"devices": []map[string]any{{"allow": false, "access": "rwm"}}}},
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), b, 0o644)
}

func (o *oci) argv(args ...string) []string {
	argv := []string{o.program, "--root", filepath.Join(o.dir, "state")}
	if o.program == "runsc" {
		argv = append(argv, "--network=none", "--ignore-cgroups")
	}
	return append(argv, args...)
}

// run ignores cmd: a bundle names its program. It is echo.
func (o *oci) run(...string) []string {
	return o.argv("run", "--bundle", filepath.Join(o.dir, "run"), o.id("{n}"))
}

func (o *oci) stand(name string) []string {
	return o.argv("run", "--detach", "--bundle", filepath.Join(o.dir, "stand"), o.id(name))
}

// id is unique on the machine: it names control groups.
func (o *oci) id(name string) string { return o.e.mark + "-" + o.program + "-" + name }

func (o *oci) enter(name string, _ bool, cmd ...string) []string {
	return o.argv(append([]string{"exec", o.id(name)}, cmd...)...)
}

func (o *oci) remove(name string) []string {
	return o.argv("delete", "--force", o.id(name))
}

func (o *oci) pid(ctx context.Context, name string) (int, error) {
	out, err := do(ctx, o.argv("state", o.id(name)), nil, o.e.thread.on)
	if err != nil {
		return 0, err
	}
	var v struct {
		PID int `json:"pid"`
	}
	err = json.Unmarshal([]byte(out), &v)
	if err == nil && v.PID == 0 {
		err = errors.New("state names no process: " + strconv.Quote(out))
	}
	return v.PID, err
}

// stop takes away what is still there, also of a run that was interrupted.
func (o *oci) stop() (err error) {
	ctx := context.Background()
	if _, err := os.Stat(filepath.Join(o.dir, "state")); err != nil {
		return nil // never used
	}
	out, err := do(ctx, o.argv("list", "--quiet"), nil, o.e.thread.on)
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(out) {
		_, e := do(ctx, o.argv("delete", "--force", name), nil, o.e.thread.on)
		err = errors.Join(err, e)
	}
	return err
}
