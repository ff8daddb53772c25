//go:build linux

package policy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 4 && os.Args[1] == besideArg {
		fmt.Fprintln(os.Stderr, besideOperator(os.Args[2:]))
		os.Exit(111)
	}
	os.Exit(harness.Main(m))
}

// place is a repository of somebody, with a canary beside it: a file that
// appears when a command of the repository runs outside of every boundary.
type place struct {
	*harness.Identity
	t            *testing.T
	repo, canary string
	tasks        int    // there were when it was made
	first        string // commit, where a test goes back to it
	etc          string // a folder that is /etc for its commands; empty: the machine's own
}

func newPlace(t *testing.T, id *harness.Identity, files map[string]string) *place {
	t.Helper()
	p := &place{Identity: id, t: t, canary: id.Tmp + "/ran"}
	// What is missing here must not be given by another backend.
	id.Env = append(id.Env, "CAISSON_RUNSC=/nonexistent/runsc")
	all := map[string]string{"canary.sh": "echo ran >>ran\necho ran >>" + p.canary + "\n"}
	for n, text := range files {
		all[n] = text
	}
	p.repo = id.Repo(t, all)
	es, _ := os.ReadDir(id.State + "/tasks")
	p.tasks = len(es)
	return p
}

// commit writes a file and commits it.
func (p *place) commit(name, text string) {
	p.t.Helper()
	p.Write(p.t, p.repo+"/"+name, text, 0o644)
	p.Git(p.t, p.repo, "add", "-A")
	p.Git(p.t, p.repo, "commit", "-q", "-m", name)
}

// userPolicy writes the user's own policy file; an empty text takes it away.
func (p *place) userPolicy(text string) {
	p.t.Helper()
	name := p.Home + "/.config/caisson/policy.yaml"
	if text == "" {
		_ = os.Remove(name)
		return
	}
	p.Write(p.t, name, text, 0o600)
}

func (p *place) run(args ...string) harness.Result {
	p.t.Helper()
	if p.etc == "" {
		return p.Caisson(p.t, p.repo, args...)
	}
	return harness.Run(p.t, p.cmd(args...))
}

// with is run with additional environment.
func (p *place) with(env []string, args ...string) harness.Result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	cmd := p.Command(ctx, p.repo, harness.Bin(), args...)
	cmd.Env = append(cmd.Env, env...)
	return harness.Run(p.t, cmd)
}

// atTerminal runs the program on a terminal; it returns its status.
func (p *place) atTerminal(args ...string) int {
	p.t.Helper()
	return harness.OnTerminal(p.t, p.Command(p.t.Context(), p.repo, harness.Bin(), args...), p.UID).Wait()
}

// plan is what these tests read of a plan.
type plan struct {
	Schema, Report, Digest string
	Rows                   []string
	Levels                 []struct {
		Axis               string
		Required, Promised int
	}
	Limits     task.Limits
	Facts      []fact
	Missing    []missing
	Grants     []struct{ Kind, Value string }
	Notes      []string
	Considered []struct {
		Backend string
		Chosen  bool
		Why     string
	}
}

type missing struct {
	Axis                string
	Required, Effective int
	Options             []string
	Acceptable          []string `json:"acceptable_by"`
}

type fact struct {
	What    string `json:"characteristic"`
	Value   string
	Source  string
	Rule    string
	Subject string
}

func (p *plan) required(axis string) int {
	for _, l := range p.Levels {
		if l.Axis == axis {
			return l.Required
		}
	}
	return -2
}

func (p *plan) has(what, value string) bool {
	for _, f := range p.Facts {
		if f.What == what && f.Value == value {
			return true
		}
	}
	return false
}

// planned is the plan of a command, which may lack something.
func (p *place) planned(args ...string) *plan {
	p.t.Helper()
	r := p.run(append([]string{"plan", "--json"}, args...)...)
	if r.Exit != 0 && r.Exit != 3 {
		p.t.Fatal(r)
	}
	var out plan
	if err := json.Unmarshal([]byte(r.Stdout), &out); err != nil {
		p.t.Fatalf("%v: %v", err, r)
	}
	return &out
}

// quiet fails when anything was made or anything ran.
func (p *place) quiet(where string) {
	p.t.Helper()
	for _, f := range []string{p.canary, p.repo + "/ran"} {
		if _, err := os.Lstat(f); err == nil {
			p.t.Errorf("%s: a command ran on the host: %s", where, f)
		}
	}
	if es, _ := os.ReadDir(p.State + "/tasks"); len(es) > p.tasks {
		p.t.Errorf("%s: %d tasks were made", where, len(es)-p.tasks)
	}
	for _, left := range p.Left() {
		p.t.Errorf("%s: made: %s", where, left)
	}
}

// decisions are the types of what is on record beside the tasks.
func (p *place) decisions() (types []string, text string) {
	b, _ := os.ReadFile(p.State + "/decisions/events.jsonl")
	for _, l := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		var e struct{ Type string }
		if json.Unmarshal([]byte(l), &e) == nil && e.Type != "" {
			types = append(types, e.Type)
		}
	}
	return types, string(b)
}

// mcp is an MCP server of the program on pipes.
type mcp struct {
	p     *place
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	calls int
}

func startMCP(p *place, flags ...string) *mcp {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	m := &mcp{p: p, cmd: p.Command(ctx, p.repo, harness.Bin(), append([]string{"mcp"}, flags...)...)}
	in, err := m.cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err == nil {
		err = m.cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	m.in, m.out = in, bufio.NewReader(out)
	p.t.Cleanup(func() { cancel(); _ = m.cmd.Wait() })
	m.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	m.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return m
}

func (m *mcp) say(line string) {
	m.p.t.Helper()
	if _, err := io.WriteString(m.in, line+"\n"); err != nil {
		m.p.t.Fatal(err)
	}
}

// ask waits for the answer to a request.
func (m *mcp) ask(method, params string) string {
	m.p.t.Helper()
	m.calls++
	m.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, m.calls, method, params))
	for {
		line, err := m.out.ReadString('\n')
		if err != nil {
			m.p.t.Fatalf("%s: %v", method, err)
		}
		var a struct{ ID int }
		if json.Unmarshal([]byte(line), &a) == nil && a.ID == m.calls {
			return line
		}
	}
}

func (m *mcp) call(tool, args string) string {
	m.p.t.Helper()
	return m.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
}

// end closes the server's input and waits until it has ended.
func (m *mcp) end() {
	m.p.t.Helper()
	m.in.Close()
	_, _ = io.Copy(io.Discard, m.out)
	if err := m.cmd.Wait(); err != nil {
		m.p.t.Error(err)
	}
}

// found is the first group of a pattern in a text.
func found(t *testing.T, text, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %s in %s", pattern, text)
	}
	return m[1]
}
