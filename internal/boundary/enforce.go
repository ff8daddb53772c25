package boundary

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// calls is what the policy says about calls of the task.
func (d *decided) calls() policy.Calls {
	if d.rules.Rules == nil {
		return policy.Calls{}
	}
	return d.rules.Rules.Calls()
}

// enforce holds what was asked for against the policy: what it denies is refused
// by name, what nobody asked for gets what it allows. It has no effect but on d,
// and says whether that has another backend now, which nobody has looked at.
func (m *Manager) enforce(d *decided) (other bool, err error) {
	r, was := d.rules.Rules, d.driver
	if r == nil {
		return false, nil
	}
	e := enforcing{m: m, d: d, r: r, origin: maps.Clone(d.req.Origin)}
	if e.origin == nil {
		e.origin = map[string]string{}
	}
	for _, step := range []func() error{e.trust, e.backend, e.reach, e.network, e.commands} {
		if err := step(); err != nil {
			return false, err
		}
	}
	if r.Unattended.Value && !d.req.Unattended {
		d.req.Unattended = true
		e.set("unattended", r.Unattended.From)
	}
	if r.Frozen.Value && !d.req.Asking.Frozen {
		d.req.Asking.Frozen = true
		e.set("frozen", r.Frozen.From)
	}
	if most := time.Duration(r.Wait.Value); most > 0 && cmp.Or(d.req.Asking.Wait, askTime) > most {
		if d.typed("ask-timeout") {
			return false, e.above("--ask-timeout", d.req.Asking.Wait.String(), r.Wait.Value.String(), r.Wait.From)
		}
		d.req.Asking.Wait = most
		e.set("ask-timeout", r.Wait.From)
	}
	if err := e.limits(); err != nil {
		return false, err
	}
	d.req.Origin = e.origin
	return d.driver.Name() != was.Name(), nil
}

// enforcing is one holding of a request against rules.
type enforcing struct {
	m      *Manager
	d      *decided
	r      *policy.Rules
	origin map[string]string // of the request, for the record
}

func (e *enforcing) set(field string, from policy.Origin) { e.origin[field] = from.String() }

// typed says that whoever asked gave the flag, and not a default.
func (d *decided) typed(flag string) bool { return d.req.Origin[flag] == "flag" }

func refusal(flag, why string, from policy.Origin) *task.Error {
	if own := " (" + from.String() + ")"; !strings.HasSuffix(why, own) {
		why += own
	}
	return task.Errorf(task.CodeDenied, "plan", "%s: the policy does not allow it: %s", flag, why).
		WithHint("leave it out, or have %s changed by whoever may write it; `caisson policy show` says what holds here", place(from))
}

func place(o policy.Origin) string {
	if o.Where == "" {
		return "the " + string(o.Source) + " policy"
	}
	return o.Where
}

func (e *enforcing) above(flag, asked, most string, from policy.Origin) error {
	return task.Errorf(task.CodeDenied, "plan", "%s %s is more than the policy allows, %s (%s)", flag, asked, most, from).
		WithHint("ask for %s at most, or have %s changed by whoever may write it", most, place(from))
}

func (e *enforcing) trust() error {
	if a := e.r.AllowTrust; e.d.req.Trust && (a.From != policy.Origin{}) && !a.Value {
		if e.d.req.Origin == nil {
			e.d.req.Trust = false // said when the task was opened, and it counts no more
			return nil
		}
		return refusal("--trust", "allow_trust is false", a.From)
	}
	return nil
}

// backend holds the backend that was asked for against those that are allowed, and
// takes a preferred one where none was.
func (e *enforcing) backend() error {
	d, names := e.d, e.r.Allowed
	allowed := func(n string) bool { return names.Value == nil || slices.Contains(names.Value, n) }
	if n := d.req.Backend; n != "" && n != "auto" {
		if !allowed(d.driver.Name()) {
			return refusal("--backend "+n, "backends.allowed is "+strings.Join(names.Value, ", "), names.From)
		}
		return nil
	}
	if d.trial {
		if !allowed(d.driver.Name()) {
			return task.Errorf(task.CodeUnavailable, "plan", "the policy does not allow it: backends.allowed is %s (%s)", strings.Join(names.Value, ", "), names.From)
		}
		if slices.Contains(e.r.Prefer.Value, d.driver.Name()) {
			e.set("backend", e.r.Prefer.From)
		}
		return nil
	}
	for _, n := range slices.Concat(e.r.Prefer.Value, []string{d.driver.Name()}, names.Value) {
		have, err := e.m.driver(n)
		if err != nil || !allowed(have.Name()) {
			continue
		}
		if have.Name() != d.driver.Name() {
			d.driver, d.ahead = have, nil // what was looked at ahead is another's
		}
		switch {
		case slices.Contains(e.r.Prefer.Value, n):
			e.set("backend", e.r.Prefer.From)
		case names.Value != nil:
			e.set("backend", names.From)
		}
		return nil
	}
	return task.Errorf(task.CodeUnavailable, "plan", "the policy allows only the backends %s (%s), and none of them is in this version", strings.Join(names.Value, ", "), names.From).
		WithHint("have %s changed by whoever may write it; here there is %s", place(names.From), d.driver.Name())
}

// reach holds folders, variables and abilities that were asked for against what
// is denied and what whoever asks may have.
func (e *enforcing) reach() error {
	q := &e.d.req
	for _, s := range q.RO {
		b, err := seed(s)
		if err != nil {
			return err
		}
		if err := e.wish("--ro "+s, policy.Item{Mount: &policy.Mount{Path: policy.Path(b.Source)}}); err != nil {
			return err
		}
	}
	if q.Rootfs != "" {
		p, err := absolute(q.Rootfs, "--rootfs")
		if err != nil {
			return err
		}
		if err := e.wish("--rootfs "+q.Rootfs, policy.Item{Mount: &policy.Mount{Path: policy.Path(p)}}); err != nil {
			return err
		}
	}
	for _, kv := range slices.Concat(q.Env, e.d.inside) {
		name, _, _ := strings.Cut(kv, "=")
		if !validName(name) {
			continue // refused by its own name later
		}
		if err := e.wish("--env "+name, policy.Item{Env: policy.Name(name)}); err != nil {
			return err
		}
	}
	for _, h := range q.Lend {
		if err := e.wish("--lend "+h, policy.Item{Credential: policy.Name(h)}); err != nil {
			return err
		}
	}
	for _, g := range q.Grants {
		if err := e.wish("--grant "+g, policy.Item{Grant: policy.Ability(g)}); err != nil {
			return err
		}
	}
	// The repository is no grant, but what nobody may reach nobody works on.
	if repo := e.d.repo; repo != nil && repo.Ref.Repo != "" {
		for _, d := range e.r.Denied {
			if d.Mount == nil || d.Mount.Mode == policy.AccessRW && repo.Ref.Strategy != task.StrategyCheckout {
				continue
			}
			for _, p := range real(d.Mount.Path) {
				if (policy.Item{Mount: &policy.Mount{Path: policy.Path(repo.Ref.Repo)}}).In(policy.Item{Mount: &policy.Mount{Path: p}}) {
					return refusal("the repository "+repo.Ref.Repo, "denied: mounts "+d.Mount.String(), d.From)
				}
			}
		}
	}
	return nil
}

func (e *enforcing) wish(flag string, it policy.Item) error {
	who := policy.Delegatee("user")
	if !e.d.req.Person {
		who = "task"
	}
	a := e.r.Wish(who, it)
	if a.Verdict != task.VerdictDeny && it.Mount != nil {
		// A denied path that is a link, or lies behind one, is denied where it leads too.
		for _, d := range e.r.Denied {
			if d.Mount == nil {
				continue
			}
			for _, p := range real(d.Mount.Path) {
				if x := (policy.Mount{Path: p, Mode: d.Mount.Mode}); x.Touches(policy.MountPoint{Path: string(it.Mount.Path)}) {
					return refusal(flag, "denied: mounts "+d.Mount.String(), d.From)
				}
			}
		}
	}
	switch a.Verdict {
	case task.VerdictAllow:
		if (a.From != policy.Origin{}) {
			e.origin[flag] = a.Rule + " (" + a.From.String() + ")"
		}
		return nil
	case task.VerdictAsk:
		return refusal(flag, "a person has to ask for it, and none did", a.From)
	}
	return refusal(flag, a.Rule, a.From)
}

// real is a path, and where it leads.
func real(p policy.Path) []policy.Path {
	if to, err := filepath.EvalSymlinks(string(p)); err == nil && to != string(p) {
		return []policy.Path{p, policy.Path(to)}
	}
	return []policy.Path{p}
}

// commands refuses, before anything is made, a run of what nobody may run.
func (e *enforcing) commands() error {
	if len(e.d.argv) == 0 {
		return nil
	}
	c := e.d.calls()
	c.Hooks = nil // they are asked when the task is opened, not when it is planned
	_, err := e.m.mayRun(context.Background(), &c, e.d.req.Unattended || e.r.Unattended.Value, policy.HookQuestion{Kind: "run", Call: &policy.HookCall{Argv: e.d.argv}})
	return err
}

// limits refuses a limit above the policy's by the name of its flag. What nobody
// asked for is lowered; see bound.
func (e *enforcing) limits() error {
	q, l := &e.d.req, e.r.Limits
	for _, x := range []struct {
		flag        string
		over, typed bool
		asked, most string
		from        policy.Origin
	}{
		{"memory", over(q.Limits.MemoryBytes, int64(l.Memory.Value)), e.d.typed("memory"), fmt.Sprint(policy.Size(q.Limits.MemoryBytes)), l.Memory.Value.String(), l.Memory.From},
		{"cpus", over(q.Limits.CPUs, float64(l.CPUs.Value)), e.d.typed("cpus"), fmt.Sprint(q.Limits.CPUs), fmt.Sprint(float64(l.CPUs.Value)), l.CPUs.From},
		{"pids", over(q.Limits.Pids, int64(l.Pids.Value)), e.d.typed("pids"), fmt.Sprint(q.Limits.Pids), fmt.Sprint(int64(l.Pids.Value)), l.Pids.From},
		{"disk", over(q.Limits.DiskBytes, int64(l.Disk.Value)), e.d.typed("disk"), fmt.Sprint(policy.Size(q.Limits.DiskBytes)), l.Disk.Value.String(), l.Disk.From},
		{"timeout", over(q.Limits.Timeout, time.Duration(l.Timeout.Value)), e.d.typed("timeout"), q.Limits.Timeout.String(), l.Timeout.Value.String(), l.Timeout.From},
		{"net-bytes", over(q.Limits.NetBytes, int64(l.NetBytes.Value)), e.d.typed("net-bytes"), fmt.Sprint(policy.Size(q.Limits.NetBytes)), l.NetBytes.Value.String(), l.NetBytes.From},
		{"net-connections", over(q.Limits.NetConns, int64(l.NetConns.Value)), e.d.typed("net-connections"), fmt.Sprint(q.Limits.NetConns), fmt.Sprint(int64(l.NetConns.Value)), l.NetConns.From},
		{"net-rate", over(q.Limits.NetRate, int64(l.NetRate.Value)), e.d.typed("net-rate"), fmt.Sprint(q.Limits.NetRate), fmt.Sprint(int64(l.NetRate.Value)), l.NetRate.From},
	} {
		if x.over && x.typed {
			return e.above("--"+x.flag, x.asked, x.most, x.from)
		}
		if (x.from != policy.Origin{}) && !x.typed {
			e.set(x.flag, x.from)
		}
	}
	if n := l.Memory.Value; n > 0 && n < minMemory {
		return tooSmall("limits.memory", n.String(), l.Memory.From)
	}
	if n := l.Pids.Value; n > 0 && n < minPids {
		return tooSmall("limits.pids", fmt.Sprint(int64(n)), l.Pids.From)
	}
	return nil
}

func tooSmall(key, value string, from policy.Origin) error {
	return task.Errorf(task.CodePolicy, "plan", "%s: %s is %s, which holds no boundary", from, key, value).
		WithHint("at least %d MiB of memory and %d processes", minMemory>>20, minPids)
}

func over[T cmp.Ordered](asked, most T) bool {
	var none T
	return most != none && asked > most
}

// bound lowers limits to those of the policy.
func (d *decided) bound(l task.Limits) task.Limits {
	if d.rules.Rules == nil {
		return l
	}
	r := d.rules.Rules.Limits
	l.MemoryBytes, l.Pids, l.DiskBytes = least(l.MemoryBytes, int64(r.Memory.Value)), least(l.Pids, int64(r.Pids.Value)), least(l.DiskBytes, int64(r.Disk.Value))
	l.NetBytes, l.NetConns, l.NetRate = least(l.NetBytes, int64(r.NetBytes.Value)), least(l.NetConns, int64(r.NetConns.Value)), least(l.NetRate, int64(r.NetRate.Value))
	l.CPUs, l.Timeout = least(l.CPUs, float64(r.CPUs.Value)), least(l.Timeout, time.Duration(r.Timeout.Value))
	return l
}

// least is the lower of two limits, where 0 is none.
func least[T cmp.Ordered](a, b T) T {
	var none T
	if b == none || a != none && a < b {
		return a
	}
	return b
}

// answered is what the operator's hooks said to one question, word for word: a task
// that waits for its turn and is decided anew asks again only what is another one.
type answered struct {
	question string
	said     []consulted
}

// questionDigest tells one question to the same hooks from another; empty: it cannot be
// told, and then none is the same.
func questionDigest(v ...any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// mayOpen asks the operator's hooks about a task that is about to be made, and puts
// a refusal on record. before is what they allowed already; it may be nil.
func (m *Manager) mayOpen(ctx context.Context, d *decided, id task.ID, argv []string, before *answered) error {
	kind := "open"
	switch {
	case d.again:
		kind = "resume"
	case argv != nil:
		kind = "run"
	}
	c := d.calls()
	if len(c.Hooks) == 0 {
		return nil // commands that nobody may run were looked at when it was decided
	}
	c.Denied = nil
	l := &live{id: id, name: d.req.Name, checkout: d.repo.Ref.Repo, plan: d.plan.Plan.Digest, unattended: d.req.Unattended, secrets: d.secrets}
	q := l.asked(kind, &policy.HookCall{Argv: argv, Env: envNames(d.secrets)})
	if argv == nil {
		q.Call = nil
	}
	q.Grants = d.grants
	asked := questionDigest(q, c.Hooks)
	if before != nil && asked != "" && asked == before.question {
		d.consulted = before.said
		return nil
	}
	said, err := m.mayRun(ctx, &c, d.req.Unattended, q)
	d.consulted = said
	if err == nil {
		if before != nil {
			*before = answered{asked, said}
		}
		return nil
	}
	body := d.record(map[string]any{"error": err.Error(), "code": string(task.CodeOf(err)), "decision_hooks": said, "source": d.repo.Ref, "argv0": first(argv)})
	m.recordRefusal(ctx, body)
	return err
}
