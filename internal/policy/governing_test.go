package policy

import (
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// TestGovernTrust: who may say that code is known, against whom.
func TestGovernTrust(t *testing.T) {
	known := here
	known.Trusted, known.TrustedBy = true, Origin{task.SourceFlag, "--trust"}
	says := func(s task.Source, value string) Sourced {
		return from(s, string(s), Document{Characteristics: Statements{task.CodeTrust: {value}}})
	}
	entry := func(s task.Source) Sourced {
		return from(s, string(s)+"-trust", Document{Trust: []Scope{{Repo: "git.example.com/acme/*", Expires: dated(2099), Reason: "ours"}}})
	}
	operator := from(task.SourceOperator, "empty", Document{})
	for name, c := range map[string]struct {
		c    Context
		docs []Sourced
		want string
	}{
		"nobody":                              {here, []Sourced{says(task.SourceProject, "unfamiliar")}, "unfamiliar"},
		"a person against the project":        {known, []Sourced{says(task.SourceProject, "unfamiliar")}, "trusted"},
		"the same beside an operator":         {known, []Sourced{operator, says(task.SourceProject, "unfamiliar")}, "trusted"},
		"a person against the model":          {known, []Sourced{says(task.SourceModel, "unfamiliar")}, "trusted"},
		"a person against their policy":       {known, []Sourced{says(task.SourceUser, "unfamiliar")}, "trusted"},
		"a person against the operator":       {known, []Sourced{says(task.SourceOperator, "unfamiliar")}, "unfamiliar"},
		"a user's entry against the operator": {here, []Sourced{says(task.SourceOperator, "unfamiliar"), entry(task.SourceUser)}, "unfamiliar"},
		"a user's entry":                      {here, []Sourced{says(task.SourceProject, "hostile"), entry(task.SourceUser)}, "trusted"},
		"a person against hostile":            {known, []Sourced{says(task.SourceTask, "hostile")}, "hostile"},
		"the operator's entry":                {here, []Sourced{says(task.SourceProject, "hostile"), entry(task.SourceOperator)}, "trusted"},
	} {
		t.Run(name, func(t *testing.T) {
			g := Govern(mustMerge(t, c.c, append(c.docs, Shipped())...))
			if got := Weigh(g.Facts, g.Lowered)[task.CodeTrust].Value; got != c.want {
				t.Errorf("%s, want %s: %+v", got, c.want, g.Lowered)
			}
			if (g.Familiar != "") != (c.want == "trusted") {
				t.Errorf("familiar %q", g.Familiar)
			}
		})
	}
	// A user's lower counts where there is no operator.
	low := Document{Lower: []Lowering{{Characteristic: task.Migrations, Value: "none", Repo: "git.example.com/acme/*", Expires: dated(2099), Reason: "x"}}}
	g := Govern(mustMerge(t, here, Shipped(), from(task.SourceUser, "u", low), from(task.SourceProject, "p", Document{Characteristics: Statements{task.Migrations: {"schema"}}})))
	if got := Weigh(g.Facts, g.Lowered)[task.Migrations].Value; got != "none" {
		t.Errorf("migrations %s: %+v", got, g.Lowered)
	}
	// Without a word of a policy nobody's start makes code known.
	if g := Govern(mustMerge(t, known, Shipped(), from(task.SourceOperator, "o", Document{AllowTrust: no()}))); !g.NoTrust || g.Familiar != "" || g.Unfamiliar == "" {
		t.Errorf("%+v", g)
	}
}
