package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestDemandedLater: verification blocks no command, whoever asks for it; the
// plan says who did.
func TestDemandedLater(t *testing.T) {
	for name, c := range map[string]struct {
		need     task.Vector
		floors   []Floor
		promised int
		demanded int
	}{
		"rows alone":        {nil, nil, task.LevelNA, 0},
		"as high as rows":   {task.Vector{task.VER: 2}, nil, task.LevelNA, 2},
		"above rows":        {task.Vector{task.VER: 3}, nil, task.LevelNA, 3},
		"a floor":           {nil, []Floor{{task.VER, 2, task.SourceOperator, "/etc/x.yaml:3"}}, task.LevelNA, 2},
		"a promise is none": {task.Vector{task.VER: 2}, nil, 3, 2},
	} {
		in := input()
		in.Need, in.Floors, in.Promised[task.VER] = c.need, c.floors, c.promised
		d, err := Decide(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d.Blocked() != nil {
			t.Errorf("%s: %v", name, d.Blocked())
		}
		for _, l := range d.Plan.Levels {
			if l.Axis == task.VER && (l.Demanded != c.demanded || l.Required != max(2, c.demanded) || l.Promised != task.LevelNA || !strings.HasPrefix(l.Asked, "row R") && c.demanded < 3 || !strings.Contains(l.How, "caisson check")) {
				t.Errorf("%s: %+v", name, l)
			}
		}
		proved := input().Promised
		if _, err := d.Compare(proved, nil, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	in := input()
	in.Need = task.Vector{task.VER: 1}
	if _, err := Decide(in); err == nil {
		t.Error("a need below the rows is taken")
	}
}

// passed is a check that counts.
func passed(tree string) task.Check {
	c := task.Check{Argv: []string{"make"}, Digest: "d", Pinned: "typed", Tree: tree, After: tree, Observed: true}
	c.Level, c.Why = Worth(&c)
	return c
}

func TestWorth(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*task.Check)
		want  int
	}{
		"control":                    {func(*task.Check) {}, 2},
		"ignored files":              {func(c *task.Check) { c.Ignored = 7 }, 2},
		"nobody's":                   {func(c *task.Check) { c.Pinned = "" }, 0},
		"failed":                     {func(c *task.Check) { c.Exit = 1 }, 0},
		"by a signal":                {func(c *task.Check) { c.Exit = 137 }, 0},
		"ended":                      {func(c *task.Check) { c.Reason = "canceled" }, 0},
		"the worker's word":          {func(c *task.Check) { c.Observed = false }, 1},
		"the worker's word of a 1":   {func(c *task.Check) { c.Observed, c.Exit = false, 1 }, 0},
		"changed files":              {func(c *task.Check) { c.After = "else" }, 0},
		"changed, and the word only": {func(c *task.Check) { c.After, c.Observed = "else", false }, 0},
		"unread before":              {func(c *task.Check) { c.Tree = "" }, 0},
		"unread after":               {func(c *task.Check) { c.After = "" }, 0},
		"never read":                 {func(c *task.Check) { c.Tree, c.After = "", "" }, 0},
	} {
		k := passed("t1")
		c.spoil(&k)
		if got, why := Worth(&k); got != c.want || why == "" {
			t.Errorf("%s: VER %d (%s), want %d", name, got, why, c.want)
		}
	}
	var zero task.Check
	if got, _ := Worth(&zero); got != 0 {
		t.Errorf("the zero value gives %d", got)
	}
}

func TestLeave(t *testing.T) {
	rows := task.Level{Axis: task.VER, Required: 2, Asked: "row R2, R3"}
	demanded := rows
	demanded.Demanded = 2
	demanded.Asked += "; --need VER=2"
	named := func(c task.Check, name, digest string) task.Check {
		c.Name, c.Digest = name, digest
		return c
	}
	failed := func(tree string) task.Check {
		c := passed(tree)
		c.Exit = 1
		c.Level, c.Why = Worth(&c)
		return c
	}
	for name, c := range map[string]struct {
		checks          []task.Check
		required        task.Level
		floors          []Floor
		level, on       int
		stale           int
		short, refused  bool
		demandedByFloor bool
	}{
		"nothing, by rows":           {nil, rows, nil, 0, 0, 0, true, false, false},
		"nothing, demanded":          {nil, demanded, nil, 0, 0, 0, true, true, false},
		"nothing, a floor of today":  {nil, rows, []Floor{{task.VER, 2, task.SourceOperator, "f:1"}}, 0, 0, 0, true, true, true},
		"nobody asks":                {nil, task.Level{}, nil, 0, 0, 0, false, false, false},
		"not on record":              {nil, task.Level{Required: task.LevelNA}, nil, 0, 0, 0, false, false, false},
		"holds":                      {[]task.Check{passed("t")}, demanded, nil, 2, 1, 0, false, false, false},
		"of another tree":            {[]task.Check{passed("u")}, demanded, nil, 0, 0, 1, true, true, false},
		"failed":                     {[]task.Check{failed("t")}, demanded, nil, 0, 1, 0, true, true, false},
		"failed, then not":           {[]task.Check{failed("t"), passed("t")}, demanded, nil, 2, 1, 0, false, false, false},
		"held, then failed":          {[]task.Check{passed("t"), failed("t")}, demanded, nil, 0, 1, 0, true, true, false},
		"another one failed":         {[]task.Check{named(failed("t"), "", "a"), named(passed("t"), "", "b")}, demanded, nil, 0, 2, 0, true, true, false},
		"a name's later command":     {[]task.Check{named(failed("t"), "n", "a"), named(passed("t"), "n", "b")}, demanded, nil, 2, 1, 0, false, false, false},
		"another name":               {[]task.Check{named(failed("t"), "n", "a"), named(passed("t"), "m", "a")}, demanded, nil, 0, 2, 0, true, true, false},
		"failed elsewhere":           {[]task.Check{failed("u"), passed("t")}, demanded, nil, 2, 1, 0, false, false, false},
		"back at a tree that failed": {[]task.Check{failed("t"), passed("u")}, demanded, nil, 0, 1, 0, true, true, false},
		"above what a check gives":   {[]task.Check{passed("t")}, task.Level{Required: 3, Demanded: 3}, nil, 2, 1, 0, true, true, false},
	} {
		v := Leave("t", c.checks, c.required, c.floors)
		if v.Level != c.level || len(v.Checks) != c.on || v.Stale != c.stale || v.Short() != c.short || v.Refused() != c.refused {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if v := Leave("", []task.Check{{Level: 2}}, demanded, nil); v.Level != 0 || len(v.Checks) != 0 {
		t.Errorf("a result without a tree: %+v", v)
	}
	if v := Leave("t", nil, demanded, nil); v.Why != "row R2, R3; --need VER=2" {
		t.Errorf("why: %q", v.Why)
	}
}

// TestGaps: an acceptance of a result holds for its files and what was missing
// then, and for nothing else.
func TestGaps(t *testing.T) {
	at := time.Now()
	v := Leave("t", nil, task.Level{Required: 2, Demanded: 2}, nil)
	result, repo := Gaps("t1", &v)
	accept := task.Acceptance{ID: "a", Axis: task.VER, Required: 2, Level: 0, Report: result, Scope: task.ScopeTask, Task: "t1", Reason: "r",
		By: task.Acceptor{Authority: task.SourceUser, Assurance: task.AssuredTTY}, Created: at, Expires: at.Add(time.Hour)}
	claim := func(id task.ID, v task.Verification) Claim {
		g, _ := Gaps(id, &v)
		return Claim{Axis: task.VER, Required: v.Demanded, Have: v.Level, Gap: g, Task: id, Now: at}
	}
	if err := Covers(&accept, claim("t1", v)); err != nil {
		t.Fatalf("control: %v", err)
	}
	bad := passed("t")
	bad.Exit = 1
	bad.Level, bad.Why = Worth(&bad)
	for name, c := range map[string]Claim{
		"other files":      claim("t1", Leave("u", nil, task.Level{Required: 2, Demanded: 2}, nil)),
		"another task":     claim("t2", v),
		"more is wanted":   claim("t1", Leave("t", nil, task.Level{Required: 3, Demanded: 3}, nil)),
		"a check failed":   claim("t1", Leave("t", []task.Check{bad}, task.Level{Required: 2, Demanded: 2}, nil)),
		"operator's floor": func() Claim { c := claim("t1", v); c.OperatorFloor = 1; return c }(),
	} {
		if Covers(&accept, c) == nil {
			t.Errorf("%s is covered", name)
		}
	}
	other := Leave("u", nil, task.Level{Required: 2, Demanded: 2}, nil)
	if _, r := Gaps("t2", &other); r != repo || r == result {
		t.Error("of a repository: bound to files or to a task")
	}
}
