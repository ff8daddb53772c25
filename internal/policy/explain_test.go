package policy

import (
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func TestExplain(t *testing.T) {
	r := mustMerge(t, here,
		from(task.SourceUser, "u", Document{
			Base: &Authority{Egress: []Egress{host("**.example", 443), {Host: "api.example", Ports: []Port{{8443, 8443}}, Methods: []Method{"GET"}, Path: "/v1"}, {CIDR: mustCIDR("10.0.0.0/8")}}, Mounts: []Mount{{Path: "~/src"}, {Path: "/data", Mode: AccessRW}}, Env: []Name{"LC_*"}, Credentials: []Name{"npm-read"}, Grants: []Ability{"ptrace"}},
			Deny: &Authority{Egress: []Egress{host("evil.example"), {CIDR: mustCIDR("10.1.0.0/16")}, {Host: "api.example", Methods: []Method{"DELETE"}}}, Mounts: []Mount{{Path: "~/.ssh"}, {Path: "/data/ro", Mode: AccessRW}}, Commands: []Command{{Argv{"git", "push"}}}},
		}),
		from(task.SourceUser, "u2", Document{Tools: &ToolRules{Default: task.VerdictAsk, Deny: []CallRule{{Tool: "shell", Command: Argv{"rm", "-rf"}}, {Path: "/etc"}}, Ask: []CallRule{{Tool: "fetch"}}, Allow: []CallRule{{Tool: "read"}, {Tool: "fetch"}, {Command: Argv{"/usr/bin/ls"}}}}}),
		from(task.SourceProject, "p", Document{Request: &Authority{Env: []Name{"A"}}}),
		from(task.SourceUser, "u3", Document{Delegate: map[Delegatee]*Ceiling{"project": {ModeAsk, Authority{Env: []Name{"A"}}}}}),
	)
	git := func(argv ...string) *CommandPoint {
		return &CommandPoint{Argv: argv, Program: "/usr/bin/" + argv[0], Own: true}
	}
	tool := func(name string, f func(*ToolPoint)) Point {
		p := &ToolPoint{Tool: name}
		if f != nil {
			f(p)
		}
		return Point{Tool: p}
	}
	eg := func(s string) Point {
		p, err := ParseEgress(s)
		if err != nil {
			t.Fatal(err)
		}
		return Point{Egress: &p}
	}
	for name, c := range map[string]struct {
		p    Point
		want task.Verdict
	}{
		"nothing":                   {Point{}, task.VerdictDeny},
		"granted":                   {eg("a.example:443"), task.VerdictAllow},
		"the name itself":           {eg("example:443"), task.VerdictDeny},
		"another port":              {eg("a.example:80"), task.VerdictDeny},
		"denied beats granted":      {eg("evil.example:443"), task.VerdictDeny},
		"an address":                {eg("10.0.0.1:5432"), task.VerdictAllow},
		"a denied address":          {eg("10.1.0.1:5432"), task.VerdictDeny},
		"mapped":                    {eg("[::ffff:10.1.0.1]:5432"), task.VerdictDeny},
		"a method":                  {eg("GET https://api.example:8443/v1/x"), task.VerdictAllow},
		"another method":            {eg("POST https://api.example:8443/v1/x"), task.VerdictDeny},
		"a path beside":             {eg("GET https://api.example:8443/v10"), task.VerdictDeny},
		"a path in disguise":        {eg("GET https://api.example:8443/v1/..%2fadmin"), task.VerdictDeny},
		"dots":                      {eg("GET https://api.example:8443/v1/../admin"), task.VerdictDeny},
		"unread and partly denied":  {eg("api.example:443"), task.VerdictDeny},
		"read and not denied":       {eg("GET https://api.example/x"), task.VerdictAllow},
		"a mount":                   {Point{Mount: &MountPoint{"/home/me/src/x", false}}, task.VerdictAllow},
		"to write":                  {Point{Mount: &MountPoint{"/home/me/src/x", true}}, task.VerdictDeny},
		"denied":                    {Point{Mount: &MountPoint{"/home/me/.ssh/id", false}}, task.VerdictDeny},
		"above what is denied":      {Point{Mount: &MountPoint{"/home/me", false}}, task.VerdictDeny},
		"writable":                  {Point{Mount: &MountPoint{"/data/x", true}}, task.VerdictAllow},
		"writing denied":            {Point{Mount: &MountPoint{"/data/ro/x", true}}, task.VerdictDeny},
		"reading is not":            {Point{Mount: &MountPoint{"/data/ro/x", false}}, task.VerdictAllow},
		"not plain":                 {Point{Mount: &MountPoint{"/data/../etc", false}}, task.VerdictDeny},
		"env":                       {Point{Env: "LC_ALL"}, task.VerdictAllow},
		"env asked for":             {Point{Env: "A"}, task.VerdictAsk},
		"env else":                  {Point{Env: "B"}, task.VerdictDeny},
		"credential":                {Point{Credential: "npm-read"}, task.VerdictAllow},
		"grant":                     {Point{Grant: "ptrace"}, task.VerdictAllow},
		"grant else":                {Point{Grant: "userns"}, task.VerdictDeny},
		"command":                   {Point{Command: git("git", "pull")}, task.VerdictAsk},
		"a denied command":          {Point{Command: git("git", "push", "--force")}, task.VerdictDeny},
		"by another path":           {Point{Command: &CommandPoint{Argv: []string{"./git", "push"}, Program: "/home/me/git"}}, task.VerdictDeny},
		"unresolved":                {Point{Command: &CommandPoint{Argv: []string{"git", "push"}}}, task.VerdictDeny},
		"opaque":                    {Point{Command: &CommandPoint{Argv: []string{"sh", "-c", "x"}, Program: "/bin/sh", Own: true, Opaque: true}}, task.VerdictAsk},
		"an allowed command":        {Point{Command: git("ls")}, task.VerdictAllow},
		"of that name elsewhere":    {Point{Command: &CommandPoint{Argv: []string{"ls"}, Program: "/home/me/ls", Own: true}}, task.VerdictAsk},
		"no tool":                   {tool("", nil), task.VerdictDeny},
		"default":                   {tool("write", nil), task.VerdictAsk},
		"allow lifts the default":   {tool("read", nil), task.VerdictAllow},
		"ask beats allow":           {tool("fetch", nil), task.VerdictAsk},
		"a path":                    {tool("read", func(p *ToolPoint) { p.Paths = []string{"/etc/passwd"} }), task.VerdictDeny},
		"a folder above":            {tool("read", func(p *ToolPoint) { p.Paths = []string{"/"} }), task.VerdictDeny},
		"unsure":                    {tool("read", func(p *ToolPoint) { p.Paths, p.Unsure = []string{"/x"}, true }), task.VerdictDeny},
		"elsewhere":                 {tool("read", func(p *ToolPoint) { p.Paths = []string{"/etcetera"} }), task.VerdictAllow},
		"the second command":        {tool("shell", func(p *ToolPoint) { p.Commands = []CommandPoint{*git("ls"), *git("rm", "-rf", "x")} }), task.VerdictDeny},
		"one of two is not allowed": {tool("shell", func(p *ToolPoint) { p.Commands = []CommandPoint{*git("ls"), *git("cat")} }), task.VerdictAsk},
		"all are":                   {tool("shell", func(p *ToolPoint) { p.Commands = []CommandPoint{*git("ls"), *git("ls", "-l")} }), task.VerdictAllow},
	} {
		if a := r.Explain(c.p); a.Verdict != c.want || a.Rule == "" {
			t.Errorf("%s: %s by %q, want %s", name, a.Verdict, a.Rule, c.want)
		}
	}
	if a := r.Explain(eg("evil.example:443")); a.From.Where != "u" || len(a.Beside) == 0 {
		t.Errorf("who decided: %+v", a)
	}
	none := mustMerge(t, here, from(task.SourceUser, "u", Document{Net: NetNone, Base: &Authority{Egress: []Egress{host("**")}}}))
	if a := none.Explain(eg("a.example:443")); a.Verdict != task.VerdictDeny {
		t.Errorf("net none: %+v", a)
	}
	// A default of deny is lifted by allow, never by a rule that anybody may write.
	deny := mustMerge(t, here, from(task.SourceUser, "u", Document{Tools: &ToolRules{Default: task.VerdictDeny, Allow: []CallRule{{Tool: "read"}}}}), from(task.SourceProject, "p", Document{Tools: &ToolRules{Ask: []CallRule{{Tool: "*"}}}}))
	for name, want := range map[string]task.Verdict{"write": task.VerdictDeny, "read": task.VerdictAsk} {
		if a := deny.Explain(tool(name, nil)); a.Verdict != want {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func BenchmarkExplain(b *testing.B) {
	docs := []Sourced{Shipped()}
	d := Document{Version: Version, Base: &Authority{}, Deny: &Authority{}}
	for i := range 50 {
		d.Base.Egress = append(d.Base.Egress, host("h"+string(rune('a'+i%26))+".example", 443))
		d.Deny.Egress = append(d.Deny.Egress, host("d"+string(rune('a'+i%26))+".example"))
	}
	r, err := Merge(append(docs, from(task.SourceUser, "u", d)), here)
	if err != nil {
		b.Fatal(err)
	}
	p := Point{Egress: &EgressPoint{Host: "hz.example", Port: 443}}
	for b.Loop() {
		r.Explain(p)
	}
}

func TestDiff(t *testing.T) {
	one := mustMerge(t, here, from(task.SourceOperator, "a", Document{Floors: Levels{task.NET: 2}, Base: &Authority{Egress: []Egress{host("a.example", 443)}}, Deny: &Authority{Mounts: []Mount{{Path: "/x"}}}, Limits: &LimitRules{Memory: 1 << 30}}))
	two := mustMerge(t, here, from(task.SourceOperator, "b", Document{Floors: Levels{task.NET: 1}, Base: &Authority{Egress: []Egress{host("**.example", 443), host("a.example", 443)}}, Deny: &Authority{Mounts: []Mount{{Path: "/x/y"}}}}))
	if l := Diff(one, one); len(l) != 0 {
		t.Errorf("with itself: %v", l)
	}
	got := map[string]bool{}
	for _, c := range loosened(Diff(one, two)) {
		got[c.Path+": "+c.Text] = true
	}
	for _, want := range []string{"floors: NET 2 → 1", "granted: reachable now: egress **.example:443", "denied: no more denied: mounts /x", "limits.memory: 1g → not set"} {
		if !got[want] {
			t.Errorf("not told: %s (told %v)", want, got)
		}
	}
	for _, c := range loosened(Diff(two, one)) {
		t.Errorf("the way back loosens: %+v", c)
	}
}
