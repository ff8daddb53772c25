//go:build linux

package lifecycle

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// commitPolicy has the repository say something of itself.
func (w *world) commitPolicy(text string) {
	w.t.Helper()
	w.Write(w.t, w.repo+"/.caisson.yaml", "version: 1\n"+text, 0o644)
	w.git("add", ".caisson.yaml")
	w.git("commit", "-q", "-m", "policy")
	w.before = harness.TakePicture(w.t, w.repo)
}

// TestRepositorysWord: what a repository said of itself when a task was opened
// holds for as long as there is the task. A policy that changed elsewhere, a newer
// commit and whatever the task writes take nothing of it, and end no trust; a copy
// in the checkout can add to it.
func TestRepositorysWord(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		for _, source := range []string{"clone", "checkout"} {
			t.Run(source, func(t *testing.T) {
				w := newWorld(t, id, harness.Bin())
				w.says("")
				defer w.says("")
				w.commitPolicy("deny: {commands: [{argv: [printf]}]}\n")
				w.ok("trust")
				denied := func(when, what string, is bool) {
					t.Helper()
					r := w.do(nil, "exec", "x", "--", what, "x")
					if is && (r.Exit != 125 || !strings.Contains(r.Stderr, "denied: commands "+what)) || !is && r.Exit != 0 {
						t.Errorf("%s: %s: %v", when, what, r)
					}
				}
				w.ok("open", "--source", source, "--trust", "--timeout", "1h", "x")
				denied("at first", "printf", true)
				denied("at first", "echo", false)
				w.says("\n")
				denied("the user's policy changed", "printf", true)
				denied("the user's policy changed", "echo", false)
				// The task takes it back, in its own files.
				w.ok("exec", "x", "--", "sh", "-c", "echo 'version: 1' >.caisson.yaml")
				w.says("\n\n")
				denied("the task's copy changed", "printf", true)
				denied("the task's copy changed", "echo", false)
				// The user takes it back, for later tasks, and denies another.
				w.commitPolicy("deny: {commands: [{argv: [echo]}]}\n")
				denied("there is a newer commit", "printf", true)
				denied("there is a newer commit", "echo", true)
				w.git("checkout", "-q", "HEAD~1")
				denied("the commit is back", "echo", false)
				if source == "clone" {
					w.git("checkout", "-q", "-")
					if r := w.do(nil, "close", "--keep", "always", "x"); r.Exit != 7 {
						t.Fatal(r)
					}
					w.ok("resume", "x")
					denied("resumed", "printf", true)
				}
				w.ok("close", "--discard", "x")
			})
		}
	})
}

// TestGrantsRead: what a task was given is held against the policy of today, by
// every door: a folder, a variable and an ability that the policy denies since let
// nothing begin, once on record, until the policy allows them again.
func TestGrantsRead(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		w.says("")
		defer w.says("")
		seed := w.Tmp + "/seed"
		w.Mkdir(t, seed)
		for name, c := range map[string]struct{ flags, rule []string }{
			"ro":    {[]string{"--ro", seed}, []string{"mounts: [" + seed + "]", "mounts: [/nowhere]"}},
			"env":   {[]string{"--env", "TOKEN=x"}, []string{"env: [TOK*]", "env: [OTHER]"}},
			"grant": {[]string{"--grant", "ptrace"}, []string{"grants: [ptrace]", "grants: [userns]"}},
		} {
			w.ok(append([]string{"open", name}, c.flags...)...)
			w.ok("exec", name, "--", "true")
			w.says("deny: {" + c.rule[1] + "}\n")
			w.ok("exec", name, "--", "true") // the control
			w.says("deny: {" + c.rule[0] + "}\n")
			for _, args := range [][]string{{"exec", name, "--", "true"}, {"exec", name, "--", "true"}, {"check", name, "--", "true"}} {
				if r := w.do(nil, args...); r.Exit != 125 || !strings.Contains(r.Stderr, c.flags[0]+" ") || !strings.Contains(r.Stderr, "policy.yaml:2") || !strings.Contains(r.Stderr, "caisson close") || !strings.Contains(r.Stderr, "(denied)") {
					t.Errorf("%s: %v", name, r)
				}
			}
			if r := w.do(nil, "tool", name, "read_file", `{"path":"a.txt"}`); r.Exit != 4 || !strings.Contains(r.Stderr, c.flags[0]+" ") {
				t.Errorf("%s: %v", name, r)
			}
			if n := strings.Count(strings.Join(w.events(w.show(name).ID), " "), "boundary.blocked"); n != 1 {
				t.Errorf("%s: %d times on record", name, n)
			}
			w.says("")
			w.ok("exec", name, "--", "true")
			w.says("deny: {" + c.rule[0] + "}\n")
			w.ok("close", name) // the way out is open
			w.says("")
		}
		w.clean()
	})
}

// TestHookOnce: a task that waits for its turn in the budget is decided anew now and
// then; the operator's program is asked once for all of it.
func TestHookOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.NewIdentity(t, "user", harness.UserOf()), harness.Bin())
	hook, asked := w.Home+"/hook", w.Tmp+"/asked"
	w.Write(t, hook, "#!/bin/sh\ncat >>"+asked+"\necho '{\"verdict\":\"none\"}'\n", 0o700)
	w.says("budget: {tasks: 1, when_full: wait}\ndecision_hook: {exec: [" + hook + "], timeout: 1m}\n")
	questions := func() int {
		b, _ := os.ReadFile(asked)
		return strings.Count(string(b), `"schema":"caisson.decision/1"`)
	}
	w.ok("open", "first")
	if n := questions(); n != 1 {
		t.Fatalf("the control: asked %d times", n)
	}
	second := make(chan harness.Result, 1)
	go func() { second <- w.do(nil, "open", "second") }()
	harness.Eventually(t, "it waits", func() bool { return strings.Contains(w.ok("ls"), "waiting for their turn: 1") })
	time.Sleep(11 * time.Second) // it is decided anew once meanwhile
	w.ok("close", "first")
	if r := <-second; r.Exit != 0 {
		t.Fatal(r)
	}
	if n := questions(); n != 2 {
		t.Errorf("asked %d times for two tasks", n)
	}
	w.ok("close", "second")
}
