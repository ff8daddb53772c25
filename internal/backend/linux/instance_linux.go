package linux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/hostsockets"
	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// instance is one boundary, live or found again.
type instance struct {
	spec     backend.Spec
	limits   task.Limits
	attached bool // found again: only good for Destroy
	findings []task.Finding
	scope    *userManager // whom to ask for a scope; nil: nobody
	idmapErr error        // of a trial: why id-mapped mounts do not work

	mu        sync.Mutex
	groups    []*group
	proc      *process         // of our own start
	ident     *sys.Ident       // of an earlier process's start
	devpts    int              // O_PATH; 0 = none
	sockets   *hostsockets.Set // inside, that are the host's; nil: none
	dialed    bool
	resources []backend.Resource // as recorded, when attached
}

var _ = sys.RegisterFaults("linux.grouped", "linux.launched", "linux.joined", "linux.killed", "linux.ungrouped")

// start makes groups and W and holds the set-up dialogue. The plan is made
// while W comes up: it waits for it.
func (in *instance) start(ctx context.Context, l launcher, worker *os.File, m mapping, planned func() (*stage.Plan, []int, error)) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	var plan *stage.Plan
	var fds []int
	var perr error
	var beside sync.WaitGroup
	beside.Go(func() { plan, fds, perr = planned() })
	p, err := in.launch(ctx, l, worker, m)
	beside.Wait()
	if err == nil {
		err = perr
	}
	if err != nil {
		return err
	}
	return in.dialogue(ctx, p, plan, fds)
}

// launch makes the groups and W in them.
func (in *instance) launch(ctx context.Context, l launcher, worker *os.File, m mapping) (*process, error) {
	for _, g := range in.groups {
		if err := g.create(in.limits); err != nil {
			if errors.Is(err, os.ErrExist) {
				in.forget(g) // not ours: it must survive the clean-up
			}
			return nil, fmt.Errorf("make the cgroup %s: %w", g.dir, err)
		}
	}
	if err := sys.Fault("linux.grouped"); err != nil {
		return nil, err
	}
	p, err := l.launch(worker, m, in.groups)
	if err != nil {
		return nil, err
	}
	if err := sys.Fault("linux.launched"); err != nil {
		p.kill() // not known as ours yet
		<-p.done
		return nil, err
	}
	in.mu.Lock()
	in.proc = p
	in.mu.Unlock()
	for _, g := range in.groups {
		if !p.born[g] {
			if err := g.add(p.pid); err != nil {
				return nil, fmt.Errorf("put the worker into the cgroup %s: %w", g.dir, err)
			}
		}
		if err := in.isMember(g); err != nil {
			return nil, err
		}
		if err := g.verify(in.limits); err != nil {
			return nil, fmt.Errorf("verify a limit: %w", err)
		}
	}
	if err := sys.Fault("linux.joined"); err != nil {
		return nil, err
	}
	if in.scope != nil {
		if err := in.joinScope(ctx, p.pid); err != nil {
			most := 1
			if have := limited(in.groups); have["memory"] && have["pids"] {
				most = 2
			}
			in.findings = append(in.findings, task.Finding{ID: "no-scope", Axis: task.RES, Cap: most, Text: "the systemd manager made no scope with limits: " + err.Error()})
		}
	}
	return p, nil
}

// joinScope has systemd put W into a scope with the planned limits, and checks
// that the kernel has them.
func (in *instance) joinScope(ctx context.Context, pid int) error {
	name := scopeName(nameOf(in.spec))
	if err := in.scope.start(ctx, name, pid, in.limits); err != nil {
		return err
	}
	g, err := scopeGroup(ctx, name, pid, cgroupRoots{mountinfo: "/proc/self/mountinfo"})
	if err != nil {
		return err
	}
	g.scope = name
	in.mu.Lock()
	in.groups = append(in.groups, g)
	own := slices.DeleteFunc(slices.Clone(in.groups), func(x *group) bool { return !x.v2 || x.scope != "" })
	in.mu.Unlock()
	// A process is in one group of a tree: our own is empty now.
	for _, x := range own {
		if err := x.remove(ctx); err != nil {
			return err
		}
		in.forget(x)
	}
	return g.verify(in.limits)
}

// forget drops a group that is not ours.
func (in *instance) forget(g *group) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i, x := range in.groups {
		if x == g {
			in.groups = append(in.groups[:i:i], in.groups[i+1:]...)
			return
		}
	}
}

// dialogue sends the plan and waits for W's answer.
func (in *instance) dialogue(ctx context.Context, p *process, plan *stage.Plan, fds []int) error {
	if err := p.setDeadline(setupTimeout); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	err := stage.SendPlan(p.sock, plan, fds)
	var rep stage.Report
	var got []int
	var cred *unix.Ucred
	crosses := plan.Way != nil || plan.Inward > 0 || len(plan.Local) > 0
	if err == nil && crosses {
		if rep, got, cred, err = stage.ReceiveReport(p.sock); err == nil && rep.OK {
			if err := in.keepSockets(p, plan, got, cred); err != nil {
				return err
			}
			got = nil
		}
	}
	if err == nil && (!crosses || rep.OK) {
		rep, got, cred, err = stage.ReceiveReport(p.sock)
	}
	defer func() {
		for _, f := range got {
			unix.Close(f)
		}
	}()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		p.kill()
		<-p.done
		detail := fmt.Sprintf("the worker ended before it was ready (%v, %v)", err, p.state)
		if t := p.stderr.text(); t != "" {
			detail += ": " + t
		}
		return &stage.Error{Step: "set-up", Op: "start the worker", Detail: detail}
	}
	if cred == nil || int(cred.Pid) != p.pid {
		return &stage.Error{Step: "set-up", Op: "receive the report", Detail: "it was not sent by the worker"}
	}
	if err := rep.Err(); err != nil {
		var se *stage.Error
		if errors.As(err, &se) {
			return err
		}
		p.kill()
		<-p.done
		return &stage.Error{Step: "set-up", Op: "start the tool space", Detail: strings.TrimSpace(err.Error() + " " + p.stderr.text())}
	}
	if len(got) != 1 {
		return &stage.Error{Step: "set-up", Op: "receive the report", Detail: fmt.Sprintf("%d descriptors came with it, not one", len(got))}
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(got[0], &fs); err != nil || fs.Type != unix.DEVPTS_SUPER_MAGIC {
		return &stage.Error{Step: "set-up", Op: "receive the report", Detail: "its descriptor is not a devpts"}
	}
	in.mu.Lock()
	in.devpts, got = got[0], nil
	in.mu.Unlock()
	return p.setDeadline(0)
}

// Resources implements backend.Instance.
func (in *instance) Resources() []backend.Resource {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.attached {
		return append([]backend.Resource(nil), in.resources...)
	}
	name := nameOf(in.spec)
	r := backend.Resource{Kind: kindProcess, Name: "worker-" + name, Token: in.spec.Token}
	if in.proc != nil {
		r.External = formatIdent(in.proc.ident)
	}
	out := []backend.Resource{r}
	for _, g := range in.groups {
		if g.scope != "" {
			out = append(out, backend.Resource{Kind: kindScope, Name: g.scope, Token: in.spec.Token, External: "dir=" + g.dir + " " + inode(g.ino)})
			continue
		}
		out = append(out, backend.Resource{Kind: kindCgroup, Name: g.dir, Token: in.spec.Token, External: inode(g.ino)})
	}
	return out
}

// Findings returns what qualified this boundary while it was made.
func (in *instance) Findings() []task.Finding { return append([]task.Finding(nil), in.findings...) }

// Dial implements backend.Instance.
func (in *instance) Dial(ctx context.Context) (net.Conn, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.proc == nil || in.dialed || in.proc.sock < 0 {
		return nil, task.Errorf(task.CodeChannel, "linux.dial", "the channel can be taken once, by the process that made the boundary")
	}
	f := os.NewFile(uintptr(in.proc.sock), "channel")
	in.proc.sock, in.dialed = -1, true
	defer f.Close()
	return net.FileConn(f)
}

// OpenPTY opens a terminal in the boundary's own devpts: the master for the
// host, the slave to be handed in. The caller closes both.
func (in *instance) OpenPTY(rows, cols uint16) (master, slave *os.File, err error) {
	const op = "linux.pty"
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.devpts <= 0 {
		return nil, nil, task.Errorf(task.CodeState, op, "the boundary is gone")
	}
	m, err := unix.Openat2(in.devpts, "ptmx", &unix.OpenHow{Flags: unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return nil, nil, task.Errorf(task.CodeUnavailable, op, "open a terminal: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(m)
		}
	}()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(m, &fs); err != nil || fs.Type != unix.DEVPTS_SUPER_MAGIC {
		return nil, nil, task.Errorf(task.CodeUnavailable, op, "what was opened is not a terminal of this boundary")
	}
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, task.Errorf(task.CodeUnavailable, op, "unlock the terminal: %w", err)
	}
	if rows > 0 && cols > 0 {
		if err := unix.IoctlSetWinsize(m, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
			return nil, nil, task.Errorf(task.CodeUnavailable, op, "set the terminal's size: %w", err)
		}
	}
	s, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, uintptr(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC))
	if errno != 0 {
		return nil, nil, task.Errorf(task.CodeUnavailable, op, "open the terminal's other side: %w", errno)
	}
	if err := unix.SetNonblock(m, true); err != nil {
		unix.Close(int(s))
		return nil, nil, task.Errorf(task.CodeUnavailable, op, "%w", err)
	}
	return os.NewFile(uintptr(m), "pty"), os.NewFile(s, "tty"), nil
}

// Observe implements backend.Instance.
func (in *instance) Observe(ctx context.Context) (backend.Observation, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	o := backend.Observation{MemoryBytes: -1, Levels: task.Vector{}, Seen: map[task.Axis]string{}}
	if in.proc != nil {
		o.WorkerPID, o.Alive = in.proc.pid, !in.proc.dead()
	} else if in.ident != nil {
		o.WorkerPID, o.Alive = in.ident.PID, sys.Look(*in.ident) == sys.Living
	}
	var bad error
	for _, g := range in.groups {
		in.measure(g, &o)
		if o.Alive && !in.attached {
			bad = errors.Join(bad, g.verify(in.limits), in.isMember(g))
		}
	}
	if in.attached || !o.Alive {
		return o, nil
	}
	have := limited(in.groups)
	switch {
	case bad != nil:
		o.Seen[task.RES] = bad.Error()
	case have["memory"] && have["pids"]:
		o.Levels[task.RES] = 2
		o.Seen[task.RES] = fmt.Sprintf("cgroup limits read back: memory %d bytes, %d pids; worker is a member", in.limits.MemoryBytes, in.limits.Pids)
	default:
		o.Levels[task.RES] = 1
		o.Seen[task.RES] = "no cgroup with memory and pids limits; per-process limits and tmpfs sizes only"
	}
	return o, nil
}

// isMember checks that W is where it was put.
func (in *instance) isMember(g *group) error {
	procs, err := readControl(filepath.Join(g.members(), "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, p := range strings.Fields(procs) {
		if p == strconv.Itoa(in.proc.pid) {
			return nil
		}
	}
	return fmt.Errorf("the worker is not in the cgroup %s", g.dir)
}

func (in *instance) measure(g *group, o *backend.Observation) {
	num := func(file string) (int64, bool) {
		s, err := g.read(file)
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	}
	field := func(file, key string) (int64, bool) {
		s, err := g.read(file)
		if err != nil {
			return 0, false
		}
		for _, line := range strings.Split(s, "\n") {
			if v, ok := strings.CutPrefix(line, key+" "); ok {
				n, err := strconv.ParseInt(v, 10, 64)
				return n, err == nil
			}
		}
		return 0, false
	}
	if g.ctl["memory"] {
		usage, events := "memory.usage_in_bytes", "memory.oom_control"
		if g.v2 {
			usage, events = "memory.current", "memory.events"
		}
		if n, ok := num(usage); ok {
			o.MemoryBytes = n
		}
		if n, ok := field(events, "oom_kill"); ok {
			o.OOMKills = n
		}
	}
	if g.ctl["pids"] {
		if n, ok := num("pids.current"); ok {
			o.Pids = n
		}
	}
	if g.v2 {
		if n, ok := field("cpu.stat", "usage_usec"); ok {
			o.CPUSeconds = float64(n) / 1e6
		}
	}
}

// Destroy implements backend.Instance.
func (in *instance) Destroy(ctx context.Context) error {
	const op = "linux.destroy"
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, destroyTimeout)
		defer cancel()
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	var left []string
	if in.devpts > 0 {
		unix.Close(in.devpts)
		in.devpts = 0
	}
	if err := in.killLocked(ctx); err != nil {
		left = append(left, err.Error())
	}
	if in.sockets != nil {
		in.sockets.Close()
	}
	if err := sys.Fault("linux.killed"); err != nil {
		return err
	}
	for _, g := range in.groups {
		if err := g.remove(ctx); err != nil {
			left = append(left, err.Error())
		}
		if err := sys.Fault("linux.ungrouped"); err != nil {
			return err
		}
	}
	if len(left) > 0 {
		return task.Errorf(task.CodeStuck, op, "%s", strings.Join(left, "; ")).WithHint("`caisson reap` tries again")
	}
	return nil
}

// killLocked ends W. When the kernel lets W, pid 1 of its namespace, be waited
// for, it has ended everything below it before: this is the proof of death.
func (in *instance) killLocked(ctx context.Context) error {
	if p := in.proc; p != nil {
		p.kill()
		select {
		case <-p.done:
			p.close()
			return nil
		case <-ctx.Done():
			return fmt.Errorf("the worker (pid %d) did not end: %w", p.pid, context.Cause(ctx))
		}
	}
	if in.ident == nil {
		return nil
	}
	h, err := sys.OpenProcess(*in.ident)
	if errors.Is(err, sys.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.Signal(os.Kill); err != nil && !errors.Is(err, sys.ErrGone) {
		return err
	}
	return h.Wait(ctx)
}

func formatIdent(id sys.Ident) string {
	return fmt.Sprintf("boot=%s pid=%d start=%d pidns=%d", id.BootID, id.PID, id.Start, id.PIDNS)
}

func parseIdent(s string) (sys.Ident, bool) {
	var id sys.Ident
	n, err := fmt.Sscanf(s, "boot=%s pid=%d start=%d pidns=%d", &id.BootID, &id.PID, &id.Start, &id.PIDNS)
	return id, err == nil && n == 4
}

func inode(ino uint64) string {
	if ino == 0 {
		return ""
	}
	return "inode=" + strconv.FormatUint(ino, 10)
}

// parseScope reads what Resources wrote for a scope.
func parseScope(s string) (dir string, ino uint64, ok bool) {
	dir, rest, ok := strings.Cut(strings.TrimPrefix(s, "dir="), " inode=")
	return dir, parseInode(rest), ok && strings.HasPrefix(s, "dir=/")
}

func parseInode(s string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimPrefix(s, "inode="), 10, 64)
	return n
}
