package evidence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-dev/caisson/internal/task"
)

// A real full disk, a tmpfs of 256 KiB in a mount namespace of its own: the
// append that does not fit fails, the log stays whole, and goes on once there
// is room.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "role-full", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil && (errors.Is(err, syscall.EPERM) || strings.HasPrefix(string(out), "mount:")) {
		t.Skipf("no user namespace with mounts here, so no small disk: %v %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func fillDisk(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		fmt.Println("mount:", err)
		os.Exit(1)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 64<<10), 0o600); err != nil {
		return err
	}
	ev := filepath.Join(dir, "evidence")
	l, err := Open(ev, testTask, nil)
	if err != nil {
		return err
	}
	body := map[string]any{"x": strings.Repeat("word ", 4000)}
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = l.Append(context.Background(), CallIntent, host, body)
	}
	if !errors.Is(err, syscall.ENOSPC) || task.HintOf(err) == "" {
		return fmt.Errorf("a full disk gave %v", err)
	}
	if h, err := Verify(ev, l.Head()); err != nil || h.Seq != uint64(n-1) {
		return fmt.Errorf("after %d appends: %v %v", n, h, err)
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	if _, err := l.Append(context.Background(), CallOutcome, host, body); err != nil {
		return fmt.Errorf("with room again: %v", err)
	}
	if _, err := Verify(ev, l.Head()); err != nil {
		return err
	}
	return l.Close()
}
