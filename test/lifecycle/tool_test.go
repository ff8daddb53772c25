//go:build linux

package lifecycle

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/test/harness"
)

// toolSteps are the named steps of a tool call: whether the call may have been
// carried out when its supervisor died there, and what is on record of it.
var toolSteps = []struct {
	at     string
	done   bool
	record []string
}{
	{"tool.before-intent", false, nil},
	{"tool.after-intent", false, []string{"tool.intent"}},
	{"tool.carried", true, []string{"tool.intent"}},
	{"tool.before-outcome", true, []string{"tool.intent"}},
	{"", true, []string{"tool.intent", "tool.outcome"}}, // the control
}

// TestToolKilled kills the supervisor at every named step of a call that changes
// a file, of one that runs a program and of one that starts a background shell.
// The call is told as lost, happens at most once and never again, what is on
// record is a whole chain, and the task's work is brought out.
func TestToolKilled(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	calls := [][]string{
		{"write_file", `{"path":"made.txt","content":"once\n"}`},
		{"shell", `{"command":"echo once >>made.txt"}`},
		{"shell", `{"command":"echo once >>made.txt; sleep 1000","background":true}`},
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		for i, s := range toolSteps {
			for j, c := range calls {
				if j > 0 && (i+j)%2 == 0 && !long {
					continue
				}
				w.toolKilled(s.at, s.done, s.record, c)
				if t.Failed() {
					t.Fatalf("stopping after %q, %v", s.at, c)
				}
			}
		}
	})
}

func (w *world) toolKilled(at string, done bool, record, call []string) {
	w.t.Helper()
	var env []string
	if at != "" {
		env = []string{"CAISSON_FAULT=" + at + ":kill"}
	}
	if r := w.do(env, "open", "--name", "x"); r.Exit != 0 {
		w.t.Fatal(r)
	}
	v := w.show("x")
	w.ok("exec", "x", "--", "sh", "-c", "echo before >work.txt")
	r := w.do(nil, append([]string{"tool", "--json", "x"}, call...)...)
	if at == "" {
		if r.Exit != 0 {
			w.t.Errorf("control: %v", r)
		}
		w.ok("close", "x")
	} else {
		// Whoever asked knows that it does not know.
		if r.Exit == 0 || !strings.Contains(r.Stdout+r.Stderr, "outcome_unknown") {
			w.t.Errorf("%s, %v: the caller was told %v", at, call, r)
		}
		harness.Eventually(w.t, "the supervisor is dead", func() bool { return !alive(v.Supervisor.PID) && w.unowned(v.ID) })
		if again := w.do(nil, append([]string{"tool", "--json", "x"}, call...)...); again.Exit == 0 {
			w.t.Errorf("%s, %v: a call without a supervisor: %v", at, call, again)
		}
	}
	w.toolSettled(at, v.ID, done, record)
}

// toolSettled looks at what is left of a task whose call was lost.
func (w *world) toolSettled(at, id string, done bool, record []string) {
	w.t.Helper()
	w.reap()
	if v := w.show(id); v.State != "kept" && v.State != "closed" {
		w.t.Errorf("%q: the task is %s (%s)", at, v.State, v.Problem)
	}
	for _, l := range settled(w.processes) {
		w.t.Errorf("%q: still runs: %s", at, l)
	}
	if _, err := evidence.Verify(w.State+"/tasks/"+id+"/evidence", evidence.Head{}); err != nil {
		w.t.Errorf("%q: the record: %v", at, err)
	}
	var told []string
	for _, e := range w.events(id) {
		if strings.HasPrefix(e, "tool.") {
			told = append(told, e)
		}
	}
	if !slices.Equal(told, record) {
		w.t.Errorf("%q: on record are %q, not %q", at, told, record)
	}
	if text, ok := w.has(id, "worktree", "work.txt"); !ok || text != "before\n" {
		w.t.Errorf("%q: the work before it: %q, %v", at, text, ok)
	}
	text, ok := w.has(id, "worktree", "made.txt")
	if ok && text != "once\n" || ok && !done {
		w.t.Errorf("%q: the call's work is %q, %v", at, text, ok)
	}
	w.do(nil, "close", "--discard", id)
	w.clean()
}

// TestToolPartiesKilled kills, while a call runs, the client that asked for it
// and the worker that carries it out.
func TestToolPartiesKilled(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		for _, party := range []string{"client", "worker"} {
			w.ok("open", "--name", "x")
			v := w.show("x")
			w.ok("exec", "x", "--", "sh", "-c", "echo before >work.txt")
			cmd := w.start(nil, "tool", "--json", "x", "shell", `{"command":"echo once >>made.txt; exec sleep 1000"}`)
			harness.Eventually(t, "the call runs", func() bool {
				_, err := os.Stat(w.State + "/tasks/" + v.ID + "/source/made.txt")
				return err == nil
			})
			if party == "client" {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				// Nobody waits for it any more, so it ends, with a word on record.
				harness.Eventually(t, "the outcome is on record", func() bool { return slices.Contains(w.events(v.ID), "tool.outcome") })
				if out := w.ok("exec", "x", "--", "sh", "-c", "cat made.txt; cat /proc/[0-9]*/comm | grep -c sleep; true"); out != "once\n0\n" {
					t.Errorf("after the client's death: %q", out)
				}
				w.ok("close", "x")
				w.toolSettled(party, v.ID, true, []string{"tool.intent", "tool.outcome"})
				continue
			}
			pids := w.workers()
			if len(pids) != 1 {
				t.Fatalf("workers: %v", pids)
			}
			if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			harness.Eventually(t, "the supervisor ends the task", func() bool { return !alive(v.Supervisor.PID) })
			w.toolSettled(party, v.ID, true, []string{"tool.intent", "tool.outcome"})
		}
	})
}
