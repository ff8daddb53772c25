//go:build linux

package engines

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/backendtest"
	"github.com/caisson-dev/caisson/internal/backend/docker"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) {
	harness.UserWithIDs() // TestRootless
	os.Exit(harness.Main(m))
}

// kinds are the engines that this package starts.
var kinds = []struct {
	name  string
	start func(testing.TB) *harness.Engine
}{{"docker", harness.Docker}, {"podman", harness.Podman}}

// each runs f with every engine.
func each(t *testing.T, f func(t *testing.T, e *harness.Engine)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { f(t, k.start(t)) })
	}
}

// first runs f with Docker, and with CAISSON_TEST_FULL=1 with every engine: the
// driver is the same.
func first(t *testing.T, f func(t *testing.T, e *harness.Engine)) {
	for _, k := range kinds {
		if k.name != "docker" && os.Getenv("CAISSON_TEST_FULL") == "" {
			continue
		}
		t.Run(k.name, func(t *testing.T) { f(t, k.start(t)) })
	}
}

// identity makes one that finds the engine.
func identity(t *testing.T, e *harness.Engine, name string, uid int) *harness.Identity {
	t.Helper()
	id := harness.NewIdentity(t, name, uid)
	id.Env = append(id.Env, e.Variable())
	return id
}

// worker is the worker program as a backend gets it.
var worker = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(harness.Bin()), "worker")
	err := harness.GoBuild(path, "./cmd/caisson-worker")
	if err == nil {
		err = os.Chmod(path, 0o111)
	}
	return path, err
})

func TestSuite(t *testing.T) {
	each(t, func(t *testing.T, e *harness.Engine) {
		path, err := worker()
		if err != nil {
			t.Fatal(err)
		}
		state := t.TempDir()
		env := map[string]string{"DOCKER_HOST": e.Host, "CONTAINER_HOST": e.Host}
		backendtest.Run(t, backendtest.Config{
			New: func(t *testing.T) backend.Driver {
				return docker.New(e.Backend, docker.Config{Worker: worker, Dir: filepath.Join(state, "engine"), Getenv: func(k string) string { return env[k] }})
			},
			Spec: func(t *testing.T, instance string) backend.Spec {
				dir := t.TempDir()
				for _, d := range []string{"source", "out"} {
					if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				return backend.Spec{
					Task: task.NewID(), Instance: instance, Token: task.NewToken(), Identity: task.Identity{UID: os.Getuid(), GID: os.Getgid(), Login: "tester"},
					Source: backend.Mount{Source: filepath.Join(dir, "source"), Target: "/home/tester/project", Writable: true},
					Out:    backend.Mount{Source: filepath.Join(dir, "out"), Target: backend.OutDir, Writable: true},
					Home:   "/home/tester", Env: []string{"PATH=/usr/bin:/bin", "HOME=/home/tester"}, WorkerPath: path,
				}
			},
		})
		if left := e.Containers(t); len(left) > 0 {
			t.Errorf("containers are left: %v", left)
		}
	})
}
