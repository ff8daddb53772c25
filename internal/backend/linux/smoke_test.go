//go:build linux

package linux

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

var workerPath string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "caisson-linux-")
	if err != nil {
		panic(err)
	}
	os.Chmod(dir, 0o755)
	workerPath = filepath.Join(dir, "caisson-worker")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", workerPath, "github.com/caisson-dev/caisson/cmd/caisson-worker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the worker: %v\n%s", err, out)
		os.Exit(1)
	}
	os.Chmod(workerPath, 0o555)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func TestProbe(t *testing.T) {
	d := New(Config{WorkerPath: workerPath})
	for i := 0; i < 3; i++ {
		t0 := time.Now()
		c, err := d.Probe(context.Background())
		t.Logf("%v %+v %v", time.Since(t0), c, err)
	}
}
