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
		if c := cmp.Or(cmp.Compare(slices.Index(trust, a.Source), slices.Index(trust, b.Source)), cmp.Compare(a.File, b.File)); c != 0 || a.Document == b.Document {
			return c < 0
		}
		return digest(a.Document) < digest(b.Document)
	})
	for _, s := range m.docs {
		m.r.Operator = m.r.Operator || s.Source == task.SourceOperator
	}
	for _, s := range m.docs {
		if err := m.allowed(s); err != nil {
			return nil, err
		}
		if a := s.Document.Acceptance; a != nil {
			m.named = slices.AppendSeq(m.named, maps.Keys(a.MinAssurance))
		}
	}
	slices.Sort(m.named)
	m.named = slices.Compact(m.named)
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
	// named are the axes about which some document says how sure it must be that a
	// person accepts, sorted.
	named []AssuranceAxis
	r     *Rules
	docs  []Sourced
	at    Sourced // the document that is being read
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
	if s.Source == task.SourceOperator && s.Document.Request == nil || s.Source == task.SourceDefault {
		return nil // which set everything else
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
	case task.SourceOperator:
		return "an operator's file"
	case task.SourceUser:
		return "a user's file"
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
		m.assurances(a.MinAssurance)
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
		lowest(m, &r.Limits.NetBytes, l.NetBytes, "limits.net_bytes")
		lowest(m, &r.Limits.NetConns, l.NetConns, "limits.net_connections")
		lowest(m, &r.Limits.NetRate, l.NetRate, "limits.net_rate")
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
	if o := d.Outward; o != nil {
		m.outward(o)
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

// assurances joins what one document says of how sure it must be: of an axis that
// it does not name and another does, it says what its default is, or else naming
// one would be a way around the default of somebody more trusted.
func (m *merger) assurances(said map[AssuranceAxis]Assurance) {
	for _, x := range m.named {
		m.assurance(x, said)
	}
}

func (m *merger) assurance(x AssuranceAxis, said map[AssuranceAxis]Assurance) {
	key := x
	if said[key] == "" {
		key = "default"
	}
	least, from := said[key], m.from("acceptance.min_assurance."+string(key))
	i := slices.IndexFunc(m.r.MinAssurance, func(y AssuranceFrom) bool { return y.Axis == x })
	switch {
	case least == "":
	case i < 0:
		m.r.MinAssurance = append(m.r.MinAssurance, AssuranceFrom{x, least, from})
	case slices.Index(Assurances, least) > slices.Index(Assurances, m.r.MinAssurance[i].Least):
		m.r.MinAssurance[i] = AssuranceFrom{x, least, from}
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

// defaults joins what is shipped, where nobody who rules said otherwise: a user
// beside an operator who is silent loosens nothing of it.
func (m *merger) defaults() {
	r := m.r
	delegable := map[task.Axis]int{}
	n := 0
	for _, s := range m.docs {
		m.at = s
		d := s.Document
		if s.Source == task.SourceDefault {
			if !m.ruled(func(d *Document) bool { return d.UnwatchedAfter != 0 }) {
				lowest(m, &r.Unwatched, d.UnwatchedAfter, "unwatched_after")
			}
			if o := d.Outward; o != nil && !m.ruled(func(d *Document) bool { return d.Outward != nil && d.Outward.Verdict != "" }) {
				strictest(m, &r.Outward.Verdict, o.Verdict, verdicts, "outward.verdict")
			}
			if a := d.Acceptance; a != nil {
				if !m.ruled(func(d *Document) bool { return d.Acceptance != nil && d.Acceptance.MaxTTL != 0 }) {
					lowest(m, &r.MaxTTL, a.MaxTTL, "acceptance.max_ttl")
				}
				for _, x := range m.named {
					if !m.ruled(func(d *Document) bool {
						return d.Acceptance != nil && (d.Acceptance.MinAssurance[x] != "" || d.Acceptance.MinAssurance["default"] != "")
					}) {
						m.assurance(x, a.MinAssurance)
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
	sort.Slice(r.MinAssurance, func(i, j int) bool { return r.MinAssurance[i].Axis < r.MinAssurance[j].Axis })
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

// ruled says whether a document of who decides here says something.
func (m *merger) ruled(says func(*Document) bool) bool {
	return slices.ContainsFunc(m.docs, func(s Sourced) bool {
		return s.Source != task.SourceDefault && m.rules(s.Source) && says(s.Document)
	})
}
