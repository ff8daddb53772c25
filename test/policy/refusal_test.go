//go:build linux

package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

const unfamiliar = "version: 1\ncharacteristics: {code_trust: unfamiliar}\n"

// TestRefusals: what is refused has its status, says why to people and to
// programs, makes nothing and runs nothing, neither inside nor on the host.
func TestRefusals(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		canary := []string{"--", "sh", "canary.sh"}
		for _, c := range []struct {
			name    string
			project string // .caisson.yaml at the base
			user    string // the user's policy
			env     []string
			args    []string
			exit    int
			code    string
			says    string
			blocked bool // a missing boundary: a report and a record
		}{
			{"usage", "", "", nil, []string{"run", "--need", "KRN=x"}, 125, "usage", "KRN=x", false},
			{"usage, plan", "", "", nil, []string{"plan", "--need", "FOO=1"}, 2, "usage", "FOO", false},
			{"missing, plan", unfamiliar, "", nil, []string{"plan"}, 3, "", "KRN", false},
			{"missing, run", unfamiliar, "", nil, []string{"run"}, 125, "boundary_missing", "KRN 3 (has 1)", true},
			{"missing, open", unfamiliar, "", nil, []string{"open"}, 3, "boundary_missing", "KRN 3 (has 1)", true},
			{"missing, flag", "", "", nil, []string{"run", "--need", "KRN=3"}, 125, "boundary_missing", "KRN 3 (has 1)", true},
			{"missing, environment", "", "", []string{"CAISSON_NEED=KRN=3"}, []string{"run"}, 125, "boundary_missing", "KRN 3 (has 1)", true},
			{"missing, floor", "", "version: 1\nfloors: {KRN: 2}\n", nil, []string{"run"}, 125, "boundary_missing", "KRN 2 (has 1)", true},
			{"missing, services", "version: 1\ncharacteristics: {migrations: schema}\n", "", nil, []string{"run"}, 125, "boundary_missing", "SVC 2 (has 0)", true},
			{"approval refused", "", "", nil, []string{"accept", "sha256:" + strings.Repeat("0", 64), "--axis", "KRN=1", "--reason", "x"}, 4, "denied", "tty", false},
			{"no backend", "", "", nil, []string{"run", "--backend", "docker"}, 125, "unavailable", "docker", false},
			{"no boundary at all", "", "", nil, []string{"run", "--backend", "host"}, 125, "unavailable", "host", false},
			{"backend of the environment", "", "", []string{"CAISSON_BACKEND=vm"}, []string{"run"}, 125, "unavailable", "vm", false},
			{"project file", "version: 1\nfloors: {KRN: 1}\n", "", nil, []string{"plan"}, 6, "policy_invalid", ".caisson.yaml:2", false},
			{"project file, run", "version: 1\nnot_a_key: 1\n", "", nil, []string{"run"}, 125, "policy_invalid", ".caisson.yaml:2", false},
			{"user file", "", "version: 1\nversion: 1\n", nil, []string{"plan"}, 6, "policy_invalid", "policy.yaml:2", false},
			{"user file, run", "", "version: 2\n", nil, []string{"run"}, 125, "policy_invalid", "policy.yaml", false},
			{"below a row", "", "", nil, []string{"plan", "--need", "PRC=1"}, 6, "policy_invalid", "PRC 2", false},
		} {
			t.Run(c.name, func(t *testing.T) {
				p := newPlace(t, id, nil)
				if c.project != "" {
					p.commit(".caisson.yaml", c.project)
				}
				p.userPolicy(c.user)
				defer p.userPolicy("")
				args := c.args
				switch args[0] {
				case "run", "plan":
					args = append(slices.Clone(args), canary...)
				}
				before, _ := p.decisions()
				human := p.with(c.env, args...)
				if human.Exit != c.exit || !strings.Contains(human.Stderr+human.Stdout, c.says) {
					t.Errorf("want %d and %q: %v", c.exit, c.says, human)
				}
				p.quiet("for people")
				program := p.with(c.env, append([]string{args[0], "--json"}, args[1:]...)...)
				if program.Exit != c.exit {
					t.Errorf("want %d: %v", c.exit, program)
				}
				p.quiet("for programs")
				after, text := p.decisions()
				if args[0] == "plan" {
					if len(after) != len(before) {
						t.Errorf("a plan was put on record: %v", after)
					}
				}
				if c.code == "" {
					return
				}
				var doc struct {
					Ran   bool
					Error *struct {
						Code   string
						Detail struct {
							Schema, Report string
							Missing        []struct {
								Axis       string
								Why        string   `json:"why_required"`
								Lower      string   `json:"why_lower"`
								Options    []string `json:"options"`
								Acceptable []string `json:"acceptable_by"`
							}
							NotIsolated []string `json:"not_isolated_even_then"`
							Considered  []struct {
								Backend string
								Chosen  bool
							}
						}
					}
				}
				answer := program.Stdout
				if args[0] == "run" { // whose output is the command's own
					answer = program.Stderr
				}
				if err := json.Unmarshal([]byte(answer), &doc); err != nil || doc.Error == nil || doc.Error.Code != c.code || doc.Ran {
					t.Fatalf("%v: want %s: %v", err, c.code, program)
				}
				if !c.blocked {
					if slices.Contains(after[len(before):], "boundary.blocked") {
						t.Errorf("on record as a missing boundary: %v", after)
					}
					return
				}
				for _, want := range []string{"BLOCKED (boundary_missing)", "way out: ", "may accept the gap: ", "even then not isolated:", "caisson: hint: "} {
					if !strings.Contains(human.Stderr, want) {
						t.Errorf("the report for people has no %q: %s", want, human.Stderr)
					}
				}
				d := doc.Error.Detail
				if d.Schema != "caisson.missing/1" || len(d.Missing) == 0 || len(d.NotIsolated) == 0 {
					t.Errorf("%+v", d)
				}
				for _, m := range d.Missing {
					if m.Why == "" || m.Lower == "" || len(m.Options) == 0 || len(m.Acceptable) == 0 {
						t.Errorf("%+v", m)
					}
				}
				// Nothing else was tried: one record for each of the two, and the host is not taken.
				for _, b := range d.Considered {
					if b.Backend == "host" && b.Chosen {
						t.Error("the host was chosen")
					}
				}
				if got := after[len(before):]; !slices.Equal(got, []string{"boundary.blocked", "boundary.blocked"}) {
					t.Errorf("on record: %v", got)
				}
				if !strings.Contains(text, d.Report) {
					t.Errorf("the record does not have the report %s", d.Report)
				}
			})
		}
	})
}
