//go:build linux

package forgery

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// full runs every protection, every probe and the long loops.
var full = os.Getenv("CAISSON_TEST_FULL") != ""

type order struct {
	Attacker, Dir   string
	Probes          []string
	Spawns, Crashes int
	Grants          bool
	LateMS          int
}

// result is what the rig says of one probe; see its own declaration.
type result struct {
	Probe                  string
	Attempts, Done, Forged int
	Denied                 map[string]int
	Possible, Leaked, Lost []string
	Poisoned               bool
	Unknown                int
	Silent                 string
}

type report struct {
	Without        []string
	UID            int
	Kernel         string
	Honest, Frames int
	Results        []result
}

var attacker = sync.OnceValues(func() (string, error) {
	out := filepath.Join(filepath.Dir(harness.Bin()), "forger")
	return out, harness.GoBuild(out, "./test/forgery/testdata/attacker")
})

var rigs sync.Map // without → func() (string, error)

// rig builds host and worker without some protections, once.
func rig(without string) (string, error) {
	f, _ := rigs.LoadOrStore(without, sync.OnceValues(func() (string, error) {
		out := filepath.Join(filepath.Dir(harness.Bin()), "rig-"+without)
		return out, harness.GoBuildTagged(out, "./test/forgery/testdata/rig", "canary", "-X github.com/caisson-dev/caisson/internal/sys.without="+without)
	}))
	return f.(func() (string, error))()
}

// run plays probes in a build and returns what became of them.
func run(t *testing.T, id *harness.Identity, without string, o order) report {
	t.Helper()
	bin, err := rig(without)
	if err != nil {
		t.Fatal(err)
	}
	if o.Attacker, err = attacker(); err != nil {
		t.Fatal(err)
	}
	o.Dir = filepath.Join(id.Tmp, fmt.Sprintf("%s-%d", without, time.Now().UnixNano()))
	id.Mkdir(t, o.Dir)
	arg, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	limit := harness.Limit
	if o.Spawns > 2000 {
		limit *= 4
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r := harness.Run(t, id.Command(ctx, o.Dir, bin, string(arg)))
	var rep report
	if err := json.Unmarshal([]byte(r.Stdout), &rep); err != nil || r.Exit != 0 {
		t.Fatalf("the rig: %v, %v", err, r)
	}
	return rep
}

func names(apart bool) (out []string) {
	for _, p := range probes {
		if apart || !p.apart {
			out = append(out, p.id)
		}
	}
	return out
}

// settings of how much.
func amounts(o order) order {
	o.Spawns, o.Crashes = 24, 3
	if full {
		o.Spawns, o.Crashes = 2000, 40
	}
	return o
}

// TestShipped runs every probe against the worker as it is. Nothing is forged,
// nothing read, nothing lost, and what must be denied is.
func TestShipped(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		rep := run(t, id, "none", amounts(order{Probes: names(true)}))
		if len(rep.Without) != 0 || rep.Honest == 0 || rep.Frames == 0 {
			t.Fatalf("not the run that was asked for: %+v", rep)
		}
		for i, r := range rep.Results {
			if r.Probe != probes[i].id {
				t.Fatalf("%s ran in the place of %s", r.Probe, probes[i].id)
			}
			safe(t, r)
			if r.Attempts == 0 || r.Silent != "" {
				t.Errorf("%s: nothing was attempted: %s", r.Probe, r.Silent)
			}
			for _, p := range r.Possible {
				t.Errorf("%s: POSSIBLE: %s", r.Probe, p)
			}
			// The kernel's out-of-memory killer may choose a process of the worker
			// while it still takes a tool's memory away: a bounded end.
			if r.Poisoned != probes[i].apart && r.Probe != "F17" {
				t.Errorf("%s: channel given up: %v", r.Probe, r.Poisoned)
			}
			t.Logf("%s: %d attempts, %d of them without a denial to expect; denied by %v; %d of unknown outcome", r.Probe, r.Attempts, r.Done, r.Denied, r.Unknown)
		}
		t.Logf("%d operations beside the probes, %d frames sent by W and as many taken", rep.Honest, rep.Frames)
		record(id, "none", rep)
	})
}

// TestManyStarts is F8 at length: ten thousand programs look at what they were
// born with, beside honest calls and a tool that forks without end.
func TestManyStarts(t *testing.T) {
	if !full {
		t.Skip("takes minutes; TestShipped has the short form, CAISSON_TEST_FULL=1 this one")
	}
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		const starts = 10_000
		rep := run(t, id, "none", order{Probes: []string{"F8"}, Spawns: starts})
		r := rep.Results[0]
		safe(t, r)
		if r.Attempts < starts || len(r.Possible) > 0 || r.Poisoned {
			t.Errorf("%+v", r)
		}
		t.Logf("%d starts looked at, %d honest operations beside them, %d of unknown outcome, %d frames sent by W and as many taken", r.Attempts, rep.Honest, r.Unknown, rep.Frames)
	})
}

// safe is what holds with any one protection missing.
func safe(t *testing.T, r result) {
	t.Helper()
	if r.Forged != 0 {
		t.Errorf("%s: %d messages were taken that nobody sent", r.Probe, r.Forged)
	}
	for _, l := range r.Leaked {
		t.Errorf("%s: a tool could see bytes of the channel: %s", r.Probe, l)
	}
	for _, l := range r.Lost {
		t.Errorf("%s: %s", r.Probe, l)
	}
}

// TestLate is the accounting itself where what the processes inside say is read
// late: no line of a boundary may end up in the books of the next one, where it
// would look like a message that nobody sent.
func TestLate(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		rep := run(t, id, "none", order{Probes: []string{"F11", "F19", "F18"}, Crashes: 2, LateMS: 3})
		for _, r := range rep.Results {
			safe(t, r)
			if r.Attempts == 0 || !r.Poisoned {
				t.Errorf("%+v", r)
			}
		}
	})
}

// TestGrants is what a task with every grant can do: trace its own processes and
// make user namespaces. The worker's stay out of reach.
func TestGrants(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		rep := run(t, id, "none", order{Probes: []string{"F2", "F3", "F4", "F5", "F6", "F7", "F15"}, Grants: true})
		for _, r := range rep.Results {
			safe(t, r)
			for _, p := range r.Possible {
				if p != "unshare a user namespace" {
					t.Errorf("%s: POSSIBLE: %s", r.Probe, p)
				}
			}
			if r.Attempts == 0 || r.Poisoned {
				t.Errorf("%s: %+v", r.Probe, r)
			}
		}
	})
}

// TestMissing runs the probes against builds without one protection: still
// nothing is forged. Without any of them something is: the probes are live.
func TestMissing(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		for _, v := range variants {
			if v.without == "none" || !v.always && !full && !*updateDocs {
				continue
			}
			t.Run(v.without, func(t *testing.T) {
				o := order{Probes: sample, Spawns: 12}
				if v.without == "all" {
					o.Probes = []string{"F2", "F3", "F5", "F8", "F23"}
				}
				if full || *updateDocs {
					o = order{Probes: names(false), Spawns: 24}
				}
				rep := run(t, id, v.without, o)
				if v.without != "all" && !slices.Equal(rep.Without, []string{v.without}) || v.without == "all" && len(rep.Without) != len(variants)-2 {
					t.Fatalf("the build goes without %q", rep.Without)
				}
				forged, leaked, reached, shown := 0, 0, 0, 0
				for _, r := range rep.Results {
					forged, leaked, reached = forged+r.Forged, leaked+len(r.Leaked), reached+len(r.Possible)
					if v.without != "all" {
						safe(t, r)
					} else if r.Probe == "F23" {
						shown = len(r.Possible)
					}
				}
				t.Logf("%d attempts worked, %d messages forged, %d times frames were read", reached, forged, leaked)
				if v.without == "all" && forged == 0 {
					t.Errorf("with nothing in the way no message was forged: the probes prove nothing: %+v", rep.Results)
				}
				if v.without == "all" && shown == 0 {
					t.Error("with nothing in the way the worker's own tools showed nothing of the worker: F23 proves nothing")
				}
				record(id, v.without, rep)
			})
		}
	})
}

// hostile is the hostile program itself.
func hostile(t *testing.T) string {
	t.Helper()
	path, err := attacker()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestHostileRoot opens a user's task on a root folder whose every program is the
// hostile one: none runs before a command names it, also none of those that the
// host itself would look for, and the task ends as every other.
func TestHostileRoot(t *testing.T) {
	program := hostile(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		root := filepath.Join(id.Dir, "root")
		for _, p := range []string{"/init", "/sbin/init", "/bin/sh", "/bin/bash", "/usr/bin/git", "/usr/bin/env", "/usr/bin/caisson-worker", "/usr/sbin/ldconfig", "/lib64/ld-linux-x86-64.so.2", "/entrypoint.sh"} {
			id.Write(t, root+p, program, 0o755)
		}
		id.Mkdir(t, root+"/var/lib")
		id.Write(t, root+"/hostile-root", repo, 0o644)
		id.Write(t, root+"/etc/passwd", "root::0:0::/:/sbin/init\n", 0o644)
		id.Write(t, root+"/etc/ld.so.preload", "/sbin/init\n", 0o644)
		id.Write(t, root+"/etc/gitconfig", "[core]\n\tfsmonitor = /sbin/init\n", 0o644)
		task := id.Open(t, repo, "--rootfs", root)
		ran := func() string {
			var res struct {
				Claimed struct{ Result struct{ Content string } }
			}
			r := id.Caisson(t, repo, "tool", "--json", task, "read_file", `{"path":"ran"}`)
			_ = json.Unmarshal([]byte(r.Stdout), &res)
			return res.Claimed.Result.Content
		}
		for _, args := range [][]string{{"show", task}, {"diff", task}, {"log", task}, {"tool", task, "list_dir", "{}"}, {"tool", task, "write_file", `{"path":"b.txt","content":"b\n"}`}} {
			id.OK(t, repo, args...)
		}
		if text := ran(); text != "" {
			t.Errorf("before any command there ran: %s", text)
		}
		for _, p := range []string{"/init", "/usr/bin/caisson-worker", "/lib64/ld-linux-x86-64.so.2"} {
			r := id.Caisson(t, repo, "exec", task, "--", p)
			if r.Exit != 0 || !strings.Contains(r.Stdout, `"Did"`) {
				t.Errorf("%s: %v", p, r)
			}
			for l := range strings.Lines(r.Stdout) {
				if strings.Contains(l, `"Did":"possible"`) {
					t.Errorf("%s: POSSIBLE: %s", p, l)
				}
			}
		}
		if n := strings.Count(ran(), "\n"); n != 3 {
			t.Errorf("control: three commands left %d marks", n)
		}
		id.OK(t, repo, "diff", task)
		id.OK(t, repo, "close", task)
	})
}

// TestProduct runs the hostile program as a user's task would.
func TestProduct(t *testing.T) {
	program := hostile(t)
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
		id.Write(t, repo+"/forger", program, 0o755)
		id.Git(t, repo, "add", "forger")
		id.Git(t, repo, "commit", "-q", "-m", "a tool")
		task := id.Open(t, repo)
		// What was proved of the channel has a name, and the level that goes with it.
		var show struct {
			Channel string
			Levels  []struct {
				Axis   string
				Proved int
			}
		}
		if err := json.Unmarshal([]byte(id.OK(t, repo, "show", "--json", task)), &show); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(show.Levels, func(l struct {
			Axis   string
			Proved int
		}) bool {
			return l.Axis == "CHN"
		})
		if show.Channel != "kernel-object" || i < 0 || show.Levels[i].Proved != 2 {
			t.Errorf("channel %q, levels %+v", show.Channel, show.Levels)
		}
		if text := id.OK(t, repo, "show", task); !strings.Contains(text, "kernel-object") {
			t.Errorf("show does not name the channel's assurance:\n%s", text)
		}
		for _, p := range []string{"F1", "F2", "F3", "F5", "F6", "F7", "F13", "F14", "F16", "F20", "F21", "F22"} {
			r := id.Caisson(t, repo, "exec", task, "--", repo+"/forger", p)
			if r.Exit != 0 || !strings.Contains(r.Stdout, `"Did"`) {
				t.Errorf("%s: %v", p, r)
			}
			for l := range strings.Lines(r.Stdout) {
				if strings.Contains(l, `"Did":"possible"`) {
					t.Errorf("%s: POSSIBLE: %s", p, l)
				}
			}
		}
		if out := id.OK(t, repo, "exec", task, "--", "cat", "a.txt"); out != "a\n" {
			t.Errorf("the task says %q", out)
		}
	})
}

// TestNoSeams: what leaves protections out and mirrors frames is not in the
// product.
func TestNoSeams(t *testing.T) {
	marks := [][]byte{[]byte("canary "), []byte("guardian took")}
	count := func(path string) (n int) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range marks {
			n += bytes.Count(data, m)
		}
		return n
	}
	worker := filepath.Join(filepath.Dir(harness.Bin()), "plain-worker")
	if err := harness.GoBuild(worker, "./cmd/caisson-worker"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{harness.Bin(), worker} {
		if n := count(p); n != 0 {
			t.Errorf("%s holds %d of the seams' texts", p, n)
		}
	}
	bin, err := rig("none")
	if err != nil {
		t.Fatal(err)
	}
	if count(bin) == 0 {
		t.Error("control: the seams' texts are not even in the rig")
	}
}
