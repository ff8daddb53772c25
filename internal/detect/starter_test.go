package detect

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/config"
	"github.com/caisson-dev/caisson/internal/task"
)

// TestStarter: the file is one that caisson reads, as it is and with every
// line taken into force, and says nothing as it is.
func TestStarter(t *testing.T) {
	for name, tree := range map[string]files{
		"empty": {},
		"rich": {
			"compose.yaml": "services:\n  db:\n    image: postgres:16.2-alpine\n  c: {image: 'redis:7'}\n  s: {image: minio/minio}\n", ".github/workflows/a.yml": "jobs: {a: {services: {m: {image: 'mysql:8'}}}}",
			"package.json": `{"scripts":{"db:migrate":"prisma migrate deploy"},"dependencies":{"pg":"1"}}`, "go.mod": "module x\nrequire y v1\n", ".env": "STRIPE_SECRET_KEY=hunter2\n", "main.tf": "", "data/customers.csv": "",
		},
		"hostile": {"a\n# x: y\n/compose.yaml": "services:\n  \"x (postgres:1\\\"\\n)\":\n    image: \"postgres:16\\nversion: 2\"\n", "\x1b]0;x/.env": "A_TOKEN=hunter2\n", "\u2028services: {}/b.tf": ""},
	} {
		t.Run(name, func(t *testing.T) {
			facts, _ := scanOf(t, tree)
			text := Starter(facts)
			doc, _, err := config.Decode("starter", text)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if len(doc.Characteristics)+len(doc.Services)+len(doc.Checks)+len(doc.RiskyFiles) > 0 {
				t.Errorf("a line is in force:\n%s", text)
			}
			if bytes.Contains(text, []byte("hunter2")) || bytes.ContainsAny(text, "\x1b\u2028\r") {
				t.Errorf("it shows what it must not:\n%q", text)
			}
			// The lines that are meant to be used, taken into force.
			head, body, _ := strings.Cut(string(text), "\n# characteristics:")
			if i := strings.Index(head, "version: 1"); i < 0 || strings.Contains(head[i+10:], "\nversion") {
				t.Fatalf("no version:\n%s", head)
			}
			live := regexp.MustCompile(`(?m)^# ((?:  .*|[a-z_]+:.*))$`).ReplaceAllString("# characteristics:"+body, "$1")
			doc, _, err = config.Decode("starter", []byte("version: 1\n"+live))
			if err != nil {
				t.Fatalf("%v\n%s", err, live)
			}
			if len(doc.Characteristics) == 0 || name == "rich" && (len(doc.Services) != 4 || len(doc.Checks) != 2) {
				t.Errorf("%+v\n%s", doc, live)
			}
		})
	}
	facts := []task.Fact{{What: task.MutableState, Value: "db", Rule: "SVC-01", Subject: "db (postgres:16)", Evidence: "compose.yaml:3"}}
	if text := string(Starter(facts)); !strings.Contains(text, "#   mutable_state: [db]   # compose.yaml:3 (SVC-01)\n") || !strings.Contains(text, "#   postgres: {driver: native, kind: postgres, version: \"16\"}   # compose.yaml:3\n") {
		t.Errorf("got\n%s", text)
	}
}

func TestAgents(t *testing.T) {
	text := string(Agents())
	if !strings.HasPrefix(text, AgentsMark) || strings.Count(text, "\n|") != 8 || !strings.Contains(text, "caisson plan") {
		t.Errorf("got\n%s", text)
	}
}
