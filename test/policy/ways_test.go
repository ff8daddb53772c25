//go:build linux

package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestWaysOut: unfamiliar code is refused with commands that each lead out of
// that, as they are printed; taken back, they do so no more.
func TestWaysOut(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		for _, c := range []struct {
			name string
			make func(*place)
		}{
			{"said by the repository", func(p *place) { p.commit(".caisson.yaml", unfamiliar) }},
			{"said by the user", func(p *place) { p.userPolicy(unfamiliar) }},
			{"trust that ended", func(p *place) {
				p.OK(t, p.repo, "trust")
				p.commit(".envrc", "export A=1\n")
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				p := newPlace(t, id, nil)
				defer p.userPolicy("")
				c.make(p)
				refused := func(when string, args ...string) harness.Result {
					t.Helper()
					r := p.run(append(args, "--", "true")...)
					if r.Exit != 125 || !strings.Contains(r.Stderr, "row R5") {
						t.Fatalf("%s: %v", when, r)
					}
					return r
				}
				works := func(when string, args ...string) {
					t.Helper()
					if r := p.run(append(args, "--", "true")...); r.Exit != 0 {
						t.Errorf("%s: %v", when, r)
					}
				}
				report := refused("at first", "run").Stderr
				p.quiet("at first")

				repo := found(t, report, `caisson trust (\S+) once, or --trust`)
				if repo != p.repo {
					t.Errorf("the repository is said to be %s", repo)
				}
				works("--trust", "run", "--trust")
				refused("a flag is for one task", "run")
				if changed := p.repo + "/.envrc"; c.name == "trust that ended" && !strings.Contains(report, ".envrc") {
					t.Errorf("%s is not named: %s", changed, report)
				}

				accept := strings.Fields(found(t, report, `\n  caisson (accept sha256:.*) --reason TEXT\n`))
				accept = append(accept, "--reason", "for this test")
				if r := p.run(accept...); r.Exit != 4 {
					t.Errorf("accepted without a terminal: %v", r)
				}
				refused("nobody accepted", "run")
				for _, answer := range []string{"n", "y"} {
					s := harness.OnTerminal(t, p.Command(t.Context(), p.repo, harness.Bin(), accept...), p.UID)
					s.Expect("[y/N]")
					s.Type(answer + "\n")
					if code := s.Wait(); (code == 0) != (answer == "y") {
						t.Fatalf("%s: %v exits %d", answer, accept, code)
					}
					if answer == "n" {
						refused("the person said no", "run")
					}
				}
				works("accepted", "run")
				if r := p.run("run", "--", "ls"); r.Exit != 125 {
					t.Errorf("accepted for one command, and another runs: %v", r)
				}
				refused("nobody is there", "run", "--unattended")
				refused("more is missing", "run", "--grant", "ptrace")
				var list []string
				for _, l := range strings.Split(p.OK(t, p.repo, "accept", "--list"), "\n") {
					if f := strings.Fields(l); len(f) > 0 && !strings.Contains(l, "taken back") {
						list = append(list, f[0])
					}
				}
				for _, a := range list {
					p.OK(t, p.repo, "accept", "--revoke", a)
				}
				refused("taken back", "run")

				p.OK(t, p.repo, "trust", repo)
				works("caisson trust", "run")
				p.OK(t, p.repo, "trust", "--revoke", repo)
				if c.name != "trust that ended" { // which a revocation ends too: then a person's start counts
					refused("trust taken back", "run")
				}
				types, _ := p.decisions()
				if n := strings.Count(fmt.Sprint(types), "boundary.blocked"); n < 6 || !strings.Contains(fmt.Sprint(types), "accept") {
					t.Errorf("on record: %v", types)
				}
			})
		}
	})
}

// TestNoWayOut: where a person's word does not count, it is not offered.
func TestNoWayOut(t *testing.T) {
	id := harness.NewIdentity(t, "user", harness.UserOf())
	for _, c := range []struct{ name, policy, project string }{
		{"hostile", "version: 1\n", "version: 1\ncharacteristics: {code_trust: hostile}\n"},
		{"trust is not a person's", "version: 1\nallow_trust: false\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t, id, nil)
			defer p.userPolicy("")
			p.userPolicy(c.policy)
			if c.project != "" {
				p.commit(".caisson.yaml", c.project)
			}
			for _, flags := range [][]string{{"run"}, {"run", "--trust"}, {"run", "--trust", "--source", "checkout", "--timeout", "10m"}} {
				r := p.run(append(flags, "--", "sh", "canary.sh")...)
				said := strings.Contains(r.Stderr, "row R5") || c.project == "" && len(flags) > 1 && strings.Contains(r.Stderr, "allow_trust is false")
				if r.Exit != 125 || !said || strings.Contains(r.Stderr, "caisson trust") {
					t.Errorf("%v", r)
				}
				p.quiet(fmt.Sprint(flags))
			}
			// Control: an entry with an end, in the policy of who decides.
			p.userPolicy(c.policy + "trust: [{repo: " + p.repo + ", expires: 2099-01-01, reason: ours}]\n")
			if r := p.run("run", "--", "true"); r.Exit != 0 {
				t.Error(r)
			}
		})
	}
}
