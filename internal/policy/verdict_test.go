package policy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func simple(words string) CommandPoint {
	argv := strings.Fields(words)
	return CommandPoint{Argv: argv, Program: "/usr/bin/" + argv[0], Own: true}
}

func callOf(tool string, cmds ...CommandPoint) Call {
	return Call{Proved: true, Tool: tool, Point: ToolPoint{Commands: cmds}}
}

// TestJudge holds calls against rules of files and flags of a person together.
func TestJudge(t *testing.T) {
	rules := func(docs ...Sourced) Calls { r := mustMerge(t, here, docs...); return r.Calls() }
	op := rules(from(task.SourceOperator, "op", Document{
		Deny: &Authority{Commands: []Command{{Argv{"git", "push"}}}},
		Tools: &ToolRules{
			Deny: []CallRule{{Command: Argv{"npm", "publish"}, Reason: "releases are made by CI"}, {Path: "/src/.github"}},
			Ask:  []CallRule{{Tool: "shell", Command: Argv{"curl"}}, {Tool: "publish_*"}},
		}}))
	def := rules(from(task.SourceOperator, "op", Document{Tools: &ToolRules{Default: task.VerdictAsk, Allow: []CallRule{{Tool: "read_*"}, {Tool: "shell", Command: Argv{"git", "status"}}}}}))
	project := rules(from(task.SourceProject, "p", Document{Tools: &ToolRules{Ask: []CallRule{{Tool: "shell", Command: Argv{"make", "deploy"}}}}}))
	opaque := CommandPoint{Opaque: true, Why: "an interpreter with code"}
	partial := func(words string) CommandPoint { c := simple(words); c.Partial = true; return c }
	plain := simple("git -C d push")
	plain.Plain = []string{"git", "push"}
	at := func(p string, unsure bool) Call {
		return Call{Proved: true, Tool: "write_file", Unsure: unsure, Subjects: []string{p}, Point: ToolPoint{Paths: []string{p}}}
	}
	alone := func(c Call) Call { c.Unattended = true; return c }
	flag := []task.ToolRule{{Verdict: task.VerdictDeny, Tool: "write_file"}}
	ask := []task.ToolRule{{Verdict: task.VerdictAsk, Tool: "*"}}
	for name, c := range map[string]struct {
		calls Calls
		flags []task.ToolRule
		call  Call
		want  task.Verdict
	}{
		"zero":                              {Calls{}, nil, Call{}, task.VerdictDeny},
		"no rules":                          {Calls{}, nil, callOf("shell", simple("git push")), task.VerdictAllow},
		"not proved":                        {op, nil, Call{Tool: "shell"}, task.VerdictDeny},
		"denied command":                    {op, nil, callOf("shell", simple("git push origin")), task.VerdictDeny},
		"another verb":                      {op, nil, callOf("shell", simple("git pull")), task.VerdictAllow},
		"options before the verb":           {op, nil, callOf("shell", plain), task.VerdictDeny},
		"options that are not known":        {op, nil, callOf("shell", simple("npm --x publish")), task.VerdictAsk},
		"the second of two":                 {op, nil, callOf("shell", simple("ls"), simple("npm publish")), task.VerdictDeny},
		"by its path":                       {op, nil, callOf("shell", CommandPoint{Argv: []string{"/opt/git", "push"}}), task.VerdictDeny},
		"opaque asks":                       {op, nil, callOf("shell", opaque), task.VerdictAsk},
		"opaque, nobody there":              {op, nil, alone(callOf("shell", opaque)), task.VerdictDeny},
		"opaque, no rule about commands":    {def, nil, callOf("read_file", opaque), task.VerdictAllow},
		"opaque beside a denied one":        {op, nil, callOf("shell", opaque, simple("npm publish")), task.VerdictDeny},
		"an argument that is not literal":   {op, nil, callOf("shell", partial("npm")), task.VerdictAsk},
		"more arguments that are not":       {op, nil, callOf("shell", partial("npm publish")), task.VerdictDeny},
		"another verb and one that is not":  {op, nil, callOf("shell", partial("npm test")), task.VerdictAllow},
		"asked about":                       {op, nil, callOf("shell", simple("curl x")), task.VerdictAsk},
		"asked about, in another tool":      {op, nil, callOf("background", simple("curl x")), task.VerdictAllow},
		"a tool by pattern":                 {op, nil, callOf("publish_artifact"), task.VerdictAsk},
		"a path":                            {op, nil, at("/src/.github/x", false), task.VerdictDeny},
		"a path beside":                     {op, nil, at("/src/.githubx", false), task.VerdictAllow},
		"a path through a link":             {op, nil, at("/src/l/x", true), task.VerdictDeny},
		"a path that is not plain":          {op, nil, at("/src/x/../y", false), task.VerdictDeny},
		"default":                           {def, nil, callOf("shell", simple("ls")), task.VerdictAsk},
		"default, nobody there":             {def, nil, alone(callOf("shell", simple("ls"))), task.VerdictDeny},
		"default lifted":                    {def, nil, callOf("shell", simple("git status -s")), task.VerdictAllow},
		"default lifted for one of two":     {def, nil, callOf("shell", simple("git status"), simple("rm x")), task.VerdictAsk},
		"default and an opaque one":         {def, nil, callOf("shell", simple("git status"), opaque), task.VerdictAsk},
		"default and a program of the task": {def, nil, callOf("shell", CommandPoint{Argv: []string{"./git", "status"}, Program: "/src/git"}), task.VerdictAsk},
		"default and no command at all":     {def, nil, callOf("shell"), task.VerdictAsk},
		"a project tightens":                {project, nil, callOf("shell", simple("make deploy")), task.VerdictAsk},
		"a flag denies what rules allow":    {def, flag, callOf("write_file"), task.VerdictDeny},
		"a flag asks":                       {Calls{}, ask, callOf("shell", simple("ls")), task.VerdictAsk},
		"rules deny what a flag asks":       {op, ask, callOf("shell", simple("git push")), task.VerdictDeny},
		"a verdict that is none":            {Calls{Rules: []CallVerdict{{Verdict: "permit", CallRule: CallRule{Tool: "*"}}}}, nil, callOf("shell"), task.VerdictDeny},
		"a default that is none":            {Calls{Default: Set[task.Verdict]{Value: "permit"}}, nil, callOf("shell"), task.VerdictDeny},
	} {
		if a := c.calls.Judge(c.flags, c.call); a.Verdict != c.want || a.Rule == "" {
			t.Errorf("%s: %s (%s), want %s", name, a.Verdict, a, c.want)
		}
	}
	if a := op.Judge(nil, callOf("shell", simple("npm publish"))); !strings.Contains(a.String(), "releases are made by CI") || !strings.Contains(a.String(), "op") {
		t.Errorf("neither reason nor place: %s", a)
	}
	// A source below the operator never allows.
	for _, s := range []task.Source{task.SourceProject, task.SourceAgent, task.SourceTask, task.SourceModel, task.SourceEnv, task.SourceFlag} {
		if _, err := Merge([]Sourced{from(s, "x", Document{Tools: &ToolRules{Allow: []CallRule{{Tool: "*"}}}})}, here); task.CodeOf(err) != task.CodePolicy {
			t.Errorf("%s allows: %v", s, err)
		}
	}
}

// TestJudgeOrder: the order of rules and sources changes nothing, a rule more that
// takes away never allows more, and what somebody below says never allows more.
func TestJudgeOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	words := []string{"git push", "git pull", "git -C d push", "npm publish", "npm --x publish", "ls", "sh"}
	one := func() CallRule {
		c := CallRule{Tool: pick(r, []string{"", "shell", "read_*", "*"})}
		switch r.IntN(3) {
		case 0:
			c.Command = strings.Fields(pick(r, words))
		case 1:
			c.Path = pick(r, []Path{"/src", "/src/x", "/etc"})
		}
		if c.Check() != nil {
			c.Tool = "*"
		}
		return c
	}
	level := func(a Answer) int { return slices.Index(verdicts, a.Verdict) }
	for i := range cases(20000) {
		rules := []CallVerdict{}
		for range r.IntN(6) {
			rules = append(rules, CallVerdict{pick(r, verdicts), one(), Origin{Source: task.SourceOperator, Where: "op"}})
		}
		c := Calls{Rules: rules, Default: Set[task.Verdict]{Value: pick(r, append(verdicts, ""))}}
		q := Call{Proved: true, Unattended: r.IntN(4) == 0, Tool: pick(r, []string{"shell", "read_file", "write_file"}), Unsure: r.IntN(5) == 0}
		for range r.IntN(3) {
			p := simple(pick(r, words))
			p.Opaque, p.Partial = r.IntN(4) == 0, r.IntN(4) == 0
			q.Point.Commands = append(q.Point.Commands, p)
		}
		if r.IntN(2) == 0 {
			q.Point.Paths = []string{pick(r, []string{"/src/x/y", "/etc/passwd", "/src"})}
		}
		was := c.Judge(nil, q)
		other := Calls{Rules: slices.Clone(rules), Default: c.Default}
		r.Shuffle(len(other.Rules), func(i, j int) { other.Rules[i], other.Rules[j] = other.Rules[j], other.Rules[i] })
		if a := other.Judge(nil, q); a.Verdict != was.Verdict {
			t.Fatalf("case %d: another order gives %s, not %s", i, a, was)
		}
		more := Calls{Rules: append(slices.Clone(rules), CallVerdict{pick(r, verdicts[1:]), one(), Origin{Source: task.SourceProject}}), Default: c.Default}
		if a := more.Judge(nil, q); level(a) < level(was) {
			t.Fatalf("case %d: a rule more allows more: %s, was %s", i, a, was)
		}
		if a := c.Judge([]task.ToolRule{{Verdict: pick(r, verdicts), Tool: "*"}}, q); level(a) < level(was) {
			t.Fatalf("case %d: a flag allows more: %s, was %s", i, a, was)
		}
		if q.Unattended && was.Verdict == task.VerdictAsk {
			t.Fatalf("case %d: somebody is asked who is not there", i)
		}
	}
}

// BenchmarkJudge is a typical call against rules of several sources.
func BenchmarkJudge(b *testing.B) {
	tools := &ToolRules{Ask: []CallRule{{Tool: "publish_artifact"}}}
	for _, p := range []string{"git push", "npm publish", "cargo publish", "docker push", "kubectl apply", "terraform apply", "gh release", "aws s3"} {
		tools.Deny = append(tools.Deny, CallRule{Command: strings.Fields(p)})
		tools.Ask = append(tools.Ask, CallRule{Tool: "shell", Command: append(strings.Fields(p), "--force")})
	}
	for _, p := range []Path{"/src/.github", "/src/.git", "/etc", "/src/deploy"} {
		tools.Deny = append(tools.Deny, CallRule{Path: p})
	}
	r, err := Merge([]Sourced{Shipped(), from(task.SourceUser, "u", Document{Version: Version, Tools: tools})}, here)
	if err != nil {
		b.Fatal(err)
	}
	c := r.Calls()
	flags := []task.ToolRule{{Verdict: task.VerdictAsk, Tool: "shell", Pattern: "*git push*"}, {Verdict: task.VerdictDeny, Tool: "write_file", Pattern: ".github/*"}}
	q := callOf("shell", simple("go build ./..."), simple("go test ./..."), simple("git status -s"))
	q.Subjects = []string{"go build ./... && go test ./... && git status -s"}
	b.ReportAllocs()
	for b.Loop() {
		if a := c.Judge(flags, q); a.Verdict != task.VerdictAllow {
			b.Fatal(a)
		}
	}
}
