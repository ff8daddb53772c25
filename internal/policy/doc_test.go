package policy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

const (
	policyDoc = "../../docs/policy.md"
	keysBegin = "<!-- keys: made from internal/policy/keys.go by `go test ./internal/policy -run KeysDocument -update` -->\n"
	keysEnd   = "<!-- end of keys -->\n"
)

func TestKeysDocument(t *testing.T) {
	b, err := os.ReadFile(policyDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), keysBegin)
	_, after, ok2 := strings.Cut(rest, keysEnd)
	if !ok || !ok2 {
		t.Fatal("docs/policy.md has no place for the keys")
	}
	want := before + keysBegin + keysText() + keysEnd + after
	if *update {
		if err := os.WriteFile(policyDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(b) {
		t.Error("docs/policy.md does not describe the keys; look at the change, then: go test ./internal/policy -run KeysDocument -update")
	}
}

func keysText() string {
	var b strings.Builder
	cell := func(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
	b.WriteString("\n| key | values | who | joined | meaning |\n|---|---|---|---|---|\n")
	for _, k := range Keys {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Path, cell(k.Words), writers(k), k.Join, cell(k.Doc))
	}
	last := ""
	for _, p := range Parts {
		if p.In != last {
			title := "In `" + p.In + "`"
			if strings.Contains(p.In, " ") {
				title = "In " + p.In
			}
			fmt.Fprintf(&b, "\n%s:\n\n| key | values | meaning |\n|---|---|---|\n", title)
			last = p.In
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.Key, cell(p.Words), cell(p.Doc))
	}
	b.WriteString("\n")
	return b.String()
}

// writers says who may set a key, in the words of the document.
func writers(k Key) string {
	switch {
	case loosens[k.Path]:
		return "operator, or a user without one"
	case slices.Equal(k.From, operators):
		return "operator, user"
	case slices.Equal(k.From, anybody):
		return "anybody"
	case slices.Equal(k.From, askers):
		return "all but the operator"
	case slices.Equal(k.From, persons):
		return "operator, user, flags, environment"
	}
	var out []string
	for _, s := range k.From {
		if s != task.SourceDefault {
			out = append(out, string(s))
		}
	}
	return strings.Join(out, ", ")
}

const (
	matrixBegin = "<!-- matrix: made from internal/policy by `go test ./internal/policy -run MatrixDocument -update` -->\n"
	matrixEnd   = "<!-- end of matrix -->\n"
)

func TestMatrixDocument(t *testing.T) {
	b, err := os.ReadFile(policyDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), matrixBegin)
	_, after, ok2 := strings.Cut(rest, matrixEnd)
	if !ok || !ok2 {
		t.Fatal("docs/policy.md has no place for the matrix")
	}
	want := before + matrixBegin + matrixText() + matrixEnd + after
	if *update {
		if err := os.WriteFile(policyDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(b) {
		t.Error("docs/policy.md does not have the matrix; look at the change, then: go test ./internal/policy -run MatrixDocument -update")
	}
}

func matrixText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe rows of `%s`:\n\n| row | what it is for | when one of these holds, or a riskier value | needs |\n|---|---|---|---|\n", Matrix)
	for _, r := range Rows() {
		when, need := []string{}, []string{}
		for _, c := range r.When {
			when = append(when, fmt.Sprintf("`%s` %s", c.What, c.From))
		}
		for _, a := range task.Axes {
			if l := r.Need[a]; l > 0 {
				need = append(need, fmt.Sprintf("%s %d", a, l))
			}
		}
		if len(when) == 0 {
			when = []string{"always"}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.Name, r.Trigger, strings.Join(when, ", "), strings.Join(need, ", "))
	}
	b.WriteString("\nWho may accept that a level is missing, with an end, on record; never below a floor of the operator, and where nobody is there only by an entry under `acceptances`:\n\n" +
		"| axis | nothing is left (level 0) | level 1 or more is left | the same, hostile code |\n|---|---|---|---|\n")
	for _, a := range task.Axes {
		fmt.Fprintf(&b, "| %s %s | %s | %s | %s |\n", a, a.Title(), strings.Join(Acceptable(a, 0, false), ", "), strings.Join(Acceptable(a, 1, false), ", "), strings.Join(Acceptable(a, 1, true), ", "))
	}
	b.WriteString("\nWithout an operator's policy on the machine the user decides in their place. A project, a task and a model accept nothing.\n\n")
	return b.String()
}
