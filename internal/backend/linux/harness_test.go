//go:build linux

package linux

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
)

var workerPath string

// workerEnv tells a re-executed test binary where the worker is.
const workerEnv = "CAISSON_TEST_WORKER"

func TestMain(m *testing.M) {
	if role := os.Getenv("CAISSON_TEST_ROLE"); role != "" {
		os.Exit(roles[role]())
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	if workerPath = os.Getenv(workerEnv); workerPath != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "caisson-linux-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		panic(err)
	}
	workerPath = filepath.Join(dir, "caisson-worker")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", workerPath, "github.com/caisson-dev/caisson/cmd/caisson-worker")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the worker: %v\n%s", err, out)
		return 1
	}
	if err := os.Chmod(workerPath, 0o111); err != nil {
		panic(err)
	}
	return m.Run()
}

// box is a live boundary with its channel.
type box struct {
	t    *testing.T
	spec backend.Spec
	in   *instance
	c    *worker.Client
}

// newSpec makes the folders of a task.
func newSpec(t testing.TB) backend.Spec {
	t.Helper()
	dir := publicTemp(t)
	mk := func(name string) string {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
		return p
	}
	return backend.Spec{
		Task: task.NewID(), Instance: "abcdefgh", Token: task.NewToken(),
		Identity: task.Identity{UID: os.Getuid(), GID: os.Getgid(), Login: "tester", Home: "/home/tester"},
		Source:   backend.Mount{Source: mk("source"), Target: "/home/tester/src/project", Writable: true},
		Out:      backend.Mount{Source: mk("out"), Target: backend.OutDir, Writable: true},
		Home:     "/home/tester", WorkerPath: workerPath, Hostname: "box",
		Env: []string{"HOME=/home/tester", "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"},
	}
}

// publicTemp returns a temporary folder whose real path everybody may enter.
func publicTemp(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for d := dir; d != os.TempDir() && len(d) > 5; d = filepath.Dir(d) {
		if st, err := os.Stat(d); err == nil && st.Mode().Perm()&0o055 != 0o055 {
			_ = os.Chmod(d, st.Mode().Perm()|0o055)
		}
	}
	return dir
}

// usable returns the driver, or skips with the reason why there is no boundary.
func usable(t *testing.T) *Driver {
	t.Helper()
	d := New(Config{Worker: func() (string, error) { return workerPath, nil }}).(*Driver)
	usableOnce.Do(func() { usableCaps, usableErr = d.Probe(context.Background()) })
	if usableErr != nil {
		t.Fatal(usableErr)
	}
	if !usableCaps.Usable {
		t.Skipf("no boundary can be made here: %s", usableCaps.Why)
	}
	return d
}

var (
	usableOnce sync.Once
	usableCaps backend.Capabilities
	usableErr  error
)

func open(t *testing.T, s backend.Spec) *box {
	t.Helper()
	d := usable(t)
	ctx := context.Background()
	i, err := d.Create(ctx, s)
	if err != nil {
		t.Fatalf("create: %v (%s)", err, task.HintOf(err))
	}
	return attachBox(t, s, i.(*instance))
}

// attachBox joins the channel of a boundary and destroys it at the end.
func attachBox(t *testing.T, s backend.Spec, i *instance) *box {
	t.Helper()
	ctx := context.Background()
	b := &box{t: t, spec: s, in: i}
	t.Cleanup(func() {
		if b.c != nil {
			b.c.Close()
		}
		if err := i.Destroy(context.Background()); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
	conn, err := i.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if b.c, err = worker.Start(ctx, conn, worker.Options{WorkerPID: b.in.proc.pid}); err != nil {
		t.Fatal(err)
	}
	return b
}

// run runs a program inside and returns what it printed on both streams.
func (b *box) run(argv ...string) (string, int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		b.t.Fatal(err)
	}
	defer null.Close()
	call, err := b.c.Exec(ctx, worker.Command{Argv: argv}, []*os.File{null, w, w})
	w.Close()
	if err != nil {
		b.t.Fatalf("exec %q: %v", argv, err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		b.t.Fatal(err)
	}
	res, err := call.Wait(ctx)
	if err != nil {
		b.t.Fatalf("wait %q: %v", argv, err)
	}
	return string(out), res.Exit
}

// sh runs a shell script inside and fails the test unless it ends with 0.
func (b *box) sh(script string) string {
	b.t.Helper()
	out, code := b.run("/bin/sh", "-c", script)
	if code != 0 {
		b.t.Fatalf("%s\nexit %d: %s", script, code, out)
	}
	return strings.TrimRight(out, "\n")
}
