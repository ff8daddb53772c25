package boundary

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/probe"
	"github.com/caisson-dev/caisson/internal/source"
	"github.com/caisson-dev/caisson/internal/task"
)

// Subject is what a policy is asked about.
type Subject struct {
	Request task.Request
	Repo    *source.Repo
	Person  bool // started by a person, whose environment and flags count as theirs
}

// Seen is what detectors found.
type Seen struct {
	Command []task.Fact   // about the command that was given
	Repo    []task.Fact   // about the repository's files at the base commit
	Simple  []task.Simple // what the command consists of
	Notes   []string
}

// known is what a decision rests on.
type known struct {
	facts []task.Fact
	seen  Seen
	rules policy.Governing
	notes []string
}

// know gathers what is known of a task: how it was started, what policy says,
// what detectors find, what else is at work. ways gets what would make work in
// the checkout itself need less.
func (m *Manager) know(ctx context.Context, d *decided, id task.ID, argv []string, ways map[task.Axis][]string, look *detecting) (*known, error) {
	k := &known{}
	var err error
	k.rules = d.rules
	l := policy.Launch{Supervised: d.req.Terminal && !d.req.Unattended, Unfamiliar: k.rules.Unfamiliar, Familiar: k.rules.Familiar}
	if r := k.rules.Rules; r != nil && l.Familiar == "" && l.Unfamiliar == "" && (r.AllowTrust.From != policy.Origin{}) && !r.AllowTrust.Value {
		l.Unfamiliar = "no trust of the policy names the repository, and allow_trust is false (" + r.AllowTrust.From.String() + ")"
	}
	// Another user's repository got here only because git was told to trust it.
	if l.Familiar == "" && l.Unfamiliar == "" && d.req.Person {
		l.Familiar = "a person started the task"
	}
	if d.req.Trust && !k.rules.NoTrust {
		l.Familiar, l.Unfamiliar = "--trust", ""
	}
	d.unwatched = k.rules.Unwatched
	l.Broad, d.broadAt = broad(d.req.Unattended, d.since, k.rules.Unwatched, time.Now())
	if l.Overlaps, err = m.overlapping(ctx, d.repo.Ref, id); err != nil {
		return nil, err
	}
	if d.repo.Ref.Strategy == task.StrategyCheckout {
		holder, err := m.holder(ctx, d.repo.Ref.Repo, id)
		if err != nil {
			return nil, err
		}
		w := policy.Direct{Trusted: d.req.Trust && !k.rules.NoTrust, Unattended: d.req.Unattended, Timeout: d.spec.Limits.Timeout, Holder: holder}.Ways()
		if l.Direct = len(w) == 0; l.Direct {
			// A person asked for their own checkout and stays with the task: that is
			// watched work, and what else runs has files of its own.
			l.Supervised, l.Overlaps = true, nil
		}
		ways[task.SRC] = append(w, ways[task.SRC]...)
	}
	check, notes := m.trustedCheck(d)
	k.notes = append(k.notes, notes...)
	if check != nil {
		k.rules.Lowered = append(slices.Clone(k.rules.Lowered), *check)
		d.only = true
	}
	k.facts = policy.Defaults(l)
	k.facts = append(k.facts, k.rules.Facts...)
	k.facts = append(k.facts, d.inherited...)
	k.facts = append(k.facts, d.loanFacts...)
	for _, f := range d.before {
		// What a launch or the moment said is said anew.
		if f.Source != task.SourceDefault && f.Source != task.SourceInventory {
			k.facts = append(k.facts, f)
		}
	}
	if !l.Direct {
		if k.seen, err = look.seen(); err != nil {
			return nil, err
		}
		k.notes = append(k.notes, k.seen.Notes...)
		k.add(k.seen.Command)
		k.add(hints(k.seen.Repo, &k.notes))
	}
	return k, nil
}

// detecting is what detectors find and what policy says, looked for while the
// rest is weighed.
type detecting struct {
	cancel   context.CancelFunc
	done     chan struct{} // closed once found and err are set
	found    Seen
	err      error
	ruled    chan struct{} // closed once rules and rulesErr are set
	rules    policy.Governing
	rulesErr error
}

// detecting begins; end ends it and waits until it has ended.
func (m *Manager) detecting(ctx context.Context, d *decided, argv []string) *detecting {
	ctx, cancel := context.WithCancel(ctx)
	l := &detecting{cancel: cancel, done: make(chan struct{}), ruled: make(chan struct{})}
	go func() {
		defer close(l.done)
		if m.cfg.Detect != nil {
			l.found, l.err = m.cfg.Detect(ctx, d.repo, argv)
		}
	}()
	subject := Subject{Request: d.req, Repo: d.repo, Person: d.req.Person}
	go func() {
		defer close(l.ruled)
		l.rules, l.rulesErr = m.governing(ctx, subject)
	}()
	return l
}

func (l *detecting) seen() (Seen, error) { <-l.done; return l.found, l.err }

func (l *detecting) policy() (policy.Governing, error) { <-l.ruled; return l.rules, l.rulesErr }

func (l *detecting) end() { l.cancel(); <-l.done; <-l.ruled }

// add takes what detectors say, but for rules that the operator suppressed.
func (k *known) add(fs []task.Fact) {
	for _, f := range fs {
		if why, off := k.rules.Suppressed[f.Rule]; off && f.Rule != "" {
			k.notes = append(k.notes, fmt.Sprintf("%s (%s=%s, %s) does not count: %s", f.Rule, f.What, f.Value, f.Evidence, why))
			continue
		}
		k.facts = append(k.facts, f)
	}
}

// hints leaves out what a repository mentions but a boundary does not have: its
// files name devices and kernel modules far more often than a task's work is
// about them, and no boundary has a device that was not granted. They are said
// all the same.
func hints(fs []task.Fact, notes *[]string) []task.Fact {
	out := []task.Fact{}
	n := 0
	for _, f := range fs {
		if f.What != task.KernelOrDevice {
			out = append(out, f)
			continue
		}
		if n++; n <= 3 {
			*notes = append(*notes, fmt.Sprintf("the repository is about a device or the kernel (%s %s): the boundary has none; if the work is about it, say --need KRN=3", f.Rule, f.Evidence))
		}
	}
	return out
}

// services says what level of task-owned services there is, and why.
func (k *known) services() (int, string) {
	for _, f := range append(slices.Clone(k.seen.Command), k.rules.Facts...) {
		if f.What == task.MutableState && f.Value != "none" || f.What == task.Migrations && f.Value != "none" {
			return 0, fmt.Sprintf("the task is to use a service (%s=%s, %s), and none of its own was given to it", f.What, f.Value, f.Evidence)
		}
	}
	if r := k.rules.Rules; r != nil && len(r.Services) > 0 {
		return 0, fmt.Sprintf("the policy declares %s (%s), and this version starts no service", r.Services[0].Name, r.Services[0].From)
	}
	return task.LevelNA, ""
}

// overlapping names the tasks at work on the same source.
func (m *Manager) overlapping(ctx context.Context, ref task.SourceRef, id task.ID) ([]string, error) {
	ts, err := m.cfg.DB.List(ctx, false)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range ts {
		v := &t.View
		if v.ID != id && v.State.Live() && v.Source.Repo == ref.Repo && v.Source.CommonDir == ref.CommonDir {
			out = append(out, string(v.ID))
		}
	}
	slices.Sort(out)
	return out, nil
}

// sharedToday names what exists on this machine and what of it the boundary as
// planned would leave within reach. It reads no content.
func (m *Manager) sharedToday(ctx context.Context, d *decided, k *known, id task.ID) []task.Instance {
	eff := d.plan.Effective
	var out []task.Instance
	add := func(a task.Axis, least int, kind, name string) {
		if len(out) < 400 {
			out = append(out, task.Instance{Axis: a, Kind: kind, Name: name, Reachable: eff[a] != task.LevelNA && eff[a] < least})
		}
	}
	if r := d.repo.Ref; r.CommonDir != "" {
		add(task.SRC, 1, "checkout", r.Repo)
		add(task.SRC, 2, "repository", r.CommonDir)
		for _, w := range d.repo.Worktrees() {
			if w != r.Repo {
				add(task.FS, 2, "worktree", w)
			}
		}
	}
	ts, _ := m.cfg.DB.List(ctx, false)
	for _, t := range ts {
		if v := &t.View; v.ID != id && v.State.Live() {
			add(task.PRC, 2, "task", fmt.Sprintf("%s (%s) on %s", v.ID, v.State, v.Source.Repo))
		}
	}
	s := probe.Survey(probe.SurveyInput{Home: m.cfg.Identity.Home, RuntimeDir: valueOf(m.cfg.Environ, "XDG_RUNTIME_DIR"),
		Getenv: func(k string) string { return valueOf(m.cfg.Environ, k) }})
	for _, p := range s.Absent {
		add(task.FS, 2, "credential", p)
	}
	for _, p := range s.Control {
		add(task.CPL, 2, "socket", p)
	}
	for _, p := range s.Agents {
		add(task.FS, 2, "socket", p)
	}
	for _, f := range k.facts {
		if f.What == task.MutableState && f.Subject != "" {
			add(task.SVC, 1, "service", f.Subject+" ("+f.Evidence+")")
		}
	}
	for _, kv := range m.cfg.Environ {
		if name, _, _ := strings.Cut(kv, "="); credentialName(name) {
			add(task.CRD, 1, "variable", name)
		}
	}
	return out
}

// credentialName says that a variable holds a credential, by its name.
func credentialName(name string) bool {
	n := strings.ToUpper(name)
	for _, w := range []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY", "CREDENTIAL", "DATABASE_URL", "_DSN"} {
		if strings.Contains(n, w) {
			return true
		}
	}
	return false
}
