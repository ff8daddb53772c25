//go:build linux

package calls

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/test/harness"
)

// rule writes the policy of an identity that has no operator.
func rule(t *testing.T, id *harness.Identity, text string) {
	t.Helper()
	dir := filepath.Join(id.Home, ".config/caisson")
	if _, err := os.Stat(dir); err != nil {
		id.Mkdir(t, dir)
	}
	id.Write(t, filepath.Join(dir, "policy.yaml"), "version: 1\n"+text, 0o600)
}

// TestPolicyVerdicts makes calls against rules of a file, spelled in many ways.
// Nobody is there: what would be asked about is denied, and says so.
func TestPolicyVerdicts(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		hook := filepath.Join(id.Home, "hook")
		id.Write(t, hook, `#!/bin/sh
in=$(cat)
case "$in" in
*hook-denies*) echo '{"verdict":"deny","reason":"not on a Friday"}' ;;
*hook-asks*) echo '{"verdict":"ask"}' ;;
*hook-babbles*) echo yes ;;
*hook-fails*) echo '{"verdict":"none"}'; exit 1 ;;
*hook-allows*) echo '{"verdict":"allow"}' ;;
*) echo '{"verdict":"none"}' ;;
esac
`, 0o700)
		rules := `
deny: {commands: [{argv: [git, push]}]}
tools:
  deny: [{tool: shell, command: [npm, publish], reason: made by CI}, {path: "` + id.Tmp + `/nowhere"}]
  ask: [{tool: publish_artifact}]
`
		rule(t, id, rules+"decision_hook: {exec: ["+hook+"], timeout: 30s}\n")
		c := newCaller(t, id, "--unattended")
		if err := os.Symlink("a.txt", filepath.Join(id.State, "tasks", c.task, "source/link")); err != nil {
			t.Fatal(err)
		}
		const nobody = "nobody is there to ask"
		for name, k := range map[string]struct{ script, want string }{
			"plain":                      {"git push", "git push"},
			"after another":              {"true && git push origin", "git push"},
			"options before the verb":    {"git -C /x push", "git push"},
			"quotes":                     {`g''it p"u"sh`, "git push"},
			"a wrapper":                  {"env A=1 nice git push", "git push"},
			"a shell in a shell":         {"sh -c 'git push'", "git push"},
			"in a substitution":          {"x=$(git push)", "git push"},
			"find":                       {"find . -name x -exec git push ';'", "git push"},
			"by its path":                {"/usr/bin/git push", "git push"},
			"a rule of tools":            {"npm publish", "made by CI"},
			"a name that is made":        {`x=git; $x push`, nobody},
			"an interpreter with code":   {`perl -e 'exec "git","push"'`, nobody},
			"a program of the task":      {`./a.txt`, nobody},
			"a script of the task":       {`sh ./a.txt`, nobody},
			"what a shell reads":         {`echo git push | sh`, nobody},
			"another PATH":               {`PATH=/x:$PATH; git status`, nobody},
			"a rule's words as an arg":   {"echo git push", ""},
			"another verb":               {"git status", ""},
			"the hook denies":            {"echo hook-denies", "not on a Friday"},
			"the hook asks":              {"echo hook-asks", nobody},
			"the hook babbles":           {"echo hook-babbles", "gave no answer"},
			"the hook fails":             {"echo hook-fails", "gave no answer"},
			"the hook cannot allow":      {"echo hook-allows", "gave no answer"},
			"the hook does not lift":     {"git push; echo hook-allows", "git push"},
			"the hook says nothing here": {"echo fine", ""},
		} {
			c.says(name, contract.Shell, contract.ShellArgs{Command: k.script}, k.want)
		}
		c.says("a vector", contract.Shell, contract.ShellArgs{Argv: []string{"git", "push"}}, "git push")
		c.says("PATH of the call", contract.Shell, contract.ShellArgs{Argv: []string{"git", "status"}, Env: map[string]string{"PATH": "/x"}}, nobody)
		c.says("a path through a link", contract.ReadFile, contract.ReadFileArgs{Path: "link"}, "nowhere")
		c.says("a path", contract.ReadFile, contract.ReadFileArgs{Path: "a.txt"}, "")
		// A person's command: what nobody may run, and the hook.
		for _, k := range []struct {
			argv []string
			want string
		}{
			{[]string{"git", "push"}, "git push"}, {[]string{"echo", "hook-denies"}, "not on a Friday"}, {[]string{"echo", "hook-asks"}, "a person is to be asked"}, {[]string{"echo", "hook-babbles"}, "gave no answer"}, {[]string{"npm-x", "publish"}, "npm-x"},
		} {
			r := id.Caisson(t, c.repo, append([]string{"exec", c.task, "--"}, k.argv...)...)
			if r.Exit == 0 || !strings.Contains(r.Stderr, k.want) {
				t.Errorf("exec %q: want %q: %v", k.argv, k.want, r)
			}
			r = id.Caisson(t, c.repo, append([]string{"run", "--"}, k.argv...)...)
			if r.Exit == 0 || !strings.Contains(r.Stderr, k.want) {
				t.Errorf("run %q: want %q: %v", k.argv, k.want, r)
			}
		}
		if out := id.OK(t, c.repo, "exec", c.task, "--", "echo", "fine"); strings.TrimSpace(out) != "fine" {
			t.Errorf("exec: %q", out)
		}
		if out := id.OK(t, c.repo, "log", "--json", c.task); !strings.Contains(out, "call.refused") || !strings.Contains(out, "decision_hooks") || !strings.Contains(out, "not on a Friday") {
			t.Errorf("on record: refused %v, hooks %v", strings.Contains(out, "call.refused"), strings.Contains(out, "decision_hooks"))
		}
		if r := id.Caisson(t, c.repo, "open", "hook-denies"); r.Exit == 0 || !strings.Contains(r.Stderr, "not on a Friday") {
			t.Errorf("open: %v", r)
		}
		// A program that the repository's authors wrote is not asked; the control is above.
		id.Write(t, filepath.Join(c.repo, "hook"), "#!/bin/sh\necho '{\"verdict\":\"none\"}'\n", 0o755)
		rule(t, id, "decision_hook: {exec: ["+c.repo+"/hook], timeout: 30s}\n")
		if r := id.Caisson(t, c.repo, "run", "--", "true"); r.Exit == 0 || !strings.Contains(r.Stderr, "can change it") {
			t.Errorf("a hook in the repository: %v", r)
		}
		// The control: without the rules all of it would be done, and fail by itself.
		rule(t, id, "")
		free := newCaller(t, id, "--unattended")
		free.says("no rules", contract.Shell, contract.ShellArgs{Command: "git push; true"}, "")
		free.says("no rules, by another word", contract.Shell, contract.ShellArgs{Command: "x=git; $x push; true"}, "")
		free.says("no hook", contract.Shell, contract.ShellArgs{Command: "echo hook-denies"}, "")
	})
}

// says makes a call that is made, or refused with want.
func (c *caller) says(name, tool string, args any, want string) {
	c.t.Helper()
	b, err := json.Marshal(args)
	if err != nil {
		c.t.Fatal(err)
	}
	r := c.Caisson(c.t, c.repo, "tool", "--json", c.task, tool, string(b))
	refused := r.Exit == 4 && strings.Contains(r.Stdout, `"code": "denied"`)
	switch {
	case want == "" && refused:
		c.t.Errorf("%s: refused: %v", name, r)
	case want != "" && (r.Exit == 0 || !refused || !strings.Contains(r.Stdout+r.Stderr, want)):
		c.t.Errorf("%s: want %q: %v", name, want, r)
	}
}

// TestPolicyEnforced asks for what the policy denies or bounds. Each refusal
// names the rule, the file and the line, and comes before anything is made.
func TestPolicyEnforced(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"f": "hi\n"})
		secret := filepath.Join(id.Tmp, "secret")
		id.Mkdir(t, secret)
		id.Write(t, filepath.Join(secret, "x"), "x", 0o600)
		if err := os.Symlink(secret, filepath.Join(id.Tmp, "alias")); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			rules string
			args  []string
			want  string
		}{
			"deny.mounts":                   {"deny: {mounts: [" + secret + "]}", []string{"run", "--ro", secret, "--", "true"}, "policy.yaml:2"},
			"deny.mounts, below":            {"deny: {mounts: [" + id.Tmp + "]}", []string{"run", "--ro", secret, "--", "true"}, "policy.yaml:2"},
			"deny.mounts, above":            {"deny: {mounts: [" + secret + "]}", []string{"run", "--ro", id.Tmp, "--", "true"}, "policy.yaml:2"},
			"deny.mounts, asked by a link":  {"deny: {mounts: [" + secret + "]}", []string{"run", "--ro", id.Tmp + "/alias", "--", "true"}, "policy.yaml:2"},
			"deny.mounts, denied by a link": {"deny: {mounts: [" + id.Tmp + "/alias]}", []string{"run", "--ro", secret, "--", "true"}, "policy.yaml:2"},
			"deny.mounts, the repository":   {"deny: {mounts: [" + repo + "]}", []string{"run", "--", "true"}, "policy.yaml:2"},
			"deny.env":                      {"deny: {env: [\"AWS_*\"]}", []string{"run", "--env", "AWS_X=1", "--", "true"}, "policy.yaml:2"},
			"deny.grants":                   {"deny: {grants: [ptrace]}", []string{"run", "--grant", "ptrace", "--", "true"}, "policy.yaml:2"},
			"deny.commands":                 {"deny: {commands: [{argv: [git, push]}]}", []string{"run", "--", "env", "git", "push"}, "policy.yaml:2"},
			"delegate.{}":                   {"delegate: {user: {mode: auto, env: [OK]}}", []string{"run", "--env", "B=1", "--", "true"}, "delegate.user"},
			"limits.memory":                 {"limits: {memory: 256m}", []string{"run", "--memory", "512m", "--", "true"}, "policy.yaml:2"},
			"limits.cpus":                   {"limits: {cpus: 0.5}", []string{"run", "--cpus", "1", "--", "true"}, "policy.yaml:2"},
			"limits.pids":                   {"limits: {pids: 100}", []string{"run", "--pids", "200", "--", "true"}, "policy.yaml:2"},
			"limits.disk":                   {"limits: {disk: 64m}", []string{"run", "--disk", "65m", "--", "true"}, "policy.yaml:2"},
			"limits.net_bytes":              {"limits: {net_bytes: 1m}", []string{"run", "--net-bytes", "2m", "--", "true"}, "policy.yaml:2"},
			"limits.timeout":                {"limits: {timeout: 1m}", []string{"run", "--timeout", "2m", "--", "true"}, "policy.yaml:2"},
			"limits.memory, too small":      {"limits: {memory: 1m}", []string{"run", "--", "true"}, "holds no boundary"},
			"allow_trust":                   {"allow_trust: false", []string{"run", "--trust", "--", "true"}, "policy.yaml:2"},
			"backends.allowed":              {"backends: {allowed: [docker]}", []string{"run", "--", "true"}, "policy.yaml:2"},
			"backends.allowed, asked for":   {"backends: {allowed: [docker]}", []string{"run", "--backend", "linux", "--", "true"}, "policy.yaml:2"},
			"tools.wait":                    {"tools: {wait: 1m}", []string{"run", "--ask", "shell", "--ask-timeout", "2m", "--", "true"}, "policy.yaml:2"},
		} {
			rule(t, id, c.rules+"\n")
			before := tasksOf(t, id)
			if r := id.Caisson(t, repo, c.args...); r.Exit != 125 && r.Exit != 4 && r.Exit != 6 || !strings.Contains(r.Stderr, c.want) || !strings.Contains(r.Stderr, "hint:") {
				t.Errorf("%s: want %q: %v", name, c.want, r)
			}
			if now := tasksOf(t, id); !slices.Equal(before, now) {
				t.Errorf("%s: something was made: %v", name, now)
			}
		}
		// The controls: the same wishes, where nothing denies them, are granted.
		rule(t, id, "limits: {memory: 512m, timeout: 2m}\nunattended: true\ntrusted_checks: [{argv: [cat], executes: checks}]\ndelegate: {user: {mode: auto, env: [OK, \"AWS_*\"], grants: [ptrace], mounts: ["+id.Tmp+"]}}\n")
		id.OK(t, repo, "run", "--ro", secret, "--env", "AWS_X=1", "--grant", "ptrace", "--memory", "256m", "--timeout", "1m", "--cpus", "1", "--pids", "200", "--", "true")
		// What nobody asked for is lowered, and goes on record with its origin.
		plan := func(args ...string) string { return id.OK(t, repo, append([]string{"plan", "--json"}, args...)...) }
		if out := plan("--", "make"); !strings.Contains(out, "536870912") || !strings.Contains(out, "120000000000") {
			t.Errorf("limits are not lowered: %s", out)
		}
		id.OK(t, repo, "open", "lowered")
		if out := id.OK(t, repo, "log", "--json", "lowered"); !strings.Contains(out, "policy.yaml:2") || !strings.Contains(out, "policy.yaml:3") {
			t.Errorf("no origin on record: %s", out)
		}
		// A whole command that is a trusted check needs less, and nothing else does.
		const check = "the whole command is the trusted check"
		for _, c := range []struct {
			args []string
			want bool
		}{
			{[]string{"--", "cat", "f"}, true}, {[]string{"--", "cat", "-n", "f"}, false}, {[]string{"--", "./cat", "f"}, false}, {[]string{"--", "sh", "-c", "cat f"}, false}, {[]string{"--env", "OK=1", "--", "cat", "f"}, false}, {[]string{"--", "echo"}, false}, {nil, false},
		} {
			if out := plan(c.args...); strings.Contains(out, check) != c.want {
				t.Errorf("%q: a trusted check: %v: %s", c.args, !c.want, out)
			}
		}
		rule(t, id, "trusted_checks: [{argv: [cat], executes: checks, sha256: \""+strings.Repeat("0", 64)+"\"}]\n")
		if strings.Contains(plan("--", "cat", "f"), check) {
			t.Error("a program of another digest is a trusted check")
		}
	})
}

func tasksOf(t *testing.T, id *harness.Identity) []string {
	t.Helper()
	es, _ := os.ReadDir(filepath.Join(id.State, "tasks"))
	var out []string
	for _, e := range es {
		out = append(out, e.Name())
	}
	return out
}
