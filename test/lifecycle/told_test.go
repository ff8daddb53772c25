//go:build linux

package lifecycle

import (
	"strings"
	"testing"

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
