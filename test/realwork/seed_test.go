//go:build linux

package realwork

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// seed is a module cache that everybody can read, with what cobra and pflag need.
var seed struct {
	once     sync.Once
	dir      string
	complete bool   // also what cobra's doc package needs
	why      string // when it is not complete
	err      error
}

// moduleSeed returns the module cache and whether all of cobra builds with it.
func moduleSeed(t *testing.T) (dir string, complete bool) {
	t.Helper()
	cobra := moduleDir(t, "github.com/spf13/cobra")
	seed.once.Do(func() { seed.err = fillSeed(cobra) })
	if seed.err != nil {
		t.Fatal(seed.err)
	}
	if !seed.complete {
		t.Logf("cobra's doc package is left out: %s", seed.why)
	}
	return seed.dir, seed.complete
}

func fillSeed(cobra string) error {
	dir, err := os.MkdirTemp("", "realwork-")
	if err != nil {
		return err
	}
	seed.dir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	for _, f := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(cobra, f))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, f), data, 0o644); err != nil {
			return err
		}
	}
	env := func(k string) string {
		out, _ := exec.Command("go", "env", k).Output()
		return strings.TrimSpace(string(out))
	}
	// The cache that is there first: most of it needs no network.
	proxy := "file://" + env("GOMODCACHE") + "/cache/download," + env("GOPROXY")
	download := func(args ...string) (string, error) {
		cmd := exec.Command("go", append([]string{"mod", "download"}, args...)...)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "GOMODCACHE="+dir+"/mod", "GOFLAGS=-modcacherw", "GOPROXY="+proxy)
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	if out, err := download(); err == nil {
		seed.complete = true
	} else {
		seed.why = out
		if out, err := download("github.com/spf13/pflag", "github.com/inconshreveable/mousetrap"); err != nil {
			return &fs.PathError{Op: "go mod download", Path: out, Err: err}
		}
	}
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if d.IsDir() {
			mode = 0o755
		}
		return os.Chmod(p, mode)
	})
}

func removeSeed() {
	if seed.dir != "" {
		_ = os.RemoveAll(seed.dir)
	}
}

// withGo returns id with the Go of this test on PATH.
func withGo(t *testing.T, id *harness.Identity) *harness.Identity {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("no go: %v", err)
	}
	id = onPath(id, filepath.Join(strings.TrimSpace(string(out)), "bin"))
	needs(t, id, "go")
	return id
}
