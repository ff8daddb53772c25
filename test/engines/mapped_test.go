//go:build linux

package engines

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

// mountsBelow lists what is mounted below dir on this machine.
func mountsBelow(t *testing.T, dir string) (out []string) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			out = append(out, f[4])
		}
	}
	return out
}

// With root's files and root's engine no tool is the kernel's user 0, as the kernel
// of this machine says; files that tools make are root's outside, and no owner
// changes.
func TestNoToolIsRoot(t *testing.T) {
	each(t, func(t *testing.T, e *harness.Engine) {
		id := identity(t, e, "root", 0)
		repo := id.Repo(t, map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n"})
		open := id.Open(t, repo, "--backend", e.Backend)
		out := id.OK(t, repo, "exec", open, "--", "sh", "-c", "id -u; stat -c %u . a.txt; grep ^Uid: /proc/self/status; cat /proc/self/uid_map; echo new >new.txt; mkdir sub; touch sub/x; git add -A && git commit -qm inside; stat -c %u new.txt")
		lines := strings.Fields(out)
		uid, err := strconv.Atoi(lines[0])
		if err != nil || uid < 1<<16 || lines[1] != lines[0] || lines[2] != lines[0] || lines[len(lines)-1] != lines[0] || !strings.Contains(out, "Uid:\t"+lines[0]+"\t") {
			t.Errorf("inside: %q", out)
		}
		if !strings.Contains(strings.Join(lines, " "), " 0 0 4294967295") {
			t.Errorf("ids inside are not the kernel's own, so that they say nothing: %q", out)
		}
		// What user 0 alone may write is out of reach.
		if r := id.Caisson(t, repo, "exec", open, "--", "sh", "-c", "echo 500 >/proc/1/oom_score_adj"); r.Exit == 0 {
			t.Errorf("a file of the worker's could be written: %v", r)
		}
		v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open))
		for _, f := range v.Findings {
			if f.ID == "root-identity" {
				t.Errorf("it is said to be root: %s", f.Text)
			}
		}
		for _, f := range []string{"new.txt", "a.txt", "sub/x"} {
			if st, err := os.Stat(filepath.Join(v.TaskDir, "source", f)); err != nil || ownerOf(st) != 0 {
				t.Errorf("%s belongs to %d outside (%v)", f, ownerOf(st), err)
			}
		}
		if left := mountsBelow(t, id.State); len(left) > 0 {
			t.Errorf("mounts are left on this machine while it is open: %q", left)
		}
		if out := id.OK(t, repo, "diff", "--name-status", open); !strings.Contains(out, "new.txt") {
			t.Errorf("the change: %q", out)
		}
		id.OK(t, repo, "close", "--discard", open)
		nothingLeft(t, e, id)
	})
}

// A process that dies while the user's own folder is mounted for the engine leaves a
// mount, which the next command takes away without going into it.
func TestKilledWhileMapped(t *testing.T) {
	e := harness.Docker(t)
	bin := filepath.Join(public(t), "caisson")
	if err := harness.Build(bin, "faults"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"docker.mapped", "docker.created", "docker.started"} {
		t.Run(step, func(t *testing.T) {
			id := identity(t, e, "root", 0)
			repo := id.Repo(t, map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n"})
			if r := harness.Run(t, id.Command(t.Context(), repo, bin, "plan", "--backend", "docker", "--", "true")); r.Exit != 0 { // the engine was tried
				t.Fatal(r)
			}
			cmd := id.Command(t.Context(), repo, bin, "run", "--backend", "docker", "--source", "checkout", "--trust", "--", "true")
			cmd.Env = append(cmd.Env, "CAISSON_FAULT="+step+":kill")
			if r := harness.Run(t, cmd); r.Exit == 0 {
				t.Fatalf("it was not killed: %v", r)
			}
			if left := mountsBelow(t, id.State); len(left) == 0 {
				t.Error("nothing was mounted, so that this shows nothing")
			}
			id.Caisson(t, repo, "reap")
			wait(t, func() bool {
				id.Caisson(t, repo, "reap")
				return len(mountsBelow(t, id.State)) == 0
			})
			for name, want := range map[string]string{"a.txt": "one\n", "dir/b.txt": "two\n"} {
				if b, err := os.ReadFile(filepath.Join(repo, name)); err != nil || string(b) != want {
					t.Errorf("the checkout's %s: %q %v", name, b, err)
				}
			}
			nothingLeft(t, e, id)
		})
	}
}
