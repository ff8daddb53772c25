package policy

import (
	"github.com/caisson-dev/caisson/internal/task"
)

// Version is the version of the file syntax that Document is.
const Version = 1

// Document is one policy file as written, or what another source says in the
// same words. The zero Document says nothing. What each key means, how sources
// are joined and who may set it stands in Keys; a test holds the two together.
type Document struct {
	Version int `json:"version"`

	Floors          Levels                 `json:"floors,omitempty"`
	Raise           Levels                 `json:"raise,omitempty"`
	Base            *Authority             `json:"base,omitempty"`
	Delegation      Delegation             `json:"delegation,omitempty"`
	Delegate        map[Delegatee]*Ceiling `json:"delegate,omitempty"`
	Deny            *Authority             `json:"deny,omitempty"`
	Request         *Authority             `json:"request,omitempty"`
	Characteristics Statements             `json:"characteristics,omitempty"`
	Lower           []Lowering             `json:"lower,omitempty"`
	Trust           []Scope                `json:"trust,omitempty"`
	AllowTrust      *bool                  `json:"allow_trust,omitempty"`
	TrustedChecks   []TrustedCheck         `json:"trusted_checks,omitempty"`
	Suppress        []Suppression          `json:"suppress,omitempty"`
	Acceptance      *AcceptanceRules       `json:"acceptance,omitempty"`
	Acceptances     []Standing             `json:"acceptances,omitempty"`
	DecisionHook    *Hook                  `json:"decision_hook,omitempty"`
	Tools           *ToolRules             `json:"tools,omitempty"`
	Backends        *BackendRules          `json:"backends,omitempty"`
	Limits          *LimitRules            `json:"limits,omitempty"`
	Budget          *BudgetRules           `json:"budget,omitempty"`
	Retention       *RetentionRules        `json:"retention,omitempty"`
	Unattended      *bool                  `json:"unattended,omitempty"`
	UnwatchedAfter  Duration               `json:"unwatched_after,omitempty"`
	Net             NetMode                `json:"net,omitempty"`
	Credentials     Handles                `json:"credentials,omitempty"`
	Outward         *OutwardRules          `json:"outward,omitempty"`
	Services        map[string]*Service    `json:"services,omitempty"`
	Checks          NamedChecks            `json:"checks,omitempty"`
	RiskyFiles      []Glob                 `json:"risky_files,omitempty"`
	Tests           []Expectation          `json:"tests,omitempty"`
}

// Authority is a set of things that may be reached. The zero Authority is empty.
type Authority struct {
	Egress      []Egress  `json:"egress,omitempty"`
	Mounts      []Mount   `json:"mounts,omitempty"`
	Env         []Name    `json:"env,omitempty"`
	Credentials []Name    `json:"credentials,omitempty"`
	Grants      []Ability `json:"grants,omitempty"`
	Commands    []Command `json:"commands,omitempty"`
}

// Ceiling bounds what one source may ask for. It grants nothing itself.
type Ceiling struct {
	Mode Mode `json:"mode,omitempty"`
	Authority
}

// Scope says for which repository something holds, and until when.
type Scope struct {
	Repo    RepoPattern `json:"repo"`
	Ref     string      `json:"ref,omitempty"` // full name, as refs/heads/main; empty: any
	Expires Date        `json:"expires"`
	Reason  string      `json:"reason"`
}

// Lowering says that a characteristic is less risky than others say.
type Lowering struct {
	Characteristic task.Characteristic `json:"characteristic"`
	Value          string              `json:"value"`
	Repo           RepoPattern         `json:"repo"`
	Ref            string              `json:"ref,omitempty"`
	Expires        Date                `json:"expires"`
	Reason         string              `json:"reason"`
}

// TrustedCheck is a command that loads no code of the repository.
type TrustedCheck struct {
	Argv     Argv   `json:"argv"`
	Executes string `json:"executes"`         // "none" or "checks"
	SHA256   string `json:"sha256,omitempty"` // of the program's file; empty: any on the person's PATH
}

// Suppression turns one rule of a detector off.
type Suppression struct {
	Rule   string      `json:"rule"`
	Repo   RepoPattern `json:"repo,omitempty"` // empty: every repository
	Reason string      `json:"reason"`
}

// AcceptanceRules say how a person may accept that a layer is missing.
type AcceptanceRules struct {
	MaxTTL       Duration                    `json:"max_ttl,omitempty"`
	MinAssurance map[AssuranceAxis]Assurance `json:"min_assurance,omitempty"`
	Delegable    []task.Axis                 `json:"delegable,omitempty"`
}

// Standing is an acceptance that holds before it is asked for.
type Standing struct {
	Axis    task.Axis   `json:"axis"`
	Level   int         `json:"level"`
	Repo    RepoPattern `json:"repo"`
	Ref     string      `json:"ref,omitempty"`
	Expires Date        `json:"expires"`
	Reason  string      `json:"reason"`
}

// Hook is a program or a server that may be stricter than the rules.
type Hook struct {
	Exec    Argv     `json:"exec,omitempty"`
	HTTP    string   `json:"http,omitempty"`
	Timeout Duration `json:"timeout,omitempty"`
}

// ToolRules are rules about calls. deny counts before ask and ask before allow,
// in whatever order they stand.
type ToolRules struct {
	Default task.Verdict `json:"default,omitempty"` // what no rule names; empty: allow
	Deny    []CallRule   `json:"deny,omitempty"`
	Ask     []CallRule   `json:"ask,omitempty"`
	Allow   []CallRule   `json:"allow,omitempty"`
	Frozen  *bool        `json:"frozen,omitempty"`
	Wait    Duration     `json:"wait,omitempty"`
}

// CallRule matches calls. Every part that is given must match; the zero rule
// is refused when it is read.
type CallRule struct {
	Tool       string   `json:"tool,omitempty"` // with * and ?
	Command    Argv     `json:"command,omitempty"`
	Path       Path     `json:"path,omitempty"`
	Host       Host     `json:"host,omitempty"`
	Methods    []Method `json:"methods,omitempty"`
	Credential Name     `json:"credential,omitempty"`
	Reason     string   `json:"reason,omitempty"`
}

// BackendRules say what may make boundaries.
type BackendRules struct {
	Prefer  []string `json:"prefer,omitempty"`
	Allowed []string `json:"allowed,omitempty"`
}

// LimitRules bound each task.
type LimitRules struct {
	Memory   Size     `json:"memory,omitempty"`
	CPUs     Number   `json:"cpus,omitempty"`
	Pids     Count    `json:"pids,omitempty"`
	Disk     Size     `json:"disk,omitempty"`
	Timeout  Duration `json:"timeout,omitempty"`
	NetBytes Size     `json:"net_bytes,omitempty"`
	NetConns Count    `json:"net_connections,omitempty"`
	NetRate  Count    `json:"net_rate,omitempty"`
}

// BudgetRules bound all tasks of one user together.
type BudgetRules struct {
	Tasks    Count  `json:"tasks,omitempty"`
	Memory   Size   `json:"memory,omitempty"`
	CPUs     Number `json:"cpus,omitempty"`
	Disk     Size   `json:"disk,omitempty"`
	WhenFull Full   `json:"when_full,omitempty"`
}

// RetentionRules say how long things stay.
type RetentionRules struct {
	Evidence     Duration `json:"evidence,omitempty"`
	Environments Duration `json:"environments,omitempty"`
}

// Service is one service that a task gets for itself.
type Service struct {
	Driver    string                `json:"driver"` // native, builtin, compose, shared, external
	Kind      string                `json:"kind,omitempty"`
	Version   string                `json:"version,omitempty"`
	File      string                `json:"file,omitempty"`    // of compose
	Service   string                `json:"service,omitempty"` // its name in the file
	Migrate   Argv                  `json:"migrate,omitempty"`
	Seed      string                `json:"seed,omitempty"`
	Env       map[string]string     `json:"env,omitempty"` // templates by name
	Port      Count                 `json:"port,omitempty"`
	DependsOn map[string]Dependency `json:"depends_on,omitempty"`
	Ready     *Readiness            `json:"ready,omitempty"`
}

// Dependency says what another service waits for.
type Dependency struct {
	Condition string `json:"condition"` // started, healthy, completed
}

// Readiness says when a service is ready. One of exec, http, tcp, log, protocol.
type Readiness struct {
	Exec     Argv     `json:"exec,omitempty"`
	HTTP     string   `json:"http,omitempty"`
	TCP      Count    `json:"tcp,omitempty"`
	Log      string   `json:"log,omitempty"`
	Protocol string   `json:"protocol,omitempty"`
	Period   Duration `json:"period,omitempty"`
	Timeout  Duration `json:"timeout,omitempty"`
	Failures Count    `json:"failures,omitempty"`
}

// NamedCheck is a verification command, by name.
type NamedCheck struct {
	Name string `json:"name"`
	Run  Argv   `json:"run"`
}

// NamedChecks are those of one file, each with a name of its own.
type NamedChecks []NamedCheck

// Expectation is one line of the table that `caisson policy test` runs.
type Expectation struct {
	Name string `json:"name,omitempty"`
	Question
	Expect task.Verdict `json:"expect"`
}

// Question is one thing that may or may not be reached: exactly one part is
// given, except that a tool may come with a command, a path or an egress.
type Question struct {
	Egress     string  `json:"egress,omitempty"` // HOST:PORT, or METHOD URL
	Mount      *Mount  `json:"mount,omitempty"`
	Env        string  `json:"env,omitempty"`
	Credential string  `json:"credential,omitempty"`
	Grant      Ability `json:"grant,omitempty"`
	Command    Argv    `json:"command,omitempty"`
	Tool       string  `json:"tool,omitempty"`
	Path       Path    `json:"path,omitempty"`
}
