package cli

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

// requestFlags are the flags that `run`, `open` and `plan` share. All values
// are kept as typed: they are read by request, so that every mistake becomes
// one kind of error.
type requestFlags struct {
	parent                                                                    string
	name, agent, repo, base, at, source, history, backend, rootfs, net, phase string
	memory, cpus, pids, disk, timeout, keep, netBytes                         string
	netConns, netRate                                                         int64
	need, ro, env, grant, allow, publish, lend                                []string
	image, dirty                                                              string
	trust, unattended, discard, pull                                          bool
	terminal                                                                  bool // of the process that was started
	asking                                                                    askingFlags
}

var (
	histories  = []string{string(task.HistoryFull), string(task.HistoryBase), string(task.HistoryNone)}
	keepModes  = []string{string(task.KeepAuto), string(task.KeepAlways), string(task.KeepOnFailure), string(task.KeepNever)}
	grantKinds = []string{"ptrace", "userns"}
	backends   = []string{"auto", "linux", "docker", "podman", "gvisor", "oci:crun", "oci:runc"}
	dirtyModes = []string{string(task.DirtyChanged), string(task.DirtyAll)}
	netModes   = []string{"none", "registries", "allowlist", "open"}
	strategies = []string{string(task.StrategyClone), string(task.StrategyWorktree), string(task.StrategyCheckout), string(task.StrategyCopy)}
)

// Values that later versions understand: refused by name.
var (
	laterBackends = []string{"oci", "vm", "kubernetes", "host"} // oci: another runtime than those of backends
)

func (r *requestFlags) add(a *app, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.name, "name", "", "a name to call the task by `NAME`")
	f.StringVar(&r.parent, "parent", "", "make it a child of an open task: it gets at most its authority and ends with it `TASK`")
	f.StringVar(&r.repo, "repo", "", "repository to work on, or folder or archive to copy (default: the one around the working directory) `DIR`")
	f.StringVar(&r.base, "base", "", "revision to start from (default HEAD) `REV`")
	f.StringVar(&r.at, "at", "", "where the source stands inside (default: the same path as outside) `DIR`")
	f.StringVar(&r.source, "source", "", "how the task gets its source: clone, worktree, checkout or copy `STRATEGY`")
	f.StringVar(&r.dirty, "dirty", "", "start with your uncommitted files: changed (staged, unstaged, untracked) or all (ignored ones too) `WHICH`")
	f.Lookup("dirty").NoOptDefVal = string(task.DirtyChanged)
	f.StringVar(&r.history, "history", "", "how much of the repository it can read: full, base or none `HOW`")
	f.StringVar(&r.backend, "backend", "", "what makes the boundary: auto, linux, docker, podman, gvisor, oci:crun or oci:runc `NAME`")
	f.StringVar(&r.rootfs, "rootfs", "", "read-only root instead of the system folders: a folder, a tar file of one, a saved image or an OCI layout `PATH`")
	f.StringVar(&r.image, "image", "", "image at the engine to use as read-only root instead, with --backend docker or podman `REF`")
	f.BoolVar(&r.pull, "pull", false, "have the engine fetch the image from its registry where it is not there")
	f.StringArrayVar(&r.need, "need", nil, "demand at least this level, for example NET=2 `AXIS=LEVEL`")
	f.StringVar(&r.net, "net", "", "what may be reached: none, registries (of packages, and the repository's remotes), allowlist (--allow and the policy's), or open `MODE`")
	f.StringArrayVar(&r.allow, "allow", nil, "let it reach this host, for example example.com, *.example.com:443 or 127.0.0.1:5432 `HOST[:PORT]`")
	f.StringArrayVar(&r.publish, "publish", nil, "offer a server inside on 127.0.0.1 of this machine, at a port of caisson's choice or at HOST-PORT `[HOST-PORT:]PORT`")
	f.StringVar(&r.phase, "phase", "", "install: dependencies are installed in a boundary of their own, which reaches package registries alone `PHASE`")
	f.StringArrayVar(&r.ro, "ro", nil, "make a folder readable inside, at the same or another absolute path `DIR[:DIR]`")
	f.StringArrayVar(&r.env, "env", nil, "set a variable inside, or pass yours on `K=V|K`")
	f.StringArrayVar(&r.grant, "grant", nil, "lend an ability: ptrace or userns `ABILITY`")
	f.StringArrayVar(&r.lend, "lend", nil, "lend it these credentials of the policy: a placeholder is inside, and requests get the secret on the host `HANDLE[,…]`")
	f.StringVar(&r.memory, "memory", "", "memory limit, for example 2g `SIZE`")
	f.StringVar(&r.cpus, "cpus", "", "processors, for example 1.5 `N`")
	f.StringVar(&r.pids, "pids", "", "processes and threads `N`")
	f.StringVar(&r.disk, "disk", "", "disk limit, for example 10g `SIZE`")
	f.StringVar(&r.netBytes, "net-bytes", "", "what may cross its way out, both directions together and as long as it lives, for example 5g `SIZE`")
	f.Int64Var(&r.netConns, "net-connections", 0, "connections that are open at a time by its way out (default 1024) `N`")
	f.Int64Var(&r.netRate, "net-rate", 0, "new connections a second by its way out (default 500) `N`")
	f.StringVar(&r.timeout, "timeout", "", "end the task after this long, for example 30m `DURATION`")
	f.StringVar(&r.keep, "keep", "", "keep the files when it ends: auto, always, on-failure or never `MODE`")
	f.BoolVar(&r.discard, "discard", false, "do not rescue the task's work when it ends")
	f.BoolVar(&r.trust, "trust", false, "say that you know and trust this repository's code")
	f.StringVar(&r.agent, "agent", "", "the agent that does the work, whose definition may demand a boundary `NAME`")
	f.BoolVar(&r.unattended, "unattended", false, "nobody is there to answer questions")

	r.asking.add(f)

	r.terminal = a != nil && isTerminal(a.cfg.Stdin) && isTerminal(a.cfg.Stderr)
	r.complete(a, cmd)
}

// handles splits what --lend was given.
func handles(lists []string) (out []string) {
	for _, l := range lists {
		for h := range strings.SplitSeq(l, ",") {
			if h = strings.TrimSpace(h); !slices.Contains(out, h) {
				out = append(out, h)
			}
		}
	}
	return out
}

// closed reads a value from a closed set; later ones are known but refused.
func closed(flag, value string, now, later []string) error {
	if value == "" || slices.Contains(now, value) {
		return nil
	}
	if flag == "backend" && laterBackend(value) {
		return unavailable("--"+flag+" "+value).WithHint("now there is: --%s %s", flag, strings.Join(now, ", "))
	}
	if slices.Contains(later, value) {
		return unsupported("--"+flag+" "+value).WithHint("now there is: --%s %s", flag, strings.Join(now, ", "))
	}
	e := task.Errorf(task.CodeUsage, "cli", "--%s does not know %q", flag, value)
	if n := sys.Nearest(value, now); n != "" {
		return e.WithHint("did you mean --%s %s?", flag, n)
	}
	return e.WithHint("it takes %s", strings.Join(now, ", "))
}

// laterBackend says whether v is a backend, and none of this version: it is not to
// be had, and nothing is taken in its place.
func laterBackend(v string) bool {
	return slices.Contains(laterBackends, v) || strings.HasPrefix(v, "oci:") && v != "oci:" && !slices.Contains(backends, v)
}

// discardError refuses to give up and to keep at once.
func discardError(discard bool, keep string) error {
	if !discard || keep != string(task.KeepAlways) {
		return nil
	}
	return task.Errorf(task.CodeUsage, "cli", "--discard gives the work up, and --keep %s keeps it", keep).WithHint("leave one of the two out")
}

// request reads flags and launch environment. A flag and a variable are both
// a person's word: of levels the higher counts, other conflicts are refused.
func (r *requestFlags) request(cmd *cobra.Command, env []string) (task.Request, error) {
	q := task.Request{
		Name: r.name, Parent: r.parent, Repo: r.repo, Base: r.base, At: r.at, Rootfs: r.rootfs, Image: r.image, Pull: r.pull,
		Strategy: task.Strategy(r.source), Dirty: task.Dirty(r.dirty), History: task.History(r.history), Keep: task.Keep(r.keep),
		Need: task.Vector{}, RO: r.ro, Grants: r.grant, Net: r.net, Allow: r.allow, Lend: handles(r.lend), Phase: r.phase, Publish: r.publish,
		Trust: r.trust, Unattended: r.unattended, Agent: r.agent, Discard: r.discard,
		// Whoever types flags is a person; whether one watches shows in the terminal.
		Person: true, Terminal: r.terminal,
		Origin: map[string]string{},
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if cmd.InheritedFlags().Lookup(f.Name) == nil {
			q.Origin[f.Name] = "flag"
		}
	})
	for _, empty := range []string{"name", "parent", "repo", "base", "at", "source", "dirty", "history", "backend", "rootfs", "image", "net", "phase", "memory", "cpus", "pids", "disk", "net-bytes", "timeout", "keep", "agent"} {
		if f := cmd.Flags().Lookup(empty); f.Changed && f.Value.String() == "" {
			return q, usagef(cmd, "--%s needs a value that is not empty", empty)
		}
	}
	if err := nameError(r.name); err != nil {
		return q, err
	}
	if err := discardError(r.discard, r.keep); err != nil {
		return q, err
	}
	// --dirty takes its value only after an equals sign; a space makes the value a program.
	if f := cmd.Flags(); f.Changed("dirty") && r.dirty == f.Lookup("dirty").NoOptDefVal && f.NArg() > 0 && slices.Contains(dirtyModes, f.Arg(0)) && f.ArgsLenAtDash() != 0 {
		return q, usagef(cmd, "--dirty %s would run a program called %q", f.Arg(0), f.Arg(0)).
			WithHint("write --dirty=%s, or `--dirty -- %s` for the program", f.Arg(0), f.Arg(0))
	}
	backend := r.backend
	if laterBackend(backend) && strings.HasPrefix(backend, "oci:") {
		backend = "oci"
	}
	for _, err := range []error{
		closed("backend", backend, backends, laterBackends),
		closed("source", r.source, strategies, nil),
		closed("dirty", r.dirty, dirtyModes, nil),
		closed("net", r.net, netModes, nil),
		closed("phase", r.phase, []string{"install"}, nil),
		closed("history", r.history, histories, nil),
		closed("keep", r.keep, keepModes, nil),
	} {
		if err != nil {
			return q, err
		}
	}
	for _, g := range r.grant {
		if err := closed("grant", g, grantKinds, nil); err != nil || g == "" {
			if err == nil {
				err = usagef(cmd, "--grant needs a value that is not empty")
			}
			return q, err
		}
	}
	if at := r.at; at != "" && !strings.HasPrefix(at, "/") {
		return q, invalid("at", at, "must be an absolute path", "/srv/project")
	}
	if q.Strategy == "" {
		q.Strategy, q.Origin["source"] = task.StrategyClone, "default"
	}
	if q.History == "" {
		q.History, q.Origin["history"] = task.HistoryFull, "default"
	}
	if q.Keep == "" {
		q.Keep, q.Origin["keep"] = task.KeepAuto, "default"
	}
	for _, s := range r.ro {
		if err := parseRO(s); err != nil {
			return q, err
		}
	}
	for _, s := range r.env {
		kv, err := parseEnv(s, env)
		if err != nil {
			return q, err
		}
		q.Env = append(q.Env, kv)
	}
	err := r.limits(&q.Limits)
	if err != nil {
		return q, err
	}
	if err := parseNeeds(q.Need, r.need); err != nil {
		return q, err
	}
	if q.Asking, err = r.asking.read(env); err != nil {
		return q, err
	}
	q.Backend = r.backend
	return q, launchEnv(&q, env)
}

// The least with which a boundary can be made and probed. Below, a start fails
// half way, or, under a page of memory, the kernel sets no limit at all.
const (
	leastMemory = 16 << 20
	leastPids   = 64
)

// nameError refuses names that a shell or another command would read as
// something else: one that begins with "-" could not be closed by name.
func nameError(name string) error {
	if name != "" && (strings.Trim(name, nameChars) != "" || strings.ContainsAny(name[:1], "-.")) {
		return task.Errorf(task.CodeUsage, "cli", "the name %q: letters, digits, and _ . - after the first", clipped(name)).WithHint("for example fix-login")
	}
	if len(name) > maxName {
		return task.Errorf(task.CodeUsage, "cli", "the name %q is longer than %d characters", clipped(name), maxName).WithHint("for example fix-login")
	}
	return nil
}

// maxName bounds a task's name, in bytes: it stands in every line about the task.
const maxName = 100

// clipped is a text that somebody typed, short enough for a line.
func clipped(s string) string {
	if len(s) > maxName {
		return s[:maxName] + "…"
	}
	return s
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

func (r *requestFlags) limits(l *task.Limits) (err error) {
	if r.memory != "" {
		if l.MemoryBytes, err = parseSize("memory", r.memory); err != nil {
			return err
		}
		if l.MemoryBytes < leastMemory {
			return invalid("memory", r.memory, "less than "+bytesText(leastMemory)+" holds no boundary; without a unit the number is bytes", "512m, 2g or 1.5g")
		}
	}
	if r.disk != "" {
		if l.DiskBytes, err = parseSize("disk", r.disk); err != nil {
			return err
		}
	}
	if r.cpus != "" {
		if l.CPUs, err = parseCPUs(r.cpus); err != nil {
			return err
		}
	}
	if r.pids != "" {
		if l.Pids, err = parsePids(r.pids); err != nil {
			return err
		}
		if l.Pids < leastPids {
			return invalid("pids", r.pids, "less than "+strconv.Itoa(leastPids)+" is not enough to measure a boundary: threads count", "512")
		}
	}
	if r.netBytes != "" {
		if l.NetBytes, err = parseSize("net-bytes", r.netBytes); err != nil {
			return err
		}
	}
	for _, x := range []struct {
		flag string
		n    int64
	}{{"net-connections", r.netConns}, {"net-rate", r.netRate}} {
		if x.n < 0 {
			return invalid(x.flag, strconv.FormatInt(x.n, 10), "must be above zero", "50")
		}
	}
	l.NetConns, l.NetRate = r.netConns, r.netRate
	if r.timeout != "" {
		l.Timeout, err = parseTimeout(r.timeout)
	}
	return err
}

// launchEnv adds what the launch environment of a person demands.
func launchEnv(q *task.Request, env []string) error {
	if v, ok := lookup(env, "CAISSON_BACKEND"); ok && v != "" {
		if laterBackend(v) {
			return unavailable("CAISSON_BACKEND="+v).WithHint("now there is: %s", strings.Join(backends, ", "))
		}
		if !slices.Contains(backends, v) {
			return task.Errorf(task.CodeUsage, "cli", "CAISSON_BACKEND names no backend: %q", v).WithHint("it takes %s", strings.Join(backends, ", "))
		}
		if q.Backend != "" && q.Backend != v {
			return task.Errorf(task.CodeUsage, "cli", "--backend %s, but CAISSON_BACKEND requires %s", q.Backend, v).
				WithHint("drop the flag, or unset CAISSON_BACKEND")
		}
		if q.Backend == "" {
			q.Backend, q.Origin["backend"] = v, "env CAISSON_BACKEND"
		}
	}
	if q.Backend == "" {
		q.Backend, q.Origin["backend"] = "auto", "default"
	}
	if v, ok := lookup(env, "CAISSON_NEED"); ok && v != "" {
		if err := parseNeeds(q.Need, strings.Split(v, ",")); err != nil {
			return task.Errorf(task.CodeUsage, "cli", "CAISSON_NEED: %v", err).WithHint("for example CAISSON_NEED=NET=2,FS=3")
		}
		q.Origin["need"] = strings.TrimPrefix(q.Origin["need"]+"+env CAISSON_NEED", "+")
	}
	if v, ok := lookup(env, "CAISSON_UNATTENDED"); ok && v != "" {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return task.Errorf(task.CodeUsage, "cli", "CAISSON_UNATTENDED: %q is neither true nor false", v).WithHint("use 1 or 0")
		}
		if on && !q.Unattended {
			q.Unattended, q.Origin["unattended"] = true, "env CAISSON_UNATTENDED"
		}
	}
	return nil
}
