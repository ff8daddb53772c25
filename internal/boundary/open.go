package boundary

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/inventory"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("open.before-record", "open.after-record", "open.folder", "open.evidence",
	"open.marked", "open.source", "open.intended", "open.boundary", "open.recorded", "open.probed", "open.served", "open.ready", "open.abandoned")

// The kinds of resources that the manager itself accounts for. Backends name
// their own.
const (
	kindFiles  = "files"  // tasks/<id> but its evidence; External: the folder
	kindPins   = "pins"   // refs/caisson/<id>/pin/ in the user's repository
	kindSocket = "socket" // the control socket
)

// Open implements door.Engine: it has a supervisor process open the task and
// returns when the task is ready.
func (m *Manager) Open(ctx context.Context, req task.Request, progress func(string)) (*task.View, error) {
	id, err := m.cfg.Spawn(ctx, Order{Request: req}, progress)
	if err != nil {
		return nil, err
	}
	v, err := m.Show(ctx, string(id))
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		// Canceled at the last moment. Whoever asked has no id to close it by.
		dctx, done := sys.Detach(ctx, cleanupTime)
		defer done()
		_, cerr := m.Close(dctx, string(id), door.CloseOptions{Keep: task.KeepNever, Progress: progress})
		return nil, errors.Join(err, cerr)
	}
	m.say(v.Source.Notes)
	return v, nil
}

// say tells a person what they should know about a task.
func (m *Manager) say(notes []string) {
	for _, n := range notes {
		m.cfg.Log(n)
	}
}

// OpenHere opens a task whose boundary this process holds, and returns its id
// once it is ready. The caller ends it with End.
func (m *Manager) OpenHere(ctx context.Context, req task.Request, progress func(string)) (task.ID, error) {
	l, err := m.open(ctx, req, nil, progress)
	if err != nil {
		return "", err
	}
	return l.id, nil
}

// open takes a task from nothing to ready, or leaves nothing but a record.
func (m *Manager) open(ctx context.Context, req task.Request, argv []string, progress func(string)) (*live, error) {
	id := m.freshID()
	r := &room{m: m, id: id, name: req.Name}
	var said answered
	defer r.leave(ctx)
	for {
		d, err := m.decide(ctx, req, id, argv)
		if err != nil {
			return nil, m.ruledOut(ctx, d, argv, err)
		}
		if err := m.refused(ctx, d, argv); err != nil {
			return nil, err // nothing was created
		}
		if err := m.mayOpen(ctx, d, id, argv, &said); err != nil {
			return nil, err
		}
		if err := sys.Writable(m.cfg.RuntimeDir); err != nil {
			return nil, task.Errorf(task.CodeStateStore, "open", "no control socket can be made in the runtime folder: %w", err).
				WithHint("CAISSON_RUNTIME_DIR names another folder")
		}
		l, full, err := m.record(ctx, d, id, argv, r)
		switch {
		case err != nil:
			return nil, err
		case full != nil:
			if err := r.wait(ctx, d, full, progress); err != nil {
				return nil, err
			}
			continue
		}
		r.ticket = 0 // given back with the record
		return m.built(ctx, l, d, progress)
	}
}

// built takes a recorded task to ready.
func (m *Manager) built(ctx context.Context, l *live, d *decided, progress func(string)) (*live, error) {
	if err := m.build(ctx, l, d, progress); err != nil {
		_ = d.marked() // nothing is being written any more
		return nil, m.abandon(ctx, l, err)
	}
	return l, nil
}

// freshID returns an id of which no trace exists yet: what has its name from
// here on was made for it.
func (m *Manager) freshID() task.ID {
	for {
		id := task.NewID()
		if !exists(m.taskDir(id)) && !exists(m.socketPath(id)) {
			return id
		}
	}
}

func (m *Manager) socketPath(id task.ID) string {
	return filepath.Join(m.cfg.RuntimeDir, string(id)+".sock")
}

// record writes the intent of everything the task will consist of, then takes
// its folder and lock. Where the budget has no room for it now, it says what there
// is to wait for, and nothing was recorded but that it waits.
func (m *Manager) record(ctx context.Context, d *decided, id task.ID, argv []string, r *room) (*live, *noRoom, error) {
	if err := sys.Fault("open.before-record"); err != nil {
		return nil, nil, err
	}
	l := &live{id: id, name: d.req.Name, token: task.NewToken(), dir: m.taskDir(id), keep: d.req.Keep}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.spec, l.driver = d.spec, d.driver.Name()
	l.secrets = d.secrets
	l.asking, l.unattended, l.plan = d.req.Asking, d.req.Unattended, d.plan.Plan.Digest
	l.ruleBy(d)
	l.open, l.lent = netMode(&d.req) == policy.NetOpen, d.lent
	l.command, l.only = argv, d.only
	l.checkout = d.repo.Ref.Repo
	l.decision.begin(d)
	l.spec.Token = l.token
	ca, err := certify(&l.spec, d.read)
	if err != nil {
		return nil, nil, err
	}
	l.ca = ca
	l.ws = m.workspaceOf(id, d.repo.Ref)
	l.ws.Token = l.token
	sup, err := m.supervisor(l.dir)
	if err != nil {
		return nil, nil, err
	}
	if err := m.lockCheckout(ctx, l, d.repo.Ref); err != nil {
		return nil, nil, err
	}
	plan := d.plan.Plan
	view := task.View{
		Schema: "caisson.task/1", ID: id, Name: d.req.Name, Owner: m.cfg.Identity.Login, Created: time.Now().UTC(),
		Backend: d.driver.Name(), Source: d.repo.Ref, Command: argv, Levels: lean(plan.Levels), Accepted: plan.Accepted, Facts: plan.Facts, Findings: plan.Findings, Grants: plan.Grants,
		Limits: plan.Limits, Tools: d.tools, KeepFor: d.keepFor(), RiskyFiles: d.riskyFiles(), Trust: d.req.Trust, Unattended: d.req.Unattended, Agent: d.req.Agent, NotIsolated: plan.NotIsolated, TaskDir: l.dir,
		Parent: task.ID(d.req.Parent), Keep: d.req.Keep, Need: d.req.Need, Rootfs: d.named, Image: d.req.Image, RootDigest: d.rootDigest, Objects: d.repo.Objects, Identity: m.cfg.Identity,
	}
	if d.req.Asking.Rules != nil || d.req.Asking.Hook != "" {
		view.Asking = &d.req.Asking // a task that is resumed keeps its rules
	}
	var full *noRoom
	ticket := r.ticket
	err = m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) (err error) {
		if err := m.bound(tx, d.req.Parent); err != nil {
			return err
		}
		if full, err = r.enter(tx, d); err != nil || full != nil {
			return err
		}
		if err := tx.CreateTask(inventory.Task{View: view, Repo: d.repo.Ref.Repo, Base: d.repo.Ref.Base, OwnerUID: m.cfg.Identity.UID}); err != nil {
			return err
		}
		if err := tx.SetSupervisor(id, sup); err != nil {
			return err
		}
		if err := use(tx, plan.Accepted); err != nil {
			return err
		}
		if err := tx.Intend(id, m.resources(d, l)); err != nil {
			return err
		}
		return tx.SetState(id, task.Creating, nil)
	})
	if err != nil {
		r.ticket = ticket // one that was taken was not recorded
	}
	if err != nil || full != nil {
		l.unlockCheckout()
		return nil, full, err
	}
	if err := sys.Fault("open.after-record"); err != nil {
		return nil, nil, m.abandon(ctx, l, err)
	}
	if err := m.takeFolder(l, d); err != nil {
		return nil, nil, m.abandon(ctx, l, err)
	}
	return l, nil, nil
}

// resources names everything the task will consist of, in the order it is made.
func (m *Manager) resources(d *decided, l *live) []inventory.Resource {
	rs := []inventory.Resource{
		{Resource: task.Resource{Kind: kindFiles, Name: string(l.id), Token: l.token}, Provider: "source", Durable: true},
		{Resource: task.Resource{Kind: kindSocket, Name: string(l.id) + ".sock", Token: l.token}, Provider: "boundary"},
	}
	if mayPin(d.repo) {
		rs = append(rs, inventory.Resource{Resource: task.Resource{Kind: kindPins, Name: pinsName(l.id), Token: l.token}, Provider: "source", Durable: true})
	}
	rs = append(rs, strategyResources(d.repo.Ref, l)...)
	return append(rs, backendResources(d.driver, l.spec)...)
}

func pinsName(id task.ID) string { return "refs/caisson/" + string(id) + "/pin" }

// mayPin reports whether source.Prepare writes pins: also for a clone that
// shares nothing, to compare with.
func mayPin(r *source.Repo) bool { return r.Pinnable && len(r.Tips) > 0 }

func backendResources(d backend.Driver, s backend.Spec) []inventory.Resource {
	var rs []inventory.Resource
	for _, r := range d.Resources(s) {
		rs = append(rs, inventory.Resource{Resource: task.Resource{Kind: r.Kind, Name: r.Name, Token: r.Token}, Provider: d.Name()})
	}
	return rs
}

// marker is tasks/<id>/task.json: the proof that the folder is what the
// inventory means, and what the inventory is rebuilt from when it is lost.
type marker struct {
	ID       task.ID `json:"id"`
	Token    string  `json:"token"`
	Instance string  `json:"instance"`
	Repo     string  `json:"repo"`
}

// takeFolder makes the task's folder and locks it. Its mark is written beside what
// follows; d.marked waits for it, before anything is made in the folder.
func (m *Manager) takeFolder(l *live, d *decided) error {
	// A folder that is there already is not ours, whatever its name.
	err := sys.PrivateDir(filepath.Dir(l.dir))
	if err == nil {
		err = os.Mkdir(l.dir, 0o700)
	}
	if err != nil {
		return task.Errorf(task.CodeStateStore, "open", "cannot make the task's folder: %w", err).
			WithHint("the state directory must be writable; CAISSON_STATE_DIR names another")
	}
	if err := sys.Fault("open.folder"); err != nil {
		return err
	}
	lock, err := sys.TryLock(filepath.Join(l.dir, "lock"))
	if err != nil {
		return task.Errorf(task.CodeStateStore, "open", "cannot lock the task's folder: %w", err)
	}
	l.lock = lock
	marked := make(chan error, 1)
	go func() { marked <- m.markFolder(l) }()
	d.marked = sync.OnceValue(func() error { return <-marked })
	if l.log, err = evidence.Open(filepath.Join(l.dir, "evidence"), l.id, hiding(l.secrets)); err == nil {
		err = sys.Fault("open.evidence")
	}
	if err != nil {
		return errors.Join(err, d.marked())
	}
	return nil
}

// markFolder marks the task's folder as ours.
func (m *Manager) markFolder(l *live) error {
	b, err := json.Marshal(marker{ID: l.id, Token: l.token, Instance: m.cfg.DB.Instance(), Repo: l.spec.Source.Target})
	if err == nil {
		err = sys.WriteFile(filepath.Join(l.dir, "task.json"), append(b, '\n'), 0o600)
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(l.dir, "out"), 0o700)
	}
	if err == nil && len(l.spec.Write) > 0 {
		err = os.Mkdir(filepath.Join(l.dir, "deps"), 0o700)
	}
	if err != nil {
		return task.Errorf(task.CodeStateStore, "open", "cannot write the task's folder: %w", err)
	}
	return sys.Fault("open.marked")
}

// hiding returns what keeps values out of the record, whatever prints them:
// what a person passed in by --env may be a secret.
func hiding(secrets []string) *evidence.Redactor {
	hide := evidence.NewRedactor()
	for _, kv := range secrets {
		_, v, _ := strings.Cut(kv, "=")
		hide.Add(v)
	}
	return hide
}

// build makes source and boundary and proves them.
func (m *Manager) build(ctx context.Context, l *live, d *decided, progress func(string)) error {
	plan := &d.plan.Plan
	made := map[string]any{
		"name": d.req.Name, "source": plan.Source, "trust": d.req.Trust, "unattended": d.req.Unattended, "agent": d.req.Agent, "origin": d.req.Origin, "version": m.cfg.Version}
	if len(d.consulted) > 0 {
		made["decision_hooks"] = d.consulted
	}
	if d.req.Parent != "" {
		made["parent"] = d.req.Parent
	}
	if _, err := l.log.AppendBulk(ctx, evidence.TaskCreated, m.actor(), made); err != nil {
		return err
	}
	if _, err := l.log.AppendBulk(ctx, evidence.PlanDecided, self, d.record(nil)); err != nil {
		return err
	}
	if err := d.marked(); err != nil {
		return err
	}
	prep, look, st, err := m.furnish(ctx, l, d, progress)
	defer look.stop()
	if err != nil {
		return err
	}
	if err := sys.Fault("open.boundary"); err != nil {
		return err
	}
	return m.prove(ctx, l, d, st, func() error {
		l.notes = append(l.notes, prep.Ref.Notes...)
		if uncommitted := look.said(); uncommitted != "" {
			l.notes = append(l.notes, uncommitted)
		}
		l.notes = append(append(l.notes, weaker(d)...), loud(d)...)
		prep.Ref.Notes = l.notes
		err := m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
			if err := tx.SetResources(l.id, present(l, d.repo.Ref, mayPin(d.repo), st.inst.Resources())); err != nil {
				return err
			}
			return tx.SetState(l.id, task.Probing, func(v *task.View) { v.Source = prep.Ref })
		})
		if err != nil {
			return err
		}
		return sys.Fault("open.recorded")
	})
}

// weaker says which limits that a person asked for hold less than asked.
func weaker(d *decided) []string {
	l := d.req.Limits
	if l.MemoryBytes == 0 && l.CPUs == 0 && l.Pids == 0 {
		return nil
	}
	var out []string
	for _, f := range d.plan.Plan.Findings {
		if f.Axis == task.RES && f.Cap < 2 {
			out = append(out, "the limits you asked for hold only in part: "+f.Text)
		}
	}
	return out
}

// present lists what build made.
func present(l *live, ref task.SourceRef, pinned bool, made []backend.Resource) []inventory.ResourceChange {
	cs := []inventory.ResourceChange{{Kind: kindFiles, Name: string(l.id), State: task.Present, External: l.dir}}
	if pinned {
		cs = append(cs, inventory.ResourceChange{Kind: kindPins, Name: pinsName(l.id), State: task.Present})
	}
	cs = append(cs, strategyChanges(ref, l.id, task.Present)...)
	for _, r := range made {
		cs = append(cs, inventory.ResourceChange{Kind: r.Kind, Name: r.Name, State: task.Present, External: r.External})
	}
	return cs
}

// prove measures the boundary and lets commands in, or stops. What was made is
// put on record meanwhile: the intent is there already.
func (m *Manager) prove(ctx context.Context, l *live, d *decided, st *standing, record func() error) error {
	recorded := make(chan error, 1)
	go func() { recorded <- record() }()
	werr := m.openWay(l, st.inst)
	var proved task.Vector
	var seen map[task.Axis]string
	var findings []task.Finding
	var report []byte
	err := werr
	if err == nil {
		proved, seen, findings, report, err = m.probe(ctx, st, &l.spec, hostLevels(d.repo.Ref, d.grants), l.passage())
	}
	if rerr := <-recorded; err == nil {
		err = rerr
	}
	if err != nil {
		return err
	}
	if d.quota && proved[task.RES] == 2 {
		ok, text := m.seesQuota(ctx, l, d)
		if ok {
			proved[task.RES] = 3
		}
		seen[task.RES] += "; " + text
	}
	if q, ok := st.inst.(backend.Qualified); ok {
		findings = add(findings, d.plan.Plan.Findings, q.Findings())
	}
	levels, mismatch := d.plan.Compare(proved, seen, findings)
	levels = lean(levels) // the reasons are in the plan
	typ := evidence.ProbeReported
	body := map[string]any{"levels": levels, "findings": findings, "report": json.RawMessage(report)}
	if mismatch != nil {
		if _, err := l.log.Append(ctx, evidence.ProbeReported, self, body); err != nil {
			return errors.Join(mismatch, err)
		}
		typ, body = evidence.BoundaryBlocked, map[string]any{"error": mismatch.Error(), "code": string(task.CodeOf(mismatch))}
	}
	if _, err := l.log.Append(ctx, typ, self, body); err != nil {
		return errors.Join(mismatch, err)
	}
	if err := sys.Fault("open.probed"); err != nil {
		return err
	}
	set := func(v *task.View) {
		v.Levels, v.Channel, v.Findings = levels, st.channel, append(v.Findings, findings...)
	}
	if mismatch != nil && l.resumed != nil {
		return mismatch // and kept as before
	}
	if mismatch != nil {
		err := m.cfg.DB.SetState(ctx, l.id, task.Blocked, func(v *task.View) { set(v); v.Problem = mismatch.Error() })
		return errors.Join(mismatch, err)
	}
	l.letOut()
	if err := m.publishAll(ctx, l, d.req.Publish); err != nil {
		return err
	}
	m.limits(l)
	// Known here before anybody can ask for it.
	m.mu.Lock()
	m.live[l.id] = l
	m.mu.Unlock()
	stop, err := m.cfg.Serve(l.id, l.name)
	if err != nil {
		return err
	}
	l.serves(stop)
	if err := sys.Fault("open.served"); err != nil {
		return err
	}
	err = m.cfg.DB.Tx(ctx, func(tx *inventory.Tx) error {
		if err := tx.SetResources(l.id, []inventory.ResourceChange{{Kind: kindSocket, Name: string(l.id) + ".sock", State: task.Present}}); err != nil {
			return err
		}
		return tx.SetState(l.id, task.Ready, func(v *task.View) {
			set(v)
			v.Ran = true
			if l.resumed != nil {
				v.Retention, v.Problem = nil, ""
			}
		})
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.ready = true
	l.mu.Unlock()
	return sys.Fault("open.ready")
}

// poisoned ends a boundary whose channel was given up.
func (m *Manager) poisoned(l *live, cause error) {
	ctx, done := sys.Detach(context.Background(), cleanupTime)
	defer done()
	if l.log != nil {
		_, _ = l.log.Append(ctx, evidence.ChannelPoisoned, self, map[string]any{"error": cause.Error()})
	}
	inst, _ := l.standing()
	if inst != nil {
		// Under its memory limit the kernel may end our own process too. The
		// group still knows; say so rather than that a channel broke.
		if o, err := inst.Observe(ctx); err == nil && o.OOMKills > 0 {
			cause = task.Errorf(task.CodeLimit, "limits", "memory: the limit of %d MiB was reached and the kernel ended the boundary (OOM, out of memory; --memory)", l.spec.Limits.MemoryBytes>>20)
			if l.log != nil {
				m.limitHit(l, "memory", cause.Error())
			}
		}
	}
	_ = m.cfg.DB.Update(ctx, l.id, func(v *task.View) { v.Problem = cause.Error() })
	l.cancel(cause)
	if inst != nil {
		if err := inst.Destroy(ctx); err != nil {
			m.cfg.Log("task " + string(l.id) + ": " + err.Error())
		}
	}
}

// abandon removes what a failed opening made. Nothing was executed, so nothing
// can be lost. The cause is what the caller returns.
func (m *Manager) abandon(ctx context.Context, l *live, cause error) error {
	dctx, done := sys.Detach(ctx, cleanupTime)
	defer done()
	if l.log != nil {
		_, _ = l.log.AppendBulk(dctx, evidence.BoundaryFailed, self, map[string]any{"error": cause.Error(), "code": string(task.CodeOf(cause))})
	}
	_ = m.cfg.DB.Update(dctx, l.id, func(v *task.View) {
		if v.Problem == "" {
			v.Problem = cause.Error()
		}
	})
	_ = sys.Fault("open.abandoned")
	// By way of end: somebody may be closing it at the same time.
	rep, err := m.end(l, cause, endOptions{keep: task.KeepNever})
	if err != nil {
		m.cfg.Log("task " + string(l.id) + ": " + err.Error())
	}
	if rep != nil && rep.State == task.Stuck {
		return errors.Join(cause, task.Errorf(task.CodeStuck, "open", "and what it had made could not be removed yet").WithHint("`caisson show %s` lists it; `caisson reap` retries", l.id))
	}
	return cause
}

// add appends the findings of more that are neither in have nor in known.
func add(have, known, more []task.Finding) []task.Finding {
	for _, f := range more {
		same := func(g task.Finding) bool { return g.ID == f.ID && g.Location == f.Location }
		if !slices.ContainsFunc(have, same) && !slices.ContainsFunc(known, same) {
			have = append(have, f)
		}
	}
	return have
}
