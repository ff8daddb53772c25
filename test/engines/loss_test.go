//go:build linux

package engines

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

func ownerOf(st os.FileInfo) uint32 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return s.Uid
	}
	return ^uint32(0)
}

// lost opens a task, changes a file in it, has something happen to its container
// while a command runs, and expects: the command's outcome is unknown and not
// repeated, the work is brought out, nothing is left.
func lost(t *testing.T, e *harness.Engine, id *harness.Identity, happen func(container string)) {
	t.Helper()
	repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
	open := id.Open(t, repo, "--backend", e.Backend)
	id.OK(t, repo, "exec", open, "--", "sh", "-c", "echo work >work.txt")
	done := make(chan harness.Result, 1)
	cmd := id.Command(t.Context(), repo, harness.Bin(), "exec", open, "--", "sh", "-c", "echo x >>count.txt; sleep 600")
	go func() { done <- harness.Run(t, cmd) }()
	v := harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open))
	counted := filepath.Join(v.TaskDir, "source", "count.txt")
	wait(t, func() bool { b, _ := os.ReadFile(counted); return len(b) > 0 })
	happen(e.Container(t, open))
	select {
	case r := <-done:
		if r.Exit != 125 && r.Exit != 137 {
			t.Errorf("the command ended with %v", r)
		}
	case <-time.After(harness.Limit / 2):
		t.Fatal("the command did not end")
	}
	if b, err := os.ReadFile(counted); err == nil && string(b) != "x\n" {
		t.Errorf("the command ran %d times", strings.Count(string(b), "x"))
	}
	id.Caisson(t, repo, "close", open) // it may have ended by itself
	id.Caisson(t, repo, "reap")
	wait(t, func() bool { return len(e.Containers(t)) == 0 })
	if out := id.OK(t, repo, "diff", open); !strings.Contains(out, "work.txt") {
		t.Errorf("the work is lost: %q", out)
	}
	if left, _ := filepath.Glob(id.State + "/engine/caisson-*"); len(left) > 0 {
		t.Errorf("folders are left: %q", left)
	}
}

func wait(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(harness.Limit / 4); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come about")
		}
	}
}

func TestRemovedByAnother(t *testing.T) {
	each(t, func(t *testing.T, e *harness.Engine) {
		id := identity(t, e, "user", harness.UserID)
		lost(t, e, id, func(c string) { e.Run(t, "rm", "--force", c) })
	})
}

func TestKilledByAnother(t *testing.T) {
	first(t, func(t *testing.T, e *harness.Engine) {
		id := identity(t, e, "user", harness.UserID)
		lost(t, e, id, func(c string) { e.Run(t, "kill", c) })
	})
}

// Somebody pauses a container: the task answers no more and is given up.
func TestPausedByAnother(t *testing.T) {
	if os.Getenv("CAISSON_TEST_FULL") == "" {
		t.Skip("silence is believed only after half a minute; CAISSON_TEST_FULL=1 waits for it")
	}
	e := harness.Docker(t)
	id := identity(t, e, "user", harness.UserID)
	lost(t, e, id, func(c string) { e.Run(t, "pause", c) })
}

// The engine is started anew while a task runs. It has only its own daemon.
func TestEngineStartsAnew(t *testing.T) {
	e := harness.Docker(t)
	id := identity(t, e, "user", harness.UserID)
	lost(t, e, id, func(string) {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
	})
}

// A task whose engine is away cannot be said to be gone: it stays ours, is listed,
// and goes when the engine answers again.
func TestEngineAway(t *testing.T) {
	e := harness.Docker(t)
	id := identity(t, e, "user", harness.UserID)
	repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
	open := id.Open(t, repo, "--backend", e.Backend)
	id.OK(t, repo, "exec", open, "--", "sh", "-c", "echo work >work.txt")
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
	id.Caisson(t, repo, "close", open)
	state := func() string {
		return string(harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open)).State)
	}
	if s := state(); s != "stuck" && s != "closing" {
		t.Errorf("with its engine away the open is %s", s)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	wait(t, func() bool {
		id.Caisson(t, repo, "reap")
		s := state()
		return s == "closed" || s == "kept"
	})
	if left := e.Containers(t); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
	if out := id.OK(t, repo, "diff", open); !strings.Contains(out, "work.txt") {
		t.Errorf("the work is lost: %q", out)
	}
}

// A supervisor that is killed leaves a container that ends by itself, and that the
// next command finds and removes.
func TestSupervisorKilled(t *testing.T) {
	first(t, func(t *testing.T, e *harness.Engine) {
		id := identity(t, e, "user", harness.UserID)
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		open := id.Open(t, repo, "--backend", e.Backend)
		id.OK(t, repo, "exec", open, "--", "sh", "-c", "echo work >work.txt")
		c := e.Container(t, open)
		// Its number is its own: the task is open, so it lives.
		if err := syscall.Kill(harness.Decode[task.View](t, id.OK(t, repo, "show", "--json", open)).Supervisor.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		wait(t, func() bool { return e.Run(t, "inspect", "--format", "{{.State.Running}}", c) == "false" })
		id.Caisson(t, repo, "reap")
		wait(t, func() bool { return len(e.Containers(t)) == 0 })
		if out := id.OK(t, repo, "diff", open); !strings.Contains(out, "work.txt") {
			t.Errorf("the work is lost: %q", out)
		}
	})
}

// Containers of others stay, also those that look like ours.
func TestForeignContainers(t *testing.T) {
	first(t, func(t *testing.T, e *harness.Engine) {
		id := identity(t, e, "user", harness.UserID)
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		id.OK(t, repo, "run", "--backend", e.Backend, "--", "true") // so that its image is there
		image := e.Run(t, "images", "--quiet", "localhost/caisson-root")
		strange := []string{
			e.Run(t, "create", "--name", "stranger", "--network", "none", "--entrypoint", "/x", strings.Fields(image)[0]),
			e.Run(t, "create", "--name", "caisson-looks-like-one", "--label", "caisson.instance=x", "--label", "caisson.token=none", "--network", "none", "--entrypoint", "/x", strings.Fields(image)[0]),
		}
		defer func() { e.Run(t, append([]string{"rm", "--force"}, strange...)...) }()
		open := id.Open(t, repo, "--backend", e.Backend)
		id.OK(t, repo, "close", "--discard", open)
		id.Caisson(t, repo, "reap")
		if n := len(e.Containers(t)); n != len(strange) {
			t.Errorf("%d containers are there, want the %d of others", n, len(strange))
		}
	})
}

// What takes more memory than the limit is ended; the task says so and goes on.
func TestMemory(t *testing.T) {
	first(t, func(t *testing.T, e *harness.Engine) {
		id := identity(t, e, "user", harness.UserID)
		repo := id.Repo(t, map[string]string{"a.txt": "one\n"})
		open := id.Open(t, repo, "--backend", e.Backend, "--memory", "128m")
		r := id.Caisson(t, repo, "exec", open, "--", "sh", "-c", `x=xxxxxxxxxxxxxxxx; while :; do x=$x$x; done`)
		if r.Exit == 0 {
			t.Errorf("it ended well: %v", r)
		}
		if r := id.Caisson(t, repo, "exec", open, "--", "echo", "alive"); r.Stdout != "alive\n" {
			t.Errorf("the open does not go on: %v", r)
		}
		id.OK(t, repo, "close", "--discard", open)
	})
}
