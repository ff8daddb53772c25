//go:build linux

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify"
	"github.com/caisson-dev/caisson/test/harness"
)

// verified runs `caisson verify` and returns its one report.
func verified(t *testing.T, id *harness.Identity, status int, args ...string) task.VerifyReport {
	t.Helper()
	r := id.Caisson(t, id.Dir, append([]string{"verify", "--json"}, args...)...)
	var all task.VerifyAll
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil || len(all.Reports) != 1 || r.Exit != status && status >= 0 {
		t.Fatalf("%v: %v", err, r)
	}
	return all.Reports[0]
}

func broken(r task.VerifyReport) (out []string) {
	for _, p := range r.Probes {
		if p.Result == task.VerifyBroken {
			out = append(out, p.ID)
		}
	}
	return out
}

// TestVerify has the program attack itself. What holds, what is told and what is left
// is looked at.
func TestVerify(t *testing.T) {
	harness.Each(t, func(t *testing.T, id *harness.Identity) {
		id.Env = append(id.Env, "TMPDIR="+id.Tmp)
		before := leftovers(t, id)
		file := id.Tmp + "/report.jsonl"
		r := verified(t, id, 0, "--backend", harness.Product(), "--report", file)
		if b := broken(r); len(b) > 0 || r.Verdict != task.VerifyHeld {
			t.Errorf("%s, broken %v", r.Verdict, b)
		}
		held := 0
		for _, p := range r.Probes {
			switch {
			case p.Result == task.VerifyHeld:
				held++
				if p.Shown == 0 || p.Attempts == 0 {
					t.Errorf("%s held without a control", p.ID)
				}
			case p.Why == "":
				t.Errorf("%s is %s and nobody says why", p.ID, p.Result)
			default:
				t.Logf("%s is %s: %s %q", p.ID, p.Result, p.Why, p.Unclear)
			}
		}
		if held < 15 {
			t.Errorf("only %d properties held", held)
		}
		if len(r.Questions) != len(verify.Questions()) || len(r.Mounts) == 0 || len(r.NotTried) == 0 || len(r.Levels) == 0 || r.Head == "" || !strings.Contains(r.Refusal, "boundary_missing") {
			t.Errorf("questions %d, mounts %d, not tried %d, levels %d, head %q, refusal %q", len(r.Questions), len(r.Mounts), len(r.NotTried), len(r.Levels), r.Head, r.Refusal)
		}
		for i, q := range r.Questions {
			if q.Question != verify.Questions()[i] || len(q.Answer) == 0 || q.Answer[0] == "" {
				t.Errorf("%+v", q)
			}
		}
		if data, err := os.ReadFile(file); err != nil || strings.Count(string(data), "\n") != len(r.Probes)+2 {
			t.Errorf("the report file: %v, %d lines", err, strings.Count(string(data), "\n"))
		}
		if after := leftovers(t, id); !slices.Equal(before, after) {
			t.Errorf("left behind:\n%q\nbefore:\n%q", after, before)
		}
		if harness.Backend() != "linux" {
			return // what follows is the same with every backend
		}
		// Refusals: before anything is attacked.
		for _, c := range []struct {
			args []string
			exit int
			says string
		}{
			{[]string{"--backend", "nonsense"}, 2, "nonsense"},
			{[]string{"--backend", "vm"}, 5, "no boundary was had"},
			{[]string{"--report", file}, 2, "there is something of this name"},
			{[]string{"--command", "true"}, 2, "goes"},
			{[]string{"--command", "exit 3; {}"}, 5, "status 3"},
			{[]string{"--backend", "linux", "--command", "{}"}, 2, "one of them at most"},
			{[]string{"extra"}, 2, "unexpected"},
		} {
			if x := id.Caisson(t, id.Dir, append([]string{"verify"}, c.args...)...); x.Exit != c.exit || !strings.Contains(x.Stdout+x.Stderr, c.says) {
				t.Errorf("%q: %v", c.args, x)
			}
		}
		if after := leftovers(t, id); !slices.Equal(before, after) {
			t.Errorf("left behind by refusals:\n%q\nbefore:\n%q", after, before)
		}
	})
}

// TestVerifyEnds ends a run in the middle: asked to, it takes everything away itself;
// killed, the next one does.
func TestVerifyEnds(t *testing.T) {
	harness.OnlyLinux(t, "what is planted and what is taken away is the same")
	id := harness.NewIdentity(t, "self", os.Getuid()) // as root more is planted
	id.Env = append(id.Env, "TMPDIR="+id.Tmp)
	before := leftovers(t, id)
	var planted []string
	for _, sig := range []os.Signal{os.Interrupt, os.Kill} {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
		defer cancel()
		cmd := id.Command(ctx, id.Dir, harness.Bin(), "verify", "--json", "--backend", "linux")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// A task of its own is there: its supervisor listens.
		for {
			if n, _ := filepath.Glob(id.Runtime + "/v*/*.sock"); len(n) > 0 {
				break
			}
			if ctx.Err() != nil {
				t.Fatal("no task was opened")
			}
			time.Sleep(10 * time.Millisecond)
		}
		// What root has in folders that others plant in too goes by its own name.
		names, _ := filepath.Glob(id.State + "/verify-*")
		if len(names) != 1 {
			t.Fatalf("runs: %q", names)
		}
		own, _ := filepath.Glob("/run/caisson-verify-" + strings.TrimPrefix(filepath.Base(names[0]), "verify-") + ".*")
		if id.UID == 0 && len(own) == 0 {
			t.Error("the control: nothing is planted in /run")
		}
		planted = append(planted, own...)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		after := leftovers(t, id)
		switch {
		case sig == os.Interrupt && (cmd.ProcessState.ExitCode() != 130 || !slices.Equal(before, after)):
			t.Errorf("interrupted: %v, left behind: %q", err, after)
		case sig == os.Kill && len(after) == len(before):
			t.Error("the control: a killed run leaves nothing")
		}
	}
	if r := verified(t, id, 0, "--backend", "linux"); r.Verdict != task.VerifyHeld {
		t.Errorf("the run after it: %s", r.Verdict)
	}
	if after := leftovers(t, id); !slices.Equal(before, after) {
		t.Errorf("the run after a killed one leaves: %q", after)
	}
	for _, p := range planted {
		if _, err := os.Lstat(p); err == nil {
			t.Errorf("%s is still there", p)
		}
	}
}

// leftovers lists what verify could leave: its folders, and its processes.
func leftovers(t *testing.T, id *harness.Identity) []string {
	t.Helper()
	out := []string{}
	for _, pattern := range []string{id.State + "/verify-*", id.Runtime + "/*", id.Tmp + "/caisson-verify-*", "/proc/[0-9]*"} {
		names, _ := filepath.Glob(pattern)
		for _, n := range names {
			if strings.HasPrefix(n, "/proc/") {
				cmdline, _ := os.ReadFile(n + "/cmdline")
				if !strings.Contains(string(cmdline), "__attack") || !strings.Contains(string(cmdline), id.Dir) {
					continue
				}
			}
			out = append(out, n)
		}
	}
	return out
}

// TestVerifyTwins opens one hole after the other, in boundaries of caisson's and in
// somebody else's. Each must be found, by its name; without one nothing of that is.
func TestVerifyTwins(t *testing.T) {
	harness.OnlyLinux(t, "twins are boundaries with one hole, whoever made them")
	id := harness.NewIdentity(t, "user", harness.UserOf())
	id.Env = append(id.Env, "TMPDIR="+id.Tmp)
	repo := id.Repo(t, map[string]string{"a.txt": "a\n"})
	ours := func(flags string) string {
		return fmt.Sprintf("%s run --trust --repo %s --ro {dir} %s -- {}", harness.Bin(), repo, flags)
	}
	type twin struct{ name, command, breaks string }
	twins := []twin{
		{"caisson", ours(""), ""},
		{"caisson, user namespaces", ours("--grant userns"), "P25"},
		{"caisson, a variable", ours("--env GITHUB_TOKEN"), "ENV"},
	}
	full := os.Getenv("CAISSON_TEST_FULL") != ""
	if full {
		twins = append(twins, twin{"caisson, tracing", ours("--grant ptrace"), "P27"})
	}
	theirs := func(flags string) string {
		return "bwrap --unshare-user --unshare-ipc --unshare-uts --unshare-cgroup-try --die-with-parent --new-session --proc /proc --dev /dev --tmpfs /tmp --ro-bind {dir} {dir} " + flags
	}
	const shut = " {} 3<&- 4<&- 5<&-"
	if exec.Command("bwrap", "--unshare-all", "--ro-bind", "/", "/", "true").Run() == nil {
		twins = append(twins,
			twin{"bwrap", theirs("--unshare-pid --unshare-net --clearenv" + shut), "-"},
			twin{"bwrap, open descriptors", theirs("--unshare-pid --unshare-net --clearenv {}"), "P12"},
			twin{"bwrap, the network", theirs("--unshare-pid --clearenv" + shut), "P41"},
			twin{"bwrap, processes", theirs("--unshare-net --clearenv" + shut), "P28"},
		)
		if full {
			twins = append(twins,
				twin{"bwrap, the environment", theirs("--unshare-pid --unshare-net" + shut), "ENV"},
				twin{"bwrap, files", theirs("--unshare-pid --unshare-net --clearenv --ro-bind " + id.Tmp + " " + id.Tmp + shut), "P01"},
			)
		}
	} else {
		t.Log("bwrap is not installed or cannot make a sandbox here: only boundaries of caisson's are opened")
	}
	var plain []string // what bwrap alone leaves open
	for _, w := range twins {
		r := verified(t, id, -1, "--command", w.command)
		if r.Verdict == task.VerifyNotTried {
			t.Fatalf("%s: %s", w.name, r.Why)
		}
		b := broken(r)
		switch w.breaks {
		case "":
			if len(b) > 0 {
				t.Errorf("%s: broken %v", w.name, b)
			}
		case "-":
			plain = b
			for _, x := range twins {
				if strings.HasPrefix(x.name, "bwrap") && slices.Contains(b, x.breaks) {
					t.Errorf("%s: %s is broken", w.name, x.breaks)
				}
			}
		default:
			if !slices.Contains(b, w.breaks) || slices.Contains(plain, w.breaks) {
				t.Errorf("%s: %s is not found; broken %v", w.name, w.breaks, b)
			}
			if strings.HasPrefix(w.name, "caisson") && len(b) != 1 && w.breaks != "P25" {
				t.Errorf("%s: %v are broken", w.name, b)
			}
		}
	}
}
