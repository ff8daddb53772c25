//go:build linux

package linux

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStartProcessBusy starts a program whose last writer is not gone yet.
func TestStartProcessBusy(t *testing.T) {
	t.Parallel()
	truth, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(truth)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, body, 0o711); err != nil {
		t.Fatal(err)
	}
	program, err := openWorker(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The control: with a writer that stays the kernel refuses, and we end too.
	if p, err := startProcess(program, &os.ProcAttr{}); !errors.Is(err, unix.ETXTBSY) {
		t.Fatalf("a writer is there: %v, %v", p, err)
	}
	gone := time.AfterFunc(50*time.Millisecond, func() { _ = writer.Close() })
	defer gone.Stop()
	p, err := startProcess(program, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(); err != nil || !st.Success() {
		t.Errorf("%v %v", st, err)
	}
}
