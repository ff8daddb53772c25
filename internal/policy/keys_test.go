package policy

import (
	"encoding"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

var textual = reflect.TypeFor[encoding.TextUnmarshaler]()

// fields calls visit with every key of a type, by its path, and the type that
// holds it.
func fields(t reflect.Type, path string, visit func(path string, holder reflect.Type, f reflect.StructField)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		switch t.Kind() {
		case reflect.Slice:
			path += "[]"
		case reflect.Map:
			path += ".{}"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(textual) && t != reflect.TypeFor[Mount]() {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			fields(f.Type, path, visit)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := strings.TrimPrefix(path+"."+name, ".")
		visit(at, t, f)
		fields(f.Type, at, visit)
	}
}

// No key of a file is without its description, its sources and its join, and
// nothing is described that is no key.
func TestKeysAreAll(t *testing.T) {
	there := map[string]bool{}
	parts := map[string]bool{}
	fields(reflect.TypeFor[Document](), "", func(path string, h reflect.Type, f reflect.StructField) {
		there[path] = true
		if in := holder[h]; in != "" {
			parts[in+" "+path[strings.LastIndex(path, ".")+1:]] = true
			if PartOf(h, path[strings.LastIndex(path, ".")+1:]) == "" {
				t.Errorf("%s of %s is not among Parts", path, h.Name())
			}
			return
		}
		k := keyIndex()[path]
		switch {
		case k == nil:
			t.Errorf("%s has no entry in Keys", path)
		case k.Doc == "" || k.Join == "" || len(k.From) == 0:
			t.Errorf("%s: its entry lacks something: %+v", path, k)
		}
	})
	for i, k := range Keys {
		if !there[k.Path] {
			t.Errorf("Keys describes %s, which is no key", k.Path)
		}
		if slices.IndexFunc(Keys, func(o Key) bool { return o.Path == k.Path }) != i {
			t.Errorf("Keys describes %s twice", k.Path)
		}
	}
	for _, p := range Parts {
		if !parts[p.In+" "+p.Key] {
			t.Errorf("Parts describes %s of %s, which is no key", p.Key, p.In)
		}
	}
}

// samples are values for types that read themselves from a text: several each,
// the loosest among them.
var samples = map[reflect.Type][]any{
	reflect.TypeFor[Mode]():                {ModeAuto, ModeAsk},
	reflect.TypeFor[Delegation]():          {DelegationCeilings, DelegationNone},
	reflect.TypeFor[NetMode]():             {NetOpen, NetNone},
	reflect.TypeFor[Full]():                {FullWait, FullRefuse},
	reflect.TypeFor[Assurance]():           {AssuranceNone, AssuranceHardware},
	reflect.TypeFor[Ability]():             {Ability("ptrace"), Ability("userns")},
	reflect.TypeFor[Access]():              {AccessRW, AccessRO},
	reflect.TypeFor[task.Verdict]():        {task.VerdictAllow, task.VerdictDeny},
	reflect.TypeFor[task.Axis]():           {task.NET, task.FS},
	reflect.TypeFor[Duration]():            {Duration(1 << 60), Duration(1)},
	reflect.TypeFor[Size]():                {Size(1 << 60), Size(1)},
	reflect.TypeFor[Number]():              {Number(1000), Number(0.1)},
	reflect.TypeFor[Count]():               {Count(1 << 20), Count(1)},
	reflect.TypeFor[Date]():                {dated(2099), dated(2098)},
	reflect.TypeFor[RepoPattern]():         {RepoPattern("git.example.com/acme/*"), RepoPattern("/home/me/shop")},
	reflect.TypeFor[Glob]():                {Glob("a/**"), Glob("b")},
	reflect.TypeFor[Host]():                {HostAny, Host("in.example")},
	reflect.TypeFor[CIDR]():                {mustCIDR("0.0.0.0/0"), mustCIDR("10.0.0.0/8")},
	reflect.TypeFor[Port]():                {Port{1, 65535}, Port{443, 443}},
	reflect.TypeFor[Method]():              {Method("GET"), Method("POST")},
	reflect.TypeFor[URLPath]():             {URLPath("/"), URLPath("/a")},
	reflect.TypeFor[Path]():                {Path("/"), Path("/a")},
	reflect.TypeFor[Name]():                {Name("*"), Name("A")},
	reflect.TypeFor[HostPort]():            {HostPort("a.example"), HostPort("b.example:8443")},
	reflect.TypeFor[Argv]():                {Argv{"git"}, Argv{"/bin/true", "x"}},
	reflect.TypeFor[Levels]():              {Levels{task.NET: 1}, Levels{task.NET: 4, task.FS: 2}},
	reflect.TypeFor[Statements]():          {Statements{task.CodeTrust: {"trusted"}}, Statements{task.Migrations: {"schema"}}},
	reflect.TypeFor[*bool]():               {yes(), no()},
	reflect.TypeFor[Values]():              {Values{"yes"}, Values{"no"}},
	reflect.TypeFor[[]string]():            {[]string{"vm", "linux", "host"}, []string{"linux"}},
	reflect.TypeFor[AssuranceAxis]():       {AssuranceAxis("default"), AssuranceAxis("NET")},
	reflect.TypeFor[Delegatee]():           {Delegatee("model"), Delegatee("project")},
	reflect.TypeFor[task.Characteristic](): {task.Supervision, task.Migrations},
}

// sample returns a value of t in which everything is set.
func sample(t reflect.Type, i int) reflect.Value {
	if l := samples[t]; l != nil {
		return reflect.ValueOf(l[i%len(l)])
	}
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Pointer:
		p := reflect.New(t.Elem())
		p.Elem().Set(sample(t.Elem(), i))
		return p
	case reflect.Slice:
		return reflect.Append(v, sample(t.Elem(), i))
	case reflect.Map:
		m := reflect.MakeMap(t)
		m.SetMapIndex(sample(t.Key(), i), sample(t.Elem(), i))
		return m
	case reflect.Struct:
		for j := range t.NumField() {
			if t.Field(j).Name != "Ref" { // which would not be this one
				v.Field(j).Set(sample(t.Field(j).Type, i))
			}
		}
	case reflect.String:
		v.SetString([]string{"supervised", "none"}[i%2])
	case reflect.Int:
		v.SetInt(1)
	}
	return v
}

// each calls f with a document for every key of the first two levels, in which
// it alone is set.
func each(i int, f func(path string, d *Document)) {
	t := reflect.TypeFor[Document]()
	for j := range t.NumField() {
		field := t.Field(j)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "version" {
			continue
		}
		d := &Document{Version: Version}
		at := reflect.ValueOf(d).Elem().Field(j)
		at.Set(sample(field.Type, i))
		f(name, d)
		if field.Type.Kind() != reflect.Pointer || field.Type.Elem().Kind() != reflect.Struct {
			continue
		}
		for k := range field.Type.Elem().NumField() {
			sub := field.Type.Elem().Field(k)
			one := &Document{Version: Version}
			p := reflect.New(field.Type.Elem())
			p.Elem().Field(k).Set(sample(sub.Type, i))
			reflect.ValueOf(one).Elem().Field(j).Set(p)
			subName, _, _ := strings.Cut(sub.Tag.Get("json"), ",")
			f(name+"."+subName, one)
		}
	}
}

// Every key of a file reaches the rules: none can be forgotten by Merge.
func TestKeysAreCarried(t *testing.T) {
	n := 0
	for i := range 2 {
		each(i, func(path string, d *Document) {
			n++
			from := task.SourceUser
			for _, without := range [][]Sourced{nil, {Shipped()}} {
				bare, err := Merge(without, here)
				if err != nil {
					t.Fatal(err)
				}
				with, err := Merge(append(slices.Clone(without), Sourced{Document: d, Source: from, File: "f"}), here)
				if err != nil {
					t.Errorf("%s: %v", path, err)
					continue
				}
				if digest(bare) == digest(with) && len(without) == 0 {
					// What is asked for without a ceiling is told as refused; all else has its place.
					t.Errorf("%s set to sample %d reaches no rule", path, i)
				}
			}
		})
	}
	if n < 60 {
		t.Errorf("only %d keys were tried", n)
	}
}

// Every key in every lower source, set to the loosest that it can say, loosens
// nothing: it is an error, or it tightens, or it asks inside a ceiling.
func TestNoKeyLoosens(t *testing.T) {
	tight := &Document{Version: Version,
		Floors: Levels{task.NET: 3, task.FS: 3}, Raise: Levels{task.PRC: 2}, Base: &Authority{Env: []Name{"LANG"}},
		Delegate:   map[Delegatee]*Ceiling{"project": {ModeAuto, Authority{Egress: []Egress{host("in.example")}}}, "user": {ModeAuto, Authority{Env: []Name{"A"}}}, "model": {ModeAsk, Authority{}}},
		Deny:       &Authority{Egress: []Egress{{CIDR: mustCIDR("10.0.0.0/8")}}, Mounts: []Mount{{Path: "/a"}}},
		Acceptance: &AcceptanceRules{MaxTTL: 5, MinAssurance: map[AssuranceAxis]Assurance{"default": AssuranceOSAuth, "NET": AssuranceHardware}, Delegable: []task.Axis{task.FS}},
		Tools:      &ToolRules{Default: task.VerdictDeny, Deny: []CallRule{{Tool: "x"}}, Ask: []CallRule{{Tool: "y"}}, Frozen: yes(), Wait: 5},
		Backends:   &BackendRules{Prefer: []string{"linux"}, Allowed: []string{"linux"}}, Limits: &LimitRules{5, 0.5, 5, 5, 5, 1 << 30, 2, 3}, Budget: &BudgetRules{5, 5, 0.5, 5, FullRefuse},
		Retention: &RetentionRules{1 << 61, 5}, Unattended: yes(), UnwatchedAfter: 5, Net: NetAllowlist, Outward: &OutwardRules{Verdict: task.VerdictDeny, Ask: []Egress{host("pay.example")}}, AllowTrust: no(),
		DecisionHook: &Hook{Exec: Argv{"/bin/false"}}, RiskyFiles: []Glob{"x"}, Checks: []NamedCheck{{"unit", Argv{"make"}}}, Characteristics: Statements{task.Destructive: {"yes"}},
	}
	for _, op := range []Sourced{{Document: tight, Source: task.SourceOperator, File: "o"}, {Document: &Document{Version: Version}, Source: task.SourceOperator, File: "silent"}} {
		noKeyLoosens(t, op)
	}
}

func noKeyLoosens(t *testing.T, op Sourced) {
	t.Helper()
	alone := mustMerge(t, here, op, Shipped())
	tried, refused := 0, 0
	for _, s := range []task.Source{task.SourceUser, task.SourceEnv, task.SourceFlag, task.SourceAgent, task.SourceProject, task.SourceTask, task.SourceModel} {
		for i := range 2 {
			each(i, func(path string, d *Document) {
				tried++
				r, err := Merge([]Sourced{op, Shipped(), {Document: d, Source: s, File: "low"}}, here)
				if err != nil {
					refused++
					if task.CodeOf(err) != task.CodePolicy || task.HintOf(err) == "" {
						t.Errorf("%s in %s: %v (hint %q)", path, s, err, task.HintOf(err))
					}
					return
				}
				for _, c := range loosened(Diff(alone, r)) {
					if path == "trust" && s == task.SourceUser && op.File == "silent" {
						continue // what a person knows of code is theirs to say where nobody bounds it
					}
					if c.Path != "granted" && c.Path != "asked" {
						t.Errorf("%s in %s beside %s loosens: %+v", path, s, op.File, c)
					}
				}
				for _, g := range append(slices.Clone(r.Granted), askedAsGranted(r)...) {
					if g.From.Source == task.SourceOperator {
						continue
					}
					for _, x := range r.Ceilings {
						if x.For == delegateeOf(s) && !slices.ContainsFunc(x.Items(), g.Item.In) {
							t.Errorf("%s in %s: %s is outside %s", path, s, g.Item, x.From)
						}
					}
				}
			})
		}
	}
	if refused < 100 || tried-refused < 100 {
		t.Errorf("%d tried, %d refused", tried, refused)
	}
}
