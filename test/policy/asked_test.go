//go:build linux

package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/policy"
	"github.com/caisson-dev/caisson/test/harness"
)

// flagsTight is what bounds what a person asks for in these tests.
const flagsTight = "version: 1\ndelegate: {user: {mode: auto, env: [ALLOWED]}}\nfloors: {SRC: 1, NET: 1}\nallow_trust: false\ntools: {ask: [{tool: shell}], frozen: true, wait: 1m}\n" +
	"backends: {allowed: [linux]}\nlimits: {memory: 512m, cpus: 0.5, pids: 200, disk: 64m, timeout: 10m, net_bytes: 1m, net_connections: 5, net_rate: 5}\nretention: {environments: 1h}\nunattended: true\nnet: none\n"

// bounded is the loosest that each flag of `run` can ask for, and what it comes
// to: a refusal that says this, or with "" a plan that is no looser.
var bounded = map[string]struct{ value, refused string }{
	"backend": {"docker", "the policy does not allow it"}, "image": {"none", "takes no images"}, "pull": {"", "--image names none"}, "rootfs": {"/", "not inside what a user may ask for"}, "need": {"NET=0", "can raise the boundary, not lower it"}, "net": {"open", "more than the policy allows"}, "allow": {"example.com", "more than the policy allows"}, "lend": {"any", "not inside what a user may ask for"}, "publish": {"8080", ""}, "ro": {"{tmp}", "not inside what a user may ask for"},
	"env": {"OTHER=1", "not inside what a user may ask for"}, "grant": {"userns", "not inside what a user may ask for"}, "memory": {"1g", "more than the policy allows"}, "cpus": {"2", "more than the policy allows"},
	"pids": {"4000", "more than the policy allows"}, "disk": {"1g", "more than the policy allows"}, "net-bytes": {"2m", "more than the policy allows"}, "net-connections": {"6", "more than the policy allows"}, "net-rate": {"6", "more than the policy allows"}, "timeout": {"9000h", "more than the policy allows"}, "trust": {"", "allow_trust is false"}, "ask-timeout": {"24h", "more than the policy allows"},
	"source": {"checkout", "SRC"}, "unattended": {"false", ""}, "frozen": {"false", ""}, "ask": {"glob", ""}, "deny": {"glob", ""}, "history": {"full", ""}, "dirty": {"all", ""}, "keep": {"always", ""}, "discard": {"", ""},
	// What these name is no authority: a name, a place, a revision, and who does the work, whose definition only tightens.
	"name": {"x", ""}, "repo": {"{repo}", ""}, "base": {"HEAD", ""}, "at": {"/src", ""}, "dir": {".", ""}, "parent": {"none", "none"}, "agent": {"none", "no agent"},
	// Nobody is there, says the operator: what would be asked is denied, and no program answers.
	"approve-hook": {"/bin/true", ""},
	"json":         {"", ""}, "quiet": {"", ""}, "verbose": {"", ""}, "no-color": {"", ""},
}

var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`)

// TestNoFlagLoosens asks for the most that each flag of `run` can say, beside an
// operator who bounds it. What goes beyond is refused by name, with the rule's
// place and what to do, before anything is made; nothing is cut to fit. In the
// control the operator says nothing, and the same is planned.
func TestNoFlagLoosens(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := newPlace(t, harness.NewIdentity(t, "user", harness.UserOf()), map[string]string{"f": "hi\n"}).withOperator()
	there := map[string]bool{}
	for _, m := range flagLine.FindAllStringSubmatch(p.shown("run", "--help")+p.shown("mcp", "--help"), -1) {
		there[m[1]] = true
	}
	p.operator(flagsTight + p.filled(loosest["trust"]) + "\n")
	before := p.planned("--", "true")
	free := map[string]bool{"need": true, "source": true, "parent": true, "agent": true, "backend": true, "rootfs": true, "image": true, "pull": true}
	for flag := range there {
		c, known := bounded[flag]
		if !known {
			if !slices.Contains([]string{"task", "approve-tty", "listen", "phase"}, flag) { // of mcp: a task that is there, and where the client is; of run: which part of one
				t.Errorf("--%s: nobody tried to loosen something by it: it needs a line in asked_test.go", flag)
			}
			continue
		}
		arg := "--" + flag
		if c.value != "" {
			arg += "=" + p.filled(c.value)
		}
		if slices.Contains([]string{"dir", "json", "quiet", "verbose", "no-color", "keep", "discard", "approve-hook", "publish"}, flag) {
			continue // give the task nothing (publish: the owner reaches more); those that a plan has not are tried below
		}
		r := p.run("plan", "--json", arg, "--", "true")
		if c.refused != "" {
			if r.Exit == 0 || !strings.Contains(r.Stdout+r.Stderr, c.refused) || r.Exit != 3 && !strings.Contains(r.Stdout+r.Stderr, "hint") {
				t.Errorf("%s: want %q: %v", arg, c.refused, r)
			}
			if bounds := strings.Contains(c.refused, "policy allows") || strings.Contains(c.refused, "not inside") || flag == "trust"; bounds && !strings.Contains(r.Stdout+r.Stderr, operatorDir) {
				t.Errorf("%s: the refusal does not say which rule: %v", arg, r)
			}
			p.quiet(arg)
			continue
		}
		var after plan
		if err := json.Unmarshal([]byte(r.Stdout), &after); err != nil || r.Exit != 0 {
			t.Errorf("%s: %v: %v", arg, err, r)
			continue
		}
		notLooser(t, arg, before, &after)
	}
	for flag := range bounded {
		if !there[flag] {
			t.Errorf("there is no flag --%s", flag)
		}
	}
	// What the operator demands of every task holds whatever was typed.
	for _, args := range [][]string{{"--unattended=false", "--frozen=false"}, {"--approve-hook", "/bin/true"}} {
		id := found(t, p.shown(append([]string{"open", "--json"}, args...)...), `"id": "(\w+)"`)
		for _, field := range []string{"unattended", "frozen"} {
			if log := p.shown("log", "--json", id); !strings.Contains(log, `"`+field+`":"operator `) {
				t.Errorf("%v: %s is not on record as the operator's: %s", args, field, log)
			}
		}
		if r := p.run("tool", id, "shell", `{"command":"true"}`); r.Exit == 0 || !strings.Contains(r.Stderr, "nobody is there to ask") {
			t.Errorf("%v: %v", args, r)
		}
		if r := p.run("keep", id, "--for", "2h", "--reason", "x"); r.Exit == 0 || !strings.Contains(r.Stderr, "retention.environments") || !strings.Contains(r.Stderr, "hint: ") {
			t.Errorf("kept longer than the operator allows: %v", r)
		}
		p.shown("close", "--discard", id)
	}
	// The control: a silent operator bounds none of it.
	p.operator("version: 1\ncredentials: {any: {from: {env: X}, as: bearer, class: dev, to: [{host: a.example}], env: [X]}}\n")
	for flag, c := range bounded {
		if c.refused == "" || free[flag] {
			continue
		}
		arg := "--" + flag
		if c.value != "" {
			arg += "=" + p.filled(c.value)
		}
		if r := p.run("plan", arg, "--", "true"); r.Exit != 0 {
			t.Errorf("%s beside a silent operator: %v", arg, r)
		}
	}
}

// notLooser holds what is planned against what was.
func notLooser(t *testing.T, what string, before, after *plan) {
	t.Helper()
	for i, x := range before.Levels {
		if y := after.Levels[i]; y.Required < x.Required {
			t.Errorf("%s: %s needs %d and needed %d", what, x.Axis, y.Required, x.Required)
		}
	}
	for _, x := range before.Missing {
		if !slices.ContainsFunc(after.Missing, func(y missing) bool { return y.Axis == x.Axis }) {
			t.Errorf("%s: %s is not missing any more", what, x.Axis)
		}
	}
	a, b := before.Limits, after.Limits
	if a.DiskBytes == 0 { // no limit
		a.DiskBytes = math.MaxInt64
	}
	if b.MemoryBytes > a.MemoryBytes || b.CPUs > a.CPUs || b.Pids > a.Pids || b.DiskBytes > a.DiskBytes || b.DiskBytes == 0 && a.DiskBytes != math.MaxInt64 || b.Timeout > a.Timeout || len(after.Grants) > len(before.Grants) {
		t.Errorf("%s: %+v became %+v", what, a, b)
	}
}

// variables is the most that each variable of the launch environment can say, and
// what it comes to.
var variables = map[string]struct{ value, refused string }{
	"CAISSON_BACKEND": {"docker", "the policy does not allow it"}, "CAISSON_ENGINE": {"unix:///var/run/docker.sock", ""}, "CAISSON_NEED": {"SRC=0,NET=0,KRN=0", "can raise the boundary, not lower it"}, "CAISSON_UNATTENDED": {"0", ""}, "CAISSON_PAGER": {"cat", ""},
	"CAISSON_RUNSC": {"/bin/true", ""}, "CAISSON_CRUN": {"/bin/true", ""}, "CAISSON_RUNC": {"/bin/true", ""}, "CAISSON_RUNSC_PLATFORM": {"kvm", ""},
	// These say where things lie. The operator's folder is none of it.
	"CAISSON_STATE_DIR": {"{tmp}/state", ""}, "CAISSON_RUNTIME_DIR": {"{tmp}/run", ""},
}

// TestNoVariableLoosens sets every variable that the program reads, and some that
// it does not, to the loosest; and has a file of the workspace set each, too: then
// nobody can tell whose word it is, and it is refused with what to do.
func TestNoVariableLoosens(t *testing.T) {
	t.Parallel()
	needRoot(t)
	p := newPlace(t, harness.NewIdentity(t, "user", harness.UserOf()), map[string]string{"f": "hi\n"}).withOperator()
	p.operator(flagsTight + p.filled(loosest["trust"]) + "\n")
	before := p.planned("--", "true")
	env := func(kv string, args ...string) harness.Result {
		cmd := p.cmd(args...)
		cmd.Env = append(cmd.Env, kv)
		return harness.Run(t, cmd)
	}
	names := regexp.MustCompile(`CAISSON_[A-Z_]*[A-Z]`).FindAllString(p.shown("help", "environment"), -1)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		c, known := variables[name]
		if !known {
			t.Errorf("%s: nobody tried to loosen something by it: it needs a line in asked_test.go", name)
			continue
		}
		kv := name + "=" + p.filled(c.value)
		r := env(kv, "plan", "--json", "--", "true")
		var after plan
		switch err := json.Unmarshal([]byte(r.Stdout), &after); {
		case c.refused != "" && (r.Exit == 0 || !strings.Contains(r.Stdout+r.Stderr, c.refused)):
			t.Errorf("%s: want %q: %v", kv, c.refused, r)
		case c.refused == "" && (err != nil || r.Exit != 0):
			t.Errorf("%s: %v", kv, r)
		case c.refused == "":
			notLooser(t, kv, before, &after)
		}
		for _, file := range []string{".env", ".envrc", ".vscode/settings.json", ".claude/settings.json"} {
			kv := strings.Replace(kv, "docker", "linux", 1)
			p.Write(t, p.repo+"/"+file, "export "+kv+"\n", 0o644)
			r := env(kv, "plan", "--", "true")
			if r.Exit == 0 || !strings.Contains(r.Stderr, file) || !strings.Contains(r.Stderr, "hint: take "+name+" out of") {
				t.Errorf("%s, also in %s: %v", name, file, r)
			}
			p.Write(t, p.repo+"/"+file, "{}\n", 0o644)
		}
	}
	// There is no variable for a rule of a policy, whatever it is called.
	digest := found(t, p.shown("policy", "show", "--json"), `"digest": "(\S+)"`)
	for _, k := range policy.Keys {
		for _, prefix := range []string{"CAISSON_", "CAISSON_POLICY_"} {
			name := prefix + strings.ToUpper(strings.NewReplacer(".", "_", "[]", "", "{}", "X").Replace(k.Path))
			if _, read := variables[name]; read {
				continue
			}
			if r := env(name+"=/nowhere", "policy", "show", "--json"); r.Exit == 0 && !strings.Contains(r.Stdout, digest) {
				t.Errorf("%s changes the policy: %v", name, r)
			}
		}
	}
}

// TestNoArgumentLoosens makes calls as a model does, by MCP and by `caisson tool`,
// with every argument that asks for another boundary: each key of a policy and
// each flag of `run`, and the names that agents use. None has an effect, and each
// is named in the answer.
func TestNoArgumentLoosens(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "user", harness.UserOf())
	p := newPlace(t, id, map[string]string{"f": "hi\n"})
	p.userPolicy("version: 1\ntools: {deny: [{tool: shell}]}\nlimits: {timeout: 10m}\n")
	names := []string{"sandbox", "dangerouslyDisableSandbox", "dangerously_disable_sandbox", "disable_sandbox", "with_escalated_permissions", "sandbox_permissions", "network", "approved", "approval", "allow", "task", "root", "cwd_root", "policy", "mounts", "privileged", "user"}
	for _, k := range policy.Keys {
		if !strings.ContainsAny(k.Path, ".[{") {
			names = append(names, k.Path)
		}
	}
	for _, m := range flagLine.FindAllStringSubmatch(p.OK(t, p.repo, "run", "--help"), -1) {
		names = append(names, strings.ReplaceAll(m[1], "-", "_"))
	}
	m := startMCP(p)
	var listed struct {
		Result struct {
			Tools []struct {
				Name        string
				InputSchema struct {
					Properties map[string]any
					Additional any `json:"additionalProperties"`
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(m.ask("tools/list", "{}")), &listed); err != nil || len(listed.Result.Tools) < 10 {
		t.Fatalf("%v: %d tools", err, len(listed.Result.Tools))
	}
	var read, shell map[string]any
	for _, tool := range listed.Result.Tools {
		if tool.InputSchema.Additional != false {
			t.Errorf("%s takes any argument", tool.Name)
		}
		switch tool.Name {
		case "read_file":
			read = tool.InputSchema.Properties
		case "shell":
			shell = tool.InputSchema.Properties
		}
		for name := range tool.InputSchema.Properties {
			if !slices.Contains(harmless, name) {
				t.Errorf("%s takes %s, which nobody looked at: whether it can loosen something belongs into asked_test.go", tool.Name, name)
			}
		}
	}
	for _, name := range names {
		if read[name] != nil || shell[name] != nil {
			continue // its own argument, by chance
		}
		args := fmt.Sprintf(`{"path":"f",%q:%s}`, name, `{"egress":[{"host":"**"}],"NET":0}`)
		if out := m.call("read_file", args); !strings.Contains(out, `"refused":["`+name+`"]`) || !strings.Contains(out, "hi") {
			t.Errorf("%s by MCP: %s", name, out)
		}
		// What is denied stays denied with it.
		if out := m.call("shell", fmt.Sprintf(`{"command":"true",%q:true}`, name)); !strings.Contains(out, `"isError":true`) || !strings.Contains(out, "deny") {
			t.Errorf("%s with shell by MCP: %s", name, out)
		}
	}
	m.end()
	// The control: without the rule the call is made.
	p.userPolicy("version: 1\n")
	task := p.Open(t, p.repo, "--unattended")
	p.OK(t, p.repo, "tool", task, "shell", `{"command":"true","sandbox":false}`)
	p.userPolicy("version: 1\ntools: {deny: [{tool: shell}]}\n")
	if r := p.run("tool", task, "shell", `{"command":"true","sandbox":false}`); r.Exit != 4 {
		t.Errorf("denied by now: %v", r)
	}
	p.OK(t, p.repo, "close", "--discard", task)
}

// harmless are the arguments of tools: what they name lies inside the boundary,
// bounds an answer, or (the last line) is asked of the way out and of a person as
// whatever a program inside asks for: see test/egress.
var harmless = strings.Fields(`path offset limit as expect_sha256 edits no_ignore hidden pattern glob fixed word multiline after before output ignore_case
	manager args cell_id cell_type index source mode title timeout_ms stdin pty background command argv cwd env shell text eof from wait_ms content encoding newline executable create_only
	url method max_bytes host port methods reason`)
