package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// RulesSchema names merged rules.
const RulesSchema = "caisson.rules/1"

// Sourced is one document and where it comes from.
type Sourced struct {
	Document *Document
	Source   task.Source
	File     string         // of an error and of Origin: a path, a flag, a variable
	Lines    map[string]int // of the values in the file; may be nil
}

// Origin says who set a value, and where.
type Origin struct {
	Source task.Source `json:"source"`
	Where  string      `json:"where,omitempty"` // FILE:LINE, a flag, a variable
}

// String renders it on one line.
func (o Origin) String() string {
	if o.Where == "" {
		return string(o.Source)
	}
	return string(o.Source) + " " + o.Where
}

// Context is what the meaning of documents depends on beside themselves.
type Context struct {
	Home    string   // of the task's owner: what ~ is
	Remotes []string // hosts of the repository's remotes: what @origin is
	Repo    []string // the repository's names: see RepoName, and its absolute path
	Ref     string   // full name of what the task starts from; empty: none
	Now     int64    // seconds since 1970, for expiries
	// Trusted says that a person said, now or before, that they know the code;
	// TrustedBy says where.
	Trusted   bool
	TrustedBy Origin
	Agreed    []Item // requests that a person agreed to
}

// Set is a value and its origin. The zero Set was not said.
type Set[T any] struct {
	Value T      `json:"value"`
	From  Origin `json:"from"`
}

// AxisLevel is a level that somebody demands.
type AxisLevel struct {
	Axis  task.Axis `json:"axis"`
	Level int       `json:"level"`
	From  Origin    `json:"from"`
}

// Granted is something that may be reached, unless it is denied.
type Granted struct {
	Item
	Via  string `json:"via"` // "base", "request", "request, agreed to"
	From Origin `json:"from"`
}

// Asked is a request inside a ceiling that counts when a person agrees.
type Asked struct {
	Item
	From Origin `json:"from"`
}

// Refused is a request that counts for nothing.
type Refused struct {
	Item
	Why  string `json:"why"`
	From Origin `json:"from"`
}

// Denied is something that nobody may reach.
type Denied struct {
	Item
	From Origin `json:"from"`
}

// CeilingFrom is one ceiling of a source. Where there are several, a request
// must lie in each.
type CeilingFrom struct {
	For Delegatee `json:"for"`
	Ceiling
	From Origin `json:"from"`
}

// Verdict is one rule about calls.
type CallVerdict struct {
	Verdict task.Verdict `json:"verdict"`
	CallRule
	From Origin `json:"from"`
}

// Rules are the documents of all sources as one. A list is in order of trust,
// then of files and lines. A value that nobody set is the zero value.
type Rules struct {
	Schema   string `json:"schema"`   // RulesSchema
	Operator bool   `json:"operator"` // there is an operator beside the user

	Floors     []AxisLevel     `json:"floors"` // the highest per axis; nothing accepts less
	Raised     []AxisLevel     `json:"raised"` // the highest per axis
	Granted    []Granted       `json:"granted"`
	Asked      []Asked         `json:"asked"`
	Refused    []Refused       `json:"refused"`
	Denied     []Denied        `json:"denied"`
	Delegation Set[Delegation] `json:"delegation"`
	Ceilings   []CeilingFrom   `json:"ceilings"`

	Facts         []task.Fact         `json:"facts"`   // characteristics
	Lowered       []task.Fact         `json:"lowered"` // by lower and trust, in force here and now
	Trusted       Set[bool]           `json:"trusted"` // the repository's code is known
	AllowTrust    Set[bool]           `json:"allow_trust"`
	TrustedChecks []Set[TrustedCheck] `json:"trusted_checks"`
	Suppressed    []Set[Suppression]  `json:"suppressed"`  // in force here
	Accepted      []Set[Standing]     `json:"acceptances"` // in force here and now
	MaxTTL        Set[Duration]       `json:"max_ttl"`
	MinAssurance  []AssuranceFrom     `json:"min_assurance"`
	Delegable     []Set[task.Axis]    `json:"delegable"`
	Hooks         []Set[Hook]         `json:"decision_hooks"`
	ToolDefault   Set[task.Verdict]   `json:"tool_default"`
	ToolRules     []CallVerdict       `json:"tool_rules"`
	Frozen        Set[bool]           `json:"frozen"`
	Wait          Set[Duration]       `json:"wait"`
	Prefer        Set[[]string]       `json:"backends_prefer"`
	Allowed       Set[[]string]       `json:"backends_allowed"` // nil: all
	Limits        MergedLimits        `json:"limits"`
	Budget        MergedBudget        `json:"budget"`
	Retention     MergedRetention     `json:"retention"`
	Unattended    Set[bool]           `json:"unattended"`
	Unwatched     Set[Duration]       `json:"unwatched_after"`
	Net           Set[NetMode]        `json:"net"`
	Outward       MergedOutward       `json:"outward"`
	Credentials   []CredentialFrom    `json:"credentials"` // the most trusted of each handle, in the order of their names
	Services      []ServiceFrom       `json:"services"`
	Checks        []Set[NamedCheck]   `json:"checks"`
	RiskyFiles    []Set[Glob]         `json:"risky_files"`
	Tests         []Set[Expectation]  `json:"tests"`
}

// AssuranceFrom is the least assurance on one axis.
type AssuranceFrom struct {
	Axis  AssuranceAxis `json:"axis"`
	Least Assurance     `json:"least"`
	From  Origin        `json:"from"`
}

// MergedLimits bound one task.
type MergedLimits struct {
	Memory   Set[Size]     `json:"memory"`
	CPUs     Set[Number]   `json:"cpus"`
	Pids     Set[Count]    `json:"pids"`
	Disk     Set[Size]     `json:"disk"`
	Timeout  Set[Duration] `json:"timeout"`
	NetBytes Set[Size]     `json:"net_bytes"`
	NetConns Set[Count]    `json:"net_connections"`
	NetRate  Set[Count]    `json:"net_rate"`
}

// MergedBudget bounds all tasks of one user.
type MergedBudget struct {
	Tasks    Set[Count]  `json:"tasks"`
	Memory   Set[Size]   `json:"memory"`
	CPUs     Set[Number] `json:"cpus"`
	Disk     Set[Size]   `json:"disk"`
	WhenFull Set[Full]   `json:"when_full"`
}

// MergedRetention says how long things stay.
type MergedRetention struct {
	Evidence     Set[Duration] `json:"evidence"`
	Environments Set[Duration] `json:"environments"`
}

// ServiceFrom is one service.
type ServiceFrom struct {
	Name string `json:"name"`
	Service
	From Origin `json:"from"`
}

// ServicesNote says that the declared services have no effect yet; empty where
// none are declared.
func (r *Rules) ServicesNote() string {
	if len(r.Services) == 0 {
		return ""
	}
	var names []string
	for _, s := range r.Services {
		names = append(names, s.Name)
	}
	return "services are declared; this version does not start them: " + strings.Join(names, ", ")
}

// idle says what is granted or asked for and comes to nothing: in this version, or
// for lack of a network, of which IdleNetwork speaks.
func (r *Rules) idle() []string {
	var lent, asked []string
	for _, g := range r.Granted {
		if _, some := r.Handle(string(g.Credential)); g.Credential != "" && !some && !strings.HasSuffix(string(g.Credential), "*") {
			lent = append(lent, g.told())
		}
	}
	for _, a := range r.Asked {
		if a.Egress == nil {
			asked = append(asked, a.told())
		}
	}
	return slices.Concat(
		few("granted, and credentials defines no such handle", lent),
		few("asked for, which counts only after a person agreed, and nobody is asked about it: have it put into base, or pass --ro, --env, --grant or --lend yourself", asked))
}

// IdleNetwork says which destinations are granted or asked for and are out of the
// reach of a task that has no network.
func (r *Rules) IdleNetwork() []string {
	if r == nil {
		return nil
	}
	var granted, asked []string
	for _, g := range r.Granted {
		if g.Egress != nil {
			granted = append(granted, g.told())
		}
	}
	for _, a := range r.Asked {
		if a.Egress != nil {
			asked = append(asked, a.told())
		}
	}
	without := "and this task has no network"
	if r.Net.Value == NetNone {
		without += ": net is none (" + r.Net.From.String() + ")"
	} else {
		without += ", which --net allowlist gives it"
	}
	return slices.Concat(few("granted, "+without, granted), few("asked for, which counts when a person agreed as it is used, "+without, asked))
}

func (g Granted) told() string { return g.Item.String() + " (" + g.Via + ", " + g.From.String() + ")" }
func (a Asked) told() string   { return a.Kind() + " " + a.Item.String() + " (" + a.From.String() + ")" }

// few tells of the first three of items and counts the rest; nothing of none.
func few(what string, items []string) []string {
	if n := len(items); n > 3 {
		items = append(slices.Clone(items[:3]), fmt.Sprintf("and %d more", n-3))
	}
	if len(items) == 0 {
		return nil
	}
	return []string{what + ": " + strings.Join(items, "; ")}
}

// Shipped is what caisson says itself, below the operator and the user: who sets
// one of these values sets it anew, but for deny, which only grows.
func Shipped() Sourced {
	everything := Authority{
		Egress: []Egress{{Host: HostAny}, {CIDR: mustCIDR("0.0.0.0/0")}, {CIDR: mustCIDR("::/0")}},
		Mounts: []Mount{{Path: "/", Mode: AccessRW}},
		Env:    []Name{"*"}, Credentials: []Name{"*"}, Grants: Abilities,
	}
	few := Authority{Egress: []Egress{{Host: HostOrigin, Ports: []Port{{22, 22}, {443, 443}}}}}
	for _, h := range Registries {
		few.Egress = append(few.Egress, Egress{Host: h, Ports: []Port{{443, 443}}})
	}
	d := &Document{
		Version: Version,
		Delegate: map[Delegatee]*Ceiling{
			"user":    {ModeAuto, everything},
			"agent":   {ModeTrusted, few},
			"project": {ModeTrusted, few},
			"task":    {ModeTrusted, few},
			"model":   {ModeAsk, few},
		},
		Deny:    &Authority{},
		Outward: &OutwardRules{Verdict: task.VerdictAsk},
		Acceptance: &AcceptanceRules{
			MinAssurance: map[AssuranceAxis]Assurance{"default": AssuranceTTY},
		},
		UnwatchedAfter: Duration(unwatched),
	}
	for _, p := range metadata {
		d.Deny.Egress = append(d.Deny.Egress, Egress{CIDR: mustCIDR(p)})
	}
	return Sourced{Document: d, Source: task.SourceDefault}
}
