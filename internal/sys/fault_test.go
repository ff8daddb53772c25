//go:build faults

package sys

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

var _ = RegisterFaults("sys.test.a", "sys.test.b")

// Each action, in a process of its own: go test -tags faults.
func TestFaults(t *testing.T) {
	if step := os.Getenv("SYS_TEST_STEP"); step != "" {
		for range 3 {
			if err := Fault("sys.test.b"); err != nil {
				if !errors.Is(err, ErrFault) {
					t.Fatal(err)
				}
				os.Exit(33)
			}
		}
		os.Exit(0)
	}
	for spec, want := range map[string]func(syscall.WaitStatus) bool{
		"":                          func(s syscall.WaitStatus) bool { return s.ExitStatus() == 0 },
		"sys.test.a:kill":           func(s syscall.WaitStatus) bool { return s.ExitStatus() == 0 },
		"sys.test.b:error":          func(s syscall.WaitStatus) bool { return s.ExitStatus() == 33 },
		"x:kill,sys.test.b:error:3": func(s syscall.WaitStatus) bool { return s.ExitStatus() == 33 },
		"sys.test.b:error:4":        func(s syscall.WaitStatus) bool { return s.ExitStatus() == 0 },
		"sys.test.b:kill":           func(s syscall.WaitStatus) bool { return s.Signaled() && s.Signal() == syscall.SIGKILL },
		"sys.test.b:pause":          func(s syscall.WaitStatus) bool { return s.Stopped() },
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFaults$")
		cmd.Env = append(os.Environ(), "SYS_TEST_STEP=1", "CAISSON_FAULT="+spec)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var st syscall.WaitStatus
		if _, err := syscall.Wait4(cmd.Process.Pid, &st, syscall.WUNTRACED, nil); err != nil || !want(st) {
			t.Errorf("%q: status %#x %v", spec, st, err)
		}
		if st.Stopped() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	dir := t.TempDir()
	t.Setenv("CAISSON_FAULT", "sys.write.temp:error")
	if err := WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600); !errors.Is(err, ErrFault) {
		t.Fatal(err)
	}
	if es, _ := os.ReadDir(dir); len(es) != 0 {
		t.Fatalf("litter after a failed write: %v", es)
	}
	if len(FaultPoints()) < 4 {
		t.Fatal(FaultPoints())
	}
}
