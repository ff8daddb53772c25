//go:build linux

package policy

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// examples are the worked ones of docs/policy.md: what caisson plan says there is
// what it says here, without what differs from machine to machine.
var examples = []struct {
	title, before, after string
	files                map[string]string
	args                 string
}{
	{"A change of CSS", "A free shell is row R3, whatever the task is about. The boundary that every Linux gives is enough, and nothing is to be set.",
		"`caisson diff` and `caisson apply` bring the change back.", map[string]string{"site.css": "a { color: red }\n"}, "-- sed -i s/red/blue/ site.css"},
	{"An upgrade of dependencies", "Installing runs code of others, with their scripts: R3. The network stays closed; seed the package cache with `--ro`.",
		"", map[string]string{"package.json": `{"dependencies":{"left-pad":"1.0.0"}}` + "\n", "package-lock.json": "{}\n"}, "-- npm update --offline"},
	{"Development servers side by side", "Each task has ports of its own, so that two servers on port 3000 do not meet.",
		"", map[string]string{"package.json": `{"scripts":{"dev":"vite --port 3000"}}` + "\n"}, "-- npm run dev"},
	{"A migration", "A schema change would reach everybody's database. Without a service of its own the task is stopped before anything runs.",
		"Giving a task its own database is not in this version. Run the migration against a server that the task starts itself, inside, and have who decides lower `migrations` for this repository until a day.", map[string]string{"prisma/schema.prisma": "datasource db {\n  provider = \"postgresql\"\n}\n"}, "-- npx prisma migrate deploy"},
	{"An unfamiliar repository", "Its file says so; so does trust that ended. Row R5 asks for a machine of its own.",
		"If you know the code: `caisson trust`, once. If not, and this machine is all there is: the `caisson accept …` that the report prints, at a terminal, puts on record who takes that on.", map[string]string{".caisson.yaml": unfamiliar}, "-- make"},
	{"Cloud credentials", "A client of a cloud is row R6, and an account that nobody called harmless counts as production. No credential enters by itself, and the network is closed.",
		"What is missing is a place of the task's own for what it would change there.", nil, "-- aws s3 cp site.css s3://assets/"},
}

const (
	examplesBegin = "<!-- examples: made from test/policy/examples_test.go by `go test ./test/policy -run Examples -update` -->\n"
	examplesEnd   = "<!-- end of examples -->\n"
)

func TestExamples(t *testing.T) {
	const doc = "../../docs/policy.md"
	id := harness.NewIdentity(t, "user", harness.UserOf())
	var s strings.Builder
	for _, e := range examples {
		p := newPlace(t, id, e.files)
		r := p.run(append([]string{"plan"}, strings.Fields(e.args)...)...)
		fmt.Fprintf(&s, "\n### %s\n\n%s\n\n```\n$ caisson plan %s\n", e.title, e.before, e.args)
		for i, l := range strings.Split(r.Stdout, "\n") {
			switch {
			case i == 0:
				l = strings.TrimLeft(l, "✓✗ okn")
				l, _, _ = strings.Cut(l, ": ")
				s.WriteString(l + "\n")
			case strings.HasPrefix(l, "rows "):
				s.WriteString(l + "\n")
			case strings.HasPrefix(l, "missing: "): // RES depends on the machine: a limit of all processes together needs a cgroup
				if !strings.HasPrefix(l, "missing: RES") {
					s.WriteString(l + "\n")
				}
			}
		}
		fmt.Fprintf(&s, "$ echo $?\n%d\n```\n", r.Exit)
		if e.after != "" {
			s.WriteString("\n" + e.after + "\n")
		}
		p.quiet(e.title)
	}
	s.WriteString("\n")
	b, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), examplesBegin)
	_, after, ok2 := strings.Cut(rest, examplesEnd)
	if !ok || !ok2 {
		t.Fatal("docs/policy.md has no place for the examples")
	}
	want := before + examplesBegin + s.String() + examplesEnd + after
	if *update {
		if err := os.WriteFile(doc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(b) {
		t.Errorf("docs/policy.md does not have what the program says; look at the change, then: go test ./test/policy -run Examples -update\n%s", s.String())
	}
}
