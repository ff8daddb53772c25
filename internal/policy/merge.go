package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

const unwatched = time.Hour

// Registries are the hosts of the usual package registries.
var Registries = []Host{
	"registry.npmjs.org", "registry.yarnpkg.com", "pypi.org", "files.pythonhosted.org", "proxy.golang.org", "sum.golang.org",
	"static.crates.io", "index.crates.io", "crates.io", "rubygems.org", "index.rubygems.org", "repo.maven.apache.org", "repo1.maven.org",
	"plugins.gradle.org", "api.nuget.org", "repo.packagist.org", "hex.pm", "repo.hex.pm",
}

// metadata are the addresses at which clouds hand out credentials of a machine,
// also behind a translation of addresses.
var metadata = []string{"169.254.0.0/16", "fe80::/10", "fd00:ec2::/64", "64:ff9b::a9fe:0/112", "100.100.100.200/32"}

func mustCIDR(s string) CIDR { return CIDR{netip.MustParsePrefix(s)} }

// trust ranks sources, the most trusted first.
var trust = []task.Source{
	task.SourceOperator, task.SourceUser, task.SourceEnv, task.SourceFlag, task.SourceDefault,
	task.SourceAgent, task.SourceProject, task.SourceTask, task.SourceModel,
}

// delegateeOf says under which ceiling a source's requests come.
func delegateeOf(s task.Source) Delegatee {
	switch s {
	case task.SourceAgent, task.SourceProject, task.SourceTask, task.SourceModel:
		return Delegatee(s)
	case task.SourceOperator, task.SourceDefault, task.SourceUser, task.SourceEnv, task.SourceFlag:
		return "user"
	}
	return "" // which no ceiling is for
}

// Merge joins the documents of all sources, the shipped one among them. Neither
// their order nor a document that is there twice changes anything. A key that a
// source may not set is an error of code policy_invalid, and so is a source that
// is none of the known ones; a request that no ceiling holds is not, it is listed
// as refused.
func Merge(docs []Sourced, c Context) (*Rules, error) {
	m := &merger{c: c, r: &Rules{Schema: RulesSchema}, seen: map[string]bool{}}
	m.docs = slices.Clone(docs)
	sort.SliceStable(m.docs, func(i, j int) bool {
		a, b := m.docs[i], m.docs[j]
		return cmp.Or(cmp.Compare(slices.Index(trust, a.Source), slices.Index(trust, b.Source)), cmp.Compare(a.File, b.File), cmp.Compare(digest(a.Document), digest(b.Document))) < 0
	})
	for _, s := range m.docs {
		m.r.Operator = m.r.Operator || s.Source == task.SourceOperator
	}
	for _, s := range m.docs {
		if err := m.allowed(s); err != nil {
			return nil, err
		}
	}
	if err := m.homes(); err != nil {
		return nil, err
	}
	m.authority()
	for _, s := range m.docs {
		m.at = s
		m.values(s.Document)
		m.lists(s.Document)
	}
	m.defaults()
	m.trusted()
	m.requests()
	if m.r.Allowed.Value != nil && len(m.r.Allowed.Value) == 0 {
		return nil, task.Errorf(task.CodePolicy, "policy.merge", "no backend is left that every source allows (%s was the last)", m.r.Allowed.From).
			WithHint("backends.allowed of several files have nothing in common: `caisson policy show` lists them")
	}
	return m.r, nil
}

type merger struct {
	c    Context
	seen map[string]bool // what stands in a list already
	r    *Rules
	docs []Sourced
	at   Sourced // the document that is being read
}

// from is the origin of the value at a path of the document that is being read.
func (m *merger) from(path string) Origin { return m.at.origin(path) }

func (s Sourced) origin(path string) Origin {
	o := Origin{Source: s.Source, Where: s.File}
	for p := path; p != "" && s.File != ""; {
		if n := s.Lines[p]; n > 0 {
			o.Where = fmt.Sprintf("%s:%d", s.File, n)
			break
		}
		i := strings.LastIndexAny(p, ".[")
		if i < 0 {
			break
		}
		p = p[:i]
	}
	return o
}

// homes refuses rules about a home that is not known: left out, they would be
// looser than they were written.
func (m *merger) homes() error {
	if Path("~").expand(m.c.Home) != "" {
		return nil
	}
	for _, s := range m.docs {
		var paths []Path
		if d := s.Document.Deny; d != nil {
			for _, x := range d.Mounts {
				paths = append(paths, x.Path)
			}
		}
		if t := s.Document.Tools; t != nil {
			for _, x := range slices.Concat(t.Deny, t.Ask, t.Allow) {
				paths = append(paths, x.Path)
			}
		}
		for _, p := range paths {
			if strings.HasPrefix(string(p), "~") {
				return task.Errorf(task.CodePolicy, "policy.merge", "%s: %s is about a home folder, and which one it is cannot be told", s.origin("").place(), p).
					WithHint("set HOME to your home folder")
			}
		}
	}
	return nil
}

// rules says whether the source decides here: the operator, what is shipped, and
// the user who has no operator beside them.
func (m *merger) rules(s task.Source) bool {
	return s == task.SourceOperator || s == task.SourceDefault || s == task.SourceUser && !m.r.Operator
}

// allowed refuses keys that are not the source's to set.
func (m *merger) allowed(s Sourced) error {
	if s.Document == nil || !slices.Contains(trust, s.Source) {
		return task.Errorf(task.CodePolicy, "policy.merge", "a policy of the source %q counts for nothing", string(s.Source))
	}
	for _, p := range setKeys(s.Document) {
		k := keyAt(p)
		if k == nil {
			return task.Errorf(task.CodeInternal, "policy.merge", "the key %s is not described", p)
		}
		o := s.origin(p)
		if !k.May(s.Source) {
			return task.Errorf(task.CodePolicy, "policy.merge", "%s: %s is not for %s to set", o.place(), p, sourceName(s.Source)).
				WithHint("%s", remedy(k.Path))
		}
		if s.Source == task.SourceUser && m.r.Operator && loosens[k.Path] {
			return task.Errorf(task.CodePolicy, "policy.merge", "%s: %s is the operator's to set on this machine", o.place(), p).
				WithHint("have it written into a file in %s, or take it out", OperatorDir)
		}
	}
	return nil
}

// OperatorDir is where the operator's files are.
const OperatorDir = "/etc/caisson/policy.d"

// loosens are the keys that a user sets in the operator's place, and only there.
var loosens = map[string]bool{"lower": true, "trusted_checks": true, "suppress": true, "acceptances": true, "tools.allow": true}

func (o Origin) place() string {
	if o.Where == "" {
		return string(o.Source)
	}
	return o.Where
}

func sourceName(s task.Source) string {
	switch s {
	case task.SourceProject:
		return "a project's file"
	case task.SourceAgent:
		return "an agent's definition"
	case task.SourceTask:
		return "a task's request"
	case task.SourceModel:
		return "a model's call"
	case task.SourceEnv:
		return "a variable"
	}
	return "the source " + string(s)
}

// remedy says what to write instead of a key that is reserved.
func remedy(key string) string {
	top, _, _ := strings.Cut(key, ".")
	top, _, _ = strings.Cut(top, "[")
	here := "or have it put into " + OperatorDir + " or your own policy file"
	switch top {
	case "floors":
		return "write raise, " + here
	case "base":
		return "write request, " + here
	case "lower", "trust":
		return "write it " + strings.TrimPrefix(here, "or have it put ") + "; `caisson trust` says that you know a repository's code"
	case "tools":
		return "write deny or ask, " + here
	case "request":
		return "write base"
	}
	return "have it put into " + OperatorDir + " or your own policy file"
}

// authority collects the ceilings, before anything is held against them.
func (m *merger) authority() {
	own := map[Delegatee]bool{} // who rules here said it
	for _, s := range m.docs {
		if s.Source == task.SourceDefault {
			continue
		}
		for _, d := range Delegatees {
			if c := s.Document.Delegate[d]; c != nil {
				own[d] = own[d] || m.rules(s.Source)
			}
		}
	}
	for _, s := range m.docs {
		for _, d := range Delegatees {
			c := s.Document.Delegate[d]
			if c == nil || s.Source == task.SourceDefault && own[d] {
				continue
			}
			out := Ceiling{Mode: c.Mode}
			for _, it := range c.Items() {
				for _, e := range it.expand(m.c.Home, m.c.Remotes) {
					out.Add(e)
				}
			}
			f := CeilingFrom{For: d, Ceiling: out, From: s.origin("delegate." + string(d))}
			addOnce(m, "ceilings", &m.r.Ceilings, f, []any{d, out})
		}
	}
}

// values joins what has one value.
func (m *merger) values(d *Document) {
	r := m.r
	if m.at.Source == task.SourceDefault {
		return // see defaults
	}
	strictest(m, &r.Delegation, d.Delegation, delegations, "delegation")
	m.truth(&r.AllowTrust, d.AllowTrust, false, "allow_trust")
	m.truth(&r.Unattended, d.Unattended, true, "unattended")
	lowest(m, &r.Unwatched, d.UnwatchedAfter, "unwatched_after")
	strictest(m, &r.Net, d.Net, netModes, "net")
	if a := d.Acceptance; a != nil {
		lowest(m, &r.MaxTTL, a.MaxTTL, "acceptance.max_ttl")
		for axis, least := range a.MinAssurance {
			m.assurance(axis, least)
		}
	}
	if t := d.Tools; t != nil {
		strictest(m, &r.ToolDefault, t.Default, verdicts, "tools.default")
		m.truth(&r.Frozen, t.Frozen, true, "tools.frozen")
		lowest(m, &r.Wait, t.Wait, "tools.wait")
	}
	if l := d.Limits; l != nil {
		lowest(m, &r.Limits.Memory, l.Memory, "limits.memory")
		lowest(m, &r.Limits.CPUs, l.CPUs, "limits.cpus")
		lowest(m, &r.Limits.Pids, l.Pids, "limits.pids")
		lowest(m, &r.Limits.Disk, l.Disk, "limits.disk")
		lowest(m, &r.Limits.Timeout, l.Timeout, "limits.timeout")
	}
	if b := d.Budget; b != nil {
		lowest(m, &r.Budget.Tasks, b.Tasks, "budget.tasks")
		lowest(m, &r.Budget.Memory, b.Memory, "budget.memory")
		lowest(m, &r.Budget.CPUs, b.CPUs, "budget.cpus")
		lowest(m, &r.Budget.Disk, b.Disk, "budget.disk")
		strictest(m, &r.Budget.WhenFull, b.WhenFull, fulls, "budget.when_full")
	}
	if t := d.Retention; t != nil {
		highest(m, &r.Retention.Evidence, t.Evidence, "retention.evidence")
		lowest(m, &r.Retention.Environments, t.Environments, "retention.environments")
	}
	if b := d.Backends; b != nil {
		m.backends(b)
	}
}

func (m *merger) backends(b *BackendRules) {
	r := m.r
	if len(b.Prefer) > 0 && r.Prefer.Value == nil {
		r.Prefer = Set[[]string]{slices.Clone(b.Prefer), m.from("backends.prefer")}
	}
	if len(b.Allowed) == 0 {
		return
	}
	if r.Allowed.Value == nil {
		r.Allowed = Set[[]string]{slices.Sorted(slices.Values(b.Allowed)), m.from("backends.allowed")}
		return
	}
	left := slices.DeleteFunc(slices.Clone(r.Allowed.Value), func(n string) bool { return !slices.Contains(b.Allowed, n) })
	if len(left) < len(r.Allowed.Value) {
		r.Allowed = Set[[]string]{left, m.from("backends.allowed")}
	}
}

func (m *merger) assurance(a AssuranceAxis, least Assurance) {
	from := m.from("acceptance.min_assurance." + string(a))
	i := slices.IndexFunc(m.r.MinAssurance, func(x AssuranceFrom) bool { return x.Axis == a })
	if i < 0 {
		m.r.MinAssurance = append(m.r.MinAssurance, AssuranceFrom{a, least, from})
		sort.Slice(m.r.MinAssurance, func(i, j int) bool { return m.r.MinAssurance[i].Axis < m.r.MinAssurance[j].Axis })
		return
	}
	if slices.Index(Assurances, least) > slices.Index(Assurances, m.r.MinAssurance[i].Least) {
		m.r.MinAssurance[i] = AssuranceFrom{a, least, from}
	}
}

func lowest[T cmp.Ordered](m *merger, into *Set[T], v T, path string) {
	var zero T
	if v != zero && (into.Value == zero || v < into.Value) {
		*into = Set[T]{v, m.from(path)}
	}
}

func highest[T cmp.Ordered](m *merger, into *Set[T], v T, path string) {
	if v > into.Value {
		*into = Set[T]{v, m.from(path)}
	}
}

// strictest takes the later of two words of order.
func strictest[T ~string](m *merger, into *Set[T], v T, order []T, path string) {
	if v != "" && slices.Index(order, v) > slices.Index(order, into.Value) {
		*into = Set[T]{v, m.from(path)}
	}
}

// truth keeps the first that says wins, else the first that says anything.
func (m *merger) truth(into *Set[bool], v *bool, wins bool, path string) {
	if v != nil && (into.From == Origin{} || *v == wins && into.Value != wins) {
		*into = Set[bool]{*v, m.from(path)}
	}
}

// lists joins what grows.
func (m *merger) lists(d *Document) {
	r := m.r
	for _, a := range task.Axes {
		if l, ok := d.Floors[a]; ok && m.rules(m.at.Source) {
			m.level(&r.Floors, a, l, "floors."+string(a))
		} else if ok {
			m.level(&r.Raised, a, l, "floors."+string(a))
		}
		if l, ok := d.Raise[a]; ok {
			m.level(&r.Raised, a, l, "raise."+string(a))
		}
	}
	for path, it := range m.items("deny", d.Deny) {
		addOnce(m, "denied", &r.Denied, Denied{it, m.from(path)}, it)
	}
	for _, c := range task.Characteristics {
		for _, v := range d.Characteristics[c] {
			f := task.Fact{What: c, Value: v, Source: m.at.Source, Evidence: m.from("characteristics." + string(c)).Where, Confidence: task.Certain}
			addOnce(m, "facts", &r.Facts, f, []string{string(c), v, string(f.Source)})
		}
	}
	for i, x := range d.TrustedChecks {
		m.add(func(o Origin) { addSet(m, "trusted_checks", &r.TrustedChecks, x, o) }, "trusted_checks", i)
	}
	for i, x := range d.Suppress {
		if x.Repo == "" || x.Repo.Matches(m.c.Repo...) {
			m.add(func(o Origin) { addSet(m, "suppress", &r.Suppressed, x, o) }, "suppress", i)
		}
	}
	for i, x := range d.Acceptances {
		if m.here(x.Repo, x.Ref, x.Expires) {
			m.add(func(o Origin) { addSet(m, "acceptances", &r.Accepted, x, o) }, "acceptances", i)
		}
	}
	for i, x := range d.Lower {
		if m.here(x.Repo, x.Ref, x.Expires) {
			m.add(func(o Origin) { m.lower(x.Characteristic, x.Value, o) }, "lower", i)
		}
	}
	if d.DecisionHook != nil {
		addSet(m, "hooks", &r.Hooks, *d.DecisionHook, m.from("decision_hook"))
	}
	if t := d.Tools; t != nil {
		for _, l := range []struct {
			v     task.Verdict
			rules []CallRule
		}{{task.VerdictDeny, t.Deny}, {task.VerdictAsk, t.Ask}, {task.VerdictAllow, t.Allow}} {
			for i, x := range l.rules {
				x.Path = x.Path.expand(m.c.Home)
				v := CallVerdict{l.v, x, m.from(fmt.Sprintf("tools.%s[%d]", l.v, i))}
				addOnce(m, "tools", &r.ToolRules, v, []any{l.v, x})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Services)) {
		if s := d.Services[name]; s != nil && !slices.ContainsFunc(r.Services, func(x ServiceFrom) bool { return x.Name == name }) {
			r.Services = append(r.Services, ServiceFrom{name, *s, m.from("services." + name)})
		}
	}
	for i, x := range d.Checks {
		if !slices.ContainsFunc(r.Checks, func(y Set[NamedCheck]) bool { return y.Value.Name == x.Name }) {
			m.add(func(o Origin) { addSet(m, "checks", &r.Checks, x, o) }, "checks", i)
		}
	}
	for i, x := range d.RiskyFiles {
		m.add(func(o Origin) { addSet(m, "risky_files", &r.RiskyFiles, x, o) }, "risky_files", i)
	}
	for i, x := range d.Tests {
		m.add(func(o Origin) { addSet(m, "tests", &r.Tests, x, o) }, "tests", i)
	}
}

func (m *merger) add(put func(Origin), list string, i int) {
	put(m.from(fmt.Sprintf("%s[%d]", list, i)))
}

func (m *merger) level(into *[]AxisLevel, a task.Axis, l int, path string) {
	i := slices.IndexFunc(*into, func(x AxisLevel) bool { return x.Axis == a })
	switch {
	case i < 0:
		*into = append(*into, AxisLevel{a, l, m.from(path)})
		sort.SliceStable(*into, func(i, j int) bool {
			return slices.Index(task.Axes, (*into)[i].Axis) < slices.Index(task.Axes, (*into)[j].Axis)
		})
	case l > (*into)[i].Level:
		(*into)[i] = AxisLevel{a, l, m.from(path)}
	}
}

// lower notes that less risk counts; of several the least does.
func (m *merger) lower(c task.Characteristic, value string, o Origin) {
	f := task.Fact{What: c, Value: value, Source: o.Source, Evidence: o.Where, Confidence: task.Certain}
	addOnce(m, "lowered", &m.r.Lowered, f, []string{string(c), value})
}

func addSet[T any](m *merger, list string, into *[]Set[T], v T, o Origin) {
	addOnce(m, list, into, Set[T]{v, o}, v)
}

// addOnce appends v unless the list has one with the same sense.
func addOnce[T any](m *merger, list string, into *[]T, v T, sense any) {
	if k := list + digest(sense); !m.seen[k] {
		m.seen[k] = true
		*into = append(*into, v)
	}
}

// here says whether a scope holds for this repository now.
func (m *merger) here(repo RepoPattern, ref string, expires Date) bool {
	return repo.Matches(m.c.Repo...) && (ref == "" || ref == m.c.Ref) && !expires.IsZero() && m.c.Now <= expires.Unix()
}

// items yields the patterns of an Authority with their paths, ~ and @origin
// replaced.
func (m *merger) items(at string, a *Authority) func(func(string, Item) bool) {
	return func(yield func(string, Item) bool) {
		n := map[string]int{}
		for _, it := range a.Items() {
			k := it.Kind()
			path := fmt.Sprintf("%s.%s[%d]", at, k, n[k])
			n[k]++
			for _, e := range it.expand(m.c.Home, m.c.Remotes) {
				if !yield(path, e) {
					return
				}
			}
		}
	}
}

// defaults fills in what is shipped where nobody who rules said otherwise, and
// what joins with everything.
func (m *merger) defaults() {
	r := m.r
	delegable := map[task.Axis]int{}
	n := 0
	for _, s := range m.docs {
		m.at = s
		d := s.Document
		if s.Source == task.SourceDefault {
			lowestUnset(m, &r.Unwatched, d.UnwatchedAfter, "unwatched_after")
			if a := d.Acceptance; a != nil {
				lowestUnset(m, &r.MaxTTL, a.MaxTTL, "acceptance.max_ttl")
				for axis, least := range a.MinAssurance {
					if !slices.ContainsFunc(r.MinAssurance, func(x AssuranceFrom) bool { return x.Axis == axis }) {
						m.assurance(axis, least)
					}
				}
			}
			continue
		}
		if d.Acceptance == nil || d.Acceptance.Delegable == nil {
			continue
		}
		if !m.rules(s.Source) && n == 0 {
			continue // a user delegates nothing that was not delegated
		}
		n++
		for i, a := range d.Acceptance.Delegable {
			if slices.Index(d.Acceptance.Delegable, a) == i {
				delegable[a]++
			}
		}
	}
	for _, s := range m.docs {
		if s.Document.Acceptance == nil {
			continue
		}
		for i, a := range s.Document.Acceptance.Delegable {
			if n > 0 && delegable[a] == n {
				addSet(m, "delegable", &r.Delegable, a, s.origin(fmt.Sprintf("acceptance.delegable[%d]", i)))
			}
		}
	}
}

func lowestUnset[T cmp.Ordered](m *merger, into *Set[T], v T, path string) {
	var zero T
	if into.Value == zero {
		lowest(m, into, v, path)
	}
}

// trusted decides whether the repository's code is known.
func (m *merger) trusted() {
	r := m.r
	for _, s := range m.docs {
		for i, x := range s.Document.Trust {
			if !m.here(x.Repo, x.Ref, x.Expires) || !m.rules(s.Source) && m.untrusting() {
				continue
			}
			o := s.origin(fmt.Sprintf("trust[%d]", i))
			m.lower(task.CodeTrust, "trusted", o)
			if !r.Trusted.Value {
				r.Trusted = Set[bool]{true, o}
			}
		}
	}
	if m.c.Trusted && !r.Trusted.Value && !m.untrusting() {
		r.Trusted = Set[bool]{true, m.c.TrustedBy}
		m.lower(task.CodeTrust, "trusted", m.c.TrustedBy)
	}
}

// untrusting says that a person's word about a repository does not count.
func (m *merger) untrusting() bool {
	return m.r.AllowTrust.From != Origin{} && !m.r.AllowTrust.Value
}

// requests holds what is asked for against the ceilings.
func (m *merger) requests() {
	for _, s := range m.docs {
		m.at = s
		if m.rules(s.Source) {
			for path, it := range m.items("base", s.Document.Base) {
				m.grant(it, "base", m.from(path))
			}
		} else {
			for path, it := range m.items("base", s.Document.Base) {
				m.request(it, m.from(path))
			}
		}
		for path, it := range m.items("request", s.Document.Request) {
			m.request(it, m.from(path))
		}
	}
	// What is granted anyway needs no question.
	m.r.Asked = slices.DeleteFunc(m.r.Asked, func(a Asked) bool {
		return slices.ContainsFunc(m.r.Granted, func(g Granted) bool { return a.Item.In(g.Item) })
	})
}

func (m *merger) request(it Item, o Origin) {
	d := delegateeOf(o.Source)
	mode, why := m.ceiling(d, it)
	switch {
	case why != "":
		addOnce(m, "refused", &m.r.Refused, Refused{it, why, o}, []any{it, o.Source})
	case mode == ModeAuto, mode == ModeTrusted && m.r.Trusted.Value:
		m.grant(it, "request", o)
	case slices.ContainsFunc(m.c.Agreed, func(a Item) bool { return digest(a) == digest(it) }):
		m.grant(it, "request, agreed to", o)
	default:
		addOnce(m, "asked", &m.r.Asked, Asked{it, o}, it)
	}
}

// ceiling says how a request inside every ceiling is honoured, or why it is not.
func (m *merger) ceiling(d Delegatee, it Item) (Mode, string) {
	if d != "user" && m.r.Delegation.Value == DelegationNone {
		return "", "nothing is delegated (" + m.r.Delegation.From.String() + ")"
	}
	mode, some := ModeAuto, false
	for _, c := range m.r.Ceilings {
		if c.For != d {
			continue
		}
		some = true
		if !slices.ContainsFunc(c.Items(), it.In) {
			return "", fmt.Sprintf("it is not inside what a %s may ask for: delegate.%s (%s)", d, d, c.From)
		}
		own := c.Mode
		if own == "" {
			own = ModeAsk
		}
		if slices.Index(modes, own) > slices.Index(modes, mode) {
			mode = own
		}
	}
	if !some {
		return "", fmt.Sprintf("nothing is delegated to a %s: there is no delegate.%s", d, d)
	}
	return mode, ""
}

// grant notes what may be reached; what is denied as a whole is told as refused.
func (m *merger) grant(it Item, via string, o Origin) {
	for _, d := range m.r.Denied {
		if d.covers(it) {
			addOnce(m, "refused", &m.r.Refused, Refused{it, "it is denied: " + d.Item.String() + " (" + d.From.String() + ")", o}, []any{it, o.Source})
			return
		}
	}
	addOnce(m, "granted", &m.r.Granted, Granted{it, via, o}, it)
}

// covers says whether nothing of an item is left where d is denied.
func (d Denied) covers(it Item) bool {
	if d.Mount != nil && it.Mount != nil {
		return d.Mount.Touches(MountPoint{string(it.Mount.Path), it.Mount.Mode == AccessRW})
	}
	return it.In(d.Item)
}
