//go:build linux

package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// attacker returns the hostile program, built once.
var attacker = sync.OnceValues(func() (string, error) {
	out := filepath.Join(filepath.Dir(harness.Bin()), "attacker")
	return out, harness.GoBuild(out, "./test/conformance/testdata/attacker")
})

// hostile makes a repository with the hostile program in it.
func hostile(t *testing.T, id *harness.Identity, files map[string]string) string {
	t.Helper()
	path, err := attacker()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	repo := id.Repo(t, files)
	id.Write(t, repo+"/attacker", string(data), 0o755)
	id.Git(t, repo, "add", "attacker")
	id.Git(t, repo, "commit", "-q", "-m", "a tool")
	return repo
}

// outside prepares the hostile program to run on the host.
func outside(id *harness.Identity, dir string, args ...string) harness.Result {
	path, _ := attacker()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	cmd := id.Command(ctx, dir, path, args...)
	out, err := cmd.Output()
	r := harness.Result{Args: args, Stdout: string(out), Exit: -1}
	if cmd.ProcessState != nil {
		r.Exit = cmd.ProcessState.ExitCode()
	}
	if err != nil {
		r.Stderr = err.Error()
	}
	return r
}

// nonce returns a text that stands nowhere else.
func nonce() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b)
	return "nonce" + hex.EncodeToString(b)
}

// outcome is one line of the hostile program.
type outcome struct {
	Prop, Name, Errno, Detail, Left string
	Root, Reached, Kernel           bool
}

func outcomes(t *testing.T, text string) map[string]outcome {
	t.Helper()
	all := map[string]outcome{}
	for line := range strings.Lines(text) {
		var o outcome
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("the hostile program printed %q: %v", line, err)
		}
		all[o.Prop+" "+o.Name] = o
	}
	return all
}

// denied are the answers that mean: refused. CONFINED: something is there, and
// it is not the host's.
var denied = []string{"EPERM", "EACCES", "ENOENT", "ENOSYS", "EROFS", "EAFNOSUPPORT", "ENETUNREACH", "ECONNREFUSED", "CONFINED"}

// alsoDenied holds further answers that mean the same for some attempts.
var alsoDenied = map[string][]string{
	"P27": {"ESRCH"}, "P28": {"ESRCH"}, "P25": {"ESRCH"},
	"P30": {"ENXIO"}, // there is no terminal
	"P63": {"EXDEV"}, // nothing can be moved over what is another file system
}

// missing are the answers of a kernel that lacks a part.
var missing = []string{"ENOSYS", "ENOENT", "ENODEV", "ENXIO", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EOPNOTSUPP", "EXDEV", "EFAULT", "ENOTDIR", "EBUSY", "EIO", "CONFINED", "ENOTSUP", "ETXTBSY"}

// filtered reports whether this process, so the control too, runs under a system
// call filter, as inside a boundary.
func filtered() bool {
	status, err := os.ReadFile("/proc/self/status")
	return err == nil && strings.Contains(string(status), "\nSeccomp:\t2")
}

// judge compares what happened inside with the control outside, property by
// property. Every attempt must be refused inside; outside every one must work,
// or it is said why the kernel or the machine forbids it.
func judge(t *testing.T, id *harness.Identity, inside, control map[string]outcome) {
	t.Helper()
	props := map[string][]string{}
	for key, o := range inside {
		props[o.Prop] = append(props[o.Prop], key)
	}
	var names []string
	for p := range props {
		names = append(names, p)
	}
	slices.Sort(names)
	for _, prop := range names {
		t.Run(prop, func(t *testing.T) {
			keys := props[prop]
			slices.Sort(keys)
			worked, lacking, why := 0, 0, map[string]int{}
			for _, key := range keys {
				in := inside[key]
				if prop == "USE" { // what must work
					if in.Errno != "" {
						t.Errorf("%s does not work inside: %s %s", in.Name, in.Errno, in.Detail)
					}
					continue
				}
				if in.Errno == "" {
					t.Errorf("%s: POSSIBLE inside", in.Name)
				} else if !slices.Contains(denied, in.Errno) && !slices.Contains(alsoDenied[prop], in.Errno) {
					t.Errorf("%s: ended with %s inside, which is not a refusal (%s)", in.Name, in.Errno, in.Detail)
				}
				out, ok := control[key]
				switch {
				case !ok: // it names a process that only the boundary has
					why["the target exists inside only"]++
				case out.Left != "":
					why["not done outside: "+out.Left]++
				case out.Errno == "":
					worked++
				case out.Root && id.UID != 0:
					why["outside only root can do it, this is an unprivileged user"]++
				case out.Kernel && (slices.Contains(missing, out.Errno) || out.Errno == "EPERM" || out.Errno == "EACCES"):
					why["this kernel or machine has none, or refuses it to everybody: "+out.Errno]++
					lacking++
				case filtered():
					why["this process runs under a system call filter itself, which answers "+out.Errno]++
				default:
					t.Errorf("%s: a dead test, it fails outside too: %s %s", out.Name, out.Errno, out.Detail)
				}
			}
			t.Logf("%d attempts refused inside, %d of them work outside", len(keys), worked)
			for w, n := range why {
				t.Logf("%d without a control: %s", n, w)
			}
			if worked == 0 && lacking > 0 && lacking == len(keys) {
				t.Skipf("all %d attempts were refused inside, but this machine has nothing of what they need: no control", len(keys))
			}
			if worked == 0 && id.UID == 0 && prop != "USE" {
				t.Errorf("no attempt of %s works outside: the property is not tested", prop)
			}
		})
	}
}

// execAttacker runs the hostile program in an open task.
func execAttacker(t *testing.T, id *harness.Identity, repo, task string, args ...string) harness.Result {
	t.Helper()
	return id.Caisson(t, repo, append([]string{"exec", task, "--", repo + "/attacker"}, args...)...)
}

func jsonOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// alive fails the test unless the task still does what it is told.
func alive(t *testing.T, id *harness.Identity, repo, task string) {
	t.Helper()
	if out := id.OK(t, repo, "exec", task, "--", "/bin/echo", "alive"); out != "alive\n" {
		t.Errorf("the task says %q", out)
	}
}

func lsState(t *testing.T, id *harness.Identity, task string) (state, problem string) {
	t.Helper()
	var v struct{ State, Problem string }
	out := id.Caisson(t, id.Dir, "show", "--json", task)
	if err := json.Unmarshal([]byte(out.Stdout), &v); err != nil {
		t.Fatal(fmt.Errorf("%w: %v", err, out))
	}
	return v.State, v.Problem
}
