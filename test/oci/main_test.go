//go:build linux

package oci

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/backend/backendtest"
	"github.com/caisson-dev/caisson/internal/backend/oci"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// each runs f with every runtime that is here.
func each(t *testing.T, f func(t *testing.T, backend string)) {
	for _, b := range oci.Names {
		t.Run(b, func(t *testing.T) {
			harness.NeedsRuntime(t, b)
			f(t, b)
		})
	}
}

// both runs f with every runtime as root, and with gVisor as an ordinary user too.
func both(t *testing.T, f func(t *testing.T, backend string, id *harness.Identity)) {
	each(t, func(t *testing.T, b string) {
		harness.Each(t, func(t *testing.T, id *harness.Identity) {
			if id.UID != 0 && b != oci.GVisor {
				return // it needs root and says so: TestUser
			}
			f(t, b, id)
		})
	})
}

// worker is the worker program as a backend gets it, but that it can be read.
var worker = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(harness.Bin()), "worker")
	err := harness.GoBuild(path, "./cmd/caisson-worker")
	if err == nil {
		err = os.Chmod(path, 0o555)
	}
	return path, err
})

func TestSuite(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("crun and runc need root here")
	}
	each(t, func(t *testing.T, name string) {
		path, err := worker()
		if err != nil {
			t.Fatal(err)
		}
		state, run := t.TempDir(), shortDir(t)
		env := map[string]string{"PATH": os.Getenv("PATH"), oci.Variable(name): harness.Runtime(name)}
		backendtest.Run(t, backendtest.Config{
			New: func(t *testing.T) backend.Driver {
				return oci.New(name, oci.Config{Worker: worker, Dir: filepath.Join(state, "oci"), Run: run, Getenv: func(k string) string { return env[k] }})
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
		for _, dir := range []string{filepath.Join(state, "oci"), run} {
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left in %s: %v", dir, left)
			}
		}
	})
}

// shortDir is a folder whose path leaves room for the name of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "caisson-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
