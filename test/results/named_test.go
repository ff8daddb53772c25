//go:build linux

package results

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// declaredBase is a repository that says how it is verified.
func declaredBase() map[string]string {
	return map[string]string{"a.txt": "a\n", "d/b.txt": "b\n", ".caisson.yaml": "version: 1\nchecks:\n- {name: unit, run: [grep, -q, more, a.txt]}\n- {name: lint, run: [sh, -c, 'test \"$PWD\" = \"$1\" && test -z \"$CI\"', lint, SOURCE]}\n"}
}

// list is what `check TASK --json` prints.
type list struct {
	Schema, Task, Policy string
	Checks               []struct {
		Name, Pinned string
		Run          []string
		Last         *checked
	}
}

// namedPlace commits the policy with the path of the source in it.
func namedPlace(p *place) {
	p.t.Helper()
	text, err := os.ReadFile(p.repo + "/.caisson.yaml")
	if err != nil {
		p.t.Fatal(err)
	}
	p.Write(p.t, p.repo+"/.caisson.yaml", strings.Replace(string(text), "SOURCE", p.repo, 1), 0o644)
	p.Git(p.t, p.repo, "commit", "-qam", "source")
	p.remember()
}

// TestNamedCheck runs the checks that a repository declares: as they stand in the
// commit that the task starts from, whatever the task makes of the file.
func TestNamedCheck(t *testing.T) {
	each(t, declaredBase(), func(p *place) {
		namedPlace(p)
		id := p.task("echo more >>a.txt")
		rev := strings.TrimSpace(p.Git(p.t, p.repo, "rev-parse", "HEAD"))[:12]
		pinned := "project " + rev + ":.caisson.yaml:3"
		c, r := p.check(id, "unit")
		if r.Exit != 0 || c.Level != 2 || c.Name != "unit" || c.Pinned != pinned || !slices.Equal(c.Argv, []string{"grep", "-q", "more", "a.txt"}) {
			p.t.Fatalf("the declared check: %+v %v", c, r)
		}
		if c, r := p.check(id, "--", "grep", "-q", "more", "a.txt"); r.Exit != 0 || c.Pinned != "typed" {
			p.t.Errorf("a control: what a person gives is pinned by %q: %v", c.Pinned, r)
		}
		// Wherever its caller is, it starts at the top, with nothing of theirs.
		cmd := p.Command(p.t.Context(), p.repo+"/d", harness.Bin(), "check", id, "lint")
		cmd.Env = append(cmd.Env, "CI=1")
		if r := harness.Run(p.t, cmd); r.Exit != 0 {
			p.t.Error(r)
		}
		for _, args := range [][]string{{"--env", "CI=1", "lint"}, {"--dir", "/tmp", "lint"}, {"--env", "CI=1", "--name", "lint"}, {"--name", "lint", "--", "true"}, {"--name", "unit", "grep", "-q", "more", "a.txt"}} {
			p.refused(p.do(append([]string{"check", id}, args...)...), "usage")
		}
		for _, word := range []string{"unti", "make"} {
			r := p.do("check", id, word)
			p.refused(r, "not_found")
			if !strings.Contains(r.Stderr, "there is unit, lint") || !strings.Contains(r.Stderr, "check "+id+" -- "+word) {
				p.t.Error(r)
			}
		}
		if c, r := p.check(id, "--", "true"); r.Exit != 0 || c.Pinned != "typed" {
			p.t.Errorf("after -- it is a command: %+v %v", c, r)
		}

		for _, args := range [][]string{{"check", id, "--json"}, {"check", "--list", "--json", id}} {
			l := harness.Decode[list](p.t, p.ok(args...))
			if l.Schema != "caisson.checks/1" || l.Task != id || l.Policy == "" || len(l.Checks) != 2 || l.Checks[0].Name != "unit" || l.Checks[0].Pinned != pinned || l.Checks[0].Last == nil || l.Checks[0].Last.Level != 2 {
				p.t.Errorf("%v: %+v", args, l)
			}
		}
		if out := p.ok("check", id); !strings.Contains(out, "unit") || !strings.Contains(out, "grep -q more a.txt") || !strings.Contains(out, pinned) {
			p.t.Errorf("the list: %s", out)
		}
		if out := p.ok("__complete", "check", id, ""); !strings.Contains(out, "unit\tgrep -q more a.txt\n") {
			p.t.Errorf("completed: %s", out)
		}
		text, _ := os.ReadFile(p.State + "/tasks/" + id + "/evidence/events.jsonl")
		if !strings.Contains(string(text), `"pinned":"`+pinned+`"`) || !strings.Contains(string(text), `"policy":"`) {
			p.t.Errorf("the record does not say what pinned it: %s", text)
		}

		// The attack: the task says that its check is another one.
		p.in(id, "printf 'version: 1\nchecks: [{name: unit, run: [true]}, {name: more, run: [true]}]\n' >.caisson.yaml; git add -A; git -c user.name=x -c user.email=x@x commit -qm mine; sed -i 's/more/less/' a.txt")
		c, r = p.check(id, "unit")
		if r.Exit != 1 || c.Level != 0 || c.Pinned != pinned || !slices.Equal(c.Argv, []string{"grep", "-q", "more", "a.txt"}) {
			p.t.Errorf("the task changed what is checked: %+v %v", c, r)
		}
		p.refused(p.do("check", id, "more"), "not_found")
		p.level("it failed", id, 0)
		p.untouched("checked")

		// The user's own of that name counts before the repository's, from now on.
		p.Write(p.t, p.Home+"/.config/caisson/policy.yaml", "version: 1\nchecks: [{name: unit, run: [grep, -q, less, a.txt]}]\n", 0o600)
		defer os.Remove(p.Home + "/.config/caisson/policy.yaml")
		if c, r := p.check(id, "unit"); r.Exit != 0 || !strings.HasPrefix(c.Pinned, "user ") || !strings.HasSuffix(c.Pinned, "policy.yaml:2") {
			p.t.Errorf("the user's check: %+v %v", c, r)
		}
	})
}

// TestNoNamedCheck: where nobody declares a check one word is a command, as ever.
func TestNoNamedCheck(t *testing.T) {
	user(t, checkBase(), func(p *place) {
		id := p.task("echo more >>a.txt")
		if c, r := p.check(id, "true"); r.Exit != 0 || c.Level != 2 || c.Name != "" || c.Pinned != "typed" {
			p.t.Errorf("%+v %v", c, r)
		}
		if r := p.do("check", id, "nosuchprogram"); r.Exit != 127 || !strings.Contains(r.Stderr, "nosuchprogram") {
			p.t.Error(r)
		}
		p.refused(p.do("check", id, "--name", "unit"), "not_found")
		if l := harness.Decode[list](p.t, p.ok("check", id, "--json")); len(l.Checks) != 0 {
			p.t.Errorf("%+v", l)
		}
		if out := p.ok("check", id); !strings.Contains(out, "no check is declared") {
			p.t.Error(out)
		}
		for _, text := range []string{"[{name: a, run: [true]}, {name: a, run: [false]}]", "[{name: -a, run: [true]}]", "[{name: a b, run: [true]}]", "[{name: a}]", "[{name: a, run: []}]"} {
			name := p.Tmp + "/policy.yaml"
			p.Write(p.t, name, "version: 1\nchecks: "+text+"\n", 0o644)
			if r := p.do("policy", "check", name); r.Exit != 6 || !strings.Contains(r.Stderr, "policy.yaml:2") {
				p.t.Errorf("%s: %v", text, r)
			}
			_ = os.Remove(name)
		}
	})
}
