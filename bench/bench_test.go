//go:build linux

package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testBench is a run without engines and without caisson.
func testBench(t *testing.T) *bench {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is needed to generate a repository")
	}
	// Never the test program itself: it is started, to ask for its version.
	b, err := newBench(options{caisson: "/bin/echo", rounds: 1, files: 300, limit: time.Minute, time: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	b.log = io.Discard
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(b.dir); !os.IsNotExist(err) {
			t.Errorf("the folder of the run is still there: %v", err)
		}
	})
	return b
}

// fastest is what takes the least time of all lines.
func fastest() *group {
	g := &group{key: "test", title: "Test", note: "A note.", base: "bare exec"}
	g.add(contender{name: "bare exec", what: "no boundary", argv: []string{"/bin/sh", "-c", "echo x"}}, nil)
	g.add(contender{name: "quiet", what: "prints nothing", argv: []string{"/bin/sh", "-c", "exit 0"}, silent: true}, nil)
	g.add(contender{name: "mute", what: "should have printed", argv: []string{"/bin/sh", "-c", "exit 0"}}, nil)
	g.add(contender{name: "broken", argv: []string{"/bin/sh", "-c", "echo a | b >&2; exit 3"}}, nil)
	g.add(contender{name: "absent", argv: []string{"no-such-program-here"}}, nil)
	return g
}

func TestReportForm(t *testing.T) {
	b := testBench(t)
	if err := b.measure(t.Context(), fastest(), 1); err != nil {
		t.Fatal(err)
	}
	b.machine = look(t.Context(), b)
	b.machine.end()
	b.failed = append(b.failed, "memory: "+b.dir+"/x | is\nnot there")
	text := b.report()
	for _, want := range []string{"# Benchmarks\n", "## Machine", "## Goals", "## Test\n\nA note.\n", "| bare exec |", "| no boundary |\n", "printed nothing", "exit status 3",
		"not present: there is no no-such-program-here", "| not measured |", "No figures: memory: DIR/x \\| is not there."} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if strings.Contains(text, b.dir) {
		t.Error("the report names the folder of the run")
	}
	cells := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		n := strings.Count(strings.ReplaceAll(line, "\\|", ""), "|")
		if cells != 0 && n != cells || !strings.HasSuffix(line, "|") {
			t.Errorf("a row that is not like its table: %s", line)
		}
		cells = n
	}
	if t.Failed() {
		t.Log(text)
	}

	raw, err := b.raw()
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Figures map[string]float64
		Samples map[string][]map[string]float64
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Samples["test/bare exec"]) != 1 || v.Figures["test/bare exec/first"] <= 0 || v.Figures["test/bare exec/exit"] < v.Figures["test/bare exec/first"] {
		t.Errorf("figures of the one round: %s", raw)
	}
	if _, ok := v.Figures["test/quiet/first"]; ok {
		t.Error("a first byte of what prints nothing")
	}
}

func TestGoals(t *testing.T) {
	for _, g := range goals {
		for _, f := range []struct {
			a, b float64
			want bool
		}{{1e-3, 1e-3, true}, {1e9, 1, false}} {
			if strings.HasPrefix(g.want, "at least") { // where more is better
				f.a, f.b = 1/f.a, 1
				if f.want {
					f.a = 1e9
				}
			}
			b := &bench{figures: map[string]float64{}}
			for i, k := range g.needs {
				b.figures[k] = []float64{f.a, f.b}[i]
			}
			for _, row := range b.goals().rows {
				if row[0] != g.figure {
					continue
				}
				if got := row[3] == "yes"; got != f.want || row[3] == "not measured" {
					t.Errorf("%s with %v: %v", g.figure, f, row)
				}
			}
			b.o.quick = true
			for _, row := range b.goals().rows {
				if row[3] == "yes" || row[3] == "no" {
					t.Errorf("a quick run judged: %v", row)
				}
			}
		}
	}
}

func TestStreamsAreCounted(t *testing.T) {
	b := testBench(t)
	c := contender{argv: []string{"/bin/sh", "-c", "cat"}, feed: 300_000, bytes: 300_000}
	if _, err := b.once(t.Context(), c); err != nil {
		t.Error(err)
	}
	c.bytes++
	if _, err := b.once(t.Context(), c); err == nil {
		t.Error("a byte that did not come was not missed")
	}
	c = contender{argv: []string{"/bin/sh", "-c", "exit 0"}, feed: 1 << 20, silent: true} // reads nothing
	if _, err := b.once(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// A stop must not wait for the command, and asks it to end before it is killed.
func TestInterrupt(t *testing.T) {
	b := testBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	mark := filepath.Join(b.dir, "mark")
	after := false
	c := contender{argv: []string{"/bin/sh", "-c", `trap 'echo ended >"$0"; exit 1' TERM; echo x; while :; do sleep 0.05; done`, mark},
		after: func(ctx context.Context) error { after = true; return ctx.Err() }}
	stop := time.AfterFunc(300*time.Millisecond, cancel)
	defer stop.Stop()
	if err := b.measure(ctx, &group{results: []*result{{contender: c}}}, 1); err == nil {
		t.Error("an interrupted group is no error")
	}
	if got, err := os.ReadFile(mark); string(got) != "ended\n" || err != nil {
		t.Errorf("the command was not asked to end: %q, %v", got, err)
	}
	if !after {
		t.Error("what follows a sample was left out")
	}
}

func TestRepositoryIsTheSameEverywhere(t *testing.T) {
	b := testBench(t)
	dir, err := b.large(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	git := func(script string) string {
		t.Helper()
		out, err := b.do(t.Context(), "sh", "-ec", `cd "$0"; `+script, dir)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	// Another git or another Go may not change what is measured.
	if got, want := git("git rev-parse HEAD^{tree}"), "6365e2f37f211873a83c9fb2e381cbca546652c7"; got != want {
		t.Errorf("the tree of 300 files is %s, not %s", got, want)
	}
	if got := git("git ls-files | wc -l; git status --porcelain | wc -l"); strings.Join(strings.Fields(got), " ") != "300 0" {
		t.Errorf("files and changes of a new repository: %s", got)
	}
	git(change(300))
	if got := git(`git add -A; git diff --cached --name-status HEAD | cut -c1 | sort | uniq -c`); strings.Join(strings.Fields(got), " ") != "100 A 10 D 100 M" {
		t.Errorf("the change is %s", got)
	}
}

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		d    []time.Duration
		p    int
		want time.Duration
	}{{nil, 50, 0}, {[]time.Duration{7}, 90, 7}, {[]time.Duration{20, 10}, 50, 15}, {[]time.Duration{3, 1, 2}, 50, 2}, {[]time.Duration{3, 1, 2}, 0, 1}, {[]time.Duration{3, 1, 2}, 100, 3}} {
		if got := percentile(c.d, c.p); got != c.want {
			t.Errorf("p%d of %v is %v, not %v", c.p, c.d, got, c.want)
		}
	}
}

func TestReadTrace(t *testing.T) {
	k := readTrace(`10 execve("/usr/bin/git", ["git", "clone"], 0x1 /* 9 vars */) = 0
10 execve("/opt/git", ["git", "clone"], 0x1 /* 9 vars */) = -1 ENOENT (No such file or directory)
11 execve("/proc/self/exe", ["caisson-worker", "call"], 0x1 /* 0 vars */ <unfinished ...>
11 <... execve resumed>)             = 0
10 clone(child_stack=0x1, flags=CLONE_VM|CLONE_THREAD|CLONE_SYSVSEM) = 12
10 clone(child_stack=NULL, flags=CLONE_VM|CLONE_VFORK|SIGCHLD <unfinished ...>
10 clone3({flags=CLONE_PIDFD, exit_signal=SIGCHLD}, 88) = 13
10 fsync(14)                         = 0
10 fdatasync(18 <unfinished ...>
10 <... fdatasync resumed>)          = 0
10 mount("", "/", NULL, MS_REC|MS_SLAVE, NULL) = 0
10 umount2("/x", MNT_DETACH)         = -1 EINVAL (Invalid argument)
10 +++ exited with 0 +++
`)
	if k.execs() != 2 || k.names() != "caisson-worker call 1, git 1" || k.threads != 1 || k.processes != 2 || k.fsync != 2 || k.mounts != 1 {
		t.Errorf("%+v", k)
	}
}

func TestLargestPhases(t *testing.T) {
	d := func(ms ...time.Duration) (out []time.Duration) {
		for _, v := range ms {
			out = append(out, v*time.Millisecond)
		}
		return out
	}
	got := largest(map[string][]time.Duration{"a": d(10), "b": d(55, 65), "c": d(20), "d": d(10)})
	if want := "of 100.0 ms, b 60 %; c 20 %; a 10 %"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if got := largest(nil); got == "" {
		t.Error("nothing measured says nothing")
	}
}

func TestReadPhases(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	got, err := readPhases(`{"seq":1,"ts":"2026-01-02T03:04:06Z","type":"task.created"}
{"seq":2,"ts":"2026-01-02T03:04:06.5Z","type":"task.new"}
`, at, at.Add(4*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	want := []phase{{reached["task.created"], time.Second}, {"to task.new", 500 * time.Millisecond}, {"to exit", 2500 * time.Millisecond}}
	for i := range want {
		if len(got) != len(want) || got[i] != want[i] {
			t.Fatalf("%v, not %v", got, want)
		}
	}
	if _, err := readPhases("no json", at, at); err == nil {
		t.Error("a line that is none was read")
	}
}
