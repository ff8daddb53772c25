package policy

import (
	"fmt"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// AcceptRules are the operator's rules about acceptances. The zero value lets
// nobody but the operator accept what is not a user's by the shipped table.
type AcceptRules struct {
	MaxTTL    time.Duration              // 0: DefaultTTL
	Assurance map[task.Axis]task.Assured // least, per axis; missing: Default
	Default   task.Assured               // empty: tty
	Delegated []task.Axis                // axes whose gaps a user may accept too, where the table says so
	// Alone: there is no operator beside the user on this machine, so that what
	// the user decides is the operator's decision.
	Alone bool
}

// DefaultTTL is how long an acceptance counts that says nothing else, and the
// longest without a rule of the operator.
const DefaultTTL = 8 * time.Hour

// MaxTTLAlone bounds acceptances where no operator bounds them: a week.
const MaxTTLAlone = 7 * 24 * time.Hour

func (r AcceptRules) ttl() time.Duration {
	if r.MaxTTL > 0 {
		return r.MaxTTL
	}
	if r.Alone {
		return MaxTTLAlone
	}
	return DefaultTTL
}

// least returns the assurance that a gap on a asks for.
func (r AcceptRules) least(a task.Axis) task.Assured {
	if l, ok := r.Assurance[a]; ok {
		return l
	}
	if r.Default != "" {
		return r.Default
	}
	return task.AssuredTTY
}

// who says which authorities may accept a gap.
type who int

const (
	operatorOnly  who = iota // and this is the zero value
	userDelegated            // the user where the operator delegated the axis
	userToo
)

// mayAccept is the table of who may accept what. What it does not name is the
// operator's. have is the level that is left, hostile that the code is.
func mayAccept(a task.Axis, have int, hostile bool) who {
	switch a {
	case task.SRC, task.RES, task.VER, task.EVD:
		return userToo
	case task.PRC:
		return userDelegated
	case task.FS, task.NET:
		if have >= 1 {
			return userDelegated
		}
	case task.SVC:
		return userDelegated
	case task.KRN:
		if !hostile {
			return userDelegated
		}
	}
	return operatorOnly
}

// Acceptable says the same for a person.
func Acceptable(a task.Axis, have int, hostile bool) []string {
	switch mayAccept(a, have, hostile) {
	case userToo:
		return []string{"user (interactive)", "operator"}
	case userDelegated:
		return []string{"user (where the operator delegated it)", "operator"}
	}
	return []string{"operator (a standing acceptance with an expiry)"}
}

// Claim is what an acceptance is held against.
type Claim struct {
	Axis           task.Axis
	Required, Have int
	Report, Gap    string // digests of the report, with and without the command
	Task           task.ID
	Repo           string
	Now            time.Time
	Unattended     bool
	Hostile        bool
	OperatorFloor  int // on the axis
	Rules          AcceptRules
}

// Covers says whether a covers a gap; the error says why not.
func Covers(a *task.Acceptance, c Claim) error {
	no := func(format string, args ...any) error {
		return task.Errorf(task.CodeDenied, "policy.accept", format, args...)
	}
	switch {
	case a.Axis != c.Axis || task.MaxLevel(a.Axis) < 0:
		return no("it is about %s", a.Axis)
	case a.Revoked != nil:
		return no("it was revoked")
	case a.Expires.IsZero() || !c.Now.Before(a.Expires):
		return no("it has expired")
	case c.Now.Before(a.Created.Add(-time.Minute)):
		return no("it was given after now: the clock was set back")
	case a.Level < 0 || c.Have < a.Level:
		return no("it accepts %s %d, and only %d is left", a.Axis, a.Level, c.Have)
	case a.Level < c.OperatorFloor:
		return no("%s %d is below the operator's floor %d: only a change of the policy lowers that", a.Axis, a.Level, c.OperatorFloor)
	case a.MaxUses > 0 && a.Uses >= a.MaxUses:
		return no("it was used up")
	}
	if err := who1(a, c); err != nil {
		return err
	}
	if !a.Standing {
		if a.Report == "" {
			return no("it is bound to no report")
		}
		want := c.Gap
		if a.Scope == task.ScopeCommand {
			want = c.Report
		}
		if a.Report != want {
			return no("it was given for another report: what is missing, or why, has changed")
		}
	}
	switch a.Scope {
	case task.ScopeCommand:
		if a.Standing {
			return no("for one command there is a report to bind it to")
		}
	case task.ScopeTask:
		if a.Task == "" || a.Task != c.Task {
			return no("it is for another task")
		}
	case task.ScopeRepo:
		if a.Repo == "" || a.Repo != c.Repo && !(a.Standing && a.Repo == anyRepo) {
			return no("it is for another repository")
		}
	default:
		return no("it says nothing about its scope")
	}
	return nil
}

// who1 holds the acceptor against the rules.
func who1(a *task.Acceptance, c Claim) error {
	no := func(format string, args ...any) error {
		return task.Errorf(task.CodeDenied, "policy.accept", format, args...)
	}
	if a.Standing {
		if a.By.Authority != task.SourceOperator {
			return no("only the operator accepts for a longer time")
		}
		return nil
	}
	if c.Unattended {
		return no("nobody is there: without a person only the operator's standing acceptances count")
	}
	if a.Expires.Sub(a.Created) > c.Rules.ttl()+time.Minute {
		return no("it holds longer than the %v that are allowed", c.Rules.ttl())
	}
	if least := c.Rules.least(a.Axis); a.By.Assurance.Rank() < least.Rank() {
		return no("%s is accepted with %s or more, and this was given with %s", a.Axis, least, a.By.Assurance)
	}
	if a.By.Authority == task.SourceOperator || c.Rules.Alone && a.By.Authority == task.SourceUser {
		return nil
	}
	if a.By.Authority != task.SourceUser {
		return no("neither a user nor the operator gave it")
	}
	switch mayAccept(a.Axis, c.Have, c.Hostile) {
	case userToo:
		return nil
	case userDelegated:
		for _, d := range c.Rules.Delegated {
			if d == a.Axis {
				return nil
			}
		}
		return no("the operator did not delegate %s", a.Axis)
	}
	return no("%s below %d is the operator's to accept", a.Axis, c.Required)
}

// May says whether somebody may give an acceptance at all, before it is
// recorded: the same table, without what only a later plan knows.
func May(a *task.Acceptance, c Claim) error {
	c.Report, c.Gap, c.Task, c.Repo = a.Report, a.Report, a.Task, a.Repo
	c.Axis, c.Have, c.Now = a.Axis, a.Level, a.Created
	if err := Covers(a, c); err != nil {
		return fmt.Errorf("%w", err)
	}
	return nil
}
