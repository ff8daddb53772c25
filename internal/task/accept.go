package task

import "time"

// Acceptance is a recorded decision to work with less than a plan needs, on one
// axis. The zero value covers nothing.
type Acceptance struct {
	ID       string `json:"id"`
	Axis     Axis   `json:"axis"`
	Required int    `json:"required"` // what the plan needed when it was given; 0 for a standing one
	Level    int    `json:"level"`    // the least that is accepted
	// Report is the digest of the missing-boundary report that it answers: a new
	// finding or a higher requirement makes another report. Empty for a standing one.
	// It is the report's digest with the command for one command, and without for
	// a task or a repository.
	Report   string      `json:"report,omitempty"`
	Scope    AcceptScope `json:"scope"`
	Task     ID          `json:"task,omitempty"` // scope task
	Repo     string      `json:"repo,omitempty"` // scope repo: the repository's git directory, or the folder
	Reason   string      `json:"reason"`
	By       Acceptor    `json:"by"`
	Created  time.Time   `json:"created"`
	Expires  time.Time   `json:"expires"`
	MaxUses  int         `json:"max_uses,omitempty"` // 0: any number until it expires
	Uses     int         `json:"uses"`
	Policy   string      `json:"policy,omitempty"` // digest of the policy it was given under
	Revoked  *time.Time  `json:"revoked,omitempty"`
	Standing bool        `json:"standing,omitempty"` // of the operator's policy: bound to no report
	Where    string      `json:"where,omitempty"`    // of a standing one: FILE:LINE
}

// AcceptScope says what an acceptance holds for. The zero value is nothing.
type AcceptScope string

// The scopes.
const (
	ScopeCommand AcceptScope = "command" // this report with this command
	ScopeTask    AcceptScope = "task"    // one task
	ScopeRepo    AcceptScope = "repo"    // every task on one repository with the same gap
)

// Acceptor is who accepted, and how that is known.
type Acceptor struct {
	UID       int       `json:"uid"`
	Login     string    `json:"login"`
	Authority Source    `json:"authority"` // SourceOperator or SourceUser
	Assurance Assured   `json:"assurance"`
	Key       string    `json:"key,omitempty"`       // fingerprint of the signing key
	Signature string    `json:"signature,omitempty"` // SSHSIG over the canonical record
	SignedAt  time.Time `json:"signed_at,omitzero"`
}

// Assured is how it is known that a person accepted, weakest first.
type Assured string

// The assurance levels.
const (
	AssuredNone Assured = "none"
	AssuredTTY  Assured = "tty"      // a terminal answered: a program of the same user can drive one
	AssuredOS   Assured = "os-auth"  // the system asked for a password or the like
	AssuredKey  Assured = "hardware" // a key that wants a touch
)

// Rank orders assurances; an unknown word ranks as none.
func (a Assured) Rank() int {
	switch a {
	case AssuredTTY:
		return 1
	case AssuredOS:
		return 2
	case AssuredKey:
		return 3
	}
	return 0
}

// AcceptRequest asks to put acceptances on record, one for each axis.
type AcceptRequest struct {
	Ref    string        `json:"ref"`    // a task, or the digest of a report that was refused
	Report *AcceptReport `json:"report"` // what Ref stands for, where the caller has it
	Axes   Vector        `json:"axes"`   // the least level that is accepted on each
	Scope  AcceptScope   `json:"scope"`
	For    time.Duration `json:"for_ns"`   // 0: as long as the policy's default
	Uses   int           `json:"max_uses"` // 0: any number
	Reason string        `json:"reason"`
	// What the door knows about who accepts.
	Assurance Assured   `json:"assurance"`
	Key       string    `json:"key,omitempty"`
	Signature string    `json:"signature,omitempty"`
	SignedAt  time.Time `json:"signed_at,omitzero"`
}

// AcceptReport is as much of a plan or of a refusal as an acceptance needs.
type AcceptReport struct {
	Report  string          `json:"report"`
	Gap     string          `json:"gap"`
	Repo    string          `json:"repo"`
	Policy  string          `json:"policy"`
	Hostile bool            `json:"hostile,omitempty"`
	Short   map[Axis][2]int `json:"short"` // required, effective
}

// Answered is what an acceptance of this plan's gaps answers.
func (p *PlanReport) Answered() AcceptReport {
	r := AcceptReport{Report: p.Report, Gap: p.Gap, Repo: p.Source.Repository(), Policy: p.Policy, Short: map[Axis][2]int{}}
	for _, f := range p.Facts {
		r.Hostile = r.Hostile || f.What == CodeTrust && CodeTrust.Risk(f.Value) >= CodeTrust.Risk("hostile")
	}
	for _, m := range p.Missing {
		r.Short[m.Axis] = [2]int{m.Required, m.Effective}
	}
	return r
}

// Repository names a task's repository by its git directory; where there is none,
// by the folder.
func (s SourceRef) Repository() string {
	if s.CommonDir != "" {
		return s.CommonDir
	}
	return s.Repo
}
