package policy

import (
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

var update = flag.Bool("update", false, "write the golden files")

// leq is the order of the lattice: not applicable is the least to need.
func leq(v, w task.Vector) bool {
	for _, a := range task.Axes {
		if v[a] > w[a] {
			return false
		}
	}
	return true
}

func randVector(r *rand.Rand) task.Vector {
	v := task.Vector{}
	for _, a := range task.Axes {
		if r.IntN(3) > 0 {
			v[a] = r.IntN(task.MaxLevel(a) + 1)
		}
	}
	return v
}

// randFacts says something about some characteristics; quiet ones get their least value.
func randFacts(r *rand.Rand) []task.Fact {
	facts := Defaults(Launch{Familiar: "known", Supervised: true, Direct: true})
	for _, c := range task.Characteristics {
		vs := c.Values()
		for range r.IntN(3) {
			facts = append(facts, task.Fact{What: c, Value: vs[r.IntN(len(vs))], Source: task.SourceDetector, Subject: string(rune('a' + r.IntN(3)))})
		}
	}
	r.Shuffle(len(facts), func(i, j int) { facts[i], facts[j] = facts[j], facts[i] })
	return facts
}

// ordinary are the facts of a developer's task on their own repository.
func ordinary() []task.Fact {
	return Defaults(Launch{Familiar: "opened from a terminal", Supervised: true})
}

func TestJoinLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		a, b, c := randVector(r), randVector(r), randVector(r)
		norm := func(v task.Vector) task.Vector { return v.Join(nil) }
		if !maps.Equal(a.Join(a), norm(a)) || !maps.Equal(a.Join(b), b.Join(a)) || !maps.Equal(a.Join(b).Join(c), a.Join(b.Join(c))) {
			t.Fatalf("join laws: %v %v %v", a, b, c)
		}
		if !leq(a, a.Join(b)) || !leq(b, a.Join(b)) {
			t.Fatalf("join is no upper bound: %v %v", a, b)
		}
	}
}

// TestRequiredMonotone: more risk never needs less, and a floor only raises (I1, I2).
func TestRequiredMonotone(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		facts, more := randFacts(r), randFacts(r)
		base, _, err := Required(Fire(Weigh(facts, nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		wide, _, err := Required(Fire(Weigh(append(slices.Clone(facts), more...), nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if !leq(base, wide) {
			t.Fatalf("%v needs %v, with %v only %v", facts, base, more, wide)
		}
		var floors []Floor
		need := randVector(r)
		for a, l := range need {
			floors = append(floors, Floor{Axis: a, Level: l, Source: task.SourceFlag, Where: "--need"})
		}
		got, why, err := Required(Fire(Weigh(facts, nil)), floors)
		if err != nil {
			if task.CodeOf(err) != task.CodePolicy || task.HintOf(err) == "" {
				t.Fatalf("%v: code %s", err, task.CodeOf(err))
			}
			lower := false
			for a, l := range need {
				lower = lower || l < base[a]
			}
			if !lower {
				t.Fatalf("refused without a lower need: %v over %v: %v", need, base, err)
			}
			continue
		}
		for a, l := range need {
			if l > 0 && got[a] != l && got[a] != base[a] || l > 0 && got[a] < l {
				t.Fatalf("need %s %d gave %d", a, l, got[a])
			}
		}
		if !leq(base, got) {
			t.Fatalf("need %v over %v gave %v", need, base, got)
		}
		for _, a := range task.Axes {
			if got[a] != 0 && whyText(why[a]) == "" {
				t.Fatalf("%s %d without a reason", a, got[a])
			}
		}
	}
}

func TestRequired(t *testing.T) {
	fired := Fire(Weigh(ordinary(), nil))
	got, why, err := Required(fired, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := task.Vector{task.SRC: 1, task.PRC: 2, task.FS: 2, task.NET: 1, task.RES: 1, task.KRN: 1, task.CPL: 2, task.CRD: 1, task.EVD: 2, task.CLN: 2, task.APR: task.LevelNA, task.VER: 2}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if !strings.Contains(whyText(why[task.FS]), "R3") {
		t.Errorf("why FS: %v", why[task.FS])
	}
	for _, f := range []Floor{
		{Axis: task.NET, Level: 0}, {Axis: task.FS, Level: 1}, {Axis: task.SRC, Level: task.LevelNA}, {Axis: task.SRC, Level: 9}, {Axis: "ABC", Level: 1},
	} {
		f.Source = task.SourceFlag
		if _, _, err := Required(fired, []Floor{f}); task.CodeOf(err) != task.CodePolicy {
			t.Errorf("%v: %v", f, err)
		}
	}
	// Of nothing, nothing is known: every row counts.
	if got := Fire(nil); len(got) != len(matrix) {
		t.Errorf("the zero profile fires %d rows of %d", len(got), len(matrix))
	}
	if got := Fire(Weigh(nil, nil)); len(got) != len(matrix) {
		t.Errorf("no facts fire %d rows of %d", len(got), len(matrix))
	}
}

func input() Input {
	return Input{
		Facts: ordinary(), Now: time.Unix(1e9, 0), Backend: "linux", Platform: "linux/amd64",
		Promised: task.Vector{task.SRC: 2, task.PRC: 3, task.FS: 2, task.NET: 4, task.RES: 2, task.KRN: 1, task.CPL: 2, task.CHN: 2, task.CRD: 1, task.EVD: 2, task.CLN: 2, task.SVC: task.LevelNA},
		How:      map[task.Axis]string{task.NET: "network namespace with loopback only", task.KRN: "seccomp allow-list, Landlock"},
		Source:   task.SourceRef{Repo: "/home/u/p", CommonDir: "/home/u/p/.git", Shared: true, Strategy: task.StrategyClone, History: task.HistoryFull},
		Grants:   []task.Grant{{Kind: "ro", Value: "/home/u/go/pkg/mod", Source: "flag"}, {Kind: "env", Value: "CI", Source: "flag"}},
		Command:  []string{"go", "test", "./..."},
	}
}

func TestDecideEnough(t *testing.T) {
	d, err := Decide(input())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Blocked(); err != nil {
		t.Fatalf("blocked: %v", err)
	}
	if len(d.Plan.Levels) != len(task.Axes) || len(d.Plan.NotIsolated) < 4 || !strings.HasPrefix(d.Plan.Digest, "sha256:") {
		t.Errorf("%+v", d.Plan)
	}
	for _, l := range d.Plan.Levels {
		if l.Why == "" || l.How == "" {
			t.Errorf("%s: why %q how %q", l.Axis, l.Why, l.How)
		}
		if l.Axis == task.APR && (l.Required != task.LevelNA || l.Promised != task.LevelNA) {
			t.Errorf("%+v", l)
		}
		if l.Axis == task.VER && (l.Required != 2 || l.Promised != task.LevelNA || l.Demanded != 0) {
			t.Errorf("%+v", l)
		}
	}
	levels, err := d.Compare(input().Promised, map[task.Axis]string{task.NET: "only lo"}, nil)
	if err != nil {
		t.Fatalf("proved as promised: %v", err)
	}
	if len(levels) != len(task.Axes) {
		t.Errorf("%d levels", len(levels))
	}
}

// TestAskedDeferred: who asks for what does not exist is told so.
func TestAskedDeferred(t *testing.T) {
	in := input()
	in.Need = task.Vector{task.APR: 2}
	in.Promised[task.APR] = task.LevelNA
	d, err := Decide(in)
	if err != nil {
		t.Fatal(err)
	}
	if task.CodeOf(d.Blocked()) != task.CodeBoundaryMissing {
		t.Errorf("APR=2: %v", d.Blocked())
	}
}

// TestMeet: effective is never above the promise or a finding's cap, and one
// finding more never makes a plan with fewer gaps.
func TestMeet(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		in := input()
		in.Promised, in.Facts = randVector(r), randFacts(r)
		for range r.IntN(4) {
			a := task.Axes[r.IntN(len(task.Axes))]
			in.Findings = append(in.Findings, task.Finding{ID: "f", Axis: a, Cap: r.IntN(task.MaxLevel(a)+2) - 1, Text: "x"})
		}
		d, err := Decide(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range in.Findings {
			if d.Effective[f.Axis] > max(f.Cap, 0) {
				t.Fatalf("above the cap: %v %v", d.Effective, f)
			}
		}
		for _, a := range task.Axes {
			if d.Effective[a] > in.Promised[a] {
				t.Fatalf("above the promise on %s", a)
			}
		}
		short := task.Short(d.Required, d.Effective)
		if len(short) != len(d.Plan.Missing) || (d.Blocked() == nil) != (len(short) == 0) {
			t.Fatalf("missing %v, short %v", d.Plan.Missing, short)
		}
		more := in
		a := task.Axes[r.IntN(len(task.Axes))]
		more.Findings = append(append([]task.Finding{}, in.Findings...), task.Finding{ID: "g", Axis: a})
		e, _ := Decide(more)
		if len(e.Plan.Missing) < len(d.Plan.Missing) || !leq(e.Effective, d.Effective) && d.Effective[a] != task.LevelNA {
			t.Fatalf("a finding opened something: %v, %v", d.Effective, e.Effective)
		}
		// Whatever is proved below what was promised is a mismatch, exactly then.
		got := randVector(r)
		_, err = d.Compare(got, nil, nil)
		lower := len(task.Short(d.Effective, got)) > 0
		if (err != nil) != lower || err != nil && task.CodeOf(err) != task.CodeProbeMismatch {
			t.Fatalf("promised %v proved %v: %v", d.Effective, got, err)
		}
	}
}

func TestDigest(t *testing.T) {
	a, _ := Decide(input())
	b, _ := Decide(input())
	if a.Plan.Digest != b.Plan.Digest {
		t.Error("the same plan has two digests")
	}
	in := input()
	in.Grants[0], in.Grants[1] = in.Grants[1], in.Grants[0]
	if c, _ := Decide(in); c.Plan.Digest != a.Plan.Digest {
		t.Error("the order of grants changes the digest")
	}
	for name, change := range map[string]func(*Input){
		"grant": func(i *Input) { i.Grants = append(i.Grants, task.Grant{Kind: "ptrace"}) }, "limit": func(i *Input) { i.Limits.Pids = 7 },
		"base": func(i *Input) { i.Source.Base = "abc" }, "backend": func(i *Input) { i.Backend = "x" }, "level": func(i *Input) { i.Promised[task.RES] = 1 },
		"need": func(i *Input) { i.Need = task.Vector{task.RES: 2} }, "finding": func(i *Input) { i.Findings = []task.Finding{{ID: "z", Axis: task.FS, Cap: 4}} },
	} {
		in := input()
		change(&in)
		if c, _ := Decide(in); c.Plan.Digest == a.Plan.Digest {
			t.Errorf("%s is not in the digest", name)
		}
	}
	p := a.Plan
	p.Levels = append([]task.Level(nil), p.Levels...)
	p.Levels[0].Proved, p.Levels[0].Seen = 2, "x"
	if PlanDigest(&p) != a.Plan.Digest {
		t.Error("proving changes the digest of the plan")
	}
}

// TestGolden holds the reports as a person and a program see them.
func TestGolden(t *testing.T) {
	cases := map[string]func() error{
		"kernel": func() error {
			in := input()
			in.Need = task.Vector{task.KRN: 3}
			d, _ := Decide(in)
			return d.Blocked()
		},
		"nothing": func() error {
			in := input()
			in.Backend, in.Promised, in.How = "host", nil, nil
			in.Instances = map[task.Axis][]string{task.FS: {"/home/u/.ssh", "/home/u/.aws"}, task.CPL: {"/run/docker.sock"}, task.PRC: manyTasks()}
			d, _ := Decide(in)
			return d.Blocked()
		},
		"finding": func() error {
			in := input()
			in.Findings = []task.Finding{{ID: "socket-in-mount", Axis: task.CPL, Cap: 0, Text: "/opt/x holds docker.sock", Location: "/opt/x"}}
			in.Ways = map[task.Axis][]string{task.CPL: {"drop --ro /opt/x"}}
			d, _ := Decide(in)
			return d.Blocked()
		},
		"mismatch": func() error {
			d, _ := Decide(input())
			p := maps.Clone(input().Promised)
			p[task.NET], p[task.FS] = 0, 1
			_, err := d.Compare(p, map[task.Axis]string{task.NET: "a route that leaves loopback: allowed (ipv4 eth0)", task.FS: "read a host secret\x1b[2J: allowed"}, nil)
			return err
		},
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			var e *task.Error
			if err := f(); !errors.As(err, &e) {
				t.Fatalf("no error: %v", err)
			}
			r, ok := e.Detail.(*Report)
			if !ok {
				t.Fatalf("detail %T", e.Detail)
			}
			j, err := json.MarshalIndent(r, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got := "error: " + e.Error() + "\nhint: " + e.Hint + "\n\n" + r.String() + "\n\n" + string(j) + "\n"
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs (go test -update rewrites it):\n%s", file, got)
			}
			if strings.ContainsAny(r.String(), "\x1b\r") {
				t.Error("a control character in the report")
			}
		})
	}
}

func manyTasks() []string {
	var out []string
	for i := range 30 {
		out = append(out, "task t"+strings.Repeat("a", 9)+string(rune('a'+i%26)))
	}
	return out
}

func FuzzDecide(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, []byte{4, 0, 1}, "x", uint8(4))
	f.Fuzz(func(t *testing.T, promised, need []byte, text string, rows uint8) {
		in := input()
		in.Promised, in.Need, in.Facts = task.Vector{}, task.Vector{}, nil
		for i, a := range task.Axes {
			if i < len(promised) {
				in.Promised[a] = int(int8(promised[i])) // also levels that do not exist
			}
			if i < len(need) {
				in.Need[a] = int(int8(need[i]))
			}
		}
		if rows&1 != 0 {
			in.Facts = randFacts(rand.New(rand.NewPCG(uint64(rows), 1)))
		}
		in.Facts = append(in.Facts, task.Fact{What: task.Characteristic(text), Value: text, Evidence: text}, task.Fact{What: task.Migrations, Value: text, Evidence: text, Subject: text})
		in.Findings = []task.Finding{{ID: text, Axis: task.Axis(text), Text: text}}
		in.Instances = map[task.Axis][]string{task.FS: {text}}
		d, err := Decide(in)
		if err != nil {
			if task.CodeOf(err) != task.CodePolicy {
				t.Fatal(err)
			}
			return
		}
		for _, a := range task.Axes {
			if d.Effective[a] > task.MaxLevel(a) || d.Effective[a] < task.LevelNA {
				t.Fatalf("%s %d", a, d.Effective[a])
			}
		}
		if err := d.Blocked(); err != nil {
			var e *task.Error
			errors.As(err, &e)
			for _, c := range e.Detail.(*Report).String() {
				if c < 0x20 && c != '\n' || c == 0x7f {
					t.Fatalf("control character %q", c)
				}
			}
		}
	})
}

// TestDirect: work in the checkout itself counts as R1 only when all of its
// conditions hold.
func TestDirect(t *testing.T) {
	good := Direct{Trusted: true, Timeout: ShortWork}
	if ways := good.Ways(); len(ways) != 0 {
		t.Errorf("%v", ways)
	}
	if fired := Fire(Weigh(Defaults(Launch{Familiar: "--trust", Supervised: true, Direct: true}), nil)); len(fired) != 1 || fired[0].Row.Name != RowBase {
		t.Errorf("%v", fired)
	}
	for name, bad := range map[string]func(*Direct){
		"zero":       func(d *Direct) { *d = Direct{} },
		"untrusted":  func(d *Direct) { d.Trusted = false },
		"unattended": func(d *Direct) { d.Unattended = true },
		"endless":    func(d *Direct) { d.Timeout = 0 },
		"long":       func(d *Direct) { d.Timeout = ShortWork + 1 },
		"not alone":  func(d *Direct) { d.Holder = "task t" },
	} {
		d := good
		bad(&d)
		if ways := d.Ways(); len(ways) == 0 {
			t.Errorf("%s: no way", name)
		}
	}
}
