package boundary

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/probe"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
)

// standing is a boundary that exists and whose worker answers.
type standing struct {
	inst backend.Instance
	wk   *worker.Client
	// channel is what probe found the channel to be.
	channel task.Assurance
}

// startTime bounds making a boundary and hearing from its worker.
const startTime = time.Minute

// stand makes a boundary and connects to its worker. With an error comes nil
// when nothing of it is left, else what could not be destroyed.
func (m *Manager) stand(ctx context.Context, d backend.Driver, s *backend.Spec, poison func(error)) (*standing, error) {
	ctx, done := context.WithTimeout(ctx, startTime)
	defer done()
	path, err := m.cfg.Worker()
	if err != nil {
		return nil, err
	}
	s.WorkerPath = path
	inst, err := d.Create(ctx, *s)
	if err != nil {
		return nil, err
	}
	wk, err := m.connect(ctx, inst, poison)
	if err != nil {
		dctx, done := sys.Detach(ctx, cleanupTime)
		defer done()
		if derr := inst.Destroy(dctx); derr != nil {
			return &standing{inst: inst}, errors.Join(err, derr)
		}
		return nil, err
	}
	return &standing{inst: inst, wk: wk}, nil
}

func (m *Manager) connect(ctx context.Context, inst backend.Instance, poison func(error)) (*worker.Client, error) {
	conn, err := inst.Dial(ctx)
	if err != nil {
		return nil, err
	}
	obs, err := inst.Observe(ctx)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return worker.Start(ctx, conn, worker.Options{WorkerPID: obs.WorkerPID, OnPoison: poison})
}

var _ = sys.RegisterFaults("probe.planted")

// plantToken is the part of a boundary's token that names its sentinels: the
// boundary's record is theirs too.
func plantToken(token string) string { return token[:12] }

// probe measures a boundary from inside and outside. way is its way out; nil: it
// has none.
func (m *Manager) probe(ctx context.Context, st *standing, s *backend.Spec, host map[task.Axis]vouched, way *passage) (task.Vector, map[task.Axis]string, []task.Finding, []byte, error) {
	fail := func(err error) (task.Vector, map[task.Axis]string, []task.Finding, []byte, error) {
		return nil, nil, nil, nil, task.Errorf(task.CodeProbeMismatch, "probe", "the boundary could not be measured: %w", err).
			WithHint("nothing was executed; `caisson doctor` tries the same layers one by one")
	}
	ctx, done := context.WithTimeout(ctx, startTime)
	defer done()
	plants, err := probe.Plant(m.cfg.RuntimeDir, plantToken(s.Token))
	if err != nil {
		// Nothing was measured: this says nothing about the boundary.
		return nil, nil, nil, nil, err
	}
	defer plants.Close()
	if err := sys.Fault("probe.planted"); err != nil {
		return fail(err)
	}
	spec := m.probeSpec(s)
	if in, ok := st.inst.(backend.Insider); ok {
		spec.UID, spec.GID = in.Inside()
	}
	kernel, ok := st.inst.(backend.Kerneled)
	if seen := ""; ok {
		if seen, _ = kernel.Kernel(); seen != "" {
			spec.HostKernel = probe.HostKernel()
		}
	}
	if way != nil {
		spec.Gate = way.kind
	}
	plants.Apply(&spec)
	data, err := spec.Encode()
	if err != nil {
		return fail(err)
	}
	report, err := st.wk.Builtin(ctx, "probe", data)
	if err != nil {
		return fail(err)
	}
	seen, err := st.inst.Observe(ctx)
	if err != nil {
		return fail(err)
	}
	obs := probe.Observation{Levels: task.Vector{}, Seen: map[task.Axis]string{}, Touched: plants.Touched()}
	if way != nil {
		obs.Gated = way.record.attempts()
	}
	for a, l := range seen.Levels {
		obs.Levels[a], obs.Seen[a] = l, seen.Seen[a]
	}
	for a, h := range host {
		obs.Levels[a], obs.Seen[a] = h.level, h.why
	}
	if w, err := probe.ObserveHost(seen.WorkerPID); err == nil {
		obs.Worker = &w
	}
	obs.Space = m.seeSpace(ctx, st, seen.WorkerPID)
	for _, v := range []*probe.HostView{obs.Worker, obs.Space} {
		if v != nil {
			v.Told = seen.Told
		}
	}
	var told *[2]int
	if ok {
		var user int
		if obs.Kernel, user = kernel.Kernel(); obs.Kernel != "" {
			told = &[2]int{user, spec.UID}
		}
	}
	channel, why := assured(st.wk.Assurance(), &obs, told)
	obs.Levels[task.CHN], obs.Seen[task.CHN] = channel.Level(), why
	proved, how, findings := probe.Judge(&spec, report, &obs)
	if st.channel = channel; proved[task.CHN] < channel.Level() {
		st.channel = task.MACOnly // from inside it looked otherwise
	}
	return proved, how, findings, report, nil
}

// seeSpace looks at a process of the tools' side: the first one of their space, or,
// where the worker starts them itself, one of those that wait for a call.
func (m *Manager) seeSpace(ctx context.Context, st *standing, worker int) *probe.HostView {
	for wait := time.Millisecond; ; wait *= 2 {
		for _, pid := range probe.Descendants(worker) {
			if v, err := probe.ObserveHost(pid); err == nil {
				return &v
			}
		}
		if worker == 0 || st.wk.Assurance() != task.UIDSplit || wait > time.Second {
			return nil
		}
		select { // the next one is being started
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// assured is what was proved of the worker's channel: what the client checks of
// every frame, as long as the worker is another than the tools as the host sees
// it. Where another kernel has both, told are their users there.
func assured(a task.Assurance, obs *probe.Observation, told *[2]int) (task.Assurance, string) {
	if a == task.UIDSplit && told != nil && told[0] != told[1] {
		return a, "uid-split: the worker has another user than the tools, as it said before anything else ran and as a tool finds; the boundary's own kernel keeps them apart, each frame carries a key's tag"
	}
	if w, s := obs.Worker, obs.Space; a == task.UIDSplit && w != nil && s != nil && w.UID != s.UID && w.UID >= 0 && s.UID >= 0 {
		return a, "uid-split: the worker has another user than the tools, which the host sees; each frame carries a key's tag"
	}
	if a != task.KernelObject {
		return task.MACOnly, "each frame carries a key's tag; the kernel names no sender"
	}
	if w, s := obs.Worker, obs.Space; w != nil && s != nil {
		for _, ns := range []string{"user", "pid"} {
			if w.NS[ns] != 0 && w.NS[ns] == s.NS[ns] {
				return task.MACOnly, "the worker shares its " + ns + " namespace with the tools"
			}
		}
	}
	return a, "kernel-object: an inherited socket without a name at either end; the kernel names the worker as sender of every frame, and each carries a key's tag"
}

// probeSpec says what the inside shall try, from what this machine has.
func (m *Manager) probeSpec(s *backend.Spec) probe.Spec {
	env := func(k string) string { return valueOf(m.cfg.Environ, k) }
	spec := probe.Survey(probe.SurveyInput{
		Home: m.cfg.Identity.Home, RuntimeDir: env("XDG_RUNTIME_DIR"), Getenv: env,
		Absent: []string{m.cfg.StateDir, m.cfg.RuntimeDir, m.taskDir(s.Task)}, Control: m.sockets(),
	})
	spec.Source, spec.Home, spec.UID, spec.GID = s.Source.Target, s.Home, insideUID, insideUID
	spec.Ptrace, spec.Userns, spec.OwnRoot = s.Ptrace, s.Userns, s.Rootfs != "" || s.Image != ""
	spec.Writable = []string{s.Home, "/tmp"}
	spec.ReadOnly = []string{"/", "/usr", "/etc"}
	for _, mt := range append([]backend.Mount{s.Source, s.Out}, s.Write...) {
		if mt.Writable {
			spec.Writable = append(spec.Writable, mt.Target)
		} else if mt.Target != "" {
			spec.ReadOnly = append(spec.ReadOnly, mt.Target)
		}
	}
	for _, c := range s.Source.Cover {
		spec.ReadOnly = append(spec.ReadOnly, filepath.Join(s.Source.Target, c))
	}
	for _, list := range [][]backend.Mount{s.Objects, s.RO, s.Tools} {
		for _, mt := range list {
			// A folder on PATH that lies in the checkout is the task's own copy
			// inside, like the rest of it: no backend mounts it.
			if mt.Target != s.Source.Target && !strings.HasPrefix(mt.Target, s.Source.Target+"/") {
				spec.ReadOnly = append(spec.ReadOnly, mt.Target)
			}
		}
	}
	for _, kv := range s.Env {
		k, _, _ := strings.Cut(kv, "=")
		spec.Env = append(spec.Env, k)
	}
	spec.Nonce = task.NewToken()
	spec.HostPID, spec.HostNS = os.Getpid(), probe.OwnNamespaces()
	spec.HostStart, _ = probe.StartTime(os.Getpid())
	return spec
}

// sockets lists the control sockets of all tasks, for a boundary to fail at.
func (m *Manager) sockets() []string {
	found, _ := filepath.Glob(filepath.Join(m.cfg.RuntimeDir, "t*.sock"))
	return found
}

// standFor makes a boundary for as long as f uses it, and takes it away whatever
// came of that. err is what came of it, left why the boundary is not gone.
func (m *Manager) standFor(ctx context.Context, d backend.Driver, s *backend.Spec, f func(*standing) error) (err, left error) {
	st, err := m.stand(ctx, d, s, nil)
	switch {
	case err == nil:
		err = f(st)
		dctx, done := sys.Detach(ctx, cleanupTime)
		defer done()
		_ = st.wk.Close()
		left = st.inst.Destroy(dctx)
	case st != nil || task.CodeOf(err) == task.CodeStuck:
		left = err
	}
	return err, left
}

// gone is what the inventory is told of resources that were taken away: that they
// are gone, or with why not nil that they are stuck.
func gone(rs []inventory.Resource, why error) (cs []inventory.ResourceChange) {
	state := task.Gone
	if why != nil {
		state = task.RStuck
	}
	for _, r := range rs {
		cs = append(cs, inventory.ResourceChange{Kind: r.Kind, Name: r.Name, State: state, Err: why})
	}
	return cs
}
