package policy

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestRows: every characteristic of risk fires exactly its rows, and gives what
// the matrix says.
func TestRows(t *testing.T) {
	type c = task.Characteristic
	for _, x := range []struct {
		what  c
		value string
		rows  []string // beside base and, where the others are quiet, nothing
	}{
		{task.CodeTrust, "trusted", nil}, {task.CodeTrust, "unfamiliar", []string{Row5}}, {task.CodeTrust, "hostile", []string{Row5}},
		{task.Supervision, "supervised", nil}, {task.Supervision, "asynchronous", []string{Row2}}, {task.Supervision, "broad-unsupervised", []string{Row2, Row5}},
		{task.Concurrency, "single", nil}, {task.Concurrency, "overlaps", []string{Row2}},
		{task.Recovery, "simple", nil}, {task.Recovery, "hard", []string{Row2}},
		{task.Executes, "none", nil}, {task.Executes, "checks", nil}, {task.Executes, "repo-defined", []string{Row3}}, {task.Executes, "generated", []string{Row3}},
		{task.InstallsDeps, "no", nil}, {task.InstallsDeps, "yes", []string{Row3}}, {task.StartsProcesses, "yes", []string{Row3}},
		{task.NeedsPorts, "yes", []string{Row3}}, {task.TaskRuntimeState, "yes", []string{Row3}},
		{task.MutableState, "none", nil}, {task.MutableState, "cache", []string{Row4}}, {task.MutableState, "db", []string{Row4}}, {task.MutableState, "external", []string{Row4}},
		{task.Migrations, "none", nil}, {task.Migrations, "data", []string{Row4}}, {task.Migrations, "schema", []string{Row4, Row4Schema}}, {task.Migrations, "roles", []string{Row4, Row4Schema}},
		{task.CreatesContainers, "yes", []string{Row3}}, {task.NeedsRuntimeAPI, "yes", []string{Row3}},
		{task.KernelOrDevice, "no", nil}, {task.KernelOrDevice, "yes", []string{Row5}},
		{task.ExternalAccess, "none", nil}, {task.ExternalAccess, "read", []string{Row6}}, {task.ExternalAccess, "mutate", []string{Row6, Row6Mutation}},
		{task.Credentials, "none", nil}, {task.Credentials, "dev", []string{Row6}}, {task.Credentials, "prod", []string{Row6, Row6Mutation, Row6Production}},
		{task.PersonalData, "yes", []string{Row6, Row6Mutation}}, {task.ExternallyVisible, "yes", []string{Row6, Row6Mutation}},
		{task.Destructive, "yes", []string{Row6, Row6Destructive}},
		// Nobody could tell: as the riskiest; and so is a word that is no value.
		{task.CodeTrust, task.Unknown, []string{Row5}}, {task.Executes, task.Unknown, []string{Row3}}, {task.Migrations, "??", []string{Row4, Row4Schema}}, {task.PersonalData, "", []string{Row6, Row6Mutation}},
	} {
		facts := Defaults(Launch{Familiar: "known", Supervised: true, Direct: true})
		facts = slices.DeleteFunc(facts, func(f task.Fact) bool { return f.What == x.what })
		facts = append(facts, task.Fact{What: x.what, Value: x.value, Source: task.SourceProject})
		got := []string{}
		for _, f := range Fire(Weigh(facts, nil)) {
			if f.Row.Name != RowBase {
				got = append(got, f.Row.Name)
			}
		}
		if !slices.Equal(got, append([]string{}, x.rows...)) {
			t.Errorf("%s=%s fires %v, want %v", x.what, x.value, got, x.rows)
		}
	}
}

// TestVectors holds the rows' joined vectors against the table that they come from.
func TestVectors(t *testing.T) {
	need := func(facts ...task.Fact) task.Vector {
		v, _, err := Required(Fire(Weigh(append(Defaults(Launch{Familiar: "known", Supervised: true, Direct: true}), facts...), nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	say := func(c task.Characteristic, v string) task.Fact { return task.Fact{What: c, Value: v} }
	for name, x := range map[string]struct {
		got  task.Vector
		want map[task.Axis]int
	}{
		"R1":             {need(), map[task.Axis]int{task.EVD: 1}},
		"R2":             {need(say(task.Supervision, "asynchronous")), map[task.Axis]int{task.SRC: 1, task.PRC: 1, task.RES: 1, task.EVD: 1, task.CLN: 2}},
		"R3":             {need(say(task.Executes, "generated")), map[task.Axis]int{task.SRC: 1, task.PRC: 2, task.FS: 2, task.NET: 1, task.RES: 1, task.KRN: 1, task.CPL: 2, task.CRD: 1, task.EVD: 2, task.CLN: 2}},
		"R4":             {need(say(task.MutableState, "db")), map[task.Axis]int{task.SRC: 1, task.PRC: 2, task.FS: 2, task.NET: 1, task.RES: 1, task.KRN: 1, task.CPL: 2, task.CRD: 1, task.EVD: 2, task.CLN: 2, task.SVC: 1}},
		"R4 with schema": {need(say(task.Migrations, "schema")), map[task.Axis]int{task.SRC: 1, task.PRC: 2, task.FS: 2, task.NET: 1, task.RES: 1, task.KRN: 1, task.CPL: 2, task.CRD: 1, task.EVD: 2, task.CLN: 2, task.SVC: 2}},
		"R5":             {need(say(task.CodeTrust, "unfamiliar")), map[task.Axis]int{task.SRC: 3, task.PRC: 3, task.FS: 3, task.NET: 2, task.RES: 3, task.KRN: 3, task.CPL: 2, task.CHN: 1, task.SVC: 2, task.CRD: 3, task.EVD: 2, task.CLN: 3}},
		"R6":             {need(say(task.ExternalAccess, "read")), map[task.Axis]int{task.NET: 2, task.CRD: 2, task.EVD: 2}},
		"R6 production":  {need(say(task.Credentials, "prod")), map[task.Axis]int{task.NET: 2, task.CRD: 3, task.EVD: 2}},
		"R3 with R6":     {need(say(task.Executes, "generated"), say(task.ExternalAccess, "mutate")), map[task.Axis]int{task.SRC: 1, task.PRC: 2, task.FS: 2, task.NET: 2, task.RES: 1, task.KRN: 1, task.CPL: 2, task.CRD: 2, task.EVD: 2, task.CLN: 2}},
	} {
		for _, a := range task.Axes {
			if a != task.APR && a != task.VER && x.got[a] != x.want[a] {
				t.Errorf("%s: %s %d, want %d", name, a, x.got[a], x.want[a])
			}
		}
	}
	// Approvals are asked for by the rows themselves, whatever gives them.
	for row, level := range map[string]int{RowBase: 1, Row6: 1, Row6Mutation: 2, Row6Destructive: 3} {
		for _, r := range matrix {
			if r.Name == row && r.Need[task.APR] != level {
				t.Errorf("%s asks APR %d", row, r.Need[task.APR])
			}
		}
	}
}

// TestLowering: only the operator takes a characteristic down, and only it.
func TestLowering(t *testing.T) {
	risky := append(ordinary(), task.Fact{What: task.Migrations, Value: "schema", Source: task.SourceDetector, Rule: "MIG-01"})
	svc := func(lowered ...task.Fact) int {
		v, _, err := Required(Fire(Weigh(risky, lowered)), nil)
		if err != nil {
			t.Fatal(err)
		}
		return v[task.SVC]
	}
	if svc() != 2 {
		t.Fatalf("control: SVC %d", svc())
	}
	low := task.Fact{What: task.Migrations, Value: "none", Source: task.SourceOperator}
	if got := svc(low); got != 0 {
		t.Errorf("the operator's word does not count: SVC %d", got)
	}
	for _, s := range []task.Source{"", task.SourceUser, task.SourceProject, task.SourceTask, task.SourceModel, task.SourceAgent, task.SourceDetector, task.SourceDefault} {
		f := low
		f.Source = s
		if svc(f) != 2 {
			t.Errorf("source %q took a characteristic down", s)
		}
	}
	for _, v := range []string{"", "nothing", task.Unknown, "roles"} {
		f := low
		f.Value = v
		if svc(f) < 2 {
			t.Errorf("value %q took it down", v)
		}
	}
}

// TestWeighLaws: facts count in any order and any number (I3), and one more
// never needs less.
func TestWeighLaws(t *testing.T) {
	n := 5000
	if os.Getenv("CAISSON_TEST_FULL") != "" {
		n = 2_000_000
	}
	r := rand.New(rand.NewPCG(9, 10))
	for range n {
		facts := randFacts(r)
		a := Fire(Weigh(facts, nil))
		double := append(slices.Clone(facts), facts...)
		r.Shuffle(len(double), func(i, j int) { double[i], double[j] = double[j], double[i] })
		b := Fire(Weigh(double, nil))
		va, _, _ := Required(a, nil)
		vb, _, _ := Required(b, nil)
		if !leq(va, vb) || !leq(vb, va) {
			t.Fatalf("order or number counts: %v, %v", va, vb)
		}
		c := task.Characteristics[r.IntN(len(task.Characteristics))]
		vs := c.Values()
		more := append(slices.Clone(facts), task.Fact{What: c, Value: vs[r.IntN(len(vs))], Source: task.SourceModel})
		vc, _, _ := Required(Fire(Weigh(more, nil)), nil)
		if !leq(va, vc) {
			t.Fatalf("a fact more needs less: %v, then %v", va, vc)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	in := input()
	for b.Loop() {
		if _, err := Decide(in); err != nil {
			b.Fatal(err)
		}
	}
}
