package git

import (
	"context"
	"io"
	"os/exec"
	"testing"
)

func TestMemoryIsBounded(t *testing.T) {
	g := host(t)
	dir := t.TempDir()
	if out, err := exec.Command(g.Path(), "init", "-q", "--bare", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	hash := func(max uint64) error {
		_, err := g.Run(context.Background(), Cmd{
			GitDir: dir, Args: []string{"hash-object", "--stdin"}, MemoryMax: max,
			Stdin: io.LimitReader(zeros{}, 200<<20), Config: []string{"core.bigFileThreshold=1g"},
		})
		return err
	}
	if err := hash(100 << 20); Status(err) <= 0 {
		t.Errorf("200 MiB in 100 MiB: %v", err)
	}
	if err := hash(0); err != nil {
		t.Errorf("control: %v", err)
	}
	// Where a filter leaves a process its own limits alone, as in a boundary.
	may := limitsOthers
	defer func() { limitsOthers = may }()
	limitsOthers = func() bool { return false }
	if err := hash(100 << 20); Status(err) <= 0 {
		t.Errorf("200 MiB in 100 MiB that git sets itself: %v", err)
	}
	if err := hash(1 << 30); err != nil {
		t.Errorf("control: %v", err)
	}
}
