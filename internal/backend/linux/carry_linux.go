package linux

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/hostsockets"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// A supervisor whose task is ready becomes the same program afresh, which keeps
// what stays and not what the opening took. W stays its child: the kernel sends
// W's death signal when the thread ends that started it, so that is the thread
// which execs; it becomes the first one of the new program, which ends last.

// carried is an instance on that way.
type carried struct {
	Task            task.ID
	Instance, Token string
	Limits          task.Limits
	Findings        []task.Finding
	Groups          []carriedGroup
	Worker          sys.Ident
	PidFD, DevPTS   int
	Sockets, Inward []int
	Local           []int
	Stderr          int // -1: none
	Tail            []byte
}

type carriedGroup struct {
	V2          bool
	Parent      string
	Controllers map[string]bool
	Dir         string
	Inode       uint64
	Scope       string
	Nested      bool
}

var _ backend.Movable = (*instance)(nil)

// Carry implements backend.Movable.
func (in *instance) Carry() ([]byte, []int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	p := in.proc
	if p == nil || in.attached || !in.dialed || in.devpts <= 0 || p.pidfd < 0 || p.dead() {
		return nil, nil, errors.New("the boundary does not stand")
	}
	c := carried{
		Task: in.spec.Task, Instance: in.spec.Instance, Token: in.spec.Token, Limits: in.limits, Findings: in.findings,
		Worker: p.ident, PidFD: p.pidfd, DevPTS: in.devpts, Stderr: -1,
	}
	if in.sockets != nil {
		c.Sockets, c.Local, c.Inward = in.sockets.All()
	}
	for _, g := range in.groups {
		c.Groups = append(c.Groups, carriedGroup{g.v2, g.parent, g.ctl, g.dir, g.ino, g.scope, g.nested})
	}
	fds := slices.Concat([]int{c.PidFD, c.DevPTS}, c.Sockets, c.Local, c.Inward)
	p.stderr.mu.Lock()
	defer p.stderr.mu.Unlock()
	if c.Tail = p.stderr.buf; p.stderr.r != nil {
		var err error
		if c.Stderr, err = sys.FD(p.stderr.r); err != nil {
			return nil, nil, err
		}
		fds = append(fds, c.Stderr)
	}
	b, err := sys.Pack(c)
	return b, fds, err
}

// Become implements backend.Movable.
func (in *instance) Become(path string, argv, env []string, fds []int) error {
	in.mu.Lock()
	p := in.proc
	in.mu.Unlock()
	if p == nil {
		return errors.New("the boundary does not stand")
	}
	if p.parent == nil {
		return errors.New("this program was taken over already")
	}
	failed := make(chan error, 1)
	select {
	case p.parent <- func() { failed <- become(path, argv, env, fds) }:
		return <-failed
	case <-p.done:
		return errors.New("the worker has ended")
	}
}

// become is to be called on a locked thread, which is what is left of this
// process then. It was in W's control groups for a moment; where it could not
// come back to the process's own, the process would change its groups.
func become(path string, argv, env []string, fds []int) error {
	own, err := readFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	if here, err := readFile("/proc/thread-self/cgroup"); err != nil || !bytes.Equal(own, here) {
		return errors.Join(errors.New("the worker's parent is in other control groups than its process"), err)
	}
	// No child that is forked now may inherit them, and the program nothing else.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	if err := sealDescriptors(); err != nil {
		return err
	}
	for _, fd := range fds {
		if _, err = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			break
		}
	}
	if err == nil {
		err = syscall.Exec(path, argv, env)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return err
}

// Take implements backend.Taker.
func (d *Driver) Take(state []byte) (backend.Instance, error) {
	var c carried
	if err := sys.Unpack(state, &c); err != nil {
		return nil, err
	}
	in := &instance{
		spec:   backend.Spec{Task: c.Task, Instance: c.Instance, Token: c.Token},
		limits: c.Limits, findings: c.Findings, dialed: true, devpts: c.DevPTS, sockets: hostsockets.Retake(c.Sockets, c.Local, c.Inward),
		proc: &process{pid: c.Worker.PID, pidfd: c.PidFD, ident: c.Worker, sock: -1, done: make(chan struct{}), stderr: &tail{buf: c.Tail}},
	}
	for _, g := range c.Groups {
		in.groups = append(in.groups, &group{hierarchy: hierarchy{v2: g.V2, parent: g.Parent, ctl: g.Controllers}, dir: g.Dir, ino: g.Inode, scope: g.Scope, nested: g.Nested})
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(c.DevPTS, &fs); err != nil || fs.Type != unix.DEVPTS_SUPER_MAGIC {
		return nil, errors.New("what was handed over as the terminals of the boundary are none")
	}
	if sys.Look(c.Worker) != sys.Living {
		return nil, errors.New("the worker has ended")
	}
	// By its number: it is this process's child, so the number is its own until
	// it is waited for here.
	proc, err := os.FindProcess(c.Worker.PID)
	if err != nil {
		return nil, err
	}
	go in.proc.await(proc)
	if c.Stderr >= 0 {
		in.proc.stderr.follow(os.NewFile(uintptr(c.Stderr), "stderr of the worker"))
	}
	return in, nil
}
