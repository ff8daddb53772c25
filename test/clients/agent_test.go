//go:build linux

package clients

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
	"github.com/caisson-dev/caisson/test/model"
)

// project is a small repository with a fault and a test that finds it.
var project = map[string]string{
	"add.sh":  "echo $(($1 - $2))\n",
	"test.sh": "r=$(sh ./add.sh 2 3)\n[ \"$r\" = 5 ] && echo PASSED || { echo \"FAILED: $r\"; exit 1; }\n",
}

// agent is one client, ready to be started on a repository.
type agent struct {
	builtin string       // its own shell, which it must not even offer
	own     []model.Step // calls of its own tools that would make files called "builtin…"
	prefix  string       // before the names of our tools
	// command prepares a run: the program with its arguments and variables. The
	// client is to give a call of one of our tools up after timeout seconds.
	command func(t *testing.T, id *harness.Identity, repo, base string, timeout int) (argv, env []string)
}

// canary is the key that the client has and that nothing inside may see.
const canary = "canary-7f3a9d"

// giveUp is after how many seconds the client gives a call up. It is long: on a
// busy machine every call takes a while.
const giveUp = 30

// TestAgents has a real client do real work: it is told to use its own shell,
// which must be refused; it finds and mends a fault with our tools; it gives a call
// up; and it loses the worker in the middle of one. The model is a script.
func TestAgents(t *testing.T) {
	for name, a := range map[string]agent{"gemini": gemini, "codex": codex} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			modulesOf(t, name)
			harness.Each(t, func(t *testing.T, id *harness.Identity) {
				t.Parallel()
				a.works(t, id)
			})
		})
	}
}

// modulesOf installs a client; Codex, which is large, only where everything is tried.
func modulesOf(t *testing.T, name string) string {
	t.Helper()
	if name == "codex" && !full() {
		t.Skip("420 MB from npm: with CAISSON_TEST_FULL=1 only")
	}
	return installed(t, name)
}

func (a agent) works(t *testing.T, id *harness.Identity) {
	ctx, cancel := context.WithTimeout(t.Context(), harness.Limit)
	defer cancel()
	repo := id.Repo(t, project)
	before := harness.Files(t, repo)
	tag := filepath.Base(id.Dir)
	tool := func(name string, args map[string]any) model.Step {
		return model.Step{Tool: a.prefix + name, Args: args}
	}
	sh := func(command string) model.Step { return tool("shell", map[string]any{"command": command}) }
	given, lost := "sleep 7001."+digits(tag), "sleep 7002."+digits(tag)
	facts := sh("id -u; hostname; readlink /proc/self/ns/pid; env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; exit 0")
	// The process tree of the call that the client gave up is gone.
	facts.Before = func(context.Context) {
		if !until(ctx, func() bool { return len(running(given)) == 0 }) {
			t.Error("the call was given up and its processes are there")
		}
	}
	// The question of a call is answered through another door while the client waits.
	asked := func(command, verb string) model.Step {
		st := sh(command)
		st.Before = func(context.Context) { go answer(ctx, t, id, verb) }
		return st
	}
	m := model.New(append(slices.Clone(a.own),
		tool("read_file", map[string]any{"path": "add.sh", "backend": "host"}),
		tool("read_file", map[string]any{"path": "add.sh"}),
		sh("sh test.sh"),
		tool("edit_file", map[string]any{"path": "add.sh", "edits": []any{map[string]any{"old": "-", "new": "+"}}}),
		sh("sh test.sh"),
		sh("echo never > denied.txt"),
		asked("echo maybe > asked.txt", "deny"),
		asked("echo maybe > allowed.txt", "approve"),
		sh("(setsid "+given+" &) ; "+given),
		facts,
		sh("echo x >> lost.txt; "+lost),
		sh("echo after >> lost.txt"),
		model.Step{Text: "all done"},
	)...)
	go func() {
		if until(ctx, func() bool { return len(running(lost)) > 0 }) {
			for _, pid := range relays(id) {
				kill(t, pid)
			}
		}
	}()
	var r harness.Result
	alone(t, func() {
		argv, env := a.command(t, id, repo, serve(t, m), giveUp)
		cmd := id.Command(ctx, repo, argv[0], argv[1:]...)
		cmd.Env = append(cmd.Env, env...)
		r = harness.Run(t, cmd)
	})
	if ctx.Err() != nil {
		t.Fatalf("the client did not end: %v", r)
	}
	got := m.Results()
	if len(got) != len(a.own)+12 || len(m.Odd()) > 0 {
		for _, q := range m.Requests() {
			t.Logf("step %d, offered %q: called %q, said %q", q.Step, q.Offered, q.Tool, q.Text)
		}
		t.Fatalf("%d tool results, odd requests %q; %v\nresults: %q", len(got), m.Odd(), r, got)
	}
	if made, _ := filepath.Glob(filepath.Join(repo, "builtin*")); len(made) > 0 {
		t.Errorf("a tool of the client's own worked on the host: %q", got[:len(a.own)])
	}
	got = got[len(a.own):]
	// The host's kernel may have told how the command ended; if not, nobody knows.
	for i, want := range []string{"ignored, not yours to give: backend|must NOT have additional properties|\"refused\":[\"backend\"]", "echo $(($1 - $2))", "FAILED: -1", "edited|replacements", "PASSED", "refused", "refused", "exit 0|\"exit\":0", "", "", "outcome unknown|ended by signal 9|\"signal\":9", ""} {
		if !slices.ContainsFunc(strings.Split(want, "|"), func(w string) bool { return strings.Contains(got[i], w) }) {
			t.Errorf("call %d: no %q in %q", i, want, got[i])
		}
	}
	for _, q := range m.Requests() {
		if slices.Contains(q.Offered, a.builtin) {
			t.Errorf("the client offers its own shell: %q", q.Offered)
			break
		}
	}
	boundary(t, id, got[9])
	if strings.Contains(strings.Join(got, "\n"), canary) {
		t.Error("the client's key is inside")
	}
	if strings.Contains(got[11], "exit 0") || strings.Contains(got[11], `"exit":0`) {
		t.Errorf("a call after the worker was lost: %q", got[11])
	}
	if n := len(running(lost)); n != 0 {
		t.Errorf("%d processes of the lost call are there", n)
	}

	// The host's checkout is as it was; the result comes when a person takes it.
	harness.Same(t, "checkout", harness.Files(t, repo), before)
	var list struct {
		Tasks []struct{ ID, State string }
	}
	if err := json.Unmarshal([]byte(id.OK(t, repo, "ls", "--all", "--json")), &list); err != nil || len(list.Tasks) != 1 {
		t.Fatalf("tasks: %v, %v", list, err)
	}
	task := list.Tasks[0]
	diff := id.OK(t, repo, "diff", task.ID)
	// The worker may be lost before the command wrote; twice it never writes.
	if !strings.Contains(diff, "+echo $(($1 + $2))") || strings.Contains(diff, "+after") || strings.Count(diff, "\n+x") > 1 ||
		strings.Contains(diff, "denied.txt") || strings.Contains(diff, "asked.txt") || !strings.Contains(diff, "allowed.txt") {
		t.Errorf("task %s (%s): %s", task.ID, task.State, diff)
	}
	id.OK(t, repo, "apply", task.ID)
	if text, _ := os.ReadFile(filepath.Join(repo, "add.sh")); string(text) != "echo $(($1 + $2))\n" {
		t.Errorf("applied: %q", text)
	}
}

// boundary checks what a command told of where it ran: another user, host name and
// pid namespace than outside, and nothing of the client's environment.
func boundary(t *testing.T, id *harness.Identity, text string) {
	t.Helper()
	// Codex gives its model the structured answer alone.
	if _, raw, ok := strings.Cut(text, "Output:\n"); ok {
		var a struct {
			Claimed struct{ Result struct{ Stdout string } }
		}
		if json.Unmarshal([]byte(raw), &a) == nil {
			text = a.Claimed.Result.Stdout
		}
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines { // a client may put a line of its own before the output
		if _, err := strconv.Atoi(l); err == nil {
			lines = lines[i:]
			break
		}
	}
	if len(lines) < 3 {
		t.Fatalf("the command told %q", text)
	}
	own, _ := os.Readlink("/proc/self/ns/pid")
	host, _ := os.Hostname()
	if lines[0] == "0" || lines[1] == host || lines[2] == own || !strings.HasPrefix(lines[2], "pid:[") {
		t.Errorf("it ran as uid %s on %s in %s; outside is %s in %s", lines[0], lines[1], lines[2], host, own)
	}
	for _, name := range []string{"GEMINI_API_KEY", "FAKE_KEY", "GIT_CONFIG_COUNT", "BASH_ENV", "NODE_OPTIONS", canary} {
		if strings.Contains(text, name) {
			t.Errorf("%s is inside", name)
		}
	}
	if !strings.Contains(text, "CAISSON_TASK="+lines[1]) {
		t.Errorf("no task's environment: %q", text)
	}
}

// digits is what of a word is a number.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, s)
}

// stray are variables that a client may hand to its server and that must not
// reach anything inside.
var stray = []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.fsmonitor", "GIT_CONFIG_VALUE_0=touch " + canary, "BASH_ENV=/tmp/" + canary}

var gemini = agent{
	builtin: "run_shell_command",
	own: []model.Step{
		{Unoffered: "run_shell_command", Args: map[string]any{"command": "touch builtin", "description": "x"}},
		{Tool: "write_file", Unoffered: "write_file", Args: map[string]any{"file_path": "builtin.txt", "content": "x"}},
	},
	prefix: "mcp_caisson_",
	command: func(t *testing.T, id *harness.Identity, repo, base string, timeout int) (argv, env []string) {
		settings, _ := json.Marshal(map[string]any{
			"security":   map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}, "folderTrust": map[string]any{"enabled": false}},
			"privacy":    map[string]any{"usageStatisticsEnabled": false},
			"general":    map[string]any{"enableAutoUpdate": false},
			"mcpServers": map[string]any{"caisson": map[string]any{"command": harness.Bin(), "args": serverArgs, "trust": true, "timeout": timeout * 1000, "env": serverEnv(id)}},
		})
		write(t, id, "home/.gemini/settings.json", string(settings))
		policy := write(t, id, "policy.toml", documented(t, "toml", "[[rule]]"))
		node, err := exec.LookPath("node")
		if err != nil {
			t.Fatal(err)
		}
		return []string{node, filepath.Join(installed(t, "gemini"), "@google/gemini-cli/bundle/gemini.js"), "-m", "gemini-2.5-flash", "-p", "do it",
				"--output-format", "stream-json", "--approval-mode", "yolo", "--policy", policy},
			append([]string{"GEMINI_API_KEY=" + canary, "GOOGLE_GEMINI_BASE_URL=" + base, "TMPDIR=" + id.Tmp}, stray...)
	},
}

var codex = agent{
	builtin: "exec_command",
	own:     []model.Step{{Unoffered: "exec_command", Args: map[string]any{"cmd": "touch builtin"}}},
	prefix:  "mcp__caisson__",
	command: func(t *testing.T, id *harness.Identity, repo, base string, timeout int) (argv, env []string) {
		config := `model = "fake-model"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
web_search = "disabled"
[analytics]
enabled = false
[features]
plugins = false
apps = false
remote_plugin = false
plugin_sharing = false
shell_tool = false
unified_exec = false
multi_agent = false
goals = false
[model_providers.fake]
name = "fake"
base_url = "` + base + `/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
request_max_retries = 0
stream_max_retries = 0
[mcp_servers.caisson]
command = "` + harness.Bin() + `"
args = ["` + strings.Join(serverArgs, `", "`) + `"]
tool_timeout_sec = ` + strconv.Itoa(timeout) + `
startup_timeout_sec = 120
required = true
[mcp_servers.caisson.env]
`
		for k, v := range serverEnv(id) {
			config += k + " = " + strconv.Quote(v) + "\n"
		}
		write(t, id, "home/.codex/config.toml", config)
		return []string{filepath.Join(installed(t, "codex"), "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"), "exec", "--skip-git-repo-check", "--json", "do it"},
			append([]string{"FAKE_KEY=" + canary, "TMPDIR=" + id.Tmp}, stray...)
	},
}

// serverArgs starts the server, with two rules about commands.
var serverArgs = []string{"mcp", "--deny", "shell:*never*", "--ask", "shell:*maybe*"}

// answer waits for the one question there is and answers it as a person would.
func answer(ctx context.Context, t *testing.T, id *harness.Identity, verb string) {
	caisson := func(args ...string) ([]byte, error) { return id.Command(ctx, id.Dir, harness.Bin(), args...).Output() }
	var list struct{ Questions []struct{ ID string } }
	until(ctx, func() bool {
		out, err := caisson("approve", "--json")
		return err == nil && json.Unmarshal(out, &list) == nil && len(list.Questions) == 1
	})
	if len(list.Questions) == 1 {
		if _, err := caisson(verb, list.Questions[0].ID); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// serverEnv is what a client must be told to hand on for the server to find the
// test's own folders.
func serverEnv(id *harness.Identity) map[string]string {
	env := map[string]string{}
	for _, kv := range id.Env {
		if k, v, _ := strings.Cut(kv, "="); strings.HasPrefix(k, "CAISSON_") || strings.HasPrefix(k, "XDG_") {
			env[k] = v
		}
	}
	return env
}

// documented is the block of docs/mcp.md in a language that has a text in it: what
// is documented is what is tested.
func documented(t *testing.T, lang, part string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(doc), "```"+lang+"\n")[1:] {
		if block, _, _ = strings.Cut(block, "```"); strings.Contains(block, part) {
			return block
		}
	}
	t.Fatalf("docs/mcp.md has no %s with %q", lang, part)
	return ""
}
