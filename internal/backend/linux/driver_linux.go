package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// setupTimeout bounds each message of the set-up dialogue.
const setupTimeout = 20 * time.Second

// destroyTimeout bounds a removal whose caller set no deadline.
const destroyTimeout = 10 * time.Second

// minPerProcess is what one of our own processes may need when no control group
// limits the task as a whole (measured: a Go program ends below about 90 MiB).
const minPerProcess = 128 << 20

// Driver makes boundaries on this kernel. Its methods may be called at once.
type Driver struct {
	cfg    Config
	launch launcher
	roots  cgroupRoots
	run    string // where systemd keeps the users' sockets
	system string // its own
}

// New returns the driver. It looks at nothing yet.
func New(cfg Config) backend.Driver {
	return &Driver{cfg: cfg, launch: reexec{flags: allNamespaces}, run: "/run/user", system: "/run/systemd/private",
		roots: cgroupRoots{mountinfo: "/proc/self/mountinfo", self: "/proc/self/cgroup", root: os.Geteuid() == 0}}
}

// Name implements backend.Driver.
func (d *Driver) Name() string { return Name }

// Resource kinds.
const (
	kindProcess = "process"
	kindCgroup  = "cgroup"
)

// Resources implements backend.Driver.
func (d *Driver) Resources(s backend.Spec) []backend.Resource {
	name := nameOf(s)
	rs := []backend.Resource{{Kind: kindProcess, Name: "worker-" + name, Token: s.Token}}
	gs := groups(hierarchies(d.roots), name)
	for _, g := range gs {
		rs = append(rs, backend.Resource{Kind: kindCgroup, Name: g.dir, Token: s.Token})
	}
	if _, ok := d.manager(gs, s.Limits); ok {
		rs = append(rs, scopeResource(name, s.Token))
	}
	return rs
}

// manager returns the systemd manager to ask for a scope, when our own groups
// would not bound memory and processes, or not the processors where somebody
// asked for fewer than there are: systemd turns that controller on only above
// units that want it, and off again under groups that are not its own.
func (d *Driver) manager(gs []*group, l task.Limits) (userManager, bool) {
	have := limited(gs)
	if enough := have["memory"] && have["pids"]; enough && (have["cpu"] || !fewerCPUs(l)) || d.roots.root && !enough {
		return userManager{}, false
	}
	if d.roots.root {
		return findSystemManager(d.system)
	}
	return findUserManager(d.run, os.Getuid())
}

// fewerCPUs reports whether the limit on processors is one.
func fewerCPUs(l task.Limits) bool { return l.CPUs > 0 && l.CPUs < float64(runtime.NumCPU()) }

// Create implements backend.Driver.
func (d *Driver) Create(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	const op = "linux.create"
	if err := checkSpec(s); err != nil {
		return nil, err
	}
	var dropped []task.Finding
	s.Tools, dropped = reconciled(s)
	if err := CheckPaths(s); err != nil {
		return nil, err
	}
	worker, err := openWorker(s.WorkerPath)
	if err != nil {
		return nil, err
	}
	defer worker.Close()

	id := d.identity(s, worker)
	in, err := d.make(ctx, s, worker, id, dropped)
	for range replacedTries {
		if err == nil || !replacedEtc(err) {
			break
		}
		in, err = d.make(ctx, s, worker, id, dropped)
	}
	if err != nil && id.mapNS != nil && (isDetachError(err) || isStartError(err)) {
		// Another id than root's cannot be had here, this root may not detach
		// mounts, or the file system of the task's own folders cannot show another
		// id: be root's, and say so.
		in, err = d.make(ctx, s, worker, rootIdentityOf(err), dropped)
	}
	if err != nil {
		return nil, asError(op, err)
	}
	return in, nil
}

// make starts one boundary with one identity. On error nothing of it is left,
// or the error says so.
func (d *Driver) make(ctx context.Context, s backend.Spec, worker *os.File, id identity, dropped []task.Finding) (*instance, error) {
	const op = "linux.create"
	in := &instance{spec: s, limits: Defaults(s.Limits), groups: groups(hierarchies(d.roots), nameOf(s))}
	for _, g := range in.groups {
		g.nested = s.Userns && os.Geteuid() != 0
	}
	pl := newPlanner(s, in.limits, id)
	defer pl.close()
	pl.perProcess = !limited(in.groups)["memory"]
	if os.Geteuid() == 0 && s.Instance == trialInstance {
		in.idmapErr = pl.tryIDMap()
	}
	if pl.perProcess && in.limits.MemoryBytes < minPerProcess {
		return nil, task.Errorf(task.CodeUsage, op, "%d MiB of memory is too small where each process is limited by itself", in.limits.MemoryBytes>>20).
			WithHint("at least %d MiB, or run caisson in a delegated control group", minPerProcess>>20)
	}
	if um, ok := d.manager(in.groups, in.limits); ok {
		in.scope = &um
	}
	if err := grantable(s, id.mapping); err != nil {
		return nil, err
	}
	if err := in.start(ctx, d.launch, worker, id.mapping, pl.planned); err != nil {
		cctx, cancel := sys.Detach(ctx, destroyTimeout)
		defer cancel()
		if derr := in.Destroy(cctx); derr != nil {
			return nil, task.Errorf(task.CodeStuck, op, "%v; and what was made is not gone: %w", err, derr)
		}
		return nil, err
	}
	in.findings = append(append(append([]task.Finding{}, dropped...), pl.findings...), in.findings...)
	in.findings = append(in.findings, d.groupFindings(in.groups)...)
	if !limited(in.groups)["cpu"] && fewerCPUs(in.limits) {
		in.findings = append(in.findings, task.Finding{ID: "no-cpu-limit", Axis: task.RES, Cap: 2, Text: fmt.Sprintf("%g processors were asked for, and nothing bounds them: no cgroup with the cpu controller can be made here", in.limits.CPUs),
			Fix: "log in through a session of systemd, or delegate the cpu controller: Delegate=cpu memory pids"})
	}
	return in, nil
}

// grantable refuses namespaces of their own to processes that are the kernel's
// user 0: a /proc that they mount has files of the whole machine, which that
// user may write without any capability.
func grantable(s backend.Spec, m mapping) error {
	if !s.Userns || m.uid != 0 {
		return nil
	}
	return task.Errorf(task.CodeUnsupported, "linux.create", notGrantable).WithHint(otherIdentityFix)
}

const (
	rootIdentityID   = "root-identity"
	notGrantable     = "--grant userns needs processes inside that are not the kernel's user 0"
	otherIdentityFix = "run caisson as an ordinary user, or keep its state on a file system that supports id-mapped mounts (ext4, xfs, btrfs, tmpfs)"
)

// identity is who the inside is outside, and how the task's folders show it.
type identity struct {
	mapping
	mapNS    func() (*os.File, error) // makes the namespace whose map shows it; nil: not needed or not to be had
	viaFD    bool                     // sources go by descriptor
	findings []task.Finding
}

// identity decides it; whether that can be had is seen when it is tried.
func (d *Driver) identity(s backend.Spec, worker *os.File) identity {
	if os.Geteuid() != 0 {
		return identity{mapping: mapping{uid: os.Getuid(), gid: os.Getgid()}}
	}
	seen := hostID(s.Token)
	return identity{mapping: mapping{uid: seen, gid: seen, drop: true}, viaFD: true,
		mapNS: func() (*os.File, error) { return idmapNS(worker, s.Identity.UID, s.Identity.GID, seen) }}
}

// rootIdentityOf is the fallback when another failed with err.
func rootIdentityOf(err error) identity {
	return identity{mapping: rootMapping(), viaFD: canDetach(), findings: []task.Finding{rootIdentity(err.Error())}}
}

// rootMapping is the fallback: the inside id is root's. In a user namespace
// that denies setgroups, as that of a rootless container, groups stay.
func rootMapping() mapping {
	data, err := readFile("/proc/self/setgroups")
	return mapping{uid: 0, gid: 0, drop: err == nil && strings.TrimSpace(string(data)) == "allow"}
}

// canDetach reports whether this process may make detached mounts: root inside
// a container often may not.
func canDetach() bool {
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

func rootIdentity(why string) task.Finding {
	return task.Finding{ID: rootIdentityID, Axis: task.PRC, Cap: 2, Text: "processes inside run as the kernel's uid 0, without capabilities: " + why,
		Fix: "run caisson as an ordinary user, or keep its state on a file system that supports id-mapped mounts (ext4, xfs, btrfs, tmpfs)"}
}

func (d *Driver) groupFindings(gs []*group) []task.Finding {
	have := limited(gs)
	if have["memory"] && have["pids"] {
		return nil
	}
	return []task.Finding{{ID: "no-cgroup", Axis: task.RES, Cap: 1, Text: "no cgroup with memory and pids limits can be made here: each process is limited by itself (memory), and by tmpfs sizes, not all of them together",
		Fix: "run caisson inside a delegated cgroup, for example with: systemd-run --user --scope -p Delegate=yes -- caisson …"}}
}

func isDetachError(err error) bool {
	var ie *idmapError
	return errors.As(err, &ie)
}

func isStartError(err error) bool {
	var se *startError
	return errors.As(err, &se)
}

// openWorker takes hold of the program that W is. Reading it is not needed: a
// file that its user may run but not read starts non-dumpable.
func openWorker(path string) (*os.File, error) {
	const op = "linux.worker"
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, task.Errorf(task.CodeUnavailable, op, "open the worker program: %v", &os.PathError{Op: "open", Path: path, Err: err})
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o001 == 0 {
		unix.Close(fd)
		return nil, task.Errorf(task.CodeUnavailable, op, "the worker program %s is not a file that everybody may execute", path).WithHint("its mode must be 0111")
	}
	if fd < 5 { // low numbers are moved about while W is started
		high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 5)
		unix.Close(fd)
		if err != nil {
			return nil, err
		}
		fd = high
	}
	return os.NewFile(uintptr(fd), path), nil
}

func checkSpec(s backend.Spec) error {
	const op = "linux.create"
	bad := func(format string, args ...any) error { return task.Errorf(task.CodeInternal, op, format, args...) }
	if _, ok := task.ParseID(string(s.Task)); !ok {
		return bad("%q is not a task id", s.Task)
	}
	if len(s.Token) < 16 || strings.ContainsAny(s.Token, "/.") {
		return bad("the token is too short to prove anything")
	}
	if len(s.Instance) == 0 || strings.ContainsAny(s.Instance, "/.-") {
		return bad("%q does not name an installation", s.Instance)
	}
	if os.Geteuid() != 0 && s.Identity.UID != os.Getuid() {
		return bad("files cannot belong to uid %d: caisson runs as %d", s.Identity.UID, os.Getuid())
	}
	for _, f := range s.Files {
		if _, in := below(f.Target, backend.BinDir); !in || filepath.Clean(f.Target) != f.Target {
			return bad("the generated file %q does not lie below %s", f.Target, backend.BinDir)
		}
	}
	for _, p := range []string{s.Home, s.Source.Target} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return bad("%q is not a clean absolute path", p)
		}
	}
	return nil
}

// asError makes sure that an error carries a code.
func asError(op string, err error) error {
	if err == nil {
		return nil
	}
	var te *task.Error
	if errors.As(err, &te) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return task.Errorf(task.CodeCanceled, op, "%w", err)
	}
	var se *stage.Error
	var st *startError
	if errors.As(err, &se) || errors.As(err, &st) {
		why, fix := explain(err)
		return task.Errorf(task.CodeUnavailable, op, "%s", why).WithHint("%s", fix)
	}
	return task.Errorf(task.CodeUnavailable, op, "%v", err).WithHint("run `caisson doctor` to see what this machine can do")
}

// Attach implements backend.Driver.
func (d *Driver) Attach(ctx context.Context, rs []backend.Resource) (backend.Instance, error) {
	in := &instance{attached: true, resources: rs}
	any := false
	for _, r := range rs {
		switch r.Kind {
		case kindProcess:
			id, ok := parseIdent(r.External)
			if !ok {
				continue // it was never started, or died with the process that started it
			}
			switch sys.Look(id) {
			case sys.Living:
				in.ident, any = &id, true
			case sys.Unknown:
				return nil, task.Errorf(task.CodeStuck, "linux.attach", "process %d cannot be told from here: it counts in another pid namespace", id.PID)
			}
		case kindCgroup, kindScope:
			g, err := recordedGroup(r)
			if err != nil {
				return nil, err
			}
			if g == nil {
				continue // a scope that never was: systemd had not answered yet
			}
			there, err := g.exists()
			if err != nil {
				return nil, task.Errorf(task.CodeStuck, "linux.attach", "%w", err)
			}
			if there {
				any = true
			}
			in.groups = append(in.groups, g)
		}
	}
	if !any {
		return nil, backend.ErrNotFound
	}
	return in, nil
}

// recordedGroup turns a recorded cgroup back into one. Its name must carry the
// recorded token: a path that does not is nobody's proof.
func recordedGroup(r backend.Resource) (*group, error) {
	dir, ino := r.Name, parseInode(r.External)
	if r.Kind == kindScope {
		var ok bool
		if dir, ino, ok = parseScope(r.External); !ok {
			return nil, nil
		}
		if filepath.Base(dir) != r.Name {
			return nil, task.Errorf(task.CodeStuck, "linux.attach", "the scope %s is recorded with the cgroup of another", r.Name)
		}
	}
	base := strings.TrimSuffix(filepath.Base(dir), ".scope")
	if len(r.Token) < 8 || !strings.HasPrefix(base, cgroupPrefix) || !strings.HasSuffix(base, "-"+r.Token[:8]) || filepath.Clean(dir) != dir {
		return nil, task.Errorf(task.CodeStuck, "linux.attach", "cgroup %s is recorded without the token that proves it is ours", r.Name)
	}
	g := &group{dir: dir, hierarchy: hierarchy{parent: filepath.Dir(dir), ctl: map[string]bool{}}, ino: ino}
	var fs unix.Statfs_t
	g.v2 = unix.Statfs(g.parent, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
	return g, nil
}

// List implements backend.Driver: cgroups by name. Scopes are systemd's and go
// when their last process does. Processes are not listed,
// they die with the process that started them.
func (d *Driver) List(ctx context.Context, inst string) ([]backend.Resource, error) {
	var out []backend.Resource
	for _, h := range hierarchies(d.roots) {
		names, err := filepath.Glob(filepath.Join(escapeGlob(h.parent), cgroupPrefix+inst+"-*"))
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			var st unix.Stat_t
			if unix.Lstat(n, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
				out = append(out, backend.Resource{Kind: kindCgroup, Name: n, External: inode(st.Ino)})
			}
		}
	}
	return out, nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}
