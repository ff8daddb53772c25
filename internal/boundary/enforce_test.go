package boundary

import (
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/internal/task"
)

// driverNamed is a backend of which nothing but its name is asked.
type driverNamed struct {
	backend.Driver
	name string
}

func (n driverNamed) Name() string { return n.name }

// TestEnforceWords: what nobody asked for becomes what the policy says, with its
// origin, and another backend is to be looked at.
func TestEnforceWords(t *testing.T) {
	t.Parallel()
	one, two := driverNamed{name: "linux"}, driverNamed{name: "other"}
	m := &Manager{cfg: Config{Drivers: []backend.Driver{one, two}}}
	at := policy.Origin{Source: task.SourceOperator, Where: "p:1"}
	rules := func(f func(*policy.Rules)) *decided {
		r := &policy.Rules{}
		f(r)
		d := &decided{driver: one, ahead: &ahead{}}
		d.rules.Rules, d.req.Person = r, true
		return d
	}
	d := rules(func(r *policy.Rules) {
		r.Frozen, r.Unattended, r.Wait = policy.Set[bool]{Value: true, From: at}, policy.Set[bool]{Value: true, From: at}, policy.Set[policy.Duration]{Value: policy.Duration(time.Minute), From: at}
		r.Net = policy.Set[policy.NetMode]{Value: policy.NetNone, From: at}
		r.Prefer = policy.Set[[]string]{Value: []string{"docker", "other"}, From: at}
	})
	if other, err := m.enforce(d); err != nil || !other || d.driver.Name() != "other" || d.ahead != nil {
		t.Errorf("backend %s, %v, %v", d.driver.Name(), other, err)
	}
	if !d.req.Asking.Frozen || !d.req.Unattended || d.req.Asking.Wait != time.Minute {
		t.Errorf("%+v", d.req)
	}
	for _, field := range []string{"frozen", "unattended", "ask-timeout", "net", "backend"} {
		if d.req.Origin[field] != "operator p:1" {
			t.Errorf("origin of %s: %q", field, d.req.Origin[field])
		}
	}
	// A preferred backend that is not allowed is not taken.
	d = rules(func(r *policy.Rules) {
		r.Prefer = policy.Set[[]string]{Value: []string{"other"}, From: at}
		r.Allowed = policy.Set[[]string]{Value: []string{"linux"}, From: at}
	})
	if other, err := m.enforce(d); err != nil || other || d.driver.Name() != "linux" {
		t.Errorf("backend %s, %v, %v", d.driver.Name(), other, err)
	}
	// The zero rules delegate nothing, and nobody gets anything.
	d = rules(func(*policy.Rules) {})
	d.req.Grants = []string{"ptrace"}
	if _, err := m.enforce(d); task.CodeOf(err) != task.CodeDenied {
		t.Errorf("%v", err)
	}
	// What no person asked for has the ceiling of a task.
	r, err := policy.Merge([]policy.Sourced{policy.Shipped()}, policy.Context{Home: "/home/me"})
	if err != nil {
		t.Fatal(err)
	}
	for person, want := range map[bool]task.Code{true: "", false: task.CodeDenied} {
		d := &decided{driver: one}
		d.rules.Rules, d.req.Person, d.req.Grants, d.req.Env = r, person, []string{"ptrace"}, []string{"A=1"}
		if _, err := m.enforce(d); task.CodeOf(err) != want {
			t.Errorf("a person %v: %v", person, err)
		}
	}
	// No policy at all is none, not a denial: an installation without one works.
	if other, err := m.enforce(&decided{driver: one}); err != nil || other {
		t.Error(err)
	}
}

func TestListed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check policy.Argv
		argv  []string
		want  bool
	}{
		{policy.Argv{"gofmt", "-l"}, []string{"gofmt", "-l", "."}, true}, {policy.Argv{"gofmt", "-l"}, []string{"gofmt", "-l"}, true}, {policy.Argv{"gofmt", "-l"}, []string{"gofmt"}, false},
		{policy.Argv{"gofmt", "-l"}, []string{"gofmt", "-l", "-w", "."}, false}, {policy.Argv{"go", "vet"}, []string{"go", "vet", "-vettool=./x"}, false}, {policy.Argv{"javac"}, []string{"javac", "@args"}, false},
		{policy.Argv{"cargo"}, []string{"cargo", "+evil"}, false}, {policy.Argv{"gofmt"}, []string{"./gofmt"}, false}, {policy.Argv{"gofmt"}, []string{"/usr/bin/gofmt"}, false}, {nil, []string{"gofmt"}, false}, {policy.Argv{"x"}, nil, false}, {policy.Argv{"x"}, []string{"x", ""}, false},
	} {
		if got := listed(c.check, c.argv); got != c.want {
			t.Errorf("%q, %q: %v", c.check, c.argv, got)
		}
	}
}
