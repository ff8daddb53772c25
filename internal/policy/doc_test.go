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
