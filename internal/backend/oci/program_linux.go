package oci

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
	"github.com/caisson-dev/caisson/internal/task"
)

// program is a runtime on this machine.
type program struct {
	path     string
	dev, ino uint64
	key      string // changes when the file does
}

// find looks for the runtime: where the person says, else on their PATH and where an
// administrator's programs are.
func (d *Driver) find() (*program, error) {
	const op = "oci.find"
	name := programs[d.name]
	if at := d.getenv(Variable(d.name)); at != "" {
		if !filepath.IsAbs(at) {
			return nil, task.Errorf(task.CodeUsage, op, "%s names %q, which is no absolute path", Variable(d.name), foreign.Printable(at, 200)).WithHint("give the program's whole path")
		}
		p, err := look(at)
		if err != nil {
			return nil, task.Errorf(task.CodeUnavailable, op, "%s names %s: %v", Variable(d.name), foreign.Printable(at, 200), err).WithHint("give the path of a %s that can be started", name)
		}
		return p, nil
	}
	var last error
	for _, dir := range append(filepath.SplitList(d.getenv("PATH")), "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin") {
		if !filepath.IsAbs(dir) {
			continue
		}
		p, err := look(filepath.Join(dir, name))
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, os.ErrNotExist) && last == nil {
			last = err
		}
	}
	if last != nil {
		return nil, task.Errorf(task.CodeUnavailable, op, "%s cannot be used: %v", name, last).WithHint("%s", install[d.name])
	}
	return nil, task.Errorf(task.CodeUnavailable, op, "%s is not on PATH", name).WithHint("%s", install[d.name])
}

// install says how to get a runtime.
var install = map[string]string{
	GVisor: "install runsc (gvisor.dev/docs/user_guide/install), or name one with " + Variable(GVisor) + "",
	Crun:   "install the package crun, or name one with " + Variable(Crun),
	Runc:   "install the package runc, or name one with " + Variable(Runc),
}

// look takes a program that this user may start and that no stranger can have changed.
func look(path string) (*program, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Stat(real, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: real, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Access(real, unix.X_OK) != nil:
		return nil, fmt.Errorf("%s is no program that can be started: %w", foreign.Printable(real, 200), os.ErrPermission)
	case st.Mode&0o022 != 0 || st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s can be changed by others than you and root", foreign.Printable(real, 200))
	}
	return &program{path: real, dev: st.Dev, ino: st.Ino, key: fmt.Sprintf("%s %d %d %d %d.%d", real, st.Dev, st.Ino, st.Size, st.Ctim.Sec, st.Ctim.Nsec)}, nil
}

// dynamic reports whether a program needs a loader.
func dynamic(path string) (bool, error) {
	f, err := elf.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return true, nil
		}
	}
	return false, nil
}

// usable refuses a runtime that cannot work, with the reason.
func (d *Driver) usable(p *program) error {
	if d.name != GVisor {
		return nil
	}
	dyn, err := dynamic(p.path)
	if err != nil {
		return task.Errorf(task.CodeUnavailable, "oci.find", "%s is no program of this machine: %v", p.path, err).WithHint("%s", install[d.name])
	}
	if dyn {
		return task.Errorf(task.CodeUnavailable, "oci.find", "%s is linked with shared libraries: it starts itself again in an empty root, where they are not", p.path).
			WithHint("take a released runsc, or build one with CGO_ENABLED=0")
	}
	return nil
}

// call is one run of the runtime.
type call struct {
	args    []string
	stdin   *os.File // nil: nothing
	stdout  *os.File // nil: it is collected
	stderr  *os.File // nil: it is collected, and says why where the call fails
	hide    bool     // of a unified group tree beside others: see apart
	timeout time.Duration
}

// callTime bounds a runtime's answer that starts nothing.
const callTime = 20 * time.Second

// run starts the runtime and waits for it. What it prints comes back.
func (p *program) run(ctx context.Context, c call) (string, error) {
	if c.timeout == 0 {
		c.timeout = callTime
	}
	ctx, done := context.WithTimeout(ctx, c.timeout)
	defer done()
	cmd := exec.CommandContext(ctx, p.path, c.args...)
	// Nothing of the person's environment is the runtime's business.
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = 2 * time.Second
	var out, said bytes.Buffer
	if cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, &out, &said; c.stdin != nil {
		cmd.Stdin = c.stdin
	}
	if c.stdout != nil {
		cmd.Stdout = c.stdout
	}
	if c.stderr != nil {
		cmd.Stderr = c.stderr
	}
	if err := start(cmd, c.hide); err != nil {
		return "", fmt.Errorf("start %s: %w", filepath.Base(p.path), err)
	}
	err := cmd.Wait()
	if ctx.Err() != nil {
		return out.String(), fmt.Errorf("%s did not end: %w", filepath.Base(p.path), context.Cause(ctx))
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s: %w: %s", filepath.Base(p.path), err, foreign.Printable(said.String()+" "+out.String(), 600))
	}
	return out.String(), nil
}

// unified is where the group tree of version 2 is on machines that have both.
const unified = "/sys/fs/cgroup/unified"

// hybrid reports whether this machine has both versions of control groups.
func hybrid() bool {
	var st unix.Statfs_t
	return unix.Statfs(unified, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// start starts cmd; with hide in a mount namespace of its own that does not have the
// unified group tree beside the others: crun before 1.9 starts nothing where it sees
// one. Nothing of this program's own mounts changes.
func start(cmd *exec.Cmd, hide bool) error {
	if !hide {
		return cmd.Start()
	}
	failed := make(chan error, 1)
	go apart(func() {
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Unmount(unified, unix.MNT_DETACH)
		}
		if err != nil {
			failed <- fmt.Errorf("a mount namespace without %s: %w", unified, err)
			return
		}
		failed <- cmd.Start()
	})
	return <-failed
}

// apart runs f on a thread that ends with it. It is never the first one, which the
// kernel shows as the whole process: its mounts would be taken for the program's.
func apart(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f() // and the thread is not given back
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		apart(f) // elsewhere: this one is held
	}()
	<-done
}
