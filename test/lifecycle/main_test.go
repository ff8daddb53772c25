//go:build linux

package lifecycle

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) {
	if sock := os.Getenv("CAISSON_TEST_PING"); sock != "" {
		os.Exit(ping(sock))
	}
	// Processes die here, never the machine: what a dead one wrote is there on a
	// file system in memory as it is on a disk, and nobody waits for a disk.
	if dir := os.Getenv("CAISSON_TEST_MEMORY"); dir != "" {
		_ = os.Setenv("TMPDIR", dir)
	}
	flag.Parse()
	if f := flag.Lookup("test.run"); harness.Backend() != "linux" && f.Value.String() == "" && !long {
		_ = f.Value.Set(ofBackend)
	}
	harness.Beside(5)
	os.Exit(harness.Main(m))
}

// ofBackend are the tests that another backend than linux is tried with: who makes
// boundaries takes no part in the others.
const ofBackend = "^(TestKilledAtEveryStep|TestSupervisorKilled|TestReapKilled)$"

// long raises counts to what one waits for in a nightly run.
var long = os.Getenv("CAISSON_TEST_FULL") != ""

func count(short, full int) int {
	if long {
		return full
	}
	return short
}

// faulty returns the program built with fault points.
var faulty = sync.OnceValues(func() (string, error) {
	out := filepath.Join(filepath.Dir(harness.Bin()), "caisson-faults")
	return out, harness.Build(out, "faults")
})

func faultBin(t *testing.T) string {
	t.Helper()
	bin, err := faulty()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// otherBackend reports whether a point lies in the driver of another backend than the
// one under test.
func otherBackend(p string) bool {
	driver, _, _ := strings.Cut(p, ".")
	switch driver {
	case "linux", "docker", "oci":
		return driver != harness.DriverOf(harness.Backend())
	}
	return false
}

// points lists the fault points that the sources register and the backend under test
// can pass.
func points(t *testing.T) []string {
	t.Helper()
	var out []string
	call := regexp.MustCompile(`RegisterFaults\(([^)]*)\)`)
	name := regexp.MustCompile(`"([a-z.-]+)"`)
	err := filepath.WalkDir("../../internal", func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return err
		}
		text, err := os.ReadFile(p)
		for _, m := range call.FindAllSubmatch(text, -1) {
			for _, n := range name.FindAllSubmatch(m[1], -1) {
				if !otherBackend(string(n[1])) {
					out = append(out, string(n[1]))
				}
			}
		}
		return err
	})
	if err != nil || len(out) < 20 {
		t.Fatalf("fault points: %v, %v", out, err)
	}
	slices.Sort(out)
	return out
}

// world is one installation with a repository, and a picture of that repository.
type world struct {
	*harness.Identity
	t      *testing.T
	bin    string
	repo   string
	before harness.Picture
}

// newWorld makes a repository with an ignored pattern and remembers it.
func newWorld(t *testing.T, id *harness.Identity, bin string) *world {
	t.Helper()
	w := &world{Identity: id, t: t, bin: bin}
	w.repo = id.Repo(t, map[string]string{"a.txt": "a\n", "d/b.txt": "b\n", "gone.txt": "gone\n", ".gitignore": "*.ignored\n", "exec.sh": "#!/bin/sh\n"})
	w.before = harness.TakePicture(t, w.repo)
	return w
}

// do runs the program with additional environment and returns what it did.
func (w *world) do(env []string, args ...string) harness.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Limit)
	defer cancel()
	cmd := w.Command(ctx, w.repo, w.bin, args...)
	cmd.Env = append(cmd.Env, env...)
	r := harness.Run(w.t, cmd)
	if ctx.Err() != nil {
		w.t.Fatalf("did not end within %s: %v", harness.Limit, r)
	}
	return r
}

// ok is do that must succeed.
func (w *world) ok(args ...string) string {
	w.t.Helper()
	r := w.do(nil, args...)
	if r.Exit != 0 {
		w.t.Fatal(r)
	}
	return r.Stdout
}

// start starts the program without waiting for it.
func (w *world) start(env []string, args ...string) *exec.Cmd {
	w.t.Helper()
	cmd := w.Command(context.Background(), w.repo, w.bin, args...)
	cmd.Env = append(cmd.Env, env...)
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return cmd
}

// view is what these tests read of a task.
type view struct {
	ID, Name, State, Problem string
	Supervisor               *struct{ PID int }
	Results                  []struct{ Kind, Name, Object string }
	Resources                []struct{ Kind, Name, State, External string }
	Retention                *struct {
		Why   string
		Until time.Time
	}
	Exit *int
}

// tasks lists every task, closed ones too.
func (w *world) tasks() []view {
	w.t.Helper()
	var l struct{ Tasks []view }
	w.decode(w.ok("ls", "--all", "--json"), &l)
	return l.Tasks
}

func (w *world) show(id string) view {
	w.t.Helper()
	var v view
	w.decode(w.ok("show", "--json", id), &v)
	return v
}

func (w *world) decode(text string, to any) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(text), to); err != nil {
		w.t.Fatalf("%v in %s", err, text)
	}
}

// events returns the types of a task's evidence.
func (w *world) events(id string) []string {
	w.t.Helper()
	var out []string
	text, _ := os.ReadFile(w.State + "/tasks/" + id + "/evidence/events.jsonl")
	for _, l := range strings.Split(string(text), "\n") {
		var e struct{ Type string }
		if json.Unmarshal([]byte(l), &e) == nil && e.Type != "" {
			out = append(out, e.Type)
		}
	}
	return out
}

// reaped runs reap and returns the report.
type reapReport struct {
	Actions []struct{ Task, Action, Result string }
	Orphans []struct{ Kind, Name, External string }
}

func (w *world) reap() reapReport {
	w.t.Helper()
	var r reapReport
	w.decode(w.ok("reap", "--json"), &r)
	return r
}

// git runs git in the user's repository.
func (w *world) git(args ...string) string { w.t.Helper(); return w.Git(w.t, w.repo, args...) }

// has returns a file of a ref of the task, and whether it is there.
func (w *world) has(id, ref, path string) (string, bool) {
	w.t.Helper()
	cmd := w.Command(context.Background(), w.repo, "git", "cat-file", "blob", "refs/caisson/"+id+"/"+ref+":"+path)
	out, err := cmd.Output()
	return string(out), err == nil
}

// blobs returns small files of a task's refs, each named REF:PATH; what is not
// there is "missing". One git for all of them.
func (w *world) blobs(id string, names ...string) []string {
	w.t.Helper()
	cmd := w.Command(context.Background(), w.repo, "git", "cat-file", "--batch=%(objecttype) %(objectsize)")
	cmd.Stdin = strings.NewReader("refs/caisson/" + id + "/" + strings.Join(names, "\nrefs/caisson/"+id+"/") + "\n")
	out := harness.Run(w.t, cmd).Stdout
	var texts []string
	for range names {
		head, rest, _ := strings.Cut(out, "\n")
		size, found := strings.CutPrefix(head, "blob ")
		if n := atoi(size); found && n < len(rest) {
			texts, out = append(texts, rest[:n]), rest[n+1:]
			continue
		}
		texts, out = append(texts, "missing"), rest
	}
	return texts
}

// clean closes what is kept and compares the host with what may be left.
func (w *world) clean() {
	w.t.Helper()
	all := w.tasks()
	for _, v := range all {
		if v.State == "closed" {
			continue
		}
		if r := w.do(nil, "close", "--discard", v.ID); r.Exit != 0 {
			w.t.Errorf("close %s (%s, %s): %v", v.ID, v.State, v.Problem, r)
		}
	}
	if r := w.reap(); len(r.Actions)+len(r.Orphans) > 0 {
		w.t.Errorf("a last reap finds %+v", r)
	}
	w.nothingLeft()
	for _, v := range all {
		_ = os.Remove(w.State + "/tasks/" + v.ID + "/evidence/events.jsonl") // looked at: not again
	}
}

// expected is what an installation whose tasks have all ended consists of.
var expected = regexp.MustCompile(`^(state\.db(-wal|-shm)?|migrate\.lock|supervisor\.log|promise-[a-z:]+\.json|git\.json|engine|oci|toolchains|reaped|decisions|decisions/(events\.jsonl|lock)|scans|scans/[0-9a-f-]+\.json|named|named/[0-9a-f]+|bin|bin/worker-[0-9a-f]{64}(-r)?(\.ok)?|tasks|tasks/t[a-z2-7]{10}|` +
	`tasks/t[a-z2-7]{10}/(lock|task\.json|work\.bundle|evidence|evidence/(events\.jsonl|lock)))$`)

// nothingLeft compares host, state and repository with what they were.
func (w *world) nothingLeft() {
	w.t.Helper()
	for _, l := range settled(w.Left) {
		w.t.Error("left on the host: " + l)
	}
	_ = filepath.WalkDir(w.State, func(p string, d os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(w.State, p); err != nil || rel != "." && !expected.MatchString(rel) {
			w.t.Errorf("left in the state folder: %s (%v)", rel, err)
		}
		return nil
	})
	for _, d := range w.before.Changed(harness.TakePicture(w.t, w.repo), harness.Results) {
		w.t.Error("the user's repository: " + d)
	}
}

// settled gives the kernel a moment to bury what was killed.
func settled(look func() []string) []string {
	var l []string
	for range 100 {
		if l = look(); len(l) == 0 {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return l
}

// alive reports whether a process runs (a zombie does not).
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	// The first thread is one for a moment when another one calls exec.
	return len(f) > 17 && (f[0] != "Z" && f[0] != "X" || atoi(f[17]) > 1)
}

// workers returns the pids of the boundary's pid 1 of this installation's tasks.
func (w *world) workers() []int { return children(w.Dir, "caisson-worker\x00relay") }

// children finds processes by a part of their command line whose parent's
// environment names this installation.
func children(dir, part string) []int {
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		line, _ := os.ReadFile(d + "/cmdline")
		if !strings.Contains(string(line), part) {
			continue
		}
		stat, _ := os.ReadFile(d + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest)
		if len(f) < 2 {
			continue
		}
		env, _ := os.ReadFile("/proc/" + f[1] + "/environ")
		if strings.Contains(string(env), "CAISSON_STATE_DIR="+dir+"/") {
			out = append(out, atoi(filepath.Base(d)))
		}
	}
	return out
}

// killedBySignal reports whether a finished command died of SIGKILL.
func killed(cmd *exec.Cmd) bool {
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
