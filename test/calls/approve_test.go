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
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
	"github.com/caisson-dev/caisson/test/harness"
)

// pending is a call that waits for a person.
type pending struct {
	c    *caller
	q    task.Question
	done chan harness.Result
}

// asks makes a call and returns once its question is there.
func asks(c *caller, tool string, args any) *pending {
	c.t.Helper()
	text, ok := args.(string)
	if !ok {
		b, _ := json.Marshal(args)
		text = string(b)
	}
	before := map[string]bool{}
	for _, q := range questions(c) {
		before[q.ID] = true
	}
	p := &pending{c: c, done: make(chan harness.Result, 1)}
	go func() { p.done <- c.Caisson(c.t, c.repo, "tool", "--json", c.task, tool, text) }()
	for {
		for _, q := range questions(c) {
			if !before[q.ID] {
				p.q = q
				return p
			}
		}
		select {
		case r := <-p.done:
			c.t.Fatalf("%s %s: it was not asked about: %v", tool, text, r)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func questions(c *caller) []task.Question {
	c.t.Helper()
	l := harness.Decode[struct{ Questions []task.Question }](c.t, c.OK(c.t, c.repo, "approve", "--json"))
	return l.Questions
}

// approve allows it and returns how the call ended.
func (p *pending) approve(flags ...string) harness.Result {
	p.c.t.Helper()
	p.c.OK(p.c.t, p.c.repo, append([]string{"approve", p.q.ID}, flags...)...)
	return <-p.done
}

// is holds how a call ended against what is expected: "" is that it was made.
func (p *pending) is(name string, r harness.Result, want string) {
	p.c.t.Helper()
	if want == "" {
		if r.Exit != 0 {
			p.c.t.Errorf("%s: %v", name, r)
		}
		return
	}
	if r.Exit != 4 || !strings.Contains(r.Stdout, want) {
		p.c.t.Errorf("%s: want %q: %v", name, want, r)
	}
}

// TestApprove answers questions in every way.
func TestApprove(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		c := newCaller(t, id, "--ask", "shell:*danger*", "--ask", "shell_kill")

		// What no rule is about is not asked about.
		sh(c, contract.ShellArgs{Command: "true"})

		p := asks(c, contract.Shell, contract.ShellArgs{Command: "echo danger\x1b[8m >made; cat a.txt", Dir: "d"})
		q := p.q
		if q.Tool != "shell" || q.Dir != c.repo+"/d" || q.Script != `echo danger\x1b[8m >made; cat a.txt` || len(q.Argv) != 3 || q.Tree == "" || q.Plan == "" || q.Digest == "" || q.Task != task.ID(c.task) ||
			!strings.Contains(q.Rule, "danger") || time.Until(q.Expires) > 10*time.Minute {
			t.Errorf("question: %+v", q)
		}
		if out := id.OK(t, c.repo, "approve"); !strings.Contains(out, q.ID) || !strings.Contains(out, `danger\x1b[8m`) || strings.ContainsRune(out, 0x1b) {
			t.Errorf("shown: %q", out)
		}
		if _, err := os.Stat(filepath.Join(id.State, "tasks", c.task, "source/d/made")); err == nil {
			t.Error("it ran before anybody answered")
		}
		r := p.approve()
		p.is("allowed", r, "")
		if res := harness.Decode[task.ToolResult](t, r.Stdout); res.Verdict != task.VerdictAsk || res.Approval != q.ID {
			t.Errorf("%+v", res)
		}
		// A second time it is asked again: the answer was for one call.
		p = asks(c, contract.Shell, contract.ShellArgs{Command: "echo danger"})
		id.OK(t, c.repo, "deny", p.q.ID, "--reason", "not today")
		p.is("denied", <-p.done, "not today")
		// An answer to what is answered, or never was, is an error.
		for _, bad := range []string{p.q.ID, c.task + ".zzzzzz", "nonsense"} {
			if r := id.Caisson(t, c.repo, "approve", bad); r.Exit == 0 {
				t.Errorf("approve %s: %v", bad, r)
			}
		}
		// Scopes.
		p = asks(c, contract.Shell, contract.ShellArgs{Command: "echo danger 2"})
		p.is("exact", p.approve("--scope", "exact"), "")
		sh(c, contract.ShellArgs{Command: "echo danger 2"})
		p = asks(c, contract.Shell, contract.ShellArgs{Command: "echo danger 3"})
		p.is("tool", p.approve("--scope", "tool"), "")
		sh(c, contract.ShellArgs{Command: "echo danger 4"})
		if r := id.Caisson(t, c.repo, "approve", "x", "--scope", "always"); r.Exit == 0 {
			t.Errorf("a scope that is none: %v", r)
		}
		log := id.OK(t, c.repo, "log", c.task, "--json")
		for typ, want := range map[string]int{"approval.asked": 4, "approval.answered": 4, "approval.used": 5, "tool.refused": 1} {
			if n := strings.Count(log, `"type":"`+typ+`"`); n != want {
				t.Errorf("%d events %s, want %d", n, typ, want)
			}
		}
		id.OK(t, c.repo, "log", c.task)
		if out := id.OK(t, c.repo, "show", c.task); !strings.Contains(out, "--ask shell:*danger*") {
			t.Errorf("show: %s", out)
		}
	})
}

// TestNobodyAnswers ends with a denial: in time, at once where nobody is there,
// and when the caller goes away.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "nobody", os.Getuid())
	c := newCaller(t, id, "--ask", "*", "--ask-timeout", "300ms")
	if r := id.Caisson(t, c.repo, "tool", c.task, "shell", `{"command":"touch made"}`); r.Exit != 4 || !strings.Contains(r.Stderr, "nobody answered") {
		t.Errorf("%v", r)
	}
	u := newCaller(t, id, "--ask", "*", "--unattended")
	if r := id.Caisson(t, u.repo, "tool", u.task, "shell", `{"command":"touch made"}`); r.Exit != 4 || !strings.Contains(r.Stderr, "nobody is there") {
		t.Errorf("%v", r)
	}
	for _, x := range []*caller{c, u} {
		if _, err := os.Stat(filepath.Join(id.State, "tasks", x.task, "source/made")); err == nil {
			t.Error("it was made all the same")
		}
	}
	// The caller goes away: an answer then is void.
	w := newCaller(t, id, "--ask", "*")
	cmd := id.Command(t.Context(), w.repo, harness.Bin(), "tool", w.task, "shell", `{"command":"touch made"}`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var qs []task.Question
	for len(qs) == 0 {
		qs = questions(w)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for len(questions(w)) > 0 {
	}
	if r := id.Caisson(t, w.repo, "approve", qs[0].ID); r.Exit == 0 {
		t.Errorf("an answer that outlived its call: %v", r)
	}
	if _, err := os.Stat(filepath.Join(id.State, "tasks", w.task, "source/made")); err == nil {
		t.Error("it was made all the same")
	}
	if log := id.OK(t, w.repo, "log", w.task, "--json"); !strings.Contains(log, "approval.void") {
		t.Error("that it is void is not on record")
	}
}

// TestRules denies and asks by what a call names, also by another name of it.
func TestRules(t *testing.T) {
	t.Parallel()
	id := harness.NewIdentity(t, "rules", os.Getuid())
	c := newCaller(t, id, "--deny", "read_file:d/*", "--deny", "shell_input")
	for name, denied := range map[string]bool{
		`{"path":"a.txt"}`: false, `{"path":"d/b.txt"}`: true, `{"path":"./d/../d//b.txt"}`: true, fmt.Sprintf(`{"path":%q}`, c.repo+"/d/b.txt"): true, `{"path":"../` + filepath.Base(c.repo) + `/d/b.txt"}`: true,
	} {
		if r := id.Caisson(t, c.repo, "tool", c.task, "read_file", name); (r.Exit == 4) != denied {
			t.Errorf("%s: %v", name, r)
		}
	}
	// By a link, which the task can make at any time: whatever it leads to.
	sh(c, contract.ShellArgs{Command: "ln -s d l; ln -s d/b.txt f"})
	for _, name := range []string{`{"path":"l/b.txt"}`, `{"path":"f"}`} {
		if r := id.Caisson(t, c.repo, "tool", c.task, "read_file", name); r.Exit != 4 {
			t.Errorf("%s: %v", name, r)
		}
	}
	for _, bad := range [][]string{{"--deny", "shel"}, {"--ask", ""}, {"--ask", "shell:"}, {"--approve-hook", "/nonexistent"}, {"--ask-timeout", "5"}} {
		if r := id.Caisson(t, c.repo, append([]string{"plan"}, bad...)...); r.Exit != 2 {
			t.Errorf("%v: %v", bad, r)
		}
	}
	// A task that is resumed keeps its rules.
	if r := id.Caisson(t, c.repo, "close", "--keep", "always", c.task); !strings.Contains(r.Stdout, "kept") {
		t.Fatal(r)
	}
	id.OK(t, c.repo, "resume", c.task)
	if r := id.Caisson(t, c.repo, "tool", c.task, "read_file", `{"path":"d/b.txt"}`); r.Exit != 4 {
		t.Errorf("after a resume: %v", r)
	}
}

// TestChangedAfterApproval exchanges what a call is about between question and
// answer. The control is the same call with nothing exchanged.
func TestChangedAfterApproval(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		for _, frozen := range []bool{false, true} {
			flags := []string{"--ask", "shell:sh script.sh*"}
			if frozen {
				flags = append(flags, "--frozen")
			}
			c := newCaller(t, id, flags...)
			for name, m := range map[string]struct {
				change string
				want   bool // of a frozen task; the other may
				always bool
			}{
				"nothing":         {"true", false, false},
				"content":         {"echo 'echo evil' >script.sh", true, true},
				"link":            {"echo 'echo evil' >evil; rm script.sh; ln -s evil script.sh", true, true},
				"hard link":       {"echo 'echo evil' >evil; rm -f script.sh; ln evil script.sh", true, true},
				"same content":    {"cp script.sh copy; mv copy script.sh", true, true},
				"mode":            {"chmod +x script.sh", true, true},
				"gone":            {"rm script.sh", true, true},
				"a file it reads": {"echo evil >>a.txt", true, false},
			} {
				if frozen && m.always && name != "content" {
					continue // the same look as without
				}
				sh(c, contract.ShellArgs{Command: "rm -rf script.sh evil copy; git checkout -q a.txt; printf 'cat a.txt\n' >script.sh; chmod 644 script.sh"})
				p := asks(c, contract.Shell, contract.ShellArgs{Argv: []string{"sh", "script.sh"}})
				sh(c, contract.ShellArgs{Command: m.change})
				want := ""
				if m.always || frozen && m.want {
					want = "was changed since"
					if m.change == "rm script.sh" {
						want = "what was allowed is not"
					}
					if name == "a file it reads" {
						want = "--frozen"
					}
				}
				p.is(fmt.Sprintf("%s, frozen %v", name, frozen), p.approve(), want)
			}
			// A grant for the very same call does not cover other files.
			sh(c, contract.ShellArgs{Command: "rm -rf script.sh; git checkout -q a.txt; printf 'echo one\n' >script.sh"})
			p := asks(c, contract.Shell, contract.ShellArgs{Argv: []string{"sh", "script.sh"}})
			p.is("exact", p.approve("--scope", "exact"), "")
			sh(c, contract.ShellArgs{Argv: []string{"sh", "script.sh"}})
			sh(c, contract.ShellArgs{Command: "printf 'echo two\n' >script.sh"})
			p = asks(c, contract.Shell, contract.ShellArgs{Argv: []string{"sh", "script.sh"}})
			id.OK(t, c.repo, "deny", p.q.ID)
			p.is("other files", <-p.done, "denied")
		}
	})
}

// TestFrozen has a program that an earlier call left running wait for the
// command that a person agreed to, and exchange a file under it. The control is
// the same without --frozen.
func TestFrozen(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		for _, frozen := range []bool{false, true} {
			flags := []string{"--ask", "shell:sh script.sh*"}
			if frozen {
				flags = append(flags, "--frozen")
			}
			c := newCaller(t, id, flags...)
			// It is there only once the command has begun: no look before that can
			// find anything. Ignored files stand in for any other way to see each other.
			id.OK(t, c.repo, "exec", c.task, "sh", "-c", `printf '/seen\n/begun\n/swapped\n' >.gitignore
printf 'echo >begun; i=0; while [ ! -e swapped ] && [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done; cat data\n' >script.sh
echo good >data
cat >attack.sh <<-'END'
	trap '' HUP TERM
	echo >seen
	while [ ! -e begun ]; do sleep 0.01; done
	echo evil >new; mv new data; echo >swapped
END
setsid -f sh attack.sh </dev/null >/dev/null 2>&1; while [ ! -e seen ]; do sleep 0.01; done`)
			p := asks(c, contract.Shell, contract.ShellArgs{Argv: []string{"sh", "script.sh"}})
			r := p.approve()
			p.is("it runs", r, "")
			want := "evil\n"
			if frozen {
				want = "good\n"
			}
			res := harness.Decode[task.ToolResult](t, r.Stdout)
			if got := harness.Decode[contract.ShellResult](t, string(res.Claimed.Result)); got.Stdout != want {
				t.Errorf("frozen %v: the command read %q, want %q", frozen, got.Stdout, want)
			}
			if !frozen {
				continue
			}

			// What cannot be exact is refused, and everything else waits its turn.
			_, s := sh(c, contract.ShellArgs{Command: "sleep 1000", Background: true})
			p = asks(c, contract.Shell, contract.ShellArgs{Argv: []string{"sh", "script.sh"}})
			p.is("beside a background shell", p.approve(), "background shells run: "+s.Shell+" (sleep 1000)")
			call[contract.ShellKillResult](c, contract.ShellKill, contract.ShellKillArgs{Shell: s.Shell})
			b, _ := json.Marshal(contract.ShellArgs{Argv: []string{"sh", "script.sh"}, Background: true})
			if r := id.Caisson(t, c.repo, "tool", c.task, "shell", string(b)); r.Exit != 4 || !strings.Contains(r.Stderr, "no background shell can be asked about") {
				t.Errorf("in the background: %v", r)
			}
			sh(c, contract.ShellArgs{Command: "rm -f begun; printf 'echo >begun; sleep 1; cat data\\n' >script.sh"})
			p = asks(c, contract.Shell, contract.ShellArgs{Argv: []string{"sh", "script.sh"}})
			id.OK(t, c.repo, "approve", p.q.ID)
			for begun := filepath.Join(id.State, "tasks", c.task, "source/begun"); ; time.Sleep(5 * time.Millisecond) {
				if _, err := os.Stat(begun); err == nil {
					break
				}
			}
			var beside sync.WaitGroup
			for range 2 {
				beside.Go(func() {
					for _, args := range [][]string{{"exec", c.task, "sh", "-c", "echo evil >data"}, {"tool", c.task, "write_file", `{"path":"data","content":"evil\n"}`}} {
						if r := id.Caisson(t, c.repo, args...); r.Exit != 0 && !strings.Contains(r.Stderr, "(conflict)") {
							t.Errorf("%v: %v", args, r)
						}
					}
				})
			}
			r = <-p.done
			beside.Wait()
			res = harness.Decode[task.ToolResult](t, r.Stdout)
			if got := harness.Decode[contract.ShellResult](t, string(res.Claimed.Result)); got.Stdout != "good\n" {
				t.Errorf("beside other calls the command read %q", got.Stdout)
			}
		}
	})
}

// TestHook has a person's own program answer.
func TestHook(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		hook := filepath.Join(id.Home, "hook")
		id.Write(t, hook, `#!/bin/sh
cat >"$HOME/asked"
env >"$HOME/env"; pwd >>"$HOME/env"
case $(cat "$HOME/asked") in
*yes*) exit 0 ;;
*json*) echo '{"allow": true, "scope": "exact", "reason": "fine"}'; exit 0 ;;
*mumble*) echo 'certainly'; exit 0 ;;
*silent*) exit 3 ;;
*contrary*) echo '{"allow": true}'; exit 1 ;;
esac
exit 1
`, 0o755)
		repo := id.Repo(t, map[string]string{"hook": "#!/bin/sh\nexit 0\n"})
		if r := id.Caisson(t, repo, "open", "--ask", "*", "--approve-hook", filepath.Join(repo, "hook")); r.Exit == 0 {
			t.Errorf("a program of the workspace may answer: %v", r)
		}
		if err := os.Chmod(filepath.Join(repo, "hook"), 0o755); err != nil {
			t.Fatal(err)
		}
		if r := id.Caisson(t, repo, "open", "--ask", "*", "--approve-hook", filepath.Join(repo, "hook")); r.Exit == 0 || !strings.Contains(r.Stderr, "out of the task's reach") {
			t.Errorf("a program of the workspace may answer: %v", r)
		}
		id.Env = append(id.Env, "ANTHROPIC_API_KEY=sk-secret")
		c := &caller{id, t, repo, id.Open(t, repo, "--ask", "shell", "--approve-hook", hook)}
		soon := &caller{id, t, repo, id.Open(t, repo, "--ask", "shell", "--approve-hook", hook, "--ask-timeout", "1s")}
		for word, want := range map[string]string{"yes": "", "json": "", "no": "a person denied", "mumble": "nobody answered", "silent": "nobody answered", "contrary": "a person denied"} {
			b, _ := json.Marshal(contract.ShellArgs{Command: "echo " + word})
			in := c.task
			if want == "nobody answered" {
				in = soon.task
			}
			r := id.Caisson(t, repo, "tool", "--json", in, "shell", string(b))
			(&pending{c: c}).is(word, r, want)
		}
		env, err := os.ReadFile(filepath.Join(id.Home, "env"))
		if err != nil || strings.Contains(string(env), "sk-secret") || !strings.Contains(string(env), "HOME=") || !strings.HasSuffix(string(env), "\n/\n") {
			t.Errorf("its environment and folder: %s %v", env, err)
		}
	})
}
