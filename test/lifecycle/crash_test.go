//go:build linux

package lifecycle

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// job makes work of every basic kind inside: committed, uncommitted, ignored,
// in the output store.
const job = `echo committed >c.txt && git add c.txt && git commit -qm inside && echo uncommitted >u.txt && echo changed >a.txt && echo ignored >i.ignored && echo out >/run/boundary/out/o`

// repeated are points that are passed many times in one life; they are tried
// at several of those times.
var repeated = map[string]int{"evidence.append.before": 14, "evidence.append.written": 14, "evidence.append.synced": 12,
	"inventory.commit.before": 8, "inventory.commit.after": 8, "sys.write.temp": 1, "sys.write.rename": 1,
	"linux.grouped": 2, "linux.launched": 2, "linux.joined": 2, "linux.killed": 2, "linux.ungrouped": 6, "source.stored": 2, "source.published": 2,
	"docker.folder": 2, "docker.created": 2, "docker.attached": 2, "docker.started": 2, "docker.answered": 2, "docker.sockets": 2, "docker.removed": 2} // also in a trial

// elsewhere are points that no life of a task passes on this road.
var elsewhere = map[string]bool{
	"inventory.migrate.before": true, "inventory.migrate.after": true, // internal/inventory kills there
	"source.branchstored": true, "source.branchmade": true, "source.exportmade": true, "source.exporting": true, "source.exported": true, // internal/source kills there
	"close.stuck": true, "open.abandoned": true, "reap.locked": true, "reap.adopted": true, "reap.noted": true, "close.kept": true, // below
	// TestDeliverKilled
	"apply.locked": true, "apply.done": true, "swap.begun": true, "swap.staged": true, "swap.journaled": true, "swap.stepped": true, "swap.undone": true,
	"swap.exchanged": true, "swap.durable": true, "swap.committed": true, "swap.removed": true,
	"deliver.planned": true, "deliver.intended": true, "deliver.applied": true, "branch.intended": true, "branch.made": true, "export.intended": true, "export.made": true,
	"budget.queued": true, "budget.turn": true, // TestBudgetKilled
	"check.intended": true, "check.measured": true, "check.recorded": true, // TestCheckKilled
	"root.unpacking": true, "root.unpacked": true, // TestRootKilled
	"install.intended": true, "install.standing": true, "install.ended": true, "install.destroyed": true, // TestInstallKilled
	"lend.noted": true, "lend.read": true, "lend.used": true, "lend.back": true, // test/credentials kills there
	// TestRemovalKilled
	"removal.handing": true, "removal.handed": true, "removal.owned": true, "removal.told": true,
	"tool.before-intent": true, "tool.after-intent": true, "tool.carried": true, "tool.before-outcome": true, // TestToolKilled, TestReadRecorded
	// TestResumeKilled
	"hold.taken": true, "hold.settled": true, "hold.recorded": true, "keep.noted": true,
	"resume.held": true, "resume.intended": true, "resume.recorded": true, "resume.boundary": true, "resume.present": true, "resume.failed": true,
}

// targets lists NAME:kill[:N] for every point. With an engine those of its driver
// are enough, and some of the others: the rest is the same program.
func targets(t *testing.T) []string {
	var out []string
	driver := harness.DriverOf(harness.Backend()) + "."
	for i, p := range points(t) {
		if !long && (elsewhere[p] || ofStrategy.MatchString(p)) {
			continue // this road does not pass it
		}
		if !long && driver != "linux." && i%8 != 0 && !strings.HasPrefix(p, driver) {
			continue
		}
		n := repeated[p]
		step := 1
		if n > 4 && !long {
			step = 5
		}
		if n == 0 {
			out = append(out, p+":kill")
			continue
		}
		for i := 1; i <= n; i += step {
			out = append(out, fmt.Sprintf("%s:kill:%d", p, i))
		}
	}
	return out
}

// TestKilledAtEveryStep kills caisson at every named step of run, and of open,
// exec and close; whatever command comes next puts everything in order.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("kills the program a hundred times; not with -short")
	}
	bin := faultBin(t)
	all := targets(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		var mu sync.Mutex
		hit := map[string]bool{}
		took := func(target string) {
			mu.Lock()
			defer mu.Unlock()
			name, _, _ := strings.Cut(target, ":")
			hit[name] = true
		}
		t.Run("steps", func(t *testing.T) {
			const shards = 4
			for s := range shards {
				t.Run(fmt.Sprint(s), func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, harness.NewIdentity(t, fmt.Sprintf("%s-k%d-", id.Name, s), id.UID), bin)
					for i, target := range all {
						if i%shards != s {
							continue
						}
						if id.Name == "user" && os.Getuid() == 0 && harness.Backend() == "linux" && i%4 != 0 && !long {
							took(target) // by root
							continue
						}
						fired := w.killedRun(target, i)
						if !fired || long || i%10 == 0 && id.UID == 0 {
							fired = w.killedOpen(target, i) || fired
						}
						if fired {
							took(target)
						}
						if t.Failed() {
							t.Fatalf("stopping after %s", target)
						}
					}
				})
			}
		})
		for _, name := range points(t) {
			tried := slices.ContainsFunc(all, func(target string) bool { return strings.HasPrefix(target, name+":") })
			if tried && !hit[name] && !elsewhere[name] && !ofStrategy.MatchString(name) { // see strategy_test.go
				t.Errorf("the step %s was never passed: nothing was tested there", name)
			}
		}
	})
}

// killedRun kills `run` at target.
func (w *world) killedRun(target string, i int) bool {
	w.t.Helper()
	keep := "auto"
	if strings.HasPrefix(target, "close.") || strings.HasPrefix(target, "source.unpinned") {
		keep = "never" // else its files stay, and nothing is removed
	}
	work := job
	if workless(target) {
		work = "true" // ignored files would stay, and nothing be sealed
	}
	cmd := w.start([]string{"CAISSON_FAULT=" + target}, "run", "--keep", keep, "--", "sh", "-c", work)
	err := cmd.Wait()
	fired := killed(cmd)
	if !fired && err != nil {
		w.t.Errorf("%s: run ended with %v", target, err)
	}
	w.settle(target, i)
	return fired
}

// workless are steps that a task with ignored files does not reach, and the one
// at which a call that has just been started fails and is killed anywhere in the
// job.
func workless(target string) bool {
	return target == "call.started" || strings.HasPrefix(target, "close.sealed") || strings.HasPrefix(target, "close.recorded")
}

// killedOpen kills open, exec, close or the supervisor at target.
func (w *world) killedOpen(target string, i int) bool {
	w.t.Helper()
	env := []string{"CAISSON_FAULT=" + target}
	fired := false
	step := func(args ...string) {
		cmd := w.start(env, args...)
		_ = cmd.Wait()
		fired = fired || killed(cmd)
	}
	step("open", "open")
	var sup int
	for _, v := range w.tasks() {
		if v.Name == "open" && v.State == "ready" && v.Supervisor != nil {
			sup = v.Supervisor.PID
		}
	}
	step("exec", "open", "--", "sh", "-c", job)
	step("close", "open")
	if sup == 0 || !fired && slices.ContainsFunc(w.tasks(), func(v view) bool { return v.Name == "open" && v.State != "closed" && v.State != "kept" }) {
		fired = true // the supervisor was, and with it the task
	}
	w.settle(target, i)
	return fired
}

// settle runs whatever a user runs next and checks that all is in order.
func (w *world) settle(target string, i int) {
	w.t.Helper()
	if i%2 == 0 {
		w.ok("ls")
	} else {
		w.ok("reap")
	}
	if r := w.reap(); len(r.Actions)+len(r.Orphans) > 0 {
		w.t.Errorf("%s: a second look finds %+v", target, r)
	}
	for _, l := range settled(w.processes) {
		w.t.Errorf("%s: still runs: %s", target, l)
	}
	for _, v := range w.tasks() {
		if v.State != "closed" && v.State != "kept" {
			w.t.Errorf("%s: task %s is %s (%s)", target, v.ID, v.State, v.Problem)
		}
		if len(w.events(v.ID)) > 0 && !workless(target) {
			w.checkWork(target, v)
		}
	}
	w.clean()
}

// processes lists what of this installation still runs and should not.
func (w *world) processes() []string {
	var out []string
	for _, l := range w.Left() {
		if strings.HasPrefix(l, "process ") || strings.HasPrefix(l, "cgroup ") {
			out = append(out, l)
		}
	}
	return out
}

// checkWork fails unless what the job had made is rescued or still there.
func (w *world) checkWork(target string, v view) {
	w.t.Helper()
	ev := w.events(v.ID)
	if !slices.Contains(ev, "call.outcome") {
		return // it was killed before or in the middle of it; nothing is promised but order
	}
	dir := w.State + "/tasks/" + v.ID
	if v.State == "kept" && slices.Contains(ev, "rescue.failed") && exists(dir+"/source/c.txt") && exists(dir+"/shadow.git") {
		return // it failed, said so, and kept everything
	}
	kept := func(name string) bool {
		for _, p := range []string{dir + "/source/" + name, dir + "/kept/files/" + name} {
			if _, err := os.Lstat(p); err == nil {
				return true
			}
		}
		return false
	}
	got := w.blobs(v.ID, "worktree:c.txt", "worktree:u.txt", "worktree:a.txt", "heads/main:c.txt")
	if want := []string{"committed\n", "uncommitted\n", "changed\n", "committed\n"}; !slices.Equal(got, want) {
		w.t.Errorf("%s: of task %s (%s) the rescued files c.txt, u.txt, a.txt and the branch's c.txt are %q; %v", target, v.ID, v.State, got, ev)
	}
	if !kept("i.ignored") {
		w.t.Errorf("%s: the ignored file of task %s (%s) is gone; %v", target, v.ID, v.State, ev)
	}
	if !exists(dir+"/out/o") && !exists(dir+"/kept/out/o") {
		w.t.Errorf("%s: the output store of task %s (%s) is gone; %v", target, v.ID, v.State, ev)
	}
	kinds := map[string]bool{}
	for _, r := range v.Results {
		kinds[r.Kind] = true
	}
	if !kinds["branch"] || !kinds["worktree"] {
		w.t.Errorf("%s: show does not list what was rescued: %+v", target, v.Results)
	}
}

// unowned reports whether no process holds the task's lock.
func (w *world) unowned(id string) bool {
	f, err := os.Open(w.State + "/tasks/" + id + "/lock")
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}

// TestReapKilled kills the process that cleans up after another one.
func TestReapKilled(t *testing.T) {
	t.Parallel()
	bin := faultBin(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, bin)
		for i, target := range []string{"reap.locked", "reap.adopted", "reap.noted", "close.begun", "rescue.intended", "rescue.standing", "source.stored", "close.kept"} {
			cmd := w.start([]string{"CAISSON_FAULT=call.before-outcome:kill"}, "run", "--", "sh", "-c", job)
			if _ = cmd.Wait(); !killed(cmd) {
				t.Fatal("run was not killed")
			}
			again := w.start([]string{"CAISSON_FAULT=" + target + ":kill"}, "reap")
			if _ = again.Wait(); !killed(again) {
				t.Errorf("%s was not passed by reap", target)
			}
			w.settle(target, i)
		}
		// A failed opening that is killed while it cleans up, and a cleanup that
		// fails and is killed while it says so.
		for i, faults := range []string{"open.probed:error,open.abandoned:kill", "close.removing:error,close.stuck:kill"} {
			cmd := w.start([]string{"CAISSON_FAULT=" + faults}, "run", "--keep", "never", "--", "sh", "-c", job)
			if _ = cmd.Wait(); !killed(cmd) {
				t.Errorf("%s: was not killed", faults)
			}
			w.settle(faults, i)
		}
	})
}

// TestFailsAtEveryStep has every step fail instead: the program says so, and
// again leaves nothing.
func TestFailsAtEveryStep(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the program a hundred times; not with -short")
	}
	bin := faultBin(t)
	id := harness.NewIdentity(t, "errors", os.Getuid())
	w := newWorld(t, id, bin)
	for i, p := range points(t) {
		if !long && (elsewhere[p] || ofStrategy.MatchString(p) || i%2 != 0) {
			continue
		}
		r := w.do([]string{"CAISSON_FAULT=" + p + ":error"}, "run", "--", "sh", "-c", job)
		if r.Exit != 0 && !strings.Contains(r.Stderr, "error:") {
			t.Errorf("%s: failed without a word: %v", p, r)
		}
		if strings.Contains(r.Stderr, "panic") {
			t.Errorf("%s: %v", p, r)
		}
		w.settle(p, 1) // reap, which also retries what is stuck
		if t.Failed() {
			t.Fatalf("stopping after %s", p)
		}
	}
}

// TestKilledAtRandom kills run at arbitrary moments.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		begun := time.Now()
		w.ok("run", "--keep", "never", "--", "sh", "-c", job)
		whole := time.Since(begun)
		w.settle("the control", 0)
		for i := range count(4, 100) {
			cmd := w.start(nil, "run", "--", "sh", "-c", job)
			time.Sleep(time.Duration(rand.Int64N(int64(whole))))
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			w.settle(fmt.Sprintf("kill number %d", i), i)
			if t.Failed() {
				return
			}
		}
	})
}

// TestSupervisorKilled kills the supervisor of an open task with work in it,
// idle and while a command runs.
func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		for _, busy := range []bool{false, true} {
			w.ok("open", "victim")
			w.ok("exec", "victim", "--", "sh", "-c", job+"; (setsid sleep 1000 >/dev/null 2>&1 &)")
			v := w.show("victim")
			var running *exec.Cmd
			if busy {
				running = w.start(nil, "exec", "victim", "--", "sleep", "1000")
				harness.Eventually(t, "the command runs", func() bool {
					ev := w.events(v.ID)
					return len(ev) > 0 && ev[len(ev)-1] == "call.intent"
				})
			}
			if err := syscall.Kill(v.Supervisor.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "it is dead", func() bool { return w.unowned(v.ID) })
			if running != nil {
				if err := running.Wait(); err == nil || running.ProcessState.ExitCode() != 125 {
					t.Errorf("the caller of a command that was lost: %v", err)
				}
			}
			r := w.do(nil, "exec", "victim", "--", "true") // any later command reconciles
			if r.Exit != 125 || !strings.Contains(r.Stderr, "kept") {
				t.Errorf("exec after the supervisor's death: %v", r)
			}
			after := w.show(v.ID)
			if after.State != "kept" || after.Retention == nil || !strings.Contains(after.Retention.Why, "supervisor") {
				t.Errorf("state %s, %+v", after.State, after.Retention)
			}
			w.settle("supervisor", 0)
		}
	})
}

// TestWorkerKilled kills the boundary's pid 1 from the host, and stops it.
func TestWorkerKilled(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		w := newWorld(t, id, harness.Bin())
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			w.ok("open", "victim")
			w.ok("exec", "victim", "--", "sh", "-c", job)
			v := w.show("victim")
			pids := w.workers()
			if len(pids) != 1 {
				t.Fatalf("workers: %v", pids)
			}
			running := w.start(nil, "exec", "victim", "--", "sleep", "1000")
			harness.Eventually(t, "the command runs", func() bool {
				ev := w.events(v.ID)
				return len(ev) > 0 && ev[len(ev)-1] == "call.intent"
			})
			if err := syscall.Kill(pids[0], sig); err != nil {
				t.Fatal(err)
			}
			if sig == syscall.SIGSTOP {
				if r := w.do(nil, "close", "victim"); r.Exit != 7 { // though the worker will never answer
					t.Errorf("close: %v", r)
				}
			}
			err := running.Wait()
			var ee *exec.ExitError
			// 137: the kernel told of the command's own death before the channel's.
			if !errors.As(err, &ee) || sig == syscall.SIGKILL && ee.ExitCode() != 125 && ee.ExitCode() != 137 {
				t.Errorf("%v: the command's caller: %v", sig, err)
			}
			if sig == syscall.SIGKILL {
				harness.Eventually(t, "the supervisor ends the task", func() bool { return !alive(v.Supervisor.PID) })
			}
			w.settle(sig.String(), 1)
			if t.Failed() {
				return
			}
		}
	})
}

// TestWorkerKilledInRun: the command's end is not known, which is no success.
func TestWorkerKilledInRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.NewIdentity(t, "lost", os.Getuid()), harness.Bin())
	cmd := w.start(nil, "run", "--", "sh", "-c", job+"; sleep 1000")
	var pids []int
	harness.Eventually(t, "work is there", func() bool {
		outs, _ := filepath.Glob(w.State + "/tasks/*/out/o")
		pids = w.workers()
		return len(outs) == 1 && len(pids) == 1
	})
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 125 && code != 137 {
		t.Errorf("exit %d", code)
	}
	w.settle("worker killed in run", 0)
}

// TestWorkerStoppedInRun stops the worker under `run` and interrupts it.
func TestWorkerStoppedInRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.NewIdentity(t, "stopped", os.Getuid()), harness.Bin())
	cmd := w.start(nil, "run", "--", "sh", "-c", job+"; sleep 1000")
	var pids []int
	harness.Eventually(t, "work is there", func() bool {
		outs, _ := filepath.Glob(w.State + "/tasks/*/out/o")
		pids = w.workers()
		return len(outs) == 1 && len(pids) > 0
	})
	for _, p := range pids {
		_ = syscall.Kill(p, syscall.SIGSTOP)
		harness.Eventually(t, "the worker stands still", func() bool { return standsStill(p) })
	}
	impatient(t, cmd) // the third wish kills at once
	// 143: the first wish reached the command before its worker was stopped.
	if code := cmd.ProcessState.ExitCode(); code != 125 && code != 137 && code != 143 {
		t.Errorf("exit %d", code)
	}
	w.settle("stopped in run", 0)
}

// standsStill reports whether every thread of a process stands still: on a busy
// machine one may go on for a while after the signal.
func standsStill(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if err == nil && !strings.Contains(string(text), ") T ") {
			return false
		}
	}
	return len(threads) > 0
}
