package boundary

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/broker"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/source/rootfs"
	"github.com/caisson-dev/caisson/internal/task"
)

// decided is a plan: everything that is known before anything is made.
type decided struct {
	req    task.Request
	repo   *source.Repo
	driver backend.Driver
	caps   backend.Capabilities
	plan   *policy.Decision
	spec   backend.Spec // without what only a created task has
	tools  []task.Tool
	grants []task.Grant
	// secrets are the variables that a person passed in, K=V.
	secrets []string
	ahead   *ahead      // nil: nothing was looked at ahead of its turn
	before  []task.Fact // of a task that is on record: what was known of it
	trial   bool        // one backend of several, of which the policy's preference chose another
	explain bool        // somebody wants to know what there is beside the decision
	// asked are the limits as a person gave them, before a parent's and the
	// machine's were filled in.
	asked     task.Limits
	parent    *task.View    // nil: none
	since     time.Time     // of a task that is on record: when a person last did something in it
	inherited []task.Fact   // of the parent
	stamp     string        // of what the decision rests on, from before it was made
	unwatched time.Duration // of the policy in force
	broadAt   time.Time     // when it will count as unwatched for long; zero: never, or it does
	again     bool          // of a task that is on record
	inside    []string      // names of variables that a person passed into a task that is open
	budget    policy.MergedBudget
	used      map[task.ID]int64 // bytes of tasks that no limit bounds
	uses      []task.BudgetUse
	quota     bool // the sum of all tasks is bounded too
	// rules is what the policy says, once it was asked.
	rules policy.Governing
	argv  []string // the one command that it is for; nil: any
	only  bool     // and it is a trusted check: no other may run
	// leaving is what of the rules counts for connections; nil: none leaves.
	leaving *policy.Rules
	widened []task.Widened // of an open task: destinations that were added
	// lent are the credentials that it is lent, loanFacts what that says of it.
	lent        []broker.Lent
	loanFacts   []task.Fact
	read        []string        // what has TLS read, in words
	remoteHosts []string        // of the repository's remotes, of a task that is on record
	consulted   []consulted     // decision hooks
	archive     *rootfs.Archive // what the root is unpacked of; nil: of nothing
	named       string          // what --rootfs names, absolute
	rootDigest  string          // of a task that is on record, what its root was; else of an image, once it was found
	// marked waits until the folder of the task that was recorded is marked as ours.
	marked func() error
}

// defaultTimeout ends a task that nobody limited: row R3 asks for a bounded
// duration, and a forgotten task should not run for ever. Its work is rescued
// as at any other end.
const defaultTimeout = 7 * 24 * time.Hour

// What the worker and its guardians themselves need.
const (
	minMemory = 16 << 20
	minPids   = 64
)

// insideUID is the one user inside every boundary.
const insideUID = 1000

// decide looks at the repository, the machine and the wishes, and says what the
// boundary would be. It has no effect.
func (m *Manager) decide(ctx context.Context, req task.Request, id task.ID, argv []string) (*decided, error) {
	d := &decided{}
	return d, m.decideInto(ctx, d, req, id, argv)
}

func (m *Manager) decideInto(ctx context.Context, d *decided, req task.Request, id task.ID, argv []string) error {
	d.asked = req.Limits
	parent, err := m.asChild(ctx, &req)
	if err != nil {
		return err
	}
	d.req, d.parent, d.argv = req, parent, argv
	if parent != nil {
		// What is known of its parent is known of it, whoever said it; what else is at
		// work beside it is its own.
		for _, f := range parent.Facts {
			if f.What != task.Concurrency {
				d.inherited = append(d.inherited, f)
			}
		}
	}
	if err := m.accepts(&d.req); err != nil {
		return err
	}
	if d.driver, err = m.driver(req.Backend); err != nil {
		return err
	}
	defer d.lookAhead(ctx, m, id)()
	if d.repo, err = source.Inspect(ctx, source.Options{Dir: req.Repo, Base: req.Base, At: req.At, Strategy: d.req.Strategy, Dirty: req.Dirty, History: req.History, Env: m.cfg.Environ}); err != nil {
		return err
	}
	// A program that the task, or whoever wrote the repository, can change would
	// allow whatever they like.
	for _, dir := range []string{d.repo.Ref.Repo, m.cfg.StateDir} {
		if h := d.req.Asking.Hook; h != "" && strings.HasPrefix(h, dir+"/") {
			return task.Errorf(task.CodeUnsafePath, "plan", "the program that answers questions lies in %s: it must be out of the task's reach", dir).
				WithHint("put it elsewhere, for example in ~/bin")
		}
	}
	if err := m.choose(ctx, d, id, argv); err != nil {
		return err
	}
	if parent != nil {
		return policy.Within(parent, &d.plan.Plan, d.tools)
	}
	return nil
}

// weigh says what a boundary around d.repo would be on this machine.
func (m *Manager) weigh(ctx context.Context, d *decided, id task.ID, argv []string) (err error) {
	d.stamp = m.stamp(d.repo.Ref.Repo)
	look := m.detecting(ctx, d, argv)
	defer look.end()
	if d.caps, err = d.probe(ctx); err != nil {
		return err
	}
	if d.rules, err = look.policy(); err != nil {
		return err
	}
	if other, err := m.enforce(d); err != nil {
		return err
	} else if other {
		if d.caps, err = d.probe(ctx); err != nil {
			return err
		}
	}
	if r := d.rules.Rules; r != nil && !d.caps.Usable && r.Allowed.Value != nil {
		d.caps.Fix = strings.TrimPrefix(d.caps.Fix+"; or have backends.allowed changed, which is "+strings.Join(r.Allowed.Value, ", ")+" ("+r.Allowed.From.String()+")", "; or ")
	}
	if !d.caps.Usable {
		if err := m.noneInside(); err != nil {
			return err
		}
	}
	findings, err := m.draft(ctx, d, id)
	if err != nil {
		return err
	}
	if v := d.caps.Userns; d.spec.Userns && d.caps.Usable && v.Why != "" {
		return task.Errorf(task.CodeUnsupported, "plan", "%s", v.Why).WithHint("%s", v.Fix)
	}
	if err := d.connects(); err != nil {
		return err
	}
	if err := d.findImage(ctx); err != nil {
		return err
	}
	promised, how := m.promises(d)
	if !d.caps.Usable {
		// What the host keeps by itself stays; the rest is nothing.
		promised, how = task.Vector{}, map[task.Axis]string{}
		kept := hostLevels(d.repo.Ref, d.grants)
		for _, a := range task.Axes {
			how[a] = d.caps.Why
			if h, ok := kept[a]; ok {
				promised[a], how[a] = h.level, h.why
			}
		}
	}
	ways := map[task.Axis][]string{}
	if d.caps.Fix != "" {
		for _, a := range task.Axes {
			ways[a] = []string{d.caps.Fix}
		}
	}
	if netMode(&d.req) == policy.NetOpen {
		ways[task.NET] = append(ways[task.NET], "name what it needs with --allow HOST:PORT, instead of --net open")
	}
	k, err := m.know(ctx, d, id, argv, ways, look)
	if err != nil {
		return err
	}
	promised, how = maps.Clone(promised), maps.Clone(how)
	if err := m.afford(ctx, d, id, k.rules.Budget, promised, how); err != nil {
		return err
	}
	if svc, why := k.services(); svc == 0 {
		delete(promised, task.SVC)
		how[task.SVC] = why
	}
	in := policy.Input{
		Facts: k.facts, Lowered: k.rules.Lowered, Floors: k.rules.Floors, Need: d.req.Need, Backend: d.driver.Name(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH + " " + d.caps.Version,
		Promised: promised, How: how, Findings: append(append([]task.Finding{}, d.caps.Findings...), findings...),
		Grants: d.grants, Limits: d.spec.Limits, Source: d.repo.Ref, Command: argv, Ways: ways, Notes: append(k.notes, k.rules.Notes...),
		Rules: k.rules.Accept, Operator: k.rules.Operator, Policy: k.rules.Digest, Task: id, Now: time.Now(), Unattended: d.req.Unattended, Budget: d.uses, NoTrust: k.rules.NoTrust,
	}
	if netMode(&d.req) == policy.NetNone {
		in.Notes = append(in.Notes, d.rules.Rules.IdleNetwork()...)
	} else {
		in.Notes = append(in.Notes, d.rules.Rules.OutwardNote(d.req.Unattended))
	}
	if in.Acceptances, err = m.acceptances(ctx, k.rules); err != nil {
		return err
	}
	if d.parent != nil {
		in.Acceptances = policy.NotInherited(in.Acceptances, d.parent)
	}
	if d.plan, err = policy.Decide(in); err != nil {
		return err
	}
	if !d.explain && len(d.plan.Plan.Missing) == 0 {
		return nil // nobody asks what else there is
	}
	in.Shared, in.Instances = m.sharedToday(ctx, d, k, id), map[task.Axis][]string{}
	for _, s := range in.Shared {
		switch name := s.Kind + " " + s.Name; {
		case s.Kind == "task": // of which the processes and the files are somebody's
			in.Instances[task.PRC], in.Instances[task.FS] = append(in.Instances[task.PRC], name), append(in.Instances[task.FS], name)
		case s.Reachable:
			in.Instances[s.Axis] = append(in.Instances[s.Axis], name)
		}
	}
	d.plan, err = policy.Decide(in)
	return err
}

// accepts refuses wishes that this release cannot fulfil, by name.
func (m *Manager) accepts(r *task.Request) error {
	if r.Strategy == "" {
		r.Strategy = task.StrategyClone
	}
	if r.Strategy == task.StrategyCheckout && (r.History == task.HistoryBase || r.History == task.HistoryNone) {
		return task.Errorf(task.CodeUsage, "plan", "--history %s: the checkout itself has its whole repository", r.History).
			WithHint("leave --history out, or use --source clone")
	}
	if r.History == "" {
		r.History = task.HistoryFull
	}
	if err := checkAsking(&r.Asking); err != nil {
		return err
	}
	if err := errors.Join(checkNet(r), checkPublish(r)); err != nil {
		return err
	}
	if r.Keep == "" {
		r.Keep = task.KeepAuto
	}
	if mem := r.Limits.MemoryBytes; mem != 0 && mem < minMemory || r.Limits.Pids != 0 && r.Limits.Pids < minPids || r.Limits.CPUs < 0 || r.Limits.DiskBytes < 0 || r.Limits.NetBytes < 0 || r.Limits.NetConns < 0 || r.Limits.NetRate < 0 || r.Limits.Timeout < 0 {
		return task.Errorf(task.CodeUsage, "plan", "a limit is too small to hold a boundary").
			WithHint("at least %d MiB of memory and %d processes", minMemory>>20, minPids)
	}
	for _, g := range r.Grants {
		if g != "ptrace" && g != "userns" {
			return task.Errorf(task.CodeUnsupported, "plan", "no grant is named %q", g).WithHint("--grant takes ptrace or userns")
		}
		// In a mount namespace of its own a task can rename what a mount covers
		// in a folder that it may write, and so take the cover away: git's pointer
		// in a worktree, and mount points of the user's own in a checkout.
		if g == "userns" && (r.Strategy == task.StrategyWorktree || r.Strategy == task.StrategyCheckout) {
			return task.Errorf(task.CodeUnsupported, "plan", "--grant userns does not go with --source %s: the task could uncover what is covered in those files", r.Strategy).
				WithHint("--source clone or copy gives the task files of its own")
		}
	}
	return nil
}

func (m *Manager) driver(name string) (backend.Driver, error) {
	if name == "" || name == "auto" {
		name = "linux"
	}
	var have []string
	for _, d := range m.cfg.Drivers {
		if d.Name() == name {
			return d, nil
		}
		have = append(have, d.Name())
	}
	if !slices.Contains(knownBackends, name) && !strings.HasPrefix(name, "oci:") {
		return nil, task.Errorf(task.CodeUsage, "plan", "no backend is called %q", short(name, 80)).WithHint("available: %s", strings.Join(have, ", "))
	}
	return nil, task.Errorf(task.CodeUnavailable, "plan", "the backend %s is not in this version; nothing was created", name).
		WithHint("available: %s", strings.Join(have, ", "))
}

// knownBackends are names that mean a backend, also one that is not to be had: it
// is unavailable, where another word is a slip. None stands for another.
var knownBackends = []string{"linux", "docker", "podman", "oci", "gvisor", "vm", "kubernetes", "host"}

// draft fills the spec with everything but the task's own folders and collects
// what a person granted.
func (m *Manager) draft(ctx context.Context, d *decided, id task.ID) ([]task.Finding, error) {
	way, findings := d.wayOut()
	loans, more, err := d.lend()
	if err != nil {
		return nil, err
	}
	findings = append(append(findings, more...), d.readTLS()...)
	env, envGrants, err := environment(d.req, id, m.cfg.Identity, m.cfg.Environ, merged(proxied(way), trusting(d.read), deps(d.req.Phase), loans, localEnv(way, d.lent)))
	if err != nil {
		return nil, err
	}
	d.grants = append(d.grants, envGrants...)
	for _, g := range envGrants {
		d.secrets = append(d.secrets, g.Value+"="+valueOf(env, g.Value))
	}
	dir := m.taskDir(id)
	s := backend.Spec{
		Task: id, Instance: m.cfg.DB.Instance(), Identity: m.cfg.Identity, Home: m.cfg.Identity.Home,
		Source: backend.Mount{Source: filepath.Join(dir, "source"), Target: d.repo.Ref.Target, Writable: true},
		Out:    backend.Mount{Source: filepath.Join(dir, "out"), Target: backend.OutDir, Writable: true},
		Way:    way, Inward: maxInward, Env: env, Git: d.repo.Identity, Hostname: string(id), Limits: m.cfg.Defaults(d.req.Limits),
		Absent: []string{m.cfg.StateDir, m.cfg.RuntimeDir},
	}
	if more, err = m.furnishLocals(d, &s); err != nil {
		return nil, err
	}
	findings = append(findings, more...)
	if d.req.Phase == phaseInstall {
		s.Write = append(s.Write, backend.Mount{Source: filepath.Join(dir, "deps"), Target: backend.DepsDir, Writable: true})
	}
	shape(&s, d.repo.Ref, id)
	if s.Limits.Timeout == 0 {
		s.Limits.Timeout = defaultTimeout
	}
	s.Limits = d.bound(s.Limits)
	if err := m.checkCopied(s, d); err != nil {
		return nil, err
	}
	for i, o := range d.repo.Objects {
		s.Objects = append(s.Objects, backend.Mount{Source: o, Target: fmt.Sprintf("%s/%d", backend.ObjectsDir, i)})
	}
	if d.req.Dirty == task.DirtyAll {
		findings = append(findings, task.Finding{ID: "dirty-all", Axis: task.CRD, Cap: 1, Location: d.repo.Ref.Repo,
			Text: "the ignored files of your checkout are inside, by --dirty=all; such files often hold credentials"})
	}
	for _, g := range d.req.Grants {
		d.grants = append(d.grants, task.Grant{Kind: g, Value: "yes", Source: "flag"})
		switch g {
		case "ptrace":
			s.Ptrace = true
			findings = append(findings, task.Finding{ID: "grant-ptrace", Axis: task.PRC, Cap: 2, Text: "programs of the task may trace each other"})
		case "userns":
			s.Userns = true
			findings = append(findings,
				task.Finding{ID: "grant-userns", Axis: task.PRC, Cap: 2, Text: "programs of the task may make user namespaces, which opens more of the kernel to them: mounts, network set-up, and a /proc without masks (never anything that they could not read as an ordinary user)"},
				task.Finding{ID: "grant-userns-mounts", Axis: task.FS, Cap: 2, Text: "read-only mounts alone say what the task can change: Landlock's rules on files would refuse its own mounts"})
		}
	}
	if err := d.root(&s, dir); err != nil {
		return nil, err
	}
	for _, r := range d.req.RO {
		b, err := seed(r)
		if err != nil {
			return nil, err
		}
		s.RO = append(s.RO, backend.Mount{Source: b.Source, Target: b.Target})
		d.grants = append(d.grants, task.Grant{Kind: "ro", Value: seedText(b), Source: "flag"})
		findings = append(findings, task.Finding{ID: "ro-seed", Axis: task.FS, Cap: 2, Location: b.Source,
			Text: "a host folder is readable inside at " + b.Target + ", granted by --ro; a socket that a program makes in it later can be reached"})
	}
	if len(s.RO) > 0 {
		// Refused before it is searched: / and what holds every task are large.
		if err := m.cfg.CheckPaths(s); err != nil {
			return nil, err
		}
		screened, more, err := m.cfg.Screen(ctx, s.RO)
		if err != nil {
			return nil, err
		}
		s.RO, findings = screened, append(findings, more...)
	}
	if s.Rootfs == "" && s.Image == "" {
		mounts, tools, more, err := d.toolchains(ctx, m, valueOf(env, "PATH"))
		if err != nil {
			return nil, err
		}
		s.Tools, d.tools, findings = mounts, tools, append(findings, more...)
	}
	if err := m.cfg.CheckPaths(s); err != nil {
		return nil, err
	}
	d.spec = s
	return findings, nil
}

// seed reads DIR[:DIR] of --ro.
func seed(r string) (task.Bind, error) {
	from, to, both := strings.Cut(r, ":")
	src, err := absolute(from, "--ro")
	if err != nil {
		return task.Bind{}, err
	}
	if !both {
		to = src
	}
	if !filepath.IsAbs(to) || filepath.Clean(to) != to && filepath.Clean(to)+"/" != to {
		return task.Bind{}, task.Errorf(task.CodeUsage, "ro", "--ro %s: the place inside must be an absolute path without . and ..", r).
			WithHint("--ro DIR shows DIR at its own path; --ro DIR:/PLACE shows it at /PLACE")
	}
	return task.Bind{Source: src, Target: filepath.Clean(to)}, nil
}

// seedText is what seed reads, wherever it is read again.
func seedText(b task.Bind) string {
	if b.Target == b.Source {
		return b.Source
	}
	return b.Source + ":" + b.Target
}

// absolute resolves links of a path that a person typed after flag.
func absolute(p, flag string) (string, error) {
	abs, err := filepath.Abs(p)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", task.Errorf(task.CodeUsage, "plan", "%s %s: %w", flag, p, err).WithHint("name a folder that exists")
	}
	return abs, nil
}

func valueOf(env []string, key string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, key+"="); ok {
			return v
		}
	}
	return ""
}

// promises joins what the backend can do here with what the other rooms do.
func (m *Manager) promises(d *decided) (task.Vector, map[task.Axis]string) {
	v, how := task.Vector{}, map[task.Axis]string{}
	base := d.caps.Levels
	if d.spec.Rootfs != "" || d.spec.Image != "" {
		base = base.Join(d.caps.Rootfs)
	}
	for a, l := range base {
		v[a] = l
	}
	for a, h := range d.caps.How {
		how[a] = h
	}
	if d.spec.Userns {
		for a, h := range d.caps.Userns.How {
			how[a] = h
		}
	}
	for a, h := range hostLevels(d.repo.Ref, d.grants) {
		v[a], how[a] = h.level, h.why
	}
	if most, why, some := mediated(d.grants); some {
		how[task.NET] = why
		if v[task.NET] = min(v[task.NET], most); v[task.NET] == 0 {
			delete(v, task.NET)
		}
	}
	return v, how
}

type vouched struct {
	level int
	why   string
}

// hostLevels are the axes that rooms other than the backend keep.
func hostLevels(ref task.SourceRef, grants []task.Grant) map[task.Axis]vouched {
	out := map[task.Axis]vouched{
		task.SVC: {task.LevelNA, "no services are part of this task"},
		task.APR: {task.LevelNA, "nothing inside can act outside: no network and no credential; --ask has tool calls wait for a person"},
		task.VER: {task.LevelNA, policy.LeavingText},
		task.EVD: {2, "host-side, append-only, hash-linked log, written before each effect"},
		task.CLN: {2, "every resource recorded before it is made, with a token, and removed only on proof"},
		task.CRD: {4, "no credential enters; the environment is an allow-list"},
		task.SRC: {3, "self-contained private clone; results return only as verified bundle"},
	}
	switch {
	case ref.Strategy == task.StrategyCopy:
		out[task.SRC] = vouched{3, "a copy of the files, without git; nothing leads back to where they came from"}
	case ref.Strategy == task.StrategyCheckout:
		out[task.SRC] = vouched{0, "the checkout itself: what the task does to its files and its git directory is done"}
	case ref.Strategy == task.StrategyWorktree:
		out[task.SRC] = vouched{2, "linked worktree; its git metadata is masked, git runs on the host"}
	case ref.Shared:
		out[task.SRC] = vouched{2, "private clone with its own .git; every object of the repository is readable"}
	}
	for _, g := range grants {
		switch g.Kind {
		case grantLend, grantLendProd:
			out[task.CRD] = vouched{3, "credentials are lent on the host to requests that leave; inside are placeholders"}
		case grantNet:
			out[task.APR] = vouched{1, "rules say of each connection that leaves whether it may, or a person is asked"}
		}
	}
	for _, g := range grants {
		switch {
		case g.Kind == "env":
			out[task.CRD] = vouched{1, "variables were passed in by name with --env"}
		case g.Kind == grantLendProd && out[task.APR].level == 1:
			out[task.APR] = vouched{2, "each use of a credential of production is a question to a person, bound to the request, and denied where nobody is there; rules say of each other connection whether it may leave"}
		}
	}
	return out
}

// Plan implements door.Engine.
func (m *Manager) Plan(ctx context.Context, req task.Request, argv []string) (*task.PlanReport, error) {
	d := &decided{explain: true}
	if err := m.decideInto(ctx, d, req, task.NewID(), argv); err != nil {
		return nil, err
	}
	return &d.plan.Plan, nil
}
