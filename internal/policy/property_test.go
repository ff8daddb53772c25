package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// cases is how many random cases a property is held against: n, or with
// CAISSON_TEST_FULL=1 a hundred times as many, which makes millions.
func cases(n int) int {
	if os.Getenv("CAISSON_TEST_FULL") != "" {
		return n * 100
	}
	return n
}

// A small world, in which every point can be looked at.
var (
	worldHosts   = []string{"", "a", "x.a", "y.a", "x.y.a", "b", "x.b", "z.x.y.a", "aa", "x.aa", "ya"}
	worldAddrs   = []string{"", "10.0.0.1", "10.0.0.2", "10.1.0.1", "11.0.0.1", "::1", "fd00::1", "::ffff:10.0.0.1"}
	worldPorts   = []uint16{1, 22, 80, 81, 443, 65535}
	worldMethods = []string{"", "GET", "POST", "PUT"}
	worldURLs    = []string{"", "/", "/a", "/a/b", "/ab", "/a/../b", "/a%2fb"}
	worldPaths   = []string{"/", "/a", "/a/b", "/a/b/c", "/ab", "/b", "relative", "/a/../b"}
	worldNames   = []string{"A", "AB", "ABC", "B", "AWS_X", "AWS_Y"}

	patHosts   = []Host{"", "a", "*.a", "**.a", "x.a", "*.y.a", "**.y.a", "**", "x.y.a", "aa", "**.aa"}
	patCIDRs   = []string{"", "10.0.0.0/8", "10.0.0.0/24", "10.0.0.1/32", "0.0.0.0/0", "::/0", "fd00::/8", "11.0.0.1/32"}
	patPorts   = [][]Port{nil, {{443, 443}}, {{80, 81}}, {{80, 80}, {81, 81}}, {{1, 65535}}, {{1, 100}, {101, 65535}}, {{22, 22}, {443, 443}}}
	patMethods = [][]Method{nil, {"GET"}, {"GET", "POST"}, {"POST"}}
	patURLs    = []URLPath{"", "/", "/a", "/a/b", "/ab"}
	patPaths   = []Path{"/", "/a", "/a/b", "/ab", "/b"}
	patNames   = []Name{"A", "A*", "AB", "AWS_*", "*", "AWS_X"}
	patArgv    = []Argv{{"git"}, {"git", "push"}, {"git", "push", "x"}, {"/usr/bin/git"}, {"/usr/bin/git", "push"}, {"hg"}}
)

func pick[T any](r *rand.Rand, l []T) T { return l[r.IntN(len(l))] }

func randomEgress(r *rand.Rand) *Egress {
	for {
		e := &Egress{Host: pick(r, patHosts), Ports: pick(r, patPorts), Methods: pick(r, patMethods), Path: pick(r, patURLs)}
		if c := pick(r, patCIDRs); c != "" {
			e.CIDR = mustCIDR(c)
		}
		if e.Check() == nil {
			return e
		}
	}
}

var egressPoints = func() []EgressPoint {
	var out []EgressPoint
	for _, h := range worldHosts {
		for _, a := range worldAddrs {
			p := EgressPoint{Host: h}
			if a != "" {
				p.Addr = netip.MustParseAddr(a)
			}
			if h == "" && a == "" {
				continue
			}
			for _, port := range worldPorts {
				for _, m := range worldMethods {
					for _, u := range worldURLs {
						p.Port, p.Method, p.Path = port, m, u
						out = append(out, p)
					}
				}
			}
		}
	}
	return out
}()

// I5, for every kind of pattern: what is contained reaches nothing that its
// container does not, and in this world, where each difference has a point that
// shows it, the other way round too.
func TestContainmentEgress(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	held := 0
	for range cases(1000) {
		a, b := randomEgress(r), randomEgress(r)
		if r.IntN(2) == 0 { // one that is near
			c := *a
			b = &c
			switch r.IntN(4) {
			case 0:
				b.Host = pick(r, patHosts)
			case 1:
				b.Ports = pick(r, patPorts)
			case 2:
				b.Methods = pick(r, patMethods)
			case 3:
				b.Path = pick(r, patURLs)
			}
			if b.Check() != nil {
				continue
			}
		}
		in, counter := a.In(b), false
		for _, p := range egressPoints {
			if a.Covers(p) && !a.Touches(p) {
				t.Fatalf("%s covers %+v and does not touch it", a, p)
			}
			if a.Covers(p) && !b.Covers(p) {
				if counter = true; in {
					t.Fatalf("%s is said to be in %s, which does not cover %+v", a, b, p)
				}
				break
			}
		}
		if !in && !counter && !slices.ContainsFunc(egressPoints, a.Covers) {
			continue // no point of this world: nothing to hold it against
		}
		if !in && !counter && !subtle(a, b) {
			t.Fatalf("%s is not said to be in %s, and everything of it is", a, b)
		}
		if in {
			held++
		}
	}
	if held < 40 {
		t.Errorf("only %d cases were contained", held)
	}
}

// subtle are differences that have no point in the small world: ports and
// methods that are not in it.
func subtle(a, b *Egress) bool {
	return len(a.Methods) == 0 && len(b.Methods) > 0 || !portsIn(a.Ports, b.Ports) || a.Host == HostAny || strings.HasPrefix(string(a.Host), "*")
}

// The same with many cases and points drawn at random.
func TestContainmentRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range cases(300_000) {
		a, b := randomEgress(r), randomEgress(r)
		p := pick(r, egressPoints)
		if a.In(b) && a.Covers(p) && !b.Covers(p) {
			t.Fatalf("%s in %s: %+v", a, b, p)
		}
		m, n := &Mount{pick(r, patPaths), pick(r, []Access{"", AccessRO, AccessRW})}, &Mount{pick(r, patPaths), pick(r, []Access{"", AccessRO, AccessRW})}
		mp := MountPoint{pick(r, worldPaths), r.IntN(2) == 0}
		if m.In(n) && m.Covers(mp) && !n.Covers(mp) {
			t.Fatalf("%s in %s: %+v", m, n, mp)
		}
		if m.Covers(mp) && m.Mode != AccessRW && !m.Touches(mp) {
			t.Fatalf("%s covers %+v and does not touch it", m, mp)
		}
		x, y, name := pick(r, patNames), pick(r, patNames), pick(r, worldNames)
		if x.in(y) && x.Covers(name) && !y.Covers(name) {
			t.Fatalf("%s in %s: %s", x, y, name)
		}
		c, d := &Command{pick(r, patArgv)}, &Command{pick(r, patArgv)}
		cp := randomCommand(r)
		if c.In(d) && c.Covers(cp) && !d.Covers(cp) {
			t.Fatalf("%s in %s: %+v", c, d, cp)
		}
		if c.Covers(cp) && !c.Touches(cp) {
			t.Fatalf("%s covers %+v and does not touch it", c, cp)
		}
	}
	// Each difference of these has a point.
	for _, m := range patPaths {
		for _, n := range patPaths {
			a, b := &Mount{m, AccessRO}, &Mount{n, AccessRO}
			all := true
			for _, p := range worldPaths {
				all = all && (!a.Covers(MountPoint{p, false}) || b.Covers(MountPoint{p, false}))
			}
			if a.In(b) != all {
				t.Errorf("%s in %s: %v, by its points %v", a, b, a.In(b), all)
			}
		}
	}
}

func randomCommand(r *rand.Rand) CommandPoint {
	p := CommandPoint{Argv: append([]string{pick(r, []string{"git", "./git", "/usr/bin/git", "hg"})}, [][]string{nil, {"push"}, {"push", "x"}, {"pull"}}[r.IntN(4)]...), Opaque: r.IntN(4) == 0}
	p.Program = pick(r, []string{"", "/usr/bin/git", "/home/me/git", "/usr/bin/hg"})
	p.Own = p.Program != "" && r.IntN(2) == 0
	return p
}

func randomAuthority(r *rand.Rand) *Authority {
	a := &Authority{}
	for range r.IntN(3) {
		a.Egress = append(a.Egress, *randomEgress(r))
	}
	for range r.IntN(2) {
		a.Mounts = append(a.Mounts, Mount{pick(r, patPaths), pick(r, []Access{"", AccessRO, AccessRW})})
	}
	if r.IntN(3) == 0 {
		a.Env = append(a.Env, pick(r, patNames))
	}
	if r.IntN(4) == 0 {
		a.Credentials = append(a.Credentials, pick(r, patNames))
	}
	if r.IntN(4) == 0 {
		a.Grants = append(a.Grants, pick(r, Abilities))
	}
	if r.IntN(4) == 0 {
		a.Commands = append(a.Commands, Command{pick(r, patArgv)})
	}
	return a
}

func randomLevels(r *rand.Rand) Levels {
	l := Levels{}
	for range r.IntN(3) {
		a := pick(r, task.Axes)
		l[a] = r.IntN(task.MaxLevel(a) + 1)
	}
	return l
}

// randomDocument is one that its source may write.
func randomDocument(r *rand.Rand, s task.Source) Document {
	d := Document{Version: Version, Raise: randomLevels(r)}
	if r.IntN(2) == 0 {
		d.Deny = randomAuthority(r)
	}
	if r.IntN(2) == 0 && s != task.SourceOperator {
		d.Request = randomAuthority(r)
	}
	if r.IntN(3) == 0 {
		d.Limits = &LimitRules{Memory: Size(r.IntN(4)), Pids: Count(r.IntN(4))}
	}
	if r.IntN(3) == 0 {
		d.Unattended = pick(r, []*bool{yes(), no()})
	}
	if r.IntN(3) == 0 {
		d.Net = pick(r, netModes)
	}
	if r.IntN(4) == 0 {
		d.Outward = &OutwardRules{Verdict: pick(r, verdicts), Ask: []Egress{host(pick(r, []string{"a.example", "b.example"}))}}
	}
	if r.IntN(4) == 0 {
		d.Tools = &ToolRules{Default: pick(r, verdicts), Deny: []CallRule{{Tool: pick(r, []string{"a", "b"})}}}
	}
	if s != task.SourceOperator && s != task.SourceUser {
		return d
	}
	if r.IntN(2) == 0 {
		d.Floors = randomLevels(r)
	}
	if r.IntN(2) == 0 {
		d.Base = randomAuthority(r)
	}
	d.Delegate = map[Delegatee]*Ceiling{}
	for _, who := range Delegatees {
		if r.IntN(2) == 0 {
			d.Delegate[who] = &Ceiling{pick(r, append([]Mode{""}, modes...)), *randomAuthority(r)}
		}
	}
	if r.IntN(6) == 0 {
		d.Delegation = pick(r, delegations)
	}
	return d
}

// I1 to I4 and I6 on random documents of all sources.
func TestMergeInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	lower := []task.Source{task.SourceUser, task.SourceEnv, task.SourceFlag, task.SourceAgent, task.SourceProject, task.SourceTask, task.SourceModel}
	n, grants, refusals := 0, 0, 0
	for n < cases(2000) {
		n++
		docs := []Sourced{}
		if r.IntN(3) > 0 {
			docs = append(docs, Shipped())
		}
		for i := range 1 + r.IntN(2) {
			docs = append(docs, from(task.SourceOperator, fmt.Sprint("o", i), randomDocument(r, task.SourceOperator)))
		}
		ops := slices.Clone(docs)
		for i := range r.IntN(4) {
			s := pick(r, lower)
			docs = append(docs, from(s, fmt.Sprint(s, i), randomDocument(r, s)))
		}
		c := here
		c.Trusted = r.IntN(2) == 0
		for range r.IntN(3) {
			c.Agreed = append(c.Agreed, Item{Egress: randomEgress(r)})
		}
		alone, err := Merge(ops, c)
		if err != nil {
			t.Fatal(err)
		}
		all, err := Merge(docs, c)
		if err != nil {
			t.Fatal(err)
		}

		// I1: what is granted was granted by the operator, or lies in the ceiling of who asked.
		for _, g := range append(slices.Clone(all.Granted), askedAsGranted(all)...) {
			grants++
			if g.Via == "base" && g.From.Source != task.SourceOperator {
				t.Fatalf("case %d: base of %s", n, g.From)
			}
			if g.Via != "base" {
				who := delegateeOf(g.From.Source)
				some := false
				for _, x := range all.Ceilings {
					if x.For == who {
						some = true
						if !slices.ContainsFunc(x.Items(), g.Item.In) {
							t.Fatalf("case %d: %s of %s is outside its ceiling %s", n, g.Item, g.From, x.From)
						}
					}
				}
				if !some {
					t.Fatalf("case %d: %s of %s has no ceiling", n, g.Item, g.From)
				}
			}
		}
		refusals += len(all.Refused)
		// I2: floors of the operator hold.
		for _, f := range alone.Floors {
			if !slices.ContainsFunc(all.Floors, func(x AxisLevel) bool { return x.Axis == f.Axis && x.Level >= f.Level }) {
				t.Fatalf("case %d: floor %v became %v", n, f, all.Floors)
			}
		}
		// What others say makes nothing else looser.
		for _, ch := range loosened(Diff(alone, all)) {
			if ch.Path != "granted" && ch.Path != "asked" {
				t.Fatalf("case %d: %+v", n, ch)
			}
		}
		// I3: neither order nor repetition changes anything.
		again := slices.Concat(docs, docs[len(ops):])
		r.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		if same, err := Merge(again, c); err != nil || digest(same) != digest(all) {
			t.Fatalf("case %d: another order gives other rules (%v)\n%+v\n%+v", n, err, all, same)
		}
		// I4: a denial more never allows more.
		s := pick(r, lower)
		more, err := Merge(append(slices.Clone(docs), from(s, "deny", Document{Deny: randomAuthority(r)})), c)
		if err != nil {
			t.Fatal(err)
		}
		if l := loosened(Diff(all, more)); len(l) > 0 {
			t.Fatalf("case %d: a denial loosened %+v", n, l)
		}
		for range 3 {
			p := Point{Egress: &egressPoints[r.IntN(len(egressPoints))]}
			if v, w := all.Explain(p).Verdict, more.Explain(p).Verdict; slices.Index(verdicts, w) < slices.Index(verdicts, v) {
				t.Fatalf("case %d: %+v was %s and is %s with a denial more", n, *p.Egress, v, w)
			}
		}
		// I6: a key of the operator's in a lower file is an error.
		bad := from(pick(r, lower[3:]), "bad", Document{Floors: Levels{task.NET: 0}, Base: randomAuthority(r)})
		if _, err := Merge(append(slices.Clone(docs), bad), c); task.CodeOf(err) != task.CodePolicy || task.HintOf(err) == "" {
			t.Fatalf("case %d: %v", n, err)
		}
	}
	if grants == 0 || refusals == 0 {
		t.Errorf("%d grants and %d refusals in all: nothing was tried", grants, refusals)
	}
}

// loosened keeps the changes by which the second allows more.
func loosened(cs []Change) []Change {
	return slices.DeleteFunc(cs, func(c Change) bool { return !c.Loose })
}

func askedAsGranted(r *Rules) []Granted {
	var out []Granted
	for _, a := range r.Asked {
		out = append(out, Granted{a.Item, "asked", a.From})
	}
	return out
}

func FuzzContainment(f *testing.F) {
	f.Add("a.example", "*.example", uint16(443), uint16(443), "/a", "/a/b", "10.0.0.0/8", "10.1.0.0/16", "x.a.example", "10.1.2.3", uint16(443))
	f.Add("**.example", "**", uint16(0), uint16(1), "", "/", "", "::/0", "example", "::1", uint16(1))
	f.Fuzz(func(t *testing.T, h1, h2 string, p1, p2 uint16, u1, u2, c1, c2, name, addr string, port uint16) {
		a, ok1 := fuzzEgress(h1, p1, u1, c1)
		b, ok2 := fuzzEgress(h2, p2, u2, c2)
		if !ok1 || !ok2 {
			return
		}
		p := EgressPoint{Host: strings.ToLower(name), Port: port, Path: u1}
		if hostName(p.Host) != nil {
			p.Host = ""
		}
		if x, err := netip.ParseAddr(addr); err == nil {
			p.Addr = x
		}
		if a.In(b) && a.Covers(p) && !b.Covers(p) {
			t.Fatalf("%s in %s: %+v", a, b, p)
		}
		if !a.In(a) {
			t.Fatalf("%s is not in itself", a)
		}
		if a.Covers(p) && !a.Touches(p) {
			t.Fatalf("%s covers %+v and does not touch it", a, p)
		}
	})
}

func fuzzEgress(h string, p uint16, u, c string) (*Egress, bool) {
	e := &Egress{}
	if h != "" && e.Host.UnmarshalText([]byte(h)) != nil || u != "" && e.Path.UnmarshalText([]byte(u)) != nil || c != "" && e.CIDR.UnmarshalText([]byte(c)) != nil {
		return nil, false
	}
	if p > 0 {
		e.Ports = []Port{{p, p}}
	}
	return e, e.Check() == nil && e.Host != HostOrigin
}
