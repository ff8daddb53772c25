//go:build linux

package lifecycle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// change makes a result of every kind of change, committed and not.
const change = `echo changed >a.txt && git commit -qam inside && echo new >u.txt && rm gone.txt && chmod +x exec.sh && ln -s a.txt link && mkdir -p n/d && echo deep >n/d/f.txt`

// checkout lists what of a repository a person works with.
func (w *world) checkout() []string {
	w.t.Helper()
	return slices.DeleteFunc(contents(w.t, w.repo), func(l string) bool {
		return strings.HasPrefix(l, "/.git/") || strings.HasPrefix(l, "/.git ") || strings.HasPrefix(l, " ")
	})
}

// restore makes the checkout what it was.
func (w *world) restore() {
	w.t.Helper()
	w.git("checkout", "-q", ".")
	w.git("clean", "-fdq")
}

// put accepts the repository as it is: this test itself changed it with git.
func (w *world) put() {
	w.t.Helper()
	w.restore()
	w.before = harness.TakePicture(w.t, w.repo)
}

// made returns a task with a result, in one of the states that a result can be
// taken from.
func (w *world) made(state string, env ...string) string {
	w.t.Helper()
	r := w.do(env, "open", "--keep", "never")
	if r.Exit != 0 {
		w.t.Fatal(r)
	}
	id := strings.TrimSpace(r.Stdout)
	w.ok("exec", id, "--", "sh", "-c", change)
	switch state {
	case "kept":
		w.do(nil, "close", "--keep", "always", id)
	case "closed":
		w.ok("close", id)
	}
	want := map[string]string{"open": "ready"}[state]
	if want == "" {
		want = state
	}
	if v := w.show(id); v.State != want {
		w.t.Fatalf("%+v, want %s", v, state)
	}
	return id
}

// TestDeliver takes a result out of a task in every state that it can be in.
func TestDeliver(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		before := w.checkout()
		var after []string
		for _, state := range []string{"open", "kept", "closed"} {
			task := w.made(state)
			if out := w.ok("apply", "--allow-risky", "--dry-run", task); !strings.Contains(out, "would be changed") || !slices.Equal(w.checkout(), before) {
				t.Errorf("%s: dry run: %s", state, out)
			}
			w.ok("apply", "--allow-risky", task)
			if got := w.checkout(); after == nil {
				after = got
			} else if !slices.Equal(got, after) {
				t.Errorf("%s: another result than of an open task:\n%s\n%s", state, strings.Join(got, "\n"), strings.Join(after, "\n"))
			}
			if slices.Equal(after, before) {
				t.Fatal("nothing was applied")
			}
			if out := w.ok("apply", "--allow-risky", task); !strings.Contains(out, "as wanted already") || !slices.Equal(w.checkout(), after) {
				t.Errorf("%s: a second time: %s", state, out)
			}
			w.restore()
			// What is not committed is in the way, and stays.
			id.Write(t, w.repo+"/a.txt", "mine\n", 0o644)
			mine := w.checkout()
			if r := w.do(nil, "apply", "--allow-risky", task); r.Exit != 1 || !strings.Contains(r.Stdout, "a.txt") || !slices.Equal(w.checkout(), mine) {
				t.Errorf("%s: onto an uncommitted change: %v", state, r)
			}
			w.restore()
			name := "agent/" + state
			w.ok("branch", task, name)
			w.git("checkout", "-q", "--detach", name)
			if got := w.checkout(); !slices.Equal(got, after) {
				t.Errorf("%s: the branch has another tree:\n%s", state, strings.Join(got, "\n"))
			}
			w.git("checkout", "-q", "main")
			if got := w.git("log", "--format=%s", "main.."+name); !strings.HasSuffix(got, "inside") {
				t.Errorf("%s: the branch lacks the task's own commit: %q", state, got)
			}
			if out := w.ok("branch", task, name); !strings.Contains(out, "is there already") {
				t.Errorf("%s: branch again: %s", state, out)
			}
			w.git("branch", "-D", "-q", name)
			patch := filepath.Join(w.Tmp, state+".patch")
			w.ok("export", task, "--patch", "-o", patch)
			w.git("apply", patch)
			if got := w.checkout(); !slices.Equal(got, after) {
				t.Errorf("%s: the patch makes another tree:\n%s", state, strings.Join(got, "\n"))
			}
			w.restore()
			bundle := filepath.Join(w.Tmp, state+".bundle")
			w.ok("export", task, "--bundle", "-o", bundle)
			w.git("bundle", "verify", "-q", bundle)
			dir := filepath.Join(w.Tmp, state+".dir")
			w.ok("export", task, "--dir", dir)
			if got := slices.DeleteFunc(contents(t, dir), func(l string) bool { return strings.HasPrefix(l, " ") }); !slices.Equal(got, after) {
				t.Errorf("%s: the folder has other files:\n%s", state, strings.Join(got, "\n"))
			}
			if types := strings.Join(w.ended(task, state), " "); !strings.Contains(types, "apply.intent apply.outcome") || !strings.Contains(types, "branch.outcome") || strings.Count(types, "export.outcome") != 3 {
				t.Errorf("%s: on record: %s", state, types)
			}
			if v := w.show(task); v.Supervisor != nil && state != "open" {
				t.Errorf("%s: somebody still owns it: %+v", state, v)
			}
		}
		w.put()
		w.clean()
	})
}

// ended checks the record of a task, closing it first when it is open: only
// then its head is noted.
func (w *world) ended(id, state string) []string {
	w.t.Helper()
	if state == "open" {
		w.ok("close", id)
	}
	return w.chain(id)
}

// TestDeliverKilled kills whoever brings a result in at every step. The
// checkout is then as before or as wanted, as soon as any command has run, and
// applying again makes it as wanted.
func TestDeliverKilled(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		before := w.checkout()
		task := w.made("kept")
		w.ok("apply", "--allow-risky", task)
		after := w.checkout()
		w.restore()
		look := func(target, state, task string) {
			t.Helper()
			got := w.checkout()
			if !slices.Equal(got, before) && !slices.Equal(got, after) {
				t.Errorf("%s (%s): neither as before nor as wanted:\n%s", target, state, strings.Join(got, "\n"))
			}
			if l := settled(w.processes); state != "open" && len(l) > 0 {
				t.Errorf("%s (%s): still runs: %v", target, state, l)
			}
			if r := w.reap(); len(r.Actions)+len(r.Orphans) > 0 {
				t.Errorf("%s (%s): a second look finds %+v", target, state, r)
			}
			w.ok("apply", "--allow-risky", task)
			if got := w.checkout(); !slices.Equal(got, after) {
				t.Errorf("%s (%s): not as wanted in the end:\n%s", target, state, strings.Join(got, "\n"))
			}
			w.restore()
			w.chain(task)
			if t.Failed() {
				t.Fatal("stopping after " + target)
			}
		}
		targets := []string{"hold.settled", "deliver.planned", "deliver.intended", "apply.locked", "swap.begun", "swap.staged", "swap.journaled", "swap.stepped", "swap.stepped:kill:3",
			"swap.exchanged", "swap.durable", "swap.committed", "swap.removed", "apply.done", "deliver.applied", "hold.recorded"}
		for i, target := range targets {
			if id.Name == "user" && os.Getuid() == 0 && i%4 != 0 && !long {
				continue // by root
			}
			fault := "CAISSON_FAULT=" + target
			if !strings.Contains(target, ":") {
				fault += ":kill"
			}
			if r := w.do([]string{fault}, "apply", "--allow-risky", task); r.Exit != -1 {
				t.Errorf("%s: was not killed: %v", target, r)
			}
			if i%2 == 0 {
				w.ok("ls")
			} else {
				w.ok("reap")
			}
			look(target, "kept", task)
		}
		// Of an open task the supervisor does it, and its death ends the task.
		for i, target := range []string{"swap.stepped", "swap.committed", "deliver.applied"} {
			if i > 0 && id.Name == "user" && os.Getuid() == 0 && !long {
				continue
			}
			open := w.made("open", "CAISSON_FAULT="+target+":kill")
			pid := w.show(open).Supervisor.PID
			if r := w.do(nil, "apply", "--allow-risky", open); r.Exit == 0 || !strings.Contains(r.Stderr, "outcome_unknown") {
				t.Errorf("%s: %v", target, r)
			}
			// Its end of the socket is closed a moment before it is dead.
			harness.Eventually(t, "the supervisor is dead", func() bool { return !alive(pid) && w.unowned(open) })
			w.ok("ls")
			look(target, "was open", open)
		}
		// Of a closed one the record alone is held.
		closed := w.made("closed")
		few := id.Name == "user" && os.Getuid() == 0 && !long // root has tried them
		for i, target := range []string{"swap.stepped", "hold.taken", "hold.recorded"} {
			if few && i > 0 {
				break
			}
			if r := w.do([]string{"CAISSON_FAULT=" + target + ":kill"}, "apply", "--allow-risky", closed); r.Exit != -1 {
				t.Errorf("%s: was not killed: %v", target, r)
			}
			w.ok("reap")
			look(target, "closed", closed)
		}
		// A throwaway boundary that fetches commits, and the other ways out.
		for _, c := range []struct {
			target string
			args   []string
		}{
			{"rescue.intended", []string{"branch"}}, {"rescue.standing", []string{"branch"}}, {"branch.intended", []string{"branch"}}, {"branch.made", []string{"branch"}},
			{"export.intended", []string{"export", "--bundle"}}, {"export.made", []string{"export", "--patch"}},
		} {
			if few && c.target != "rescue.standing" {
				continue
			}
			kept := w.made("kept")
			if strings.HasPrefix(c.target, "rescue") {
				// What was rescued at its end is in the host's view already: go on inside.
				w.ok("resume", kept)
				w.ok("exec", kept, "--", "sh", "-c", "echo more >>u.txt && git add u.txt && git commit -qm more")
				w.do([]string{"CAISSON_FAULT=close.rescued:error"}, "close", "--keep", "always", kept)
			}
			r := w.do([]string{"CAISSON_FAULT=" + c.target + ":kill"}, append(c.args, kept)...)
			if r.Exit != -1 && !strings.HasPrefix(c.target, "rescue") {
				t.Errorf("%s: was not killed: %v", c.target, r)
			}
			w.ok("reap")
			for _, l := range settled(w.processes) {
				t.Errorf("%s: still runs: %s", c.target, l)
			}
			if r := w.reap(); len(r.Actions)+len(r.Orphans) > 0 {
				t.Errorf("%s: a second look finds %+v", c.target, r)
			}
			w.ok("branch", kept)
			w.git("branch", "-D", "-q", "caisson/"+kept)
		}
		w.put()
		w.clean()
	})
}

// TestDeliverDuringClose takes results while the task is being closed and
// opened again: each has its way, before or after the other.
func TestDeliverDuringClose(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		before := w.checkout()
		first := w.made("kept")
		w.ok("apply", "--allow-risky", first)
		after := w.checkout()
		w.restore()
		if slices.Equal(before, after) {
			t.Fatal("nothing was applied")
		}
		for i := range count(3, 20) {
			task := w.made("open")
			var wg sync.WaitGroup
			res := make([]harness.Result, 4)
			for n, args := range [][]string{{"close", "--keep", []string{"never", "always"}[i%2], task}, {"apply", "--allow-risky", task}, {"branch", task}, {"export", task, "--patch"}} {
				wg.Go(func() { res[n] = harness.Run(t, w.Command(t.Context(), w.repo, w.bin, args...)) })
			}
			wg.Wait()
			for n, r := range res {
				// The close cancels what had not begun; nothing half done is left.
				if r.Exit != 0 && !(n == 0 && r.Exit == 7) && !(n > 0 && (strings.Contains(r.Stderr, "being closed") || strings.Contains(r.Stderr, "canceled"))) {
					t.Error(r)
				}
			}
			got := w.checkout()
			if !slices.Equal(got, after) && (res[1].Exit == 0 || !slices.Equal(got, before)) {
				t.Fatalf("after %v the checkout is\n%s", res[1], strings.Join(got, "\n"))
			}
			w.restore()
			w.ok("apply", "--allow-risky", task)
			if !slices.Equal(w.checkout(), after) {
				t.Fatal("a later apply has another result")
			}
			w.restore()
			w.chain(task)
			w.do(nil, "close", task)
			_ = harness.Run(t, w.Command(t.Context(), w.repo, "git", "branch", "-D", "caisson/"+task))
		}
		w.put()
		w.clean()
	})
}

// TestSealedRecordIsContinuedOnlyIntact alters the record of a closed task.
// More lines must not hide that.
func TestSealedRecordIsContinuedOnlyIntact(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		for _, state := range []string{"kept", "closed"} {
			task := w.made(state)
			log := w.State + "/tasks/" + task + "/evidence/events.jsonl"
			good, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.SplitAfter(strings.TrimSuffix(string(good), "\n"), "\n")
			for name, text := range map[string]string{
				"cut":     strings.Join(lines[:len(lines)-2], ""),
				"torn":    string(good[:len(good)-9]),
				"altered": strings.Replace(string(good), `"exit":0`, `"exit":1`, 1),
				"emptied": "",
			} {
				if text == string(good) {
					t.Fatal(name + " changes nothing")
				}
				if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				for _, args := range [][]string{{"apply", task}, {"branch", task}, {"export", "--patch", task}, {"keep", "--for", "1h", "--reason", "x", task}, {"resume", task}} {
					if state == "closed" && (args[0] == "keep" || args[0] == "resume") {
						continue
					}
					r := w.do(nil, args...)
					if r.Exit != 1 || !strings.Contains(r.Stderr, "(evidence)") {
						t.Errorf("%s, %s: %v", state, name, r)
					}
				}
				if err := os.WriteFile(log, good, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// The control: with the record as it was it works, and the head moves on.
			w.ok("apply", "--allow-risky", task)
			w.restore()
			if types := w.chain(task); types[len(types)-1] != "apply.outcome" {
				t.Errorf("%v", types)
			}
			w.do(nil, "close", "--discard", task)
		}
		w.put()
		w.clean()
	})
}
