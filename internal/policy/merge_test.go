package policy

import (
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

func from(s task.Source, file string, d Document) Sourced {
	d.Version = Version
	return Sourced{Document: &d, Source: s, File: file}
}

// registry is one that the shipped ceilings hold.
var registry = string(Registries[0])

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }

var here = Context{Home: "/home/me", Remotes: []string{"git.example.com"}, Repo: []string{"git.example.com/acme/shop", "/home/me/shop"}, Ref: "refs/heads/main", Now: 1_800_000_000}

func host(h string, ports ...uint16) Egress {
	e := Egress{Host: Host(h)}
	for _, p := range ports {
		e.Ports = append(e.Ports, Port{p, p})
	}
	return e
}

func mustMerge(t *testing.T, c Context, docs ...Sourced) *Rules {
	t.Helper()
	r, err := Merge(docs, c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func granted(r *Rules) string {
	var out []string
	for _, g := range r.Granted {
		out = append(out, g.Item.String())
	}
	return strings.Join(out, "; ")
}

// What an ordinary developer has who wrote nothing.
func TestMergeShipped(t *testing.T) {
	r := mustMerge(t, here, Shipped())
	if len(r.Floors)+len(r.Raised)+len(r.Granted)+len(r.Asked)+len(r.Refused) != 0 {
		t.Errorf("the shipped policy demands or grants something: %+v", r)
	}
	if r.Operator || r.Trusted.Value || r.Unwatched.Value == 0 {
		t.Errorf("%+v", r)
	}
}

func TestMergeRequests(t *testing.T) {
	npm, evil := host(registry, 443), host("evil.example", 443)
	ask := func(s task.Source) Sourced {
		return from(s, "f", Document{Request: &Authority{Egress: []Egress{npm, evil, {Host: HostOrigin, Ports: []Port{{443, 443}}}}}})
	}
	known := here
	known.Trusted, known.TrustedBy = true, Origin{task.SourceFlag, "--trust"}
	for name, c := range map[string]struct {
		c                      Context
		docs                   []Sourced
		granted, asked, refuse int
	}{
		"a project that nobody trusts":         {here, []Sourced{Shipped(), ask(task.SourceProject)}, 0, 2, 1},
		"a trusted project":                    {known, []Sourced{Shipped(), ask(task.SourceProject)}, 2, 0, 1},
		"a model":                              {known, []Sourced{Shipped(), ask(task.SourceModel)}, 0, 2, 1},
		"a person":                             {here, []Sourced{Shipped(), ask(task.SourceFlag)}, 3, 0, 0},
		"nothing delegated":                    {known, []Sourced{Shipped(), ask(task.SourceProject), from(task.SourceOperator, "o", Document{Delegation: DelegationNone})}, 0, 0, 3},
		"another ceiling":                      {known, []Sourced{Shipped(), ask(task.SourceProject), from(task.SourceOperator, "o", Document{Delegate: map[Delegatee]*Ceiling{"project": {ModeAuto, Authority{Egress: []Egress{host("**.example")}}}}})}, 1, 0, 2},
		"a ceiling without mode":               {known, []Sourced{Shipped(), ask(task.SourceProject), from(task.SourceOperator, "o", Document{Delegate: map[Delegatee]*Ceiling{"project": {"", Authority{Egress: []Egress{host("**")}}}}})}, 0, 3, 0},
		"a user does not widen the operator's": {known, []Sourced{Shipped(), ask(task.SourceProject), from(task.SourceOperator, "o", Document{Delegate: map[Delegatee]*Ceiling{"project": {ModeAuto, Authority{Egress: []Egress{npm}}}}}), from(task.SourceUser, "u", Document{Delegate: map[Delegatee]*Ceiling{"project": {ModeAuto, Authority{Egress: []Egress{host("**")}}}}})}, 1, 0, 2},
		"a user narrows it":                    {known, []Sourced{Shipped(), ask(task.SourceProject), from(task.SourceOperator, "o", Document{}), from(task.SourceUser, "u", Document{Delegate: map[Delegatee]*Ceiling{"project": {ModeAsk, Authority{Egress: []Egress{npm}}}}})}, 0, 1, 2},
		"denied":                               {known, []Sourced{Shipped(), ask(task.SourceProject), from(task.SourceTask, "t", Document{Deny: &Authority{Egress: []Egress{host("**.npmjs.org")}}})}, 1, 0, 2},
		"no ceiling at all":                    {known, []Sourced{ask(task.SourceProject)}, 0, 0, 3},
		"wider than the ceiling, never cut":    {known, []Sourced{Shipped(), from(task.SourceProject, "p", Document{Request: &Authority{Egress: []Egress{{Host: Registries[0]}}}})}, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := mustMerge(t, c.c, c.docs...)
			if len(r.Granted) != c.granted || len(r.Asked) != c.asked || len(r.Refused) != c.refuse {
				t.Errorf("granted %v, asked %v, refused %v", r.Granted, r.Asked, r.Refused)
			}
			for _, x := range r.Refused {
				if x.Why == "" || x.From.Where == "" {
					t.Errorf("a refusal without why or where: %+v", x)
				}
			}
		})
	}
}

// A question that a person answered with yes is answered for this item only.
func TestMergeAgreed(t *testing.T) {
	npm, pypi := host(registry, 443), host(string(Registries[2]), 443)
	c := here
	c.Agreed = []Item{{Egress: &npm}}
	r := mustMerge(t, c, Shipped(), from(task.SourceProject, "p", Document{Request: &Authority{Egress: []Egress{npm, pypi}}}))
	if granted(r) != registry+":443" || len(r.Asked) != 1 {
		t.Errorf("granted %s, asked %v", granted(r), r.Asked)
	}
	// It never reaches beyond the ceiling.
	evil := host("evil.example", 443)
	c.Agreed = []Item{{Egress: &evil}}
	if r := mustMerge(t, c, Shipped(), from(task.SourceProject, "p", Document{Request: &Authority{Egress: []Egress{evil}}})); len(r.Granted) != 0 {
		t.Errorf("granted %s", granted(r))
	}
}

func TestMergeTrust(t *testing.T) {
	known := here
	known.Trusted, known.TrustedBy = true, Origin{task.SourceFlag, "--trust"}
	scope := func(repo string, until int) Scope {
		return Scope{Repo: RepoPattern(repo), Expires: dated(until), Reason: "ours"}
	}
	for name, c := range map[string]struct {
		c    Context
		docs []Sourced
		want bool
	}{
		"nobody":            {here, nil, false},
		"a person":          {known, nil, true},
		"a user's file":     {here, []Sourced{from(task.SourceUser, "u", Document{Trust: []Scope{scope("git.example.com/acme/*", 2099)}})}, true},
		"by its path":       {here, []Sourced{from(task.SourceUser, "u", Document{Trust: []Scope{scope("/home/me/shop", 2099)}})}, true},
		"another":           {here, []Sourced{from(task.SourceUser, "u", Document{Trust: []Scope{scope("git.example.com/other/*", 2099)}})}, false},
		"expired":           {here, []Sourced{from(task.SourceUser, "u", Document{Trust: []Scope{scope("git.example.com/acme/*", 2020)}})}, false},
		"not allowed":       {known, []Sourced{from(task.SourceOperator, "o", Document{AllowTrust: no()})}, false},
		"nor by a file":     {here, []Sourced{from(task.SourceOperator, "o", Document{AllowTrust: no()}), from(task.SourceUser, "u", Document{AllowTrust: yes(), Trust: []Scope{scope("git.example.com/acme/*", 2099)}})}, false},
		"but the operator":  {here, []Sourced{from(task.SourceOperator, "o", Document{AllowTrust: no(), Trust: []Scope{scope("git.example.com/acme/*", 2099)}})}, true},
		"a user beside one": {here, []Sourced{from(task.SourceOperator, "o", Document{}), from(task.SourceUser, "u", Document{Trust: []Scope{scope("git.example.com/acme/*", 2099)}})}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := mustMerge(t, c.c, append(c.docs, Shipped())...)
			if r.Trusted.Value != c.want || (len(r.Lowered) > 0) != c.want {
				t.Errorf("trusted %v, lowered %v", r.Trusted, r.Lowered)
			}
		})
	}
}

func dated(year int) Date {
	var d Date
	if err := d.UnmarshalText([]byte(strings.Replace("Y-01-01", "Y", string(rune('0'+year/1000))+string(rune('0'+year/100%10))+string(rune('0'+year/10%10))+string(rune('0'+year%10)), 1))); err != nil {
		panic(err)
	}
	return d
}

// A key that is not a source's to set is an error that says what to do.
func TestMergeReserved(t *testing.T) {
	for _, s := range []task.Source{task.SourceProject, task.SourceTask, task.SourceModel, task.SourceAgent} {
		for name, d := range map[string]Document{
			"floors": {Floors: Levels{task.NET: 1}}, "base": {Base: &Authority{Env: []Name{"A"}}}, "tools.allow": {Tools: &ToolRules{Allow: []CallRule{{Tool: "x"}}}},
			"delegate": {Delegate: map[Delegatee]*Ceiling{"model": {ModeAuto, Authority{}}}}, "backends": {Backends: &BackendRules{Allowed: []string{"host"}}},
		} {
			_, err := Merge([]Sourced{Shipped(), {Document: &d, Source: s, File: ".caisson.yaml", Lines: map[string]int{name: 7}}}, here)
			if task.CodeOf(err) != task.CodePolicy || task.HintOf(err) == "" || !strings.Contains(err.Error(), ".caisson.yaml:7: "+name) {
				t.Errorf("%s in a %s: %v (hint %q)", name, s, err, task.HintOf(err))
			}
		}
	}
	// A user loosens only where nobody else decides.
	lower := Document{Lower: []Lowering{{Characteristic: task.Supervision, Value: "supervised", Repo: "/home/me/shop", Expires: dated(2099), Reason: "x"}}}
	if r := mustMerge(t, here, Shipped(), from(task.SourceUser, "u", lower)); len(r.Lowered) != 1 {
		t.Errorf("lowered %v", r.Lowered)
	}
	if _, err := Merge([]Sourced{Shipped(), from(task.SourceUser, "u", lower), from(task.SourceOperator, "o", Document{})}, here); task.CodeOf(err) != task.CodePolicy {
		t.Errorf("a user beside an operator: %v", err)
	}
	for _, s := range []task.Source{"", "root", task.SourceDetector, task.SourceInventory} {
		if _, err := Merge([]Sourced{from(s, "x", Document{})}, here); task.CodeOf(err) != task.CodePolicy {
			t.Errorf("source %q: %v", s, err)
		}
	}
}

func TestMergeValues(t *testing.T) {
	r := mustMerge(t, here, Shipped(),
		Sourced{Document: &Document{Floors: Levels{task.NET: 2}, Limits: &LimitRules{Memory: 4 << 30}, Net: NetRegistries, Acceptance: &AcceptanceRules{MaxTTL: 9, Delegable: []task.Axis{task.FS, task.NET}}, Backends: &BackendRules{Prefer: []string{"vm"}, Allowed: []string{"vm", "linux"}}}, Source: task.SourceOperator, File: "o", Lines: map[string]int{"floors": 2, "floors.NET": 3, "limits": 5}},
		from(task.SourceUser, "u", Document{Floors: Levels{task.NET: 3, task.FS: 1}, Limits: &LimitRules{Memory: 8 << 30, Pids: 100}, Acceptance: &AcceptanceRules{Delegable: []task.Axis{task.NET, task.SVC}}, Backends: &BackendRules{Prefer: []string{"linux"}, Allowed: []string{"linux", "docker"}}}),
		from(task.SourceProject, "p", Document{Raise: Levels{task.FS: 2}, Limits: &LimitRules{Memory: 2 << 30}, Net: NetNone, Unattended: yes(), Retention: &RetentionRules{Evidence: 5}}),
	)
	want := map[string]string{
		"floors": "NET 2 operator o:3", "limits.memory": "2g project p", "limits.pids": "100 user u", "net": "none project p", "unattended": "true project p",
		"backends_prefer": `["vm"] operator o`, "backends_allowed": `["linux"] user u`, "delegable": "NET operator o",
	}
	for _, x := range r.Told() {
		if w, ok := want[x.Path]; ok {
			if got := x.Value + " " + x.From.String(); got != w {
				t.Errorf("%s is %s, want %s", x.Path, got, w)
			}
			delete(want, x.Path)
		}
	}
	if len(want) > 0 {
		t.Errorf("not told: %v", want)
	}
	if len(r.Raised) != 2 || r.Raised[0] != (AxisLevel{task.FS, 2, Origin{task.SourceProject, "p"}}) || r.Raised[1].Level != 3 {
		t.Errorf("raised %v", r.Raised)
	}
	if _, err := Merge([]Sourced{from(task.SourceOperator, "o", Document{Backends: &BackendRules{Allowed: []string{"vm"}}}), from(task.SourceUser, "u", Document{Backends: &BackendRules{Allowed: []string{"linux"}}})}, here); task.CodeOf(err) != task.CodePolicy {
		t.Errorf("no backend left: %v", err)
	}
	// A rule about a home that nobody knows would be looser than it was written.
	nowhere := here
	nowhere.Home = ""
	if _, err := Merge([]Sourced{from(task.SourceUser, "u", Document{Deny: &Authority{Mounts: []Mount{{Path: "~/.ssh"}}}})}, nowhere); task.CodeOf(err) != task.CodePolicy {
		t.Errorf("a deny below an unknown home: %v", err)
	}
}

// Naming an axis is no way around the default of somebody more trusted, and a user
// beside an operator who is silent loosens nothing of what is shipped.
func TestMergeAssurance(t *testing.T) {
	says := func(s task.Source, file string, of map[AssuranceAxis]Assurance) Sourced {
		return from(s, file, Document{Acceptance: &AcceptanceRules{MinAssurance: of}})
	}
	silent := from(task.SourceOperator, "silent", Document{})
	for name, c := range map[string]struct {
		docs          []Sourced
		kernel, other task.Assured
	}{
		"shipped":                          {nil, task.AssuredTTY, task.AssuredTTY},
		"a user alone":                     {[]Sourced{says(task.SourceUser, "u", map[AssuranceAxis]Assurance{"KRN": AssuranceNone})}, "none", task.AssuredTTY},
		"a user alone, the default":        {[]Sourced{says(task.SourceUser, "u", map[AssuranceAxis]Assurance{"default": AssuranceNone})}, "none", "none"},
		"the operator's own exception":     {[]Sourced{says(task.SourceOperator, "o", map[AssuranceAxis]Assurance{"default": AssuranceHardware, "KRN": AssuranceTTY})}, task.AssuredTTY, "hardware"},
		"a user beside the default":        {[]Sourced{says(task.SourceOperator, "o", map[AssuranceAxis]Assurance{"default": AssuranceOSAuth}), says(task.SourceUser, "u", map[AssuranceAxis]Assurance{"KRN": AssuranceNone})}, "os-auth", "os-auth"},
		"a user raises one":                {[]Sourced{says(task.SourceOperator, "o", map[AssuranceAxis]Assurance{"default": AssuranceOSAuth}), says(task.SourceUser, "u", map[AssuranceAxis]Assurance{"KRN": AssuranceHardware})}, "hardware", "os-auth"},
		"a user beside one axis":           {[]Sourced{says(task.SourceOperator, "o", map[AssuranceAxis]Assurance{"KRN": AssuranceHardware}), says(task.SourceUser, "u", map[AssuranceAxis]Assurance{"default": AssuranceNone})}, "hardware", task.AssuredTTY},
		"a user beside silence":            {[]Sourced{silent, says(task.SourceUser, "u", map[AssuranceAxis]Assurance{"default": AssuranceNone, "KRN": AssuranceNone})}, task.AssuredTTY, task.AssuredTTY},
		"two files of one operator's":      {[]Sourced{says(task.SourceOperator, "a", map[AssuranceAxis]Assurance{"default": AssuranceHardware}), says(task.SourceOperator, "b", map[AssuranceAxis]Assurance{"KRN": AssuranceTTY})}, "hardware", "hardware"},
		"a user's exception from stricter": {[]Sourced{says(task.SourceOperator, "o", map[AssuranceAxis]Assurance{"default": AssuranceTTY}), says(task.SourceUser, "u", map[AssuranceAxis]Assurance{"default": AssuranceHardware, "KRN": AssuranceOSAuth})}, "os-auth", "hardware"},
	} {
		t.Run(name, func(t *testing.T) {
			g := Govern(mustMerge(t, here, append(c.docs, Shipped())...))
			if k, o := g.Accept.least(task.KRN), g.Accept.least(task.PRC); k != c.kernel || o != c.other {
				t.Errorf("KRN %s, PRC %s; want %s, %s", k, o, c.kernel, c.other)
			}
		})
	}
	// What is shipped bounds a user beside an operator, and nobody who decides.
	long := Document{UnwatchedAfter: Duration(1 << 60)}
	if r := mustMerge(t, here, Shipped(), silent, from(task.SourceUser, "u", long)); r.Unwatched.Value != Duration(unwatched) {
		t.Errorf("beside a silent operator: %v", r.Unwatched)
	}
	for _, s := range []task.Source{task.SourceUser, task.SourceOperator} {
		if r := mustMerge(t, here, Shipped(), from(s, "x", long)); r.Unwatched.Value != long.UnwatchedAfter {
			t.Errorf("%s: %v", s, r.Unwatched)
		}
	}
}
