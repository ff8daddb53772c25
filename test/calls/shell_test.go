//go:build linux

package calls

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/test/harness"
)

// caller makes tool calls in one task.
type caller struct {
	*harness.Identity
	t    *testing.T
	repo string
	task string
}

func newCaller(t *testing.T, id *harness.Identity, flags ...string) *caller {
	t.Helper()
	repo := id.Repo(t, map[string]string{"a.txt": "a\n", "d/b.txt": "b\n"})
	return &caller{id, t, repo, id.Open(t, repo, flags...)}
}

// call makes one call and returns everything that is known about it, and the
// result.
func call[R any](c *caller, tool string, args any) (*task.ToolResult, *R) {
	c.t.Helper()
	res, r := try(c, tool, args)
	if res == nil {
		c.t.Fatal(r)
	}
	if res.Claimed.Failure != nil {
		c.t.Fatalf("%s %v: %+v", tool, args, *res.Claimed.Failure)
	}
	out := harness.Decode[R](c.t, string(res.Claimed.Result))
	return res, &out
}

// try makes one call that may fail; without a result it returns what was said.
func try(c *caller, tool string, args any) (*task.ToolResult, harness.Result) {
	c.t.Helper()
	text, ok := args.(string)
	if !ok {
		b, err := json.Marshal(args)
		if err != nil {
			c.t.Fatal(err)
		}
		text = string(b)
	}
	r := c.Caisson(c.t, c.repo, "tool", "--json", c.task, tool, text)
	if !strings.Contains(r.Stdout, `"caisson.tool/1"`) {
		return nil, r
	}
	res := harness.Decode[task.ToolResult](c.t, r.Stdout)
	return &res, r
}

func sh(c *caller, args contract.ShellArgs) (*task.ToolResult, *contract.ShellResult) {
	c.t.Helper()
	return call[contract.ShellResult](c, contract.Shell, args)
}

// TestShell runs commands in every way that the contract has.
func TestShell(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id)

		res, r := sh(c, contract.ShellArgs{Command: "cat a.txt; echo err >&2; exit 3"})
		if r.Stdout != "a\n" || r.Stderr != "err\n" || r.State != "exited" || r.Exit == nil || *r.Exit != 3 {
			t.Errorf("script: %+v", r)
		}
		// The exit is the kernel's word where the kernel gives it, else a claim;
		// never both.
		if o, cl := res.Observed.Exit, res.Claimed.Exit; (o == nil) == (cl == nil) || o != nil && *o != 3 || cl != nil && *cl != 3 {
			t.Errorf("exit: observed %v, claimed %v", o, cl)
		}
		if res.Observed.StdoutBytes != 2 || res.Observed.StderrBytes != 4 || res.Verdict != task.VerdictAllow || res.Digest == "" || res.Observed.Duration <= 0 {
			t.Errorf("result: %+v", res)
		}
		if _, r = sh(c, contract.ShellArgs{Argv: []string{"printf", "%s|", "a b", "$HOME", "*"}, Dir: "d"}); r.Stdout != "a b|$HOME|*|" {
			t.Errorf("argv: %+v", r)
		}
		if _, r = sh(c, contract.ShellArgs{Command: "pwd; cat; echo ${#X}", Dir: "d", Stdin: "in\n", Env: map[string]string{"X": "y z"}}); r.Stdout != filepath.Join(c.repo, "d")+"\nin\n3\n" {
			t.Errorf("cwd, stdin, env: %+v", r)
		}
		if _, r = sh(c, contract.ShellArgs{Command: "cat; test ! -t 1 && echo no terminal"}); r.Stdout != "no terminal\n" {
			t.Errorf("no input: %+v", r)
		}
		if _, r = sh(c, contract.ShellArgs{Command: "test -t 0 && test -t 1 && read x && echo got $x", Stdin: "word\n", PTY: true}); !strings.Contains(r.Stdout, "got word") {
			t.Errorf("terminal: %+v", r)
		}
		res, r = sh(c, contract.ShellArgs{Command: "echo a; sleep 1000", TimeoutMS: 300})
		if r.State != "timeout" || r.Stdout != "a\n" || !strings.Contains(res.Observed.Reason, "timeout") {
			t.Errorf("timeout: %+v, %+v", r, res.Observed)
		}
		// What a command leaves behind does not hold the answer up, and lives on.
		if _, r = sh(c, contract.ShellArgs{Command: "(sleep 1; echo late >later.txt; sleep 1000) & echo started"}); r.Stdout != "started\n" || r.State != "exited" {
			t.Errorf("left behind: %+v", r)
		}
		if _, r = sh(c, contract.ShellArgs{Command: "until test -s later.txt; do sleep 0.1; done; cat later.txt"}); r.Stdout != "late\n" {
			t.Errorf("what was left behind: %+v", r)
		}
		// caisson's own variables are not the model's to set, and that is on record.
		if res, r = sh(c, contract.ShellArgs{Command: "echo $HOME", Env: map[string]string{"HOME": "/x"}}); r.Stdout != id.Home+"\n" || len(res.Refused) != 1 || res.Refused[0] != "env.HOME" {
			t.Errorf("HOME: %+v %v", r, res.Refused)
		}
		if res, _ = try(c, contract.Shell, `{"command":"true","backend":"host","dangerouslyDisableSandbox":true}`); len(res.Refused) != 2 {
			t.Errorf("arguments that are not the model's: %v", res.Refused)
		}
		if res, _ = try(c, contract.Shell, contract.ShellArgs{Argv: []string{"no-such-program"}}); res == nil || res.Claimed.Failure == nil || res.Claimed.Failure.Code != "not_found" {
			t.Errorf("no such program: %+v", res)
		}
		if res, _ = try(c, contract.Shell, contract.ShellArgs{Command: "true", Dir: "nowhere"}); res == nil || res.Claimed.Failure == nil || res.Claimed.Failure.Code != "not_found" {
			t.Errorf("no such folder: %+v", res)
		}
		for _, bad := range []string{`{}`, `{"command":""}`, `{"command":"a","argv":["b"]}`, `[]`, `{"command":1}`, `{"command":"a","command":"b"}`, `{"command":"true","timeout_ms":-1}`,
			`{"command":"true","env":{"A=B":"c"}}`} {
			if _, r := try(c, contract.Shell, bad); r.Exit != 2 {
				t.Errorf("%s: %v", bad, r)
			}
		}
		if _, r := try(c, "no_tool", `{}`); r.Exit != 1 || !strings.Contains(r.Stderr, "no_tool") {
			t.Errorf("no such tool: %v", r)
		}
		if _, r := try(c, contract.InstallDependencies, `{}`); r.Exit == 0 || !strings.Contains(r.Stderr, "--phase install") {
			t.Errorf("install_dependencies: %v", r)
		}
		log := id.OK(t, c.repo, "log", c.task, "--json")
		if n, m := strings.Count(log, `"type":"tool.intent"`), strings.Count(log, `"type":"tool.outcome"`); n != m || n < 10 {
			t.Errorf("%d intents, %d outcomes", n, m)
		}
		if strings.Contains(log, "y z") {
			t.Error("the value of a variable is on record")
		}
	})
}

// TestLongOutput keeps the beginning and the end, and all of it in a file of
// the output store that goes with the task.
func TestLongOutput(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "long", os.Getuid())
	c := newCaller(t, id)
	res, r := sh(c, contract.ShellArgs{Command: "echo first; seq 1 200000; echo äöü | tr -d '\\n'; yes äöü | head -n 1000; echo last"})
	if !r.Truncated || r.Output == "" || !strings.HasPrefix(r.Stdout, "first\n1\n") || !strings.HasSuffix(r.Stdout, "last\n") || len(r.Stdout) > 70<<10 {
		t.Errorf("%d bytes, %q…%q, file %q", len(r.Stdout), r.Stdout[:20], r.Stdout[len(r.Stdout)-20:], r.Output)
	}
	if _, w := sh(c, contract.ShellArgs{Command: "wc -c <" + r.Output}); strings.TrimSpace(w.Stdout) != fmt.Sprint(res.Observed.StdoutBytes) {
		t.Errorf("the file has %s bytes of %d", w.Stdout, res.Observed.StdoutBytes)
	}
	// Bytes that are no text do not break the answer.
	if _, r = sh(c, contract.ShellArgs{Command: "head -c 300000 /dev/urandom"}); !r.Truncated {
		t.Errorf("binary: %+v", r)
	}
	id.OK(t, c.repo, "close", c.task)
	if out := id.OK(t, c.repo, "show", c.task, "--json"); !strings.Contains(out, `"state": "closed"`) {
		t.Errorf("files of caisson's own kept the task: %s", out)
	}
}

// TestSpillPlanted puts links where the file with the output would be made: it
// is never written through one.
func TestSpillPlanted(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "planted", os.Getuid())
	c := newCaller(t, id)
	victim := filepath.Join(id.Tmp, "victim")
	id.Write(t, victim, "mine\n", 0o666)
	// The store itself cannot be made a link; a file in it can, but its name is
	// not known before, and a file that is there is not taken.
	_, r := sh(c, contract.ShellArgs{Command: "cd /run/boundary; mv out x; rm -rf out; ln -s " + victim + " out; ls -ld out"})
	if strings.Contains(r.Stdout, "->") {
		t.Errorf("the output store was replaced: %+v", r)
	}
	sh(c, contract.ShellArgs{Command: "seq 1 100000"})
	if b, _ := os.ReadFile(victim); string(b) != "mine\n" {
		t.Errorf("a file of the host: %q", b)
	}
}

// TestManyCalls has 64 calls run side by side, each with its own answer.
func TestManyCalls(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "many", os.Getuid())
	c := newCaller(t, id, "--pids", "2000")
	h := drives(t, id, c.repo)
	defer h.end()
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			res, err := h.call(contract.Shell, contract.ShellArgs{Command: fmt.Sprintf("for i in 1 2 3; do echo %d; done; exit %d", i, i)})
			if err != "" || res == nil {
				t.Errorf("call %d: %v", i, err)
				return
			}
			var r contract.ShellResult
			if json.Unmarshal(res.Claimed.Result, &r) != nil || r.Stdout != strings.Repeat(fmt.Sprintln(i), 3) || r.Exit == nil || *r.Exit != i {
				t.Errorf("call %d: %+v", i, r)
			}
		})
	}
	wg.Wait()
}
