package oci

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/foreign"
	"github.com/caisson-dev/caisson/internal/backend/internal/rootdir"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/guest"
)

// setupTime bounds the start of a boundary until its worker answers.
const setupTime = 60 * time.Second

// longestSocket is what fits into the address of a Unix socket.
const longestSocket = 107

// shape is how a boundary is made for whoever starts it.
type shape struct {
	ids      foreign.Insiders
	maps     []idMap // of a user namespace; nil: it has none
	group    string  // its control groups' path; empty: none can be made
	rootless bool
	platform string // gVisor's
}

// What is not offered, and what to do instead.
const (
	noUserns    = "--grant userns: a runtime's boundary gives tools no user namespaces"
	noUsernsFix = "--backend linux can give it"
	noInward    = "gVisor's programs use a network stack of its own, into which the host has no way"
	noInwardFix = "another backend has ways in; here leave --publish out"
	noImage     = "a runtime without an engine has no images"
	noImageFix  = "unpack it into a folder and name that with --rootfs, for example: docker export $(docker create IMAGE) | tar -x -C DIR"
)

// shapeOf says how s is made, or why it cannot be.
func (d *Driver) shapeOf(s backend.Spec) (shape, error) {
	sh := shape{rootless: os.Geteuid() != 0}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.Token))
	other := 1<<30 + int(h.Sum32()>>3)
	switch {
	case d.name == GVisor:
		var err error
		if sh.platform, err = d.platform(); err != nil {
			return sh, err
		}
		if sh.rootless {
			// Who starts it is user 0 of a namespace whose only user that is; gVisor's own
			// kernel has all the others.
			sh.ids = foreign.Insiders{Worker: 1}
			return sh, nil
		}
	case sh.rootless:
		return sh, task.Errorf(task.CodeUnavailable, "oci.create", "%s is used with root's rights alone: as a user it has no second user id for the worker", programs[d.name]).
			WithHint("--backend linux needs no root; --backend gvisor neither")
	}
	sh.ids = foreign.Insiders{UID: s.Identity.UID, GID: s.Identity.GID, Worker: other}
	if canGroup() {
		sh.group = "/" + nameOf(s)
	}
	return sh, nil
}

func (d *Driver) platform() (string, error) {
	switch p := d.getenv(PlatformVariable); p {
	case "":
		return "systrap", nil
	case "systrap", "kvm":
		return p, nil
	default:
		return "", task.Errorf(task.CodeUsage, "oci.create", "%s does not know %q", PlatformVariable, foreign.Printable(p, 40)).WithHint("it is systrap or kvm")
	}
}

// Create implements backend.Driver.
func (d *Driver) Create(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	const op = "oci.create"
	if err := ctx.Err(); err != nil {
		return nil, task.Errorf(task.CodeCanceled, op, "%w", context.Cause(ctx))
	}
	if err := d.check(s); err != nil {
		return nil, err
	}
	in, err := d.create(ctx, s, false)
	if err != nil {
		return nil, err
	}
	return in, nil
}

// create is Create; in a trial it is no error that no sockets came from inside.
func (d *Driver) create(ctx context.Context, s backend.Spec, trial bool) (*instance, error) {
	const op = "oci.create"
	p, err := d.find()
	if err == nil {
		err = d.usable(p)
	}
	if err != nil {
		return nil, err
	}
	if d.name == GVisor {
		s.Inward = 0 // there is none; who needs one has heard
	}
	in := &instance{driver: d, spec: s, program: p, token: s.Token, trial: trial}
	in.crossings.Carry = d.name == GVisor
	if in.shape, err = d.shapeOf(s); err != nil {
		return nil, err
	}
	var si unix.Sysinfo_t
	_ = unix.Sysinfo(&si)
	in.limits = foreign.Limits(s.Limits, int64(si.Totalram)*int64(si.Unit), runtime.NumCPU())
	if err := in.start(ctx); err != nil {
		cctx, cancel := sys.Detach(ctx, destroyTimeout)
		defer cancel()
		if derr := in.Destroy(cctx); derr != nil {
			return nil, task.Errorf(task.CodeStuck, op, "%v; and what was made is not gone: %w", err, derr)
		}
		return nil, foreign.AsError(op, err, "nothing ran; `caisson doctor` shows what this runtime can do here")
	}
	return in, nil
}

// check refuses a spec that cannot be fulfilled, before anything is made.
func (d *Driver) check(s backend.Spec) error {
	const op = "oci.create"
	if err := foreign.Check(op, s); err != nil {
		return err
	}
	if s.Userns {
		return task.Errorf(task.CodeUnsupported, op, "%s", noUserns).WithHint("%s", noUsernsFix)
	}
	if s.Image != "" {
		return task.Errorf(task.CodeUnsupported, op, "--image: %s", noImage).WithHint("%s", noImageFix)
	}
	if sock := filepath.Join(d.stateOf(s.Token), "runsc-"+idOf(s.Token)+".sock"); d.name == GVisor && len(sock) > longestSocket {
		return task.Errorf(task.CodeUnavailable, op, "the path of gVisor's socket would be too long: %s", sock).WithHint("set CAISSON_RUNTIME_DIR to a shorter folder")
	}
	return nil
}

// global are the runtime's arguments before its command.
func (in *instance) global() []string {
	args := []string{"--root", in.state}
	if in.driver.name != GVisor {
		return args
	}
	args = append(args, "--platform="+in.shape.platform, "--network=none", "--directfs=false", "--overlay2=none", "--host-fifo=none")
	if in.spec.Way != nil {
		args = append(args, "--host-uds=open") // the door, and what is lent
	} else {
		args = append(args, "--host-uds=none")
	}
	if in.shape.rootless {
		args = append(args, "--rootless")
	}
	if in.shape.group == "" {
		args = append(args, "--ignore-cgroups")
	}
	return args
}

// start makes folders and bundle, has the runtime start it and the worker answer.
func (in *instance) start(ctx context.Context) error {
	s, d := in.spec, in.driver
	dir := d.folderOf(nameOf(s))
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	in.mu.Lock()
	in.folder = dir
	in.mu.Unlock()
	layout, err := foreign.Generate(dir, s, in.shape.ids.UID, in.shape.ids.GID)
	if err != nil {
		return err
	}
	if err := sys.Fault("oci.folder"); err != nil {
		return err
	}
	if d.name == GVisor {
		// Its kernel reads what it starts with the rights of who starts it, and nobody may
		// read the worker's own file.
		if s.WorkerPath, err = d.readable(s.WorkerPath); err != nil {
			return err
		}
	}
	if err := in.crossings.Open(dir, layout, s, in.shape.ids); err != nil {
		return err
	}
	binds, err := foreign.Binds(dir, layout, s)
	if err != nil {
		return err
	}
	if d.name == GVisor {
		all := len(binds)
		if binds = withoutSockets(binds, s); len(binds) < all && s.Way != nil {
			// What leads to the door lets a program open any socket that it is shown.
			return task.Errorf(task.CodeUnsupported, "oci.create", "gVisor cannot cover sockets, and there are %d in folders that would be shown beside a way out", all-len(binds)).
				WithHint("show no folder with sockets (--ro), leave the way out, or take another backend")
		}
	}
	if err := in.bundle(filepath.Join(dir, "bundle"), layout, binds); err != nil {
		return err
	}
	in.mu.Lock()
	in.state = d.stateOf(s.Token)
	in.mu.Unlock()
	in.made = made{Backend: d.name, Program: in.program.path, Args: in.global(), State: in.state, ID: idOf(s.Token), Hide: d.name == Crun && hybrid()}
	if err := in.made.write(dir); err != nil {
		return err
	}
	if err := os.Mkdir(in.state, 0o700); err != nil {
		return err
	}
	if err := sys.Fault("oci.bundle"); err != nil {
		return err
	}
	far, said, err := in.connect()
	if err != nil {
		return err
	}
	pidFile := filepath.Join(dir, "pid")
	args := append(in.made.Args[:len(in.made.Args):len(in.made.Args)], "run", "--bundle", filepath.Join(dir, "bundle"), "--detach", "--pid-file", pidFile, in.made.ID)
	_, err = in.program.run(ctx, call{args: args, stdin: far, stdout: far, stderr: said, hide: in.made.Hide, timeout: setupTime})
	_, _ = far.Close(), said.Close()
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return task.Errorf(task.CodeUnavailable, "oci.start", "the runtime could not start the boundary: %v; %s", err, in.complaint(100*time.Millisecond)).
			WithHint("nothing ran; `caisson doctor` shows what this runtime can do here")
	}
	if err := in.identify(pidFile); err != nil {
		return err
	}
	if err := sys.Fault("oci.started"); err != nil {
		return err
	}
	if err := in.greet(ctx); err != nil {
		return err
	}
	return sys.Fault("oci.answered")
}

// withoutSockets leaves sockets and pipes uncovered: gVisor cannot mount over one, and
// without a way out lets nothing inside open one of this machine's (--host-uds=none).
func withoutSockets(binds []backend.Mount, s backend.Spec) []backend.Mount {
	bare := map[string]bool{}
	for _, m := range rootdir.Mounts(s) {
		for _, rel := range append(m.Hide[:len(m.Hide):len(m.Hide)], m.Cover...) {
			if st, err := os.Lstat(filepath.Join(m.Source, rel)); err == nil && st.Mode()&(os.ModeSocket|os.ModeNamedPipe) != 0 {
				bare[filepath.Join(m.Target, rel)] = true
			}
		}
	}
	return slices.DeleteFunc(binds, func(b backend.Mount) bool { return bare[b.Target] })
}

// readable is the worker's program where everybody may read it.
func (d *Driver) readable(path string) (string, error) {
	if d.cfg.Readable == nil {
		return path, nil
	}
	return d.cfg.Readable()
}

// connect makes the channel and the way for what the inside says on standard error.
// The ends that are returned are the boundary's; they are to be closed once it has
// them.
func (in *instance) connect() (far, said *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	far = os.NewFile(uintptr(pair[1]), "channel")
	near := os.NewFile(uintptr(pair[0]), "channel")
	conn, err := net.FileConn(near)
	_ = near.Close()
	if err != nil {
		_ = far.Close()
		return nil, nil, err
	}
	r, said, err := os.Pipe()
	if err != nil {
		_, _ = far.Close(), conn.Close()
		return nil, nil, err
	}
	c := &channel{Conn: conn, ended: make(chan struct{})}
	go c.listen(r)
	in.mu.Lock()
	in.conn = c
	in.mu.Unlock()
	return far, said, nil
}

// channel is the host's end of the worker's standard streams.
type channel struct {
	net.Conn
	ended chan struct{} // closed when standard error has ended

	mu   sync.Mutex
	said []byte // the last of standard error
}

// maxSaid is how much of standard error is kept.
const maxSaid = 8 << 10

// listen keeps the last of what comes on standard error, until all have closed it.
func (c *channel) listen(r *os.File) {
	defer close(c.ended)
	defer r.Close()
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		c.mu.Lock()
		c.said = append(c.said, buf[:n]...)
		if over := len(c.said) - maxSaid; over > 0 {
			c.said = append([]byte(nil), c.said[over:]...)
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Multiplexed says that no descriptor goes over, and what keeps the worker apart
// from the tools: its user id, which was checked.
func (c *channel) Multiplexed() task.Assurance { return task.UIDSplit }

// complaint is the last of standard error; it waits a moment for its end.
func (in *instance) complaint(wait time.Duration) string {
	in.mu.Lock()
	c := in.conn
	in.mu.Unlock()
	if c == nil {
		return ""
	}
	select {
	case <-c.ended:
	case <-time.After(wait):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return foreign.Printable(string(c.said), 600)
}

// identify takes hold of the process that the runtime says is the boundary's.
func (in *instance) identify(pidFile string) error {
	b, err := os.ReadFile(pidFile)
	if err != nil {
		return fmt.Errorf("the runtime does not say which process is the boundary's: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 1 {
		return fmt.Errorf("the runtime names %q as the boundary's process", foreign.Printable(string(b), 40))
	}
	id, err := sys.Identify(pid)
	if err != nil {
		return fmt.Errorf("the boundary's process ended at once: %v; %s", err, in.complaint(100*time.Millisecond))
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ident = &id
	return nil
}

// greet sends the plan and takes the answer.
func (in *instance) greet(ctx context.Context) error {
	const op = "oci.start"
	conn := in.conn
	if err := conn.SetDeadline(time.Now().Add(setupTime)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	p := foreign.Plan(in.spec, in.shape.ids, in.limits)
	p.Own = in.driver.name != GVisor
	in.crossings.Plan(&p)
	err := guest.Send(conn, p)
	var r guest.Report
	if err == nil {
		err = guest.Receive(conn, &r)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return task.Errorf(task.CodeUnavailable, op, "the worker did not answer from inside: %v; %s", err, in.complaint(200*time.Millisecond)).
			WithHint("run `caisson doctor` to see what this runtime can do here")
	case r.Why == guest.WhyOwner:
		return task.Errorf(task.CodeUnavailable, op, "inside, the task's files belong to user %d, not to %d as whom its commands would run: %s", r.Owner, in.shape.ids.UID, foreign.Printable(r.Error, 200)).
			WithHint("no file's owner is changed; --backend linux maps them")
	case !r.OK:
		return task.Errorf(task.CodeUnavailable, op, "the worker could not set itself apart inside: %s", foreign.Printable(r.Error, 400)).
			WithHint("the runtime must give it the capabilities %s and more than one user id", strings.Join(guest.Needed, ", "))
	}
	if why := in.differs(&r); why != "" {
		return task.Errorf(task.CodeUnavailable, op, "the runtime did not make what was asked for: %s", why).WithHint("nothing was executed; `caisson doctor` shows what this runtime can do here")
	}
	in.mu.Lock()
	in.workerUID = r.UID
	in.mu.Unlock()
	if err := in.crossings.Take(in.spec, in.ident.PID, r.Door); err != nil && !in.trial {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// differs holds what the worker says of itself to what the host sees of the process;
// empty: they agree.
func (in *instance) differs(r *guest.Report) string {
	boot, err := sys.BootID()
	if err != nil {
		return err.Error()
	}
	if in.driver.name == GVisor {
		if r.Boot == boot {
			return "the worker runs on this machine's kernel, not on gVisor's"
		}
		if why := in.sentry(); why != "" {
			return why
		}
		return ""
	}
	switch {
	case r.Boot != boot || r.Start != in.ident.Start:
		return "the process that the runtime names is not the worker"
	case r.Seccomp != 2:
		return "the worker has no system call filter"
	}
	return ""
}
