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

	"github.com/caisson-dev/caisson/internal/verify"
	"github.com/caisson-dev/caisson/internal/verify/attack"
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
type outcome = attack.Outcome

func outcomes(t *testing.T, text string) map[string]outcome {
	t.Helper()
	all, err := verify.Outcomes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// filtered reports whether this process, so the control too, runs under a system
// call filter, as inside a boundary.
func filtered() bool {
	status, err := os.ReadFile("/proc/self/status")
	return err == nil && strings.Contains(string(status), "\nSeccomp:\t2")
}

// asRoot reports whether an attempt is one that files of user 0 decide, where tools
// are that user: root's engine, and root who started the product. show says so.
func asRoot(id *harness.Identity, name string) bool {
	if harness.Backend() == "linux" || id.Inside() != 0 {
		return false
	}
	return name == "be user 0 of the machine" || strings.Contains(name, "/proc/1/") || strings.HasPrefix(name, "make a ") && strings.HasSuffix(name, " in /dev")
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
				if prop == attack.Use { // what must work
					if in.Errno != "" {
						t.Errorf("%s does not work inside: %s %s", in.Name, in.Errno, in.Detail)
					}
					continue
				}
				if asRoot(id, in.Name) {
					t.Logf("%s: what the finding root-identity is about: %s", in.Name, in.Errno)
				} else if in.Errno == "" {
					t.Errorf("%s: POSSIBLE inside", in.Name)
				} else if !verify.Refused(prop, in.Errno) {
					t.Errorf("%s: ended with %s inside, which is not a refusal (%s)", in.Name, in.Errno, in.Detail)
				}
				var out *outcome
				if o, ok := control[key]; ok {
					out = &o
				}
				switch shown, w := verify.Control(out, id.UID == 0, filtered()); shown {
				case verify.Works:
					worked++
				case verify.Dead:
					t.Errorf("%s: a dead test: %s", in.Name, w)
				case verify.Lacks:
					lacking++
					why[w]++
				default:
					why[w]++
				}
			}
			t.Logf("%d attempts refused inside, %d of them work outside", len(keys), worked)
			for w, n := range why {
				t.Logf("%d without a control: %s", n, w)
			}
			if worked == 0 && lacking > 0 && lacking == len(keys) {
				t.Skipf("all %d attempts were refused inside, but this machine has nothing of what they need: no control", len(keys))
			}
			if worked == 0 && id.UID == 0 && prop != attack.Use {
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
