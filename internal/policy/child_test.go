package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

func parent() *task.View {
	return &task.View{
		ID: "tparent", Backend: "linux", Created: time.Unix(1000, 0),
		Source: task.SourceRef{Repo: "/r", CommonDir: "/r/.git", Base: "abc", Strategy: task.StrategyClone, History: task.HistoryBase, Dirty: task.DirtyChanged},
		Limits: task.Limits{MemoryBytes: 1 << 30, CPUs: 2, Pids: 100, DiskBytes: 5, Timeout: time.Hour},
		Grants: []task.Grant{{Kind: "ptrace", Value: "yes", Source: "flag"}, {Kind: "ro", Value: "/seed", Source: "flag"}},
		Tools:  []task.Tool{{Path: "/opt/go"}},
		Levels: []task.Level{{Axis: task.SRC, Promised: 3}, {Axis: task.NET, Promised: 4}, {Axis: task.SVC, Promised: task.LevelNA}},
		Need:   task.Vector{task.NET: 4},
	}
}

// TestChildFills: what a child leaves open is its parent's.
func TestChildFills(t *testing.T) {
	p := parent()
	p.Unattended, p.Rootfs = true, "/root"
	p.Asking = &task.Asking{Hook: "/bin/answer"}
	q, err := Child(p, task.Request{History: task.HistoryFull, Origin: map[string]string{"history": "default"}, Need: task.Vector{task.SRC: 2}}, time.Unix(1000+600, 5))
	if err != nil {
		t.Fatal(err)
	}
	if q.Repo != "/r" || q.Base != "abc" || q.History != task.HistoryBase || q.Backend != "linux" || q.Rootfs != "/root" || !q.Unattended || q.Asking.Hook != "/bin/answer" {
		t.Errorf("%+v", q)
	}
	if q.Limits != (task.Limits{MemoryBytes: 1 << 30, CPUs: 2, Pids: 100, DiskBytes: 5, Timeout: 50*time.Minute - time.Second}) {
		t.Errorf("limits %+v", q.Limits)
	}
	if q.Need[task.NET] != 4 || q.Need[task.SRC] != 2 {
		t.Errorf("need %v", q.Need)
	}
	less := task.Limits{MemoryBytes: 1 << 20, CPUs: 1, Pids: 70, DiskBytes: 1, Timeout: time.Minute}
	if q, err := Child(p, task.Request{Limits: less, History: task.HistoryNone}, time.Unix(1001, 0)); err != nil || q.Limits != less || q.History != task.HistoryNone {
		t.Errorf("%+v %v", q, err)
	}
}

// TestChildRefused: each way to ask for more than the parent has is refused.
func TestChildRefused(t *testing.T) {
	now := time.Unix(1001, 0)
	for name, q := range map[string]task.Request{
		"history": {History: task.HistoryFull}, "unknown history": {History: "x"}, "dirty": {Dirty: task.DirtyAll}, "checkout": {Strategy: task.StrategyCheckout}, "copy": {Strategy: task.StrategyCopy},
		"backend": {Backend: "docker"}, "trust": {Trust: true}, "memory": {Limits: task.Limits{MemoryBytes: 1<<30 + 1}}, "cpus": {Limits: task.Limits{CPUs: 2.1}},
		"pids": {Limits: task.Limits{Pids: 101}}, "disk": {Limits: task.Limits{DiskBytes: 6}}, "timeout": {Limits: task.Limits{Timeout: time.Hour + 1}},
	} {
		if _, err := Child(parent(), q, now); task.CodeOf(err) != task.CodeDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Child(parent(), task.Request{}, time.Unix(1000+3600, 0)); task.CodeOf(err) != task.CodeDenied {
		t.Errorf("a parent without time: %v", err)
	}
	ruled := parent()
	ruled.Asking = &task.Asking{Frozen: true}
	if _, err := Child(ruled, task.Request{Asking: task.Asking{Hook: "/x"}}, now); task.CodeOf(err) != task.CodeDenied {
		t.Errorf("rules of its own: %v", err)
	}
}

// TestWithin: what came of a request is held to the parent once more.
func TestWithin(t *testing.T) {
	plan := func(change func(*task.PlanReport)) *task.PlanReport {
		p := &task.PlanReport{
			Source: task.SourceRef{Repo: "/r", CommonDir: "/r/.git", Base: "abc"}, Grants: []task.Grant{{Kind: "ro", Value: "/seed", Source: "x"}},
			Levels: []task.Level{{Axis: task.SRC, Promised: 3}, {Axis: task.NET, Promised: 4}, {Axis: task.SVC, Promised: task.LevelNA}},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	if err := Within(parent(), plan(nil), []task.Tool{{Path: "/opt/go"}}); err != nil {
		t.Error(err)
	}
	for word, change := range map[string]func(*task.PlanReport){
		"/other": func(p *task.PlanReport) { p.Source.Repo = "/other" },
		"base":   func(p *task.PlanReport) { p.Source.Base = "def" },
		"userns": func(p *task.PlanReport) { p.Grants = append(p.Grants, task.Grant{Kind: "userns", Value: "yes"}) },
		"/seed2": func(p *task.PlanReport) { p.Grants[0].Value = "/seed2" },
		"SRC":    func(p *task.PlanReport) { p.Levels[0].Promised = 2 },
		"NET":    func(p *task.PlanReport) { p.Levels[1].Promised = task.LevelNA },
	} {
		if err := Within(parent(), plan(change), nil); task.CodeOf(err) != task.CodeDenied || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
	if err := Within(parent(), plan(nil), []task.Tool{{Path: "/opt/x"}}); task.CodeOf(err) != task.CodeDenied {
		t.Errorf("another toolchain: %v", err)
	}
	full := parent()
	full.Source.History = task.HistoryFull
	if err := Within(full, plan(func(p *task.PlanReport) { p.Source.Base = "def" }), nil); err != nil {
		t.Error(err)
	}
}

// TestChildHasItsOwnAcceptances: what was accepted for a parent covers nothing of
// a child, what the operator lets stand does, and so does what was accepted since
// for the child itself.
func TestChildHasItsOwnAcceptances(t *testing.T) {
	p := parent()
	p.Accepted = []task.Covered{{Axis: task.KRN, Acceptance: task.Acceptance{ID: "a-command"}}, {Axis: task.NET, Acceptance: task.Acceptance{ID: "standing:/etc/x:1", Standing: true}}}
	all := []task.Acceptance{{ID: "a-command"}, {ID: "a-task", Task: p.ID}, {ID: "standing:/etc/x:1", Standing: true}, {ID: "mine", Task: "tchild"}}
	var left []string
	for _, a := range NotInherited(all, p) {
		left = append(left, a.ID)
	}
	if got := strings.Join(left, " "); got != "standing:/etc/x:1 mine" {
		t.Errorf("left: %s", got)
	}
	if len(all) != 4 || all[0].ID != "a-command" {
		t.Error("the list of all was changed")
	}
}

// TestStill holds a boundary that stands against what is needed later.
func TestStill(t *testing.T) {
	now := time.Unix(5000, 0)
	decide := func(floor int, op int) *Decision {
		d, err := Decide(Input{Facts: Defaults(Launch{Familiar: "yes", Supervised: true}), Backend: "linux", Promised: task.Vector{task.SRC: 3, task.PRC: 3, task.FS: 3, task.NET: 4, task.RES: 2, task.KRN: 1, task.CPL: 2, task.CHN: 2, task.CRD: 4, task.EVD: 2, task.CLN: 2, task.SVC: task.LevelNA},
			Floors: []Floor{{Axis: task.KRN, Level: floor, Source: task.SourceOperator, Where: "/etc/p.yaml:7"}}, Operator: task.Vector{task.KRN: op}, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	proved := task.Vector{task.SRC: 3, task.PRC: 3, task.FS: 3, task.NET: 4, task.RES: 2, task.KRN: 1, task.CPL: 2, task.CHN: 2, task.CRD: 4, task.EVD: 2, task.CLN: 2}
	began := func(required, level int, ttl time.Duration, standing bool) []task.Covered {
		return []task.Covered{{Axis: task.KRN, Required: required, Effective: 1, Acceptance: task.Acceptance{ID: "a", Axis: task.KRN, Level: level, Expires: now.Add(ttl), Standing: standing}}}
	}
	for name, c := range map[string]struct {
		floor, op int
		began     []task.Covered
		revoked   bool
		ok        bool
	}{
		"nothing changed":         {1, 0, nil, false, true},
		"a floor was raised":      {2, 2, nil, false, false},
		"and had been accepted":   {2, 0, began(2, 1, time.Hour, false), false, true},
		"which was revoked":       {2, 0, began(2, 1, time.Hour, false), true, false},
		"which is over":           {2, 0, began(2, 1, -time.Second, false), false, false},
		"for less than is needed": {3, 0, began(2, 1, time.Hour, false), false, false},
		"for more than there is":  {2, 0, began(2, 2, time.Hour, false), false, false},
		"below the operator's":    {2, 2, began(2, 1, time.Hour, false), false, false},
		"that stood, and no more": {2, 0, began(2, 1, time.Hour, true), false, false},
	} {
		until, _, err := decide(c.floor, c.op).Still(StandingBoundary{Task: "tx", Proved: proved, Began: c.began, Now: now, Revoked: func(string) bool { return c.revoked }})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err != nil && (task.CodeOf(err) != task.CodeBoundaryMissing || !strings.Contains(err.Error(), "/etc/p.yaml:7") || !strings.Contains(task.HintOf(err), "caisson close tx") || strings.Contains(task.HintOf(err), "caisson accept") != (c.op <= 1)) {
			t.Errorf("%s: %v; %s", name, err, task.HintOf(err))
		}
		if c.ok && len(c.began) > 0 && !until.Equal(now.Add(time.Hour)) {
			t.Errorf("%s: until %v", name, until)
		}
	}
}
