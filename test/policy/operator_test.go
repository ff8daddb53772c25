//go:build linux

package policy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/test/harness"
)

// besideArg makes this program one that starts another with /etc in a mount
// namespace of its own, as somebody.
const besideArg = "__beside"

// besideOperator plays that part: the folder that becomes /etc, the id, and the
// program with its words follow. Nothing of this machine's /etc is touched: the
// namespace ends with what runs in it.
func besideOperator(args []string) error {
	etc, uid, err := args[0], 0, error(nil)
	if uid, err = strconv.Atoi(args[1]); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount(etc, "/etc", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("/etc: %w", err)
	}
	if uid != 0 {
		if err := unix.Setgroups(nil); err != nil {
			return err
		}
		if err := unix.Setresgid(uid, uid, uid); err != nil {
			return err
		}
		if err := unix.Setresuid(uid, uid, uid); err != nil {
			return err
		}
	}
	return syscall.Exec(args[2], args[2:], os.Environ())
}

// operatorDir is the real one; these tests put a folder of theirs in its place.
const operatorDir = "/etc/caisson/policy.d"

// needRoot skips where no operator can be beside a user.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not root: /etc/caisson/policy.d belongs to root, and only root has another one in its place")
	}
}

// withOperator gives the place an operator, whose folder is the real path in a
// mount namespace of each command.
func (p *place) withOperator() *place {
	p.t.Helper()
	p.etc = filepath.Join(p.Dir, "etc")
	if out, err := exec.Command("cp", "-a", "/etc/.", p.etc).CombinedOutput(); err != nil {
		if _, serr := os.Stat(p.etc); serr != nil {
			p.t.Fatalf("cp: %v: %s", err, out)
		}
	}
	for _, dir := range []string{p.etc, p.etc + "/caisson", p.etc + "/caisson/policy.d"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.Chown(dir, 0, 0); err != nil {
			p.t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	p.operator("version: 1\n")
	return p
}

// operator writes the operator's file.
func (p *place) operator(text string) {
	p.t.Helper()
	if err := os.WriteFile(p.etc+"/caisson/policy.d/10-base.yaml", []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// cmd prepares a command of the product, beside the operator where there is one.
func (p *place) cmd(args ...string) *exec.Cmd {
	p.t.Helper()
	if p.etc == "" {
		return p.Command(p.t.Context(), p.repo, harness.Bin(), args...)
	}
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := p.Command(p.t.Context(), p.repo, self, append([]string{besideArg, p.etc, strconv.Itoa(p.UID), harness.Bin()}, args...)...)
	cmd.SysProcAttr = nil // it becomes p itself
	return cmd
}
