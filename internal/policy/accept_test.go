package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

var noon = time.Unix(1e9, 0)

// given is an acceptance that counts, and what it is held against.
func given() (task.Acceptance, Claim) {
	a := task.Acceptance{ID: "a1", Axis: task.KRN, Required: 3, Level: 1, Report: "sha256:r", Scope: task.ScopeCommand, Reason: "x",
		By: task.Acceptor{Login: "u", Authority: task.SourceUser, Assurance: task.AssuredTTY}, Created: noon, Expires: noon.Add(time.Hour)}
	c := Claim{Axis: task.KRN, Required: 3, Have: 1, Report: "sha256:r", Gap: "sha256:g", Task: "t1", Repo: "/r", Now: noon.Add(time.Minute), Rules: AcceptRules{Alone: true}}
	return a, c
}

// TestCovers: an acceptance counts as it was given, and every way in which it
// could count for more is refused. Each case first shows that without it the
// acceptance counts.
func TestCovers(t *testing.T) {
	for name, spoil := range map[string]func(*task.Acceptance, *Claim){
		"zero":           func(a *task.Acceptance, _ *Claim) { *a = task.Acceptance{} },
		"other axis":     func(a *task.Acceptance, _ *Claim) { a.Axis = task.FS },
		"no axis":        func(a *task.Acceptance, c *Claim) { a.Axis, c.Axis = "XYZ", "XYZ" },
		"less is left":   func(_ *task.Acceptance, c *Claim) { c.Have = 0 },
		"negative level": func(a *task.Acceptance, c *Claim) { a.Level, c.Have = -2, -2 },
		"revoked":        func(a *task.Acceptance, _ *Claim) { a.Revoked = &noon },
		"expired":        func(_ *task.Acceptance, c *Claim) { c.Now = noon.Add(time.Hour) },
		"no end":         func(a *task.Acceptance, _ *Claim) { a.Expires = time.Time{} },
		"from the future": func(a *task.Acceptance, _ *Claim) {
			a.Created, a.Expires = noon.Add(2*time.Hour), noon.Add(3*time.Hour)
		},
		"too long":          func(a *task.Acceptance, c *Claim) { c.Rules.MaxTTL = time.Minute },
		"used up":           func(a *task.Acceptance, _ *Claim) { a.MaxUses, a.Uses = 2, 2 },
		"new finding":       func(_ *task.Acceptance, c *Claim) { c.Report = "sha256:other" },
		"no report":         func(a *task.Acceptance, c *Claim) { a.Report, c.Report = "", "" },
		"the gap's digest":  func(a *task.Acceptance, _ *Claim) { a.Report = "sha256:g" },
		"other task":        func(a *task.Acceptance, _ *Claim) { a.Scope, a.Report, a.Task = task.ScopeTask, "sha256:g", "t2" },
		"no task":           func(a *task.Acceptance, c *Claim) { a.Scope, a.Report, c.Task = task.ScopeTask, "sha256:g", "" },
		"other repository":  func(a *task.Acceptance, _ *Claim) { a.Scope, a.Report, a.Repo = task.ScopeRepo, "sha256:g", "/s" },
		"no scope":          func(a *task.Acceptance, _ *Claim) { a.Scope = "" },
		"unattended":        func(_ *task.Acceptance, c *Claim) { c.Unattended = true },
		"below a floor":     func(_ *task.Acceptance, c *Claim) { c.OperatorFloor = 2 },
		"no assurance":      func(a *task.Acceptance, _ *Claim) { a.By.Assurance = task.AssuredNone },
		"unknown assurance": func(a *task.Acceptance, _ *Claim) { a.By.Assurance = "certainly" },
		"more is asked": func(_ *task.Acceptance, c *Claim) {
			c.Rules.Assurance = map[task.Axis]task.Assured{task.KRN: task.AssuredOS}
		},
		"by a project":  func(a *task.Acceptance, _ *Claim) { a.By.Authority = task.SourceProject },
		"by a model":    func(a *task.Acceptance, _ *Claim) { a.By.Authority = task.SourceModel },
		"not delegated": func(_ *task.Acceptance, c *Claim) { c.Rules.Alone = false },
		"hostile, by a user": func(_ *task.Acceptance, c *Claim) {
			c.Rules = AcceptRules{Delegated: []task.Axis{task.KRN}}
			c.Hostile = true
		},
		"standing, by a user":  func(a *task.Acceptance, _ *Claim) { a.Standing, a.Scope, a.Repo = true, task.ScopeRepo, "/r" },
		"standing, for a call": func(a *task.Acceptance, _ *Claim) { a.Standing, a.By.Authority = true, task.SourceOperator },
	} {
		a, c := given()
		if err := Covers(&a, c); err != nil {
			t.Fatalf("control: %v", err)
		}
		if spoil(&a, &c); Covers(&a, c) == nil {
			t.Errorf("%s: it counts", name)
		}
	}
	for name, also := range map[string]func(*task.Acceptance, *Claim){
		"task":              func(a *task.Acceptance, _ *Claim) { a.Scope, a.Report, a.Task = task.ScopeTask, "sha256:g", "t1" },
		"repository":        func(a *task.Acceptance, _ *Claim) { a.Scope, a.Report, a.Repo = task.ScopeRepo, "sha256:g", "/r" },
		"more is left":      func(_ *task.Acceptance, c *Claim) { c.Have = 2 },
		"delegated":         func(_ *task.Acceptance, c *Claim) { c.Rules = AcceptRules{Delegated: []task.Axis{task.KRN}} },
		"operator":          func(a *task.Acceptance, c *Claim) { c.Rules, a.By.Authority = AcceptRules{}, task.SourceOperator },
		"operator, hostile": func(a *task.Acceptance, c *Claim) { c.Hostile, a.By.Authority = true, task.SourceOperator },
		"standing, unattended": func(a *task.Acceptance, c *Claim) {
			c.Unattended = true
			a.Standing, a.Report, a.Scope, a.Repo, a.By.Authority, a.By.Assurance = true, "", task.ScopeRepo, "/r", task.SourceOperator, ""
			a.Expires = noon.Add(1000 * time.Hour)
		},
	} {
		a, c := given()
		also(&a, &c)
		if err := Covers(&a, c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhoMayAccept is the whole table.
func TestWhoMayAccept(t *testing.T) {
	want := map[task.Axis][5]who{ // by the level that is left
		task.SRC: {userToo, userToo, userToo, userToo, userToo}, task.RES: {userToo, userToo, userToo, userToo, userToo},
		task.VER: {userToo, userToo, userToo, userToo, userToo}, task.EVD: {userToo, userToo, userToo, userToo, userToo},
		task.PRC: {userDelegated, userDelegated, userDelegated, userDelegated, userDelegated},
		task.FS:  {operatorOnly, userDelegated, userDelegated, userDelegated, userDelegated},
		task.NET: {operatorOnly, userDelegated, userDelegated, userDelegated, userDelegated},
		task.SVC: {userDelegated, userDelegated, userDelegated, userDelegated, userDelegated},
		task.KRN: {userDelegated, userDelegated, userDelegated, userDelegated, userDelegated},
	}
	for _, a := range task.Axes {
		for have := 0; have < 5; have++ {
			if got := mayAccept(a, have, false); got != want[a][have] {
				t.Errorf("%s with %d left: %v, want %v", a, have, got, want[a][have])
			}
			hostile := want[a][have]
			if a == task.KRN {
				hostile = operatorOnly
			}
			if got := mayAccept(a, have, true); got != hostile {
				t.Errorf("hostile, %s with %d left: %v", a, have, got)
			}
		}
	}
}

// TestAccepted: a covered gap is no missing layer, is said, and a new finding
// opens it again (I8).
func TestAccepted(t *testing.T) {
	in := input()
	in.Need = task.Vector{task.KRN: 3}
	in.Rules.Alone = true
	d, err := Decide(in)
	if err != nil || d.Blocked() == nil {
		t.Fatalf("control: %v, blocked %v", err, d.Blocked())
	}
	a, _ := given()
	a.Report = d.Plan.Report
	in.Acceptances = []task.Acceptance{a}
	in.Now = noon.Add(time.Minute)
	ok, err := Decide(in)
	if err != nil || ok.Blocked() != nil || len(ok.Plan.Accepted) != 1 {
		t.Fatalf("%v, %v, %v", err, ok.Blocked(), ok.Plan.Accepted)
	}
	if !strings.Contains(strings.Join(ok.Plan.NotIsolated, "\n"), "accepted by u until") {
		t.Errorf("nothing says that it was accepted: %v", ok.Plan.NotIsolated)
	}
	for name, change := range map[string]func(*Input){
		"finding": func(i *Input) { i.Findings = []task.Finding{{ID: "new", Axis: task.CHN, Cap: 2}} },
		"need":    func(i *Input) { i.Need = task.Vector{task.KRN: 4} },
		"command": func(i *Input) { i.Command = []string{"rm", "-rf", "/"} },
		"grant":   func(i *Input) { i.Grants = append(i.Grants, task.Grant{Kind: "userns", Value: "yes"}) },
		"fact": func(i *Input) {
			i.Facts = append(i.Facts, task.Fact{What: task.Credentials, Value: "prod", Source: task.SourceDetector})
		},
		"less":         func(i *Input) { i.Promised = task.Vector{} },
		"repository":   func(i *Input) { i.Source.CommonDir = "/other" },
		"backend":      func(i *Input) { i.Backend = "x" },
		"later":        func(i *Input) { i.Now = noon.Add(2 * time.Hour) },
		"nobody there": func(i *Input) { i.Unattended = true },
	} {
		i := in
		i.Promised = input().Promised
		change(&i)
		if d, err := Decide(i); err != nil || d.Blocked() == nil {
			t.Errorf("%s: the acceptance still counts (%v)", name, err)
		}
	}
}
