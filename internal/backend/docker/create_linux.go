package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/internal/callfilter"
	"github.com/caisson-dev/caisson/internal/backend/internal/rootdir"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/guest"
)

// Places inside.
const (
	workerAt = "/run/boundary/worker"
	markAt   = "/run/boundary/mark"
)

// Names in a generated folder.
const (
	tokenFile = "token"
	markFile  = "mark"
)

// setupTime bounds the worker's answer to its plan.
const setupTime = 30 * time.Second

// insiders are the tools' ids inside, and the worker's where the tools' is 0.
type insiders struct{ uid, gid, worker int }

// insidersOf says as whom tools must run inside so that the task's files are
// theirs, without changing a file's owner: with root's engine, as the user
// outside; with a user's, as 0, which that user is inside.
func insidersOf(k *known, s backend.Spec) insiders {
	if k.rootless() {
		return insiders{uid: 0, gid: 0, worker: 1}
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.Token))
	return insiders{uid: s.Identity.UID, gid: s.Identity.GID, worker: 1<<30 + int(h.Sum32()>>3)}
}

func (k *known) option(name string) bool {
	return slices.ContainsFunc(k.system.SecurityOptions, func(o string) bool {
		first, _, _ := strings.Cut(o, ",")
		return first == "name="+name || first == name
	})
}

func (k *known) rootless() bool { return k.system.Rootless || k.option("rootless") }

// Create implements backend.Driver.
func (d *Driver) Create(ctx context.Context, s backend.Spec) (backend.Instance, error) {
	const op = "docker.create"
	if err := ctx.Err(); err != nil {
		return nil, task.Errorf(task.CodeCanceled, op, "%w", context.Cause(ctx))
	}
	if err := d.check(s); err != nil {
		return nil, err
	}
	e, k, err := d.engine(ctx)
	if err != nil {
		return nil, err
	}
	in := &instance{driver: d, spec: s, engine: e, known: k, token: s.Token, limits: limitsOf(s.Limits, k.system), ids: insidersOf(k, s)}
	if err := in.start(ctx); err != nil {
		cctx, cancel := sys.Detach(ctx, destroyTimeout)
		defer cancel()
		if derr := in.Destroy(cctx); derr != nil {
			return nil, task.Errorf(task.CodeStuck, op, "%v; and what was made is not gone: %w", err, derr)
		}
		return nil, d.asError(op, err)
	}
	return in, nil
}

func (d *Driver) asError(op string, err error) error {
	var te *task.Error
	switch {
	case errors.As(err, &te):
		return err
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return task.Errorf(task.CodeCanceled, op, "%w", err)
	}
	return task.Errorf(task.CodeUnavailable, op, "%v", err).WithHint("run `caisson doctor` to see what this engine can do")
}

// check refuses a spec that cannot be fulfilled, before anything is made.
func (d *Driver) check(s backend.Spec) error {
	const op = "docker.create"
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
	for _, p := range []string{s.Home, s.Source.Target} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return bad("%q is not a clean absolute path", p)
		}
	}
	for _, f := range s.Files {
		if !strings.HasPrefix(f.Target, backend.BinDir+"/") || filepath.Clean(f.Target) != f.Target {
			return bad("the generated file %q does not lie below %s", f.Target, backend.BinDir)
		}
	}
	if s.Userns {
		return task.Errorf(task.CodeUnsupported, op, "%s", noUserns).WithHint("%s", noUsernsFix)
	}
	for _, w := range []struct {
		name string
		set  bool
	}{{"a way out", s.Way != nil}, {"certificates of its own", s.Trust != ""}, {"sockets of the host", len(s.Local) > 0}, {"known hosts of SSH", s.KnownHosts != ""}} {
		if w.set {
			return task.Errorf(task.CodeUnsupported, op, "%s: %s", w.name, noWay).WithHint("%s", noWayFix)
		}
	}
	if s.Image != "" && s.Rootfs != "" {
		return task.Errorf(task.CodeUsage, op, "a boundary has one root: --image and --rootfs exclude each other").WithHint("leave one of the two out")
	}
	return nil
}

// What is not offered, and what to do instead.
const (
	noUserns    = "--grant userns: an engine's own filter refuses user namespaces to what it starts"
	noUsernsFix = "--backend linux can give it"
	noWay       = "nothing can be reached from inside a boundary of this backend yet, which needs sockets of the host inside"
	noWayFix    = "--backend linux has them; here only --net none, without --allow, --lend and --phase install"
	noInward    = "the host has no way to servers inside a boundary of this backend yet"
	noInwardFix = "--backend linux has one; here leave --publish out"
)

// limitsOf fills in what l leaves open, from what the engine's machine has.
func limitsOf(l task.Limits, i *systemInfo) task.Limits {
	if l.MemoryBytes == 0 {
		l.MemoryBytes = max(i.MemTotal/4*3, 256<<20)
	}
	l.MemoryBytes = l.MemoryBytes / int64(os.Getpagesize()) * int64(os.Getpagesize())
	if l.Pids == 0 {
		l.Pids = 4096
	}
	if l.CPUs == 0 {
		l.CPUs = float64(max(i.NCPU, 1))
	}
	l.CPUs = min(l.CPUs, float64(max(i.NCPU, 1)))
	return l
}

// tmpfsSize bounds each folder in memory.
func tmpfsSize(l task.Limits) int64 {
	size := min(l.MemoryBytes/2, 8<<30)
	if l.DiskBytes > 0 {
		size = min(size, l.DiskBytes)
	}
	return max(size, 1<<20)
}

// start makes folder and container, starts it and has the worker answer.
func (in *instance) start(ctx context.Context) error {
	layout, err := in.generate(ctx)
	if err != nil {
		return err
	}
	if err := sys.Fault("docker.folder"); err != nil {
		return err
	}
	image, err := in.image(ctx, layout)
	if err != nil {
		return err
	}
	mounts, err := in.mounts(layout)
	if err != nil {
		return err
	}
	cfg := in.config(image, mounts)
	var made struct {
		ID       string `json:"Id"`
		Warnings []string
	}
	cctx, done := context.WithTimeout(ctx, answerTime)
	err = in.engine.call(cctx, http.MethodPost, "/containers/create", url.Values{"name": {nameOf(in.spec)}}, cfg, &made)
	done()
	if err != nil {
		if unreachable(err) || conflict(err) {
			// It may have been made all the same, and is found by its name; one that was
			// there before is not ours, which its labels say.
			in.maybe()
		}
		return explainCreate(err)
	}
	in.mu.Lock()
	in.id = made.ID
	in.mu.Unlock()
	if err := sys.Fault("docker.created"); err != nil {
		return err
	}
	conn, err := in.engine.attach(ctx, in.id)
	if err != nil {
		return fmt.Errorf("attach to the container: %w", err)
	}
	in.mu.Lock()
	in.conn = conn
	in.mu.Unlock()
	if err := sys.Fault("docker.attached"); err != nil {
		return err
	}
	cctx, done = context.WithTimeout(ctx, answerTime)
	err = in.engine.call(cctx, http.MethodPost, "/containers/"+in.id+"/start", nil, nil, nil)
	done()
	if err != nil {
		return explainStart(err)
	}
	if err := sys.Fault("docker.started"); err != nil {
		return err
	}
	if err := in.greet(ctx, conn); err != nil {
		return err
	}
	if err := sys.Fault("docker.answered"); err != nil {
		return err
	}
	return in.verify(ctx)
}

// greet sends the plan and takes the answer.
func (in *instance) greet(ctx context.Context, conn *attached) error {
	const op = "docker.start"
	s := in.spec
	if err := conn.SetDeadline(time.Now().Add(setupTime)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	p := guest.Plan{UID: in.ids.uid, GID: in.ids.gid, Worker: in.ids.worker, Mark: markAt, MarkText: markOf(s), Workdir: s.Source.Target,
		Env: s.Env, Filter: callfilter.Tool(s.Ptrace, false), Rlimits: rlimits(in.limits)}
	for _, m := range []backend.Mount{s.Source, s.Out} {
		if m.Source != "" {
			p.Owned = append(p.Owned, m.Target)
		}
	}
	err := guest.Send(conn, p)
	var r guest.Report
	if err == nil {
		err = guest.Receive(conn, &r)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		text := conn.complaint()
		if c, ierr := in.engine.inspect(ctx, in.id); ierr == nil && !c.State.Running {
			text = strings.TrimSpace(fmt.Sprintf("it ended with %d; %s %s", c.State.ExitCode, c.State.Error, text))
		}
		return task.Errorf(task.CodeUnavailable, op, "the worker did not answer from inside the container: %v; %s", err, printable(text, 600)).
			WithHint("run `caisson doctor` to see what this engine can do")
	case r.OK:
		in.mu.Lock()
		in.boot, in.begun = r.Boot, r.Start
		in.mu.Unlock()
		if r.Seccomp != 2 {
			in.finding(task.Finding{ID: "engine-no-seccomp", Axis: task.KRN, Cap: task.MaxLevel(task.KRN), Text: "the engine starts containers without a system call filter; tools have this program's, the worker has none",
				Fix: "an engine with seccomp; start it without seccomp-profile unconfined"})
		}
		return conn.SetDeadline(time.Time{})
	case r.Why == guest.WhyMark:
		return task.Errorf(task.CodeUnavailable, op, "the engine at %s does not see this machine's files: %s", in.engine.at, printable(r.Error, 200)).
			WithHint("an engine in a virtual machine must share %s; a remote one cannot be used", in.driver.cfg.Dir)
	case r.Why == guest.WhyOwner:
		return task.Errorf(task.CodeUnavailable, op, "inside the container the task's files belong to user %d, not to %d as whom its commands would run: %s", r.Owner, in.ids.uid, printable(r.Error, 200)).
			WithHint("run caisson as the user that runs the engine, or with root's engine; no file's owner is changed")
	}
	return task.Errorf(task.CodeUnavailable, op, "the worker could not set itself apart inside the container: %s", printable(r.Error, 400)).
		WithHint("the engine must give it the capabilities %s and more than one user id", strings.Join(guest.Needed, ", "))
}

func rlimits(l task.Limits) []guest.Rlimit {
	rs := []guest.Rlimit{{Resource: unix.RLIMIT_CORE}}
	if l.DiskBytes > 0 {
		// The sum of all files is watched from outside; one alone is stopped at once.
		most := uint64(l.DiskBytes) + uint64(os.Getpagesize())
		rs = append(rs, guest.Rlimit{Resource: unix.RLIMIT_FSIZE, Soft: most, Hard: most})
	}
	return rs
}

// markOf is what a file of this boundary's root says. Tools can read it: it tells
// nothing of the token.
func markOf(s backend.Spec) string {
	sum := sha256.Sum256([]byte("mark of " + s.Token))
	return hex.EncodeToString(sum[:])
}

// generate makes the folder of what is generated for the root.
func (in *instance) generate(ctx context.Context) (*rootdir.Layout, error) {
	s, dir := in.spec, in.driver.folderOf(nameOf(in.spec))
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	in.mu.Lock()
	in.folder = dir
	in.mu.Unlock()
	put := func(name, text string, mode os.FileMode) error {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		return os.WriteFile(p, []byte(text), mode)
	}
	err := errors.Join(put(tokenFile, s.Token, 0o400), put("root/"+markFile, markOf(s), 0o444), put("root/none", "", 0o444), os.Mkdir(filepath.Join(dir, "root/empty"), 0o755),
		os.Mkdir(filepath.Join(dir, "root/bin"), 0o755), os.Mkdir(filepath.Join(dir, "root/sys"), 0o755), os.MkdirAll(filepath.Join(dir, "root/none.sys/fs/cgroup"), 0o755), os.Mkdir(filepath.Join(dir, "root/closed"), 0o700))
	if err != nil {
		return nil, err
	}
	modes := map[string]os.FileMode{}
	for _, f := range s.Files {
		name := "root/bin/" + strings.TrimPrefix(f.Target, backend.BinDir+"/")
		if err := put(name, f.Text, 0o600); err != nil {
			return nil, err
		}
		modes[filepath.Join(dir, name)] = os.FileMode(f.Mode & 0o555)
	}
	layout := &rootdir.Layout{}
	if s.Image != "" {
		for name, text := range rootdir.Identity(s, "", in.ids.uid, in.ids.gid) {
			if name != "passwd" && name != "group" {
				continue
			}
			if err := put("root/sys/"+name, strings.ReplaceAll(text, ":/bin/bash\n", ":/bin/sh\n"), 0o444); err != nil {
				return nil, err
			}
			layout.Binds = append(layout.Binds, backend.Mount{Source: filepath.Join(dir, "root/sys", name), Target: "/etc/" + name})
		}
		if text := rootdir.GitConfig(s); text != "" {
			if err := put("root/sys/gitconfig", text, 0o444); err != nil {
				return nil, err
			}
			layout.Binds = append(layout.Binds, backend.Mount{Source: filepath.Join(dir, "root/sys/gitconfig"), Target: "/etc/gitconfig"})
		}
	} else if layout, err = rootdir.Build(filepath.Join(dir, "root/sys"), s, in.ids.uid, in.ids.gid, "/etc/hostname", "/etc/hosts", "/etc/resolv.conf"); err != nil {
		return nil, err
	}
	// Readable by everybody inside, whatever the mask was; the folder itself is
	// closed to others here.
	return layout, filepath.WalkDir(filepath.Join(dir, "root"), func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || e.Type()&fs.ModeSymlink != 0:
			return err
		case e.IsDir() && e.Name() == "closed":
			if err := os.Chmod(p, 0); err != nil {
				return err
			}
			return fs.SkipDir
		case e.IsDir():
			return os.Chmod(p, 0o755)
		case modes[p] != 0:
			return os.Chmod(p, modes[p])
		}
		return os.Chmod(p, 0o444)
	})
}

// mounts lists every bind, outer places before inner ones.
func (in *instance) mounts(l *rootdir.Layout) ([]mount, error) {
	s, gen := in.spec, filepath.Join(in.folder, "root")
	var out []mount
	at := map[string]int{}
	add := func(source, target string, writable bool) {
		m := mount{Type: "bind", Source: source, Target: target, ReadOnly: !writable, BindOptions: &bindOptions{Propagation: "rprivate"}}
		if i, twice := at[target]; twice {
			out[i] = m
			return
		}
		at[target] = len(out)
		out = append(out, m)
	}
	for _, b := range l.Binds {
		add(b.Source, b.Target, false)
		if b.Target == "/etc" && s.Image == "" && s.Rootfs == "" {
			// Podman puts files of its own over these two where nobody else does.
			add(filepath.Join(b.Source, "passwd"), "/etc/passwd", false)
			add(filepath.Join(b.Source, "group"), "/etc/group", false)
		}
	}
	for _, m := range rootdir.Mounts(s) {
		if _, err := os.Stat(m.Source); err != nil {
			return nil, task.Errorf(task.CodeNotFound, "docker.create", "a folder to mount is not there: %w", err).WithHint("nothing was created")
		}
		add(m.Source, m.Target, m.Writable)
	}
	for _, m := range rootdir.Mounts(s) {
		for _, h := range m.Hide {
			if cover := coverOf(gen, m.Source, h); cover != "" {
				add(cover, filepath.Join(m.Target, h), false)
			}
		}
		for _, c := range m.Cover {
			cover := coverOf(gen, m.Source, c)
			if cover == "" {
				return nil, task.Errorf(task.CodeUnavailable, "docker.create", "%s is not there to be covered", filepath.Join(m.Source, c))
			}
			add(cover, filepath.Join(m.Target, c), false)
		}
	}
	// An engine shows /sys and the groups in it, read-only; nobody inside needs them.
	add(filepath.Join(gen, "none.sys"), "/sys", false)
	add(filepath.Join(gen, "closed"), "/sys/fs/cgroup", false)
	add(s.WorkerPath, workerAt, false)
	add(filepath.Join(gen, markFile), markAt, false)
	add(filepath.Join(gen, "bin"), backend.BinDir, false)
	sort.SliceStable(out, func(i, j int) bool { return strings.Count(out[i].Target, "/") < strings.Count(out[j].Target, "/") })
	return out, nil
}

// coverOf returns what covers a path below a mount; empty: nothing is there.
func coverOf(gen, source, rel string) string {
	st, err := os.Lstat(filepath.Join(source, rel))
	switch {
	case err != nil:
		return ""
	case st.IsDir():
		return filepath.Join(gen, "empty")
	}
	return filepath.Join(gen, "none")
}

// config is everything that is asked of the engine.
func (in *instance) config(image *imageInfo, mounts []mount) *containerConfig {
	s, l := in.spec, in.limits
	size := strconv.FormatInt(tmpfsSize(l), 10)
	home := "mode=0700"
	switch {
	case in.ids.uid == 0: // the owner of what an engine makes
	case in.known.version.podman():
		home = "mode=0777" // it knows no owner; inside are the tools' user and the worker alone
	default:
		home += fmt.Sprintf(",uid=%d,gid=%d", in.ids.uid, in.ids.gid)
	}
	memory := map[string]string{
		"/tmp": "rw,exec,nosuid,nodev,mode=1777,size=" + size, "/var/tmp": "rw,exec,nosuid,nodev,mode=1777,size=" + size,
		s.Home: "rw,exec,nosuid,nodev,size=" + size + "," + home,
	}
	if in.known.version.podman() {
		memory["/run"] = "ro,noexec,nosuid,nodev,mode=0755,size=64k" // else it makes one that can be written
	}
	for _, m := range mounts {
		delete(memory, m.Target)
	}
	if image.Config != nil {
		for v := range image.Config.Volumes {
			// An anonymous volume would be a place to write that nobody planned.
			if _, have := memory[v]; !have && !slices.ContainsFunc(mounts, func(m mount) bool { return m.Target == v }) {
				memory[v] = "rw,nosuid,nodev,noexec,mode=0755,size=64k"
			}
		}
	}
	boot, _ := sys.BootID()
	mode := ""
	if in.known.option("userns") {
		mode = "host" // remapped ids would not be the owners of the task's files
	}
	security := []string{"no-new-privileges"}
	if in.known.version.podman() {
		security = append(security, "mask="+strings.Join(masked, ":")) // its only way to hear of them
	}
	return &containerConfig{
		Image: image.ID, Entrypoint: []string{workerAt, "guest"}, Cmd: []string{}, Env: []string{}, User: "0:0", WorkingDir: "/",
		Hostname: rootdir.Hostname(s), OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true, NetworkDisabled: true,
		StopSignal: "SIGKILL", Healthcheck: &healthcheck{Test: []string{"NONE"}},
		Labels: map[string]string{labelInstance: s.Instance, labelTask: string(s.Task), labelToken: s.Token, labelOwner: strconv.Itoa(s.Identity.UID), labelBoot: boot},
		HostConfig: &hostConfig{
			NetworkMode: "none", IpcMode: "private", UsernsMode: mode, ReadonlyRootfs: true,
			CapDrop: []string{"ALL"}, CapAdd: guest.Needed, SecurityOpt: security,
			Tmpfs: memory, Mounts: mounts, Memory: l.MemoryBytes, MemorySwap: l.MemoryBytes, NanoCpus: int64(l.CPUs * 1e9), PidsLimit: int64(l.Pids),
			ShmSize: tmpfsSize(l), Ulimits: in.ulimits(), LogConfig: logConfig{Type: "none"}, RestartPolicy: restartPolicy{Name: "no"}, Binds: []string{},
			MaskedPaths: masked, ReadonlyPaths: fixed,
		},
	}
}

// What of /proc tells of the machine or reaches its kernel. An engine's own lists,
// which these replace, are shorter.
var (
	masked = []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg",
		"/proc/kpagecgroup", "/proc/kpagecount", "/proc/kpageflags", "/proc/latency_stats", "/proc/pagetypeinfo", "/proc/sched_debug", "/proc/scsi", "/proc/slabinfo", "/proc/timer_list", "/proc/timer_stats",
		"/proc/tty", "/proc/vmallocinfo", "/sys/devices/virtual/powercap", "/sys/firmware"}
	fixed = []string{"/proc/bus", "/proc/driver", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// ulimits are what the worker begins with. Podman would set what it does not hear of
// as high as can be, which ends the start where it may not raise limits; an unequal
// pair does too.
func (in *instance) ulimits() []ulimit {
	out := []ulimit{{Name: "core"}}
	limit := func(name string, resource int, most uint64) {
		var r unix.Rlimit
		if unix.Getrlimit(resource, &r) == nil {
			n := int64(min(r.Max, most))
			out = append(out, ulimit{Name: name, Soft: n, Hard: n})
		}
	}
	limit("nofile", unix.RLIMIT_NOFILE, 1<<16)
	if in.known.version.podman() {
		limit("nproc", unix.RLIMIT_NPROC, 1<<15) // what it has left for itself
	}
	return out
}

func explainCreate(err error) error {
	if unreachable(err) {
		return fmt.Errorf("make the container: %w", err)
	}
	return task.Errorf(task.CodeUnavailable, "docker.create", "the engine refused to make the container: %v", err).
		WithHint("nothing runs; `caisson doctor` shows what this engine can do")
}

func explainStart(err error) error {
	if unreachable(err) {
		return fmt.Errorf("start the container: %w", err)
	}
	return task.Errorf(task.CodeUnavailable, "docker.start", "the engine could not start the container: %v", err).
		WithHint("nothing ran; `caisson doctor` shows what this engine can do")
}
