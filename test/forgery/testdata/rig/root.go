//go:build linux && canary

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// entries are what something might start of a root folder without being asked.
var entries = []string{"/init", "/sbin/init", "/etc/init", "/entrypoint.sh", "/docker-entrypoint.sh", "/bin/sh", "/bin/bash", "/usr/bin/env", "/usr/bin/tini",
	"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux.so.2", "/sbin/ldconfig", "/usr/bin/git", "/usr/bin/mount", "/usr/bin/newuidmap", "/caisson-worker", "/usr/bin/caisson-worker", "/usr/bin/caisson"}

// plantRoot makes a root folder in which every program is the hostile one, and
// whose other files and links lead and preload to where they can.
func (r *rig) plantRoot(marks string) (string, error) {
	root := filepath.Join(r.o.Dir, fmt.Sprint("root", r.serial+1))
	data, err := os.ReadFile(r.o.Attacker)
	if err != nil {
		return "", err
	}
	put := func(name string, b []byte, mode fs.FileMode) error {
		p := root + name
		return errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, b, 0o600), os.Chmod(p, mode))
	}
	errs := []error{os.MkdirAll(root+"/var/lib", 0o755), os.MkdirAll(root+"/usr/lib", 0o755), put("/hostile-root", []byte(marks), 0o644)}
	for _, e := range append([]string{"/bin/sleep"}, entries...) {
		errs = append(errs, put(e, data, 0o755))
	}
	for name, text := range map[string]string{
		"/etc/ld.so.preload": "/sbin/init\n", "/etc/ld.so.cache": "x", "/etc/passwd": "root::0:0::/:/sbin/init\ntester::0:0::/:/sbin/init\n", "/etc/nsswitch.conf": "passwd: compat evil\n",
		"/etc/profile": "/sbin/init\n", "/etc/environment": "LD_PRELOAD=/sbin/init\nGODEBUG=x\n", "/etc/inittab": "::sysinit:/sbin/init\n", "/etc/gitconfig": "[core]\n\tfsmonitor = /sbin/init\n\tpager = /sbin/init\n",
		"/etc/hosts": "127.0.0.1 all\n",
	} {
		errs = append(errs, put(name, []byte(text), 0o644))
	}
	for name, to := range map[string]string{"/opt": "/proc/1/root", "/srv": "../../../../../../proc/self", "/usr/lib/x": "/proc/1/exe", "/lib32": "/home/tester/src", "/etc/mtab": "/proc/1/environ"} {
		errs = append(errs, os.Symlink(to, root+name))
	}
	for _, name := range []string{"/proc/self", "/dev/pts", "/run/boundary/bin", "/tmp", "/home/tester/src"} {
		errs = append(errs, put(name+"/evil", data, 0o755))
	}
	return root, errors.Join(errs...)
}

// hostileRoot is F21 with a root folder of the attacker's: nothing of it may run
// before a command names it, and what then runs is a tool like every other.
func hostileRoot(r *rig, res *result) {
	lost := func(format string, args ...any) { res.Lost = append(res.Lost, fmt.Sprintf(format, args...)) }
	marks := "/home/tester/src"
	root, err := r.plantRoot(marks)
	if err != nil {
		lost("the root folder: %v", err)
		return
	}
	b, err := r.openRoot(root, nil)
	if err != nil {
		lost("no boundary: %v", err)
		return
	}
	r.box = b
	ran := func() string { text, _ := os.ReadFile(b.src + "/ran"); return string(text) }
	ctx, stop := context.WithTimeout(background, limit)
	defer stop()
	// What the host does by itself.
	if err := b.c.Ping(ctx); err != nil {
		lost("ping: %v", err)
	}
	for tool, args := range map[string]string{contract.ReadFile: `{"path":"/etc/passwd"}`, contract.ListDir: `{"path":"/usr"}`, contract.Grep: `{"path":"/etc","pattern":"init"}`, contract.Glob: `{"path":"/sbin","pattern":"*"}`} {
		reply, err := b.c.Tool(ctx, tool, []byte(args), nil)
		if err != nil || reply.Failure != nil {
			lost("%s: %v %+v", tool, err, reply.Failure)
		}
		reply.Close()
		res.Attempts, res.Done = res.Attempts+1, res.Done+1
	}
	if err := b.c.KillAll(ctx, 10*time.Second); err != nil {
		lost("kill all: %v", err)
	}
	if text := ran(); text != "" {
		res.Possible = append(res.Possible, "programs of the root folder ran before any command: "+text)
	}
	if err := b.start(2); err != nil {
		lost("traffic: %v", err)
	}
	for _, e := range entries {
		if _, err := b.attackAs(res, e); err != nil && task.CodeOf(err) != task.CodeOutcomeUnknown {
			lost("%s: %v", e, err)
		}
	}
	if ran() == "" {
		res.Silent = "the programs leave no mark"
	}
	r.after(b, res)
	if r.box == b {
		r.settled(b, res)
	}
}
