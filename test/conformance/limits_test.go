//go:build linux

package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

// sample is what an engine is tried with where not every member is: one of each kind of
// limit.
var sample = []string{"fork bomb", "64 GiB of memory", "memory in a tmpfs", "dense in many files of the source", "descriptors"}

// TestLimits is P54: what a task uses up is its own. After each attack the host
// is well and the task still works, or it ended and says why.
func TestLimits(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := hostile(t, id, map[string]string{"a.txt": "a\n"})
		attack := repo + "/attacker"
		cgroups := limited(t, id, repo)
		processes := "" // what bounds their number: a limit of its own user namespace, with the embedded backend
		if harness.Backend() != "linux" {
			processes = "cgroup"
		}
		for _, c := range []struct {
			name  string
			args  []string
			needs string // "cgroup": only control groups bound it
			check func(t *testing.T, r harness.Result)
		}{
			{"fork bomb", []string{attack, "forks", "5000"}, processes, refusedBelow(200)},
			{"shell fork bomb", []string{"timeout", "-s", "KILL", "5", "sh", "-c", "b() { b | b & }; b; wait"}, "", nil},
			{"64 GiB of memory", []string{attack, "memory", "65536"}, "cgroup", func(t *testing.T, r harness.Result) {
				if r.Exit == 0 && !strings.Contains(r.Stdout, "refused") || strings.Contains(r.Stdout, "unbounded") {
					t.Error("it was given")
				}
			}},
			{"memory in a tmpfs", []string{attack, "fill", "/dev/shm/x", "2048"}, "", nil},
			{"100 GiB sparse", []string{"sh", "-c", "truncate -s 100G sparse /tmp/sparse; rm -f /tmp/sparse; ls -s sparse"}, "", nil},
			{"dense in the temporary folder", []string{attack, "fill", "/tmp/dense", "102400"}, "", refusedBelow(400)},
			{"dense at home", []string{attack, "fill", id.Home + "/dense", "102400"}, "", refusedBelow(400)},
			// The kernel ends one file at the limit; the sum of many is watched.
			{"dense in the source", []string{attack, "fill", repo + "/dense", "30000"}, "", refusedBelow(201)},
			{"dense in many files of the source", []string{"sh", "-c", "for i in $(seq 1000); do ./attacker fill dense$i 30; done; echo all of it"}, "", func(t *testing.T, r harness.Result) {
				if strings.Contains(r.Stdout, "all of it") || !strings.Contains(r.Stderr, "(limit)") {
					t.Error("nothing ended it below 30 000 MiB; the limit is 200 MiB")
				}
			}},
			{"10 M files in the temporary folder", []string{attack, "files", "/tmp/many"}, "cgroup", func(t *testing.T, r harness.Result) {
				if strings.Contains(r.Stdout, "unbounded") {
					t.Error("it was given")
				}
			}},
			{"many files in the source", []string{attack, "files", repo + "/many", "500000"}, "", func(t *testing.T, r harness.Result) {
				if r.Exit >= 0 && strings.Contains(r.Stdout, "unbounded") {
					t.Error("nothing ended it below 500 000 files; 5 120 are the limit's blocks")
				}
			}},
			{"descriptors", []string{attack, "fds"}, "", refusedBelow(1<<16 + 1)},
			{"10 000 orphans", []string{attack, "orphans", "10000"}, "", func(t *testing.T, r harness.Result) {
				if !strings.Contains(r.Stdout, "made 10000") || !strings.Contains(r.Stdout, "reaped") {
					t.Error("the first process does not reap")
				}
			}},
		} {
			if harness.Backend() != "linux" && !harness.Full() && !slices.Contains(sample, c.name) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				if c.needs == "cgroup" && !cgroups {
					t.Skip("this user has no delegated control groups here; the plan says so (finding no-cgroup), and rlimits do not bound this")
				}
				disk := "200m"
				if strings.HasPrefix(c.name, "many files") {
					disk = "20m" // making files is slow on some machines
				}
				task := id.Open(t, repo, "--memory", "256m", "--pids", "200", "--disk", disk, "--cpus", "0.5")
				r := id.Within(t, 90*time.Second, repo, append([]string{"exec", task, "--"}, c.args...)...)
				t.Logf("exit %d: %.300s%.300s", r.Exit, r.Stdout, r.Stderr)
				if r.Exit < 0 {
					t.Error("it never ended")
				}
				if c.check != nil {
					c.check(t, r)
				}
				healthy(t)
				if state, problem := lsState(t, id, task); state == "ready" {
					// What the attack left behind may still hold every process there is.
					r := id.Caisson(t, repo, "exec", "--json", task, "--", "/bin/echo", "alive")
					if r.Stdout != "alive\n" && code(r) != "limit" && !strings.Contains(r.Stderr, "the limit is") {
						t.Errorf("the task neither works nor names its limit: %v", r)
					}
				} else if problem == "" {
					t.Errorf("the task is %s and does not say why", state)
				}
				r = id.Within(t, 90*time.Second, repo, "close", "--discard", task)
				if r.Exit != 0 {
					t.Errorf("it cannot be closed: %v", r)
				}
			})
		}
		t.Run("processor", func(t *testing.T) {
			task := id.Open(t, repo, "--cpus", "0.5", "--pids", "200")
			id.OK(t, repo, "exec", task, "--", "sh", "-c", "setsid ./attacker spin 8 >/dev/null 2>&1 &")
			alive(t, id, repo, task)
			if cgroups {
				if q := quota(t, id, repo, task); q != 0.5 {
					t.Errorf("the processors given are %v", q)
				}
			} else {
				t.Log("no delegated control groups: processors are not bounded, and the plan says so")
			}
			healthy(t)
			id.OK(t, repo, "close", "--discard", task)
		})
		if !cgroups {
			plan := id.OK(t, repo, "plan", "--json", "--memory", "256m", "--", "true")
			if !strings.Contains(plan, "cgroup") {
				t.Errorf("limits that cannot be kept are not named:\n%s", plan)
			}
		}
	})
}

// refusedBelow expects that the kernel refused before n.
func refusedBelow(n int) func(*testing.T, harness.Result) {
	return func(t *testing.T, r harness.Result) {
		f := strings.Fields(r.Stdout)
		if len(f) >= 2 && f[0] == "refused" {
			if got, err := strconv.Atoi(f[1]); err != nil || got >= n {
				t.Errorf("refused at %s only, want below %d", f[1], n)
			}
		} else if r.Exit == 0 {
			t.Errorf("no refusal: %v", r)
		}
	}
}

// healthy starts a process and writes a file on the host.
func healthy(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(t.TempDir(), "x"), make([]byte, 1<<20), 0o600); err != nil {
		t.Errorf("the host is not well: %v", err)
	}
	p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
	if err != nil {
		t.Fatalf("the host is not well: %v", err)
	}
	if st, err := p.Wait(); err != nil || !st.Success() {
		t.Errorf("the host is not well: %v %v", st, err)
	}
}

// limited reports whether tasks of id stand in control groups.
func limited(t *testing.T, id *harness.Identity, repo string) bool {
	t.Helper()
	task := id.Open(t, repo)
	defer id.OK(t, repo, "close", task)
	return harness.Backend() != "linux" && harness.Backend() != harness.RootlessPodman || len(groups(t, id, repo, task)) > 0
}

func groups(t *testing.T, id *harness.Identity, repo, task string) (dirs []string) {
	t.Helper()
	var v struct {
		Resources []struct{ Kind, Name string }
	}
	if err := json.Unmarshal([]byte(id.OK(t, repo, "show", "--json", task)), &v); err != nil {
		t.Fatal(err)
	}
	for _, r := range v.Resources {
		if r.Kind == "cgroup" {
			dirs = append(dirs, r.Name)
		}
		if r.Kind == "oci-bundle" { // a runtime's groups have the bundle's name
			for _, at := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
				found, _ := filepath.Glob(at + filepath.Base(r.Name))
				dirs = append(dirs, found...)
			}
		}
	}
	return dirs
}

// quota reads from the host how many processors a task may use.
func quota(t *testing.T, id *harness.Identity, repo, task string) float64 {
	t.Helper()
	if e := harness.EngineOf(t); e != nil {
		n, _ := strconv.ParseFloat(e.Run(t, "inspect", "--format", "{{.HostConfig.NanoCpus}}", e.Container(t, task)), 64)
		return n / 1e9
	}
	for _, d := range groups(t, id, repo, task) {
		if b, err := os.ReadFile(d + "/cpu.max"); err == nil {
			f := strings.Fields(string(b))
			q, _ := strconv.ParseFloat(f[0], 64)
			p, _ := strconv.ParseFloat(f[1], 64)
			return q / p
		}
		if b, err := os.ReadFile(d + "/cpu.cfs_quota_us"); err == nil {
			q, _ := strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
			b, _ = os.ReadFile(d + "/cpu.cfs_period_us")
			p, _ := strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
			return q / p
		}
	}
	return -1
}
