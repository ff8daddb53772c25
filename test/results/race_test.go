//go:build linux

package results

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// spawn runs a command of the product without failing the test, for goroutines.
func (p *place) spawn(args ...string) (harness.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	cmd := p.Command(ctx, p.repo, harness.Bin(), args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		return harness.Result{Args: args}, fmt.Errorf("%v: %w (%v)", args, err, ctx.Err())
	}
	return harness.Result{Args: args, Stdout: out.String(), Stderr: errs.String(), Exit: cmd.ProcessState.ExitCode()}, nil
}

// TestManyAtOnce lets 20 processes create, change, apply, branch, keep, resume
// and close on one repository at once, each its own task.
func TestManyAtOnce(t *testing.T) {
	each(t, applyBase(), func(p *place) {
		n := count(20, 60)
		if p.UID != 0 {
			n = count(4, 60)
		}
		var mu sync.Mutex
		bad := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			p.t.Errorf(format, args...)
		}
		ids := make([]string, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Add(1)
			go func() {
				defer wg.Done()
				step := func(exits []int, args ...string) string {
					r, err := p.spawn(args...)
					if err != nil {
						bad("%d: %v", i, err)
						return ""
					}
					for _, e := range exits {
						if r.Exit == e {
							return r.Stdout
						}
					}
					bad("%d: %v", i, r)
					return r.Stdout
				}
				id := strings.TrimSpace(step([]int{0}, "open", fmt.Sprintf("many%d", i)))
				ids[i] = id
				if id == "" {
					return
				}
				step([]int{0}, "exec", id, "--", "sh", "-ec", fmt.Sprintf("mkdir m; echo %d >m/%d; echo c >c%d; git add c%d; git commit -qm c", i, i, i, i))
				if out := step([]int{0}, "diff", "--name-status", id); out != fmt.Sprintf("A\tc%d\nA\tm/%d\n", i, i) {
					bad("%d: the change set is %q", i, out)
				}
				step([]int{0}, "branch", id, fmt.Sprintf("r/%d", i))
				// Each applies other files; they wait for each other or say that the checkout is busy.
				for end := time.Now().Add(harness.Limit); time.Now().Before(end); time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond) {
					r, err := p.spawn("apply", "--yes", id)
					if err != nil {
						bad("%d: %v", i, err)
						return
					}
					if r.Exit == 0 {
						break
					}
					if !strings.Contains(r.Stderr, "caisson: error: ") || strings.Contains(r.Stderr, "(internal)") {
						bad("%d: %v", i, r)
						return
					}
				}
				if i%3 == 0 {
					step([]int{7}, "close", "--keep", "always", id)
					step([]int{0}, "keep", "--for", "2h", "--reason", "race", id)
					step([]int{0}, "resume", id)
				}
				step([]int{0}, "close", "--keep", "never", id)
			}()
		}
		wg.Wait()
		got := harness.Files(p.t, p.repo)
		for i, id := range ids {
			if got[fmt.Sprintf("m/%d", i)] != fmt.Sprintf("file %d\n", i) || got[fmt.Sprintf("c%d", i)] != "file c\n" {
				p.t.Errorf("%d: what %s made was not applied", i, id)
			}
			if p.git("cat-file", "-p", fmt.Sprintf("r/%d:m/%d", i, i)) != fmt.Sprint(i) || p.git("cat-file", "-p", "refs/caisson/"+id+"/worktree:m/"+fmt.Sprint(i)) != fmt.Sprint(i) {
				p.t.Errorf("%d: a ref has other content", i)
			}
		}
		if len(got) != len(applyBase())+2*n {
			p.t.Errorf("%d files in the checkout", len(got))
		}
		p.git("fsck", "--strict", "--no-dangling")
		for _, d := range p.before.Changed(harness.TakePicture(p.t, p.repo), harness.Results, `\.`, `m(/\d+)?`, `c\d+`, `\.git/(logs/)?refs/heads/r(/\d+)?`) {
			p.t.Error(d)
		}
	})
}

// TestSameTaskAtOnce lets 20 processes work on one task at the same time:
// every answer is clear, and the end is one state.
func TestSameTaskAtOnce(t *testing.T) {
	each(t, applyBase(), func(p *place) {
		id := p.task(applyEdit)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var all []harness.Result
		run := func(args ...string) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				r, err := p.spawn(args...)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					p.t.Error(err)
				}
				all = append(all, r)
			}()
		}
		many := 20
		if p.UID != 0 {
			many = count(5, 20)
		}
		for i := range many {
			switch i % 5 {
			case 0:
				run("apply", "--yes", id)
			case 1:
				run("branch", id, "same")
			case 2:
				run("diff", id)
			case 3:
				run("export", "--dir", fmt.Sprintf("%s/same%d", p.Dir, i), id)
			case 4:
				run("keep", "--for", "1h", "--reason", "race", id)
			}
		}
		wg.Wait()
		p.clear("same task", all)
		for _, r := range all {
			if r.Exit != 0 && r.Args[0] != "apply" {
				p.t.Errorf("%v", r)
			}
		}
		p.ok("apply", "--yes", id)
		p.applied("applied by many")
		if got := p.git("rev-parse", "same^{tree}"); got == p.git("rev-parse", "HEAD^{tree}") {
			p.t.Error("the branch has nothing of the task")
		}
		// One ends it, while the others go on.
		all = nil
		for i := range 8 {
			switch i % 4 {
			case 0:
				run("close", "--keep", "never", id)
			case 1:
				run("apply", "--yes", id)
			case 2:
				run("diff", id)
			case 3:
				run("branch", id, fmt.Sprintf("end%d", i))
			}
		}
		wg.Wait()
		p.clear("ending", all)
		p.ok("reap")
		if p.show(id).State == "kept" {
			// It was kept on purpose, above, and both closes ended it as one. The next one
			// ends the keeping.
			p.ok("close", "--keep", "never", id)
		}
		if v := p.show(id); v.State != "closed" {
			p.t.Errorf("state %s (%s)", v.State, v.Problem)
		}
		p.applied("after the end")
		p.git("fsck", "--strict", "--no-dangling")
		for _, line := range strings.Split(p.git("for-each-ref", "--format=%(refname)"), "\n") {
			if strings.Contains(line, "/pin") {
				p.t.Errorf("a pin is left: %s", line)
			}
		}
		p.unmarked("race")
	})
}

// TestKilled kills the caller of apply, branch, export and resume at random
// moments; after reap the checkout is exactly as before or exactly as wanted,
// the repository is whole, nothing is lost and nothing is left.
func TestKilled(t *testing.T) {
	each(t, applyBase(), func(p *place) {
		// Enough files that there is something between the first and the last.
		id := p.task(applyEdit + "; mkdir many; for i in $(seq 150); do echo $i >many/$i; done")
		want := p.inside(id)
		old := harness.Files(p.t, p.repo)
		// What each needs when it is not killed, so that the moments are spread over it.
		long := map[string]time.Duration{}
		measure := func(name string, args ...string) {
			t0 := time.Now()
			p.ok(args...)
			long[name] = time.Since(t0)
		}
		measure("apply", "apply", "--yes", id)
		p.sh(p.repo, "git reset -q --hard; git clean -qfdx")
		measure("branch", "branch", id, "k")
		measure("export", "export", "--dir", p.Dir+"/k", id)
		applied := 0
		for i := range count(8, 200) {
			name := []string{"apply", "apply", "branch", "export"}[i%4]
			args := map[string][]string{"apply": {"apply", "--yes", id}, "branch": {"branch", id, fmt.Sprintf("k%d", i)}, "export": {"export", "--dir", fmt.Sprintf("%s/k%d", p.Dir, i), id}}[name]
			cmd := p.Command(p.t.Context(), p.repo, harness.Bin(), args...)
			if err := cmd.Start(); err != nil {
				p.t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.Int64N(int64(long[name])))) // the moment is the test's input, not readiness
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if r := p.do("reap"); r.Exit != 0 {
				p.t.Errorf("reap after a killed %s: %v", name, r)
			}
			// The task is open: its supervisor does the work, and finishes it or takes it
			// back when the caller is gone. It does one thing at a time, so this waits for it.
			p.do("apply", "--dry-run", id)
			p.settled(id, want, old, name)
			if len(harness.Files(p.t, p.repo)) != len(old) {
				applied++
			}
			p.git("fsck", "--strict", "--no-dangling")
			if name == "branch" {
				if r := p.shell(p.repo, fmt.Sprintf("git rev-parse -q --verify k%d^{tree}", i)); r.Exit == 0 && strings.TrimSpace(r.Stdout) != p.git("rev-parse", "k^{tree}") {
					p.t.Errorf("a branch with half of it: %v", r)
				}
			}
			// It can be done now, whatever was left.
			if i%3 == 0 {
				if r := p.do(args...); r.Exit != 0 && name != "export" {
					p.t.Errorf("%s after a killed one: %v", name, r)
				}
			}
			p.sh(p.repo, "git reset -q --hard; git clean -qfdx; git for-each-ref --format='delete %(refname)' 'refs/heads/k[0-9]*' | git update-ref --stdin")
		}
		p.t.Logf("%d of the killed applies had done it", applied)

		// resume: kept, or open.
		p.do("close", "--keep", "always", id)
		t0 := time.Now()
		p.ok("resume", id)
		resume := time.Since(t0)
		p.do("close", "--keep", "always", id)
		for range count(2, 60) {
			cmd := p.Command(p.t.Context(), p.repo, harness.Bin(), "resume", id)
			if err := cmd.Start(); err != nil {
				p.t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.Int64N(int64(resume))))
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			p.do("reap")
			v := p.show(id)
			for end := time.Now().Add(harness.Limit); v.State != "kept" && v.State != "ready" && time.Now().Before(end); v = p.show(id) {
				time.Sleep(20 * time.Millisecond)
				p.do("reap")
			}
			switch v.State {
			case "ready":
				harness.Same(p.t, "resumed by a killed caller", p.inside(id), want)
				p.do("close", "--keep", "always", id)
			case "kept":
				if out := p.do("diff", "--name-status", id); out.Exit != 0 || !strings.Contains(out.Stdout, "many/150") {
					p.t.Errorf("kept, and something is lost: %v", out)
				}
			default:
				p.t.Errorf("after a killed resume: %s (%s)", v.State, v.Problem)
			}
		}
		p.ok("resume", id)
		harness.Same(p.t, "resumed at last", p.inside(id), want)
		p.ok("close", "--keep", "never", id)
		p.outside("killed")
	})
}

// settled checks that the checkout is one of the two, and that no file of ours
// is in it or in the repository.
func (p *place) settled(id string, want, old map[string]string, what string) {
	p.t.Helper()
	now := harness.Files(p.t, p.repo)
	if len(now) == len(old) {
		harness.Same(p.t, "as before, after a killed "+what, now, old)
	} else {
		harness.Same(p.t, "as wanted, after a killed "+what, now, want)
	}
	left := p.sh(p.repo, "find . -path ./.git/objects -prune -o \\( -name '*.lock' -o -name '*caisson*' -o -name '.new-*' -o -name 'tmp_*' \\) -print | grep -v -e refs/caisson -e refs/heads/caisson || :")
	if left != "" {
		p.t.Errorf("left by a killed %s: %s", what, left)
	}
}
