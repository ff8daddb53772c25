package linux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/callfilter"
	"github.com/caisson-dev/caisson/internal/backend/internal/rootdir"
	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
	"github.com/caisson-dev/caisson/internal/task"
)

// planner computes a stage plan and collects the descriptors that go with it.
type planner struct {
	spec   backend.Spec
	limits task.Limits
	// perProcess: no cgroup limits memory here, so each process is limited by itself.
	perProcess bool
	viaFD      bool // we are root: every source goes by descriptor, W could not reach it
	mapNS      func() (*os.File, error)
	ns         *os.File // id map for the task's folders, once it was needed
	steps      []stage.Step
	fds        []int
	findings   []task.Finding
}

func newPlanner(s backend.Spec, l task.Limits, id identity) *planner {
	return &planner{spec: s, limits: l, viaFD: id.viaFD, mapNS: id.mapNS, findings: id.findings}
}

// idmap returns the namespace whose map shows the inside id as the owner of the
// task's folders, nil when they are shown as they are.
func (pl *planner) idmap() (*os.File, error) {
	if pl.ns != nil || pl.mapNS == nil {
		return pl.ns, nil
	}
	var err error
	pl.ns, err = pl.mapNS()
	return pl.ns, err
}

func (pl *planner) close() {
	if pl.ns != nil {
		pl.ns.Close()
		pl.ns = nil
	}
	for _, f := range pl.fds {
		unix.Close(f)
	}
	pl.fds = nil
}

func (pl *planner) add(s stage.Step) { pl.steps = append(pl.steps, s) }

// bind adds one mount of a host path. mapped: it belongs to the user and is
// id-mapped when we are root.
func (pl *planner) bind(src, target string, mapped bool, flags ...string) error {
	seen, err := look(src)
	if err != nil {
		return &os.PathError{Op: "open", Path: src, Err: err}
	}
	defer unix.Close(seen.fd)
	s := stage.Step{Op: "bind", Source: src, Target: target, Flags: flags, Dev: seen.dev, Ino: seen.ino}
	if pl.viaFD {
		var ns *os.File
		if mapped {
			if ns, err = pl.idmap(); err != nil {
				return &idmapError{path: src, mapped: true, err: err}
			}
		}
		if len(pl.fds) >= stage.MaxFDs {
			return fmt.Errorf("more than %d mounts", stage.MaxFDs)
		}
		fd, err := seen.detach(ns)
		if err != nil {
			return &idmapError{path: src, mapped: ns != nil, err: err}
		}
		pl.fds = append(pl.fds, fd)
		s.FD = len(pl.fds)
	}
	pl.add(s)
	return nil
}

// idmapError says that a source could not be made a detached (id-mapped) mount.
type idmapError struct {
	path   string
	mapped bool
	err    error
}

func (e *idmapError) Error() string { return e.path + ": " + e.err.Error() }
func (e *idmapError) Unwrap() error { return e.err }

// planned returns the plan and the descriptors that go with it, which stay the
// planner's.
func (pl *planner) planned() (*stage.Plan, []int, error) {
	p, err := pl.plan()
	return p, pl.fds, err
}

// plan builds the whole stage plan.
func (pl *planner) plan() (*stage.Plan, error) {
	sp := pl.spec
	p := &stage.Plan{
		UID: insideID, GID: insideID, Hostname: rootdir.Hostname(sp), Workdir: sp.Source.Target,
		ToolFilter: callfilter.Tool(sp.Ptrace, sp.Userns), WorkerFilter: callfilter.Worker(), Rlimits: rlimits(pl.limits, pl.perProcess), Userns: sp.Userns, Ptrace: sp.Ptrace, Env: sp.Env,
		Way: wayOf(sp.Way), Local: sp.Local, Inward: sp.Inward, NoLandlock: stage.LandlockABI() < 1, UserLimits: userLimits(sp.Userns),
	}
	var err error
	if sp.Rootfs != "" {
		err = pl.rootfs()
	} else {
		err = pl.hostSystem()
	}
	if err != nil {
		return nil, err
	}
	pl.trust()
	pl.add(stage.Step{Op: "tmpfs", Target: memory, Flags: []string{"nodev"}, Data: fmt.Sprintf("size=%d,nr_inodes=%d,mode=0700", tmpfsSize(pl.limits), 1<<20)})
	pl.inMemory("/tmp", 0o1777)
	pl.inMemory("/var/tmp", 0o1777)
	for _, d := range []string{"/var/lib", "/var/cache", "/var/log", "/run/lock"} {
		pl.add(stage.Step{Op: "dir", Target: d, Mode: 0o755})
	}
	pl.inMemory(sp.Home, 0o700)
	pl.devices()
	pl.add(stage.Step{Op: "drop", Target: memory})
	pl.add(stage.Step{Op: "proc", Target: "/proc", Flags: []string{"nodev", "noexec"}})
	if err := pl.userMounts(); err != nil {
		return nil, err
	}
	if len(sp.Local) > 0 {
		pl.add(stage.Step{Op: "tmpfs", Target: stage.LocalDir, Flags: []string{"nodev", "noexec"}, Data: "size=16k,nr_inodes=16,mode=0755"})
	}
	if sp.Userns {
		pl.add(stage.Step{Op: "dir", Target: wholeProc, Mode: 0o555})
	}
	p.Steps, p.Space = pl.steps, spaceSteps(sp.Userns)
	p.Landlock = []string{sp.Home, "/tmp", "/var/tmp", "/dev/shm"}
	for _, m := range append([]backend.Mount{sp.Source, sp.Out}, sp.Write...) {
		if m.Writable && m.Source != "" {
			p.Landlock = append(p.Landlock, m.Target)
		}
	}
	return p, nil
}

// memory is where the one tmpfs lies, until its parts are mounted, that holds
// every folder in memory. One, because files in it belong to no process: were
// there several, each with its own size, a tool could fill the memory of the
// task with them, and the kernel would find nobody to end who gives it back.
const memory = "/run/boundary/memory"

func (pl *planner) inMemory(target string, mode uint32) {
	part := filepath.Join(memory, strings.ReplaceAll(target[1:], "/", "-"))
	pl.add(stage.Step{Op: "dir", Target: part, Mode: mode})
	pl.add(stage.Step{Op: "part", Source: part, Target: target})
}

// hostSystem shows the host's system folders and a generated /etc.
func (pl *planner) hostSystem() error {
	if err := pl.bind("/usr", "/usr", false, "ro"); err != nil {
		return err
	}
	for _, name := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		st, err := os.Lstat(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if st.Mode()&os.ModeSymlink == 0 {
			if err := pl.bind(name, name, false, "ro"); err != nil {
				return err
			}
			continue
		}
		dest, err := filepath.EvalSymlinks(name)
		if err == nil && strings.HasPrefix(dest, "/usr/") {
			pl.add(stage.Step{Op: "link", Target: name, Data: strings.TrimPrefix(dest, "/")})
		}
	}
	return pl.etc()
}

// rootfs shows the top of a root file system that a person chose instead.
func (pl *planner) rootfs() error {
	entries, err := os.ReadDir(pl.spec.Rootfs)
	if err != nil {
		return err
	}
	own := map[string]bool{"dev": true, "proc": true, "sys": true, "run": true, "tmp": true, "home": true, "root": true, "mnt": true, "media": true, "boot": true, "lost+found": true}
	needed := []string{"/var/tmp", "/var/lib", "/var/cache", "/var/log", pl.spec.Home}
	for _, m := range pl.userList() {
		needed = append(needed, m.Target)
	}
	for _, e := range entries {
		if own[e.Name()] {
			continue
		}
		if err := pl.bindTree(filepath.Join(pl.spec.Rootfs, e.Name()), "/"+e.Name(), needed, 0); err != nil {
			return err
		}
	}
	for name, text := range rootdir.Identity(pl.spec, pl.spec.Rootfs, insideID, insideID) {
		// A file that the root file system has is covered by ours; in a
		// read-only folder none can be added.
		st, err := os.Lstat(filepath.Join(pl.spec.Rootfs, "etc", name))
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		gen := "/run/boundary/etc/" + name
		pl.add(stage.Step{Op: "file", Target: gen, Mode: 0o444, Data: text})
		pl.add(stage.Step{Op: "over", Source: gen, Target: "/etc/" + name})
	}
	return nil
}

// bindTree binds src, or its children one by one where a mount point that is
// needed below it does not exist in it.
func (pl *planner) bindTree(src, target string, needed []string, depth int) error {
	st, err := os.Lstat(src)
	if err != nil {
		return err
	}
	if st.Mode()&os.ModeSymlink != 0 {
		dest, err := os.Readlink(src)
		if err == nil {
			pl.add(stage.Step{Op: "link", Target: target, Data: dest})
		}
		return err
	}
	if !st.IsDir() && !st.Mode().IsRegular() {
		return nil
	}
	split := false
	for _, n := range needed {
		if rel, ok := below(n, target); ok && st.IsDir() {
			if _, err := os.Lstat(filepath.Join(src, rel)); err != nil {
				split = true
			}
		}
	}
	if !split {
		return pl.bind(src, target, false, "ro")
	}
	entries, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	if depth > 3 || len(entries) > 200 {
		return fmt.Errorf("a mount point below %s is missing in the root file system and cannot be added", target)
	}
	pl.add(stage.Step{Op: "dir", Target: target, Mode: 0o755})
	for _, e := range entries {
		if err := pl.bindTree(filepath.Join(src, e.Name()), filepath.Join(target, e.Name()), needed, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// below reports whether path lies strictly below dir, and how.
func below(path, dir string) (rel string, ok bool) {
	if dir == "/" {
		return strings.TrimPrefix(path, "/"), path != "/"
	}
	if rel, ok = strings.CutPrefix(path, dir); !ok || rel == "" || rel[0] != '/' {
		return "", false
	}
	return rel[1:], rel != "/"
}

// devices makes the minimal /dev.
func (pl *planner) devices() {
	pl.add(stage.Step{Op: "tmpfs", Target: "/dev", Flags: []string{"noexec"}, Data: "size=64k,nr_inodes=64,mode=0755"})
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}} {
		pl.add(stage.Step{Op: "dev", Source: "/dev/" + d.name, Target: "/dev/" + d.name, Flags: []string{"noexec"}, Dev: unix.Mkdev(d.major, d.minor)})
	}
	pl.add(stage.Step{Op: "devpts", Target: "/dev/pts", Flags: []string{"noexec"}, Data: fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,uid=%d,gid=%d", insideID, insideID)})
	pl.inMemory("/dev/shm", 0o1777)
	pl.add(stage.Step{Op: "dir", Target: "/dev/mqueue", Mode: 0o755})
	for name, dest := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		pl.add(stage.Step{Op: "link", Target: "/dev/" + name, Data: dest})
	}
	pl.add(stage.Step{Op: "readonly", Target: "/dev"})
}

// userList returns every mount that the spec names.
func (pl *planner) userList() []backend.Mount {
	sp := pl.spec
	var ms []backend.Mount
	ms = append(ms, sp.Tools...)
	ms = append(ms, sp.RO...)
	ms = append(ms, sp.Source, sp.Out)
	ms = append(ms, sp.Write...)
	ms = append(ms, sp.Objects...)
	var out []backend.Mount
	for _, m := range ms {
		if m.Source != "" {
			out = append(out, m)
		}
	}
	return out
}

// userMounts adds toolchains, granted folders, the source, the output store and
// the object stores, outer mount points before inner ones.
func (pl *planner) userMounts() error {
	ms := pl.userList()
	sort.SliceStable(ms, func(i, j int) bool { return strings.Count(ms[i].Target, "/") < strings.Count(ms[j].Target, "/") })
	for _, m := range ms {
		flags := []string{"ro"}
		if m.Writable {
			flags = nil
		}
		if err := pl.bind(m.Source, m.Target, true, flags...); err != nil {
			var ie *idmapError
			if m.Writable || m.Source == pl.spec.Source.Source || !errors.As(err, &ie) || !ie.mapped {
				return err
			}
			// Read-only and not id-mappable: what others may read stays readable.
			if err := pl.bind(m.Source, m.Target, false, flags...); err != nil {
				return err
			}
			pl.findings = append(pl.findings, task.Finding{ID: "not-idmapped", Axis: task.FS, Cap: task.MaxLevel(task.FS), Location: m.Source,
				Text: "its file system cannot be id-mapped; files that only root may read are not readable inside"})
		}
		for _, h := range m.Hide {
			pl.add(stage.Step{Op: "mask", Target: filepath.Join(m.Target, h), Flags: []string{"optional"}})
		}
		for _, c := range m.Cover {
			pl.add(stage.Step{Op: "mask", Target: filepath.Join(m.Target, c)})
		}
	}
	for _, f := range pl.spec.Files {
		pl.add(stage.Step{Op: "file", Target: f.Target, Mode: f.Mode, Data: f.Text})
	}
	return nil
}

// wholeProc is where a second /proc lies that nothing covers. The kernel lets a
// nested namespace mount a /proc of its own only where it sees a whole one. It
// shows nothing that such a mount would not; no control file in it can be
// written, because no process inside is the kernel's user 0 (see grantable).
const wholeProc = "/run/boundary/proc"

// spaceSteps are I's own mounts: a fresh /proc of its pid namespace with what
// reaches the kernel or the machine read-only or covered.
func spaceSteps(userns bool) []stage.Step {
	steps := []stage.Step{{Op: "proc", Target: "/proc", Flags: []string{"nodev", "noexec"}}, {Op: "mqueue", Target: "/dev/mqueue", Flags: []string{"nodev", "noexec", "optional"}}}
	for _, d := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "driver"} {
		steps = append(steps, stage.Step{Op: "rotree", Target: "/proc/" + d, Flags: []string{"optional"}})
	}
	for _, d := range []string{"kcore", "kmsg", "keys", "key-users", "timer_list", "timer_stats", "latency_stats", "sched_debug", "kallsyms", "kpagecount",
		"kpageflags", "kpagecgroup", "vmallocinfo", "slabinfo", "acpi", "scsi", "asound", "tty", "iomem", "ioports", "interrupts"} {
		steps = append(steps, stage.Step{Op: "mask", Target: "/proc/" + d, Flags: []string{"optional"}})
	}
	if userns {
		steps = append(steps, stage.Step{Op: "proc", Target: wholeProc, Flags: []string{"nodev", "noexec"}})
	}
	return steps
}

// userLimits leave half of what the kernel counts per user, whatever the
// namespace, to everything else of that user: a task that took every inotify
// instance would break the editors and watchers outside. Where tools may make
// namespaces, half of those too.
func userLimits(userns bool) map[string]int {
	out := map[string]int{}
	names := []string{"max_inotify_instances", "max_inotify_watches", "max_fanotify_groups", "max_fanotify_marks"}
	if userns {
		for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"} {
			names = append(names, "max_"+kind+"_namespaces")
		}
	}
	for _, name := range names {
		b, err := readFile("/proc/sys/user/" + name)
		n, aerr := strconv.Atoi(strings.TrimSpace(string(b)))
		if err == nil && aerr == nil && n > 1 {
			out[name] = n / 2
		}
	}
	return out
}

// rlimits are what each call gets besides the cgroup's limits.
func rlimits(l task.Limits, perProcess bool) []stage.Rlimit {
	nofile := uint64(1 << 16)
	var cur unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &cur) == nil {
		nofile = min(nofile, cur.Max)
	}
	rs := []stage.Rlimit{
		{Resource: unix.RLIMIT_CORE, Soft: 0, Hard: 0},
		{Resource: unix.RLIMIT_NOFILE, Soft: nofile, Hard: nofile},
		{Resource: unix.RLIMIT_NPROC, Soft: uint64(l.Pids), Hard: uint64(l.Pids)},
	}
	if l.DiskBytes > 0 {
		// The sum of all files is watched from outside; one alone is stopped at once.
		// A page more, so that a full tmpfs of the same size says that it is full.
		most := uint64(l.DiskBytes) + uint64(os.Getpagesize())
		rs = append(rs, stage.Rlimit{Resource: unix.RLIMIT_FSIZE, Soft: most, Hard: most})
	}
	if perProcess {
		// Private writable memory: what a runtime merely reserves does not count,
		// as it does against the address space.
		rs = append(rs, stage.Rlimit{Resource: unix.RLIMIT_DATA, Soft: uint64(l.MemoryBytes), Hard: uint64(l.MemoryBytes)})
	}
	return rs
}
