//go:build linux

package credentials

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/test/harness"
)

// inWorld is the argument that makes this program the one in the namespace.
const inWorld = "credentials-test-in-world"

// noWorld is why there is no namespace of its own here; empty: this is it.
var noWorld = "it was not tried"

func TestMain(m *testing.M) {
	if i := slices.Index(os.Args, inWorld); i >= 0 {
		os.Args = slices.Delete(os.Args, i, i+1)
		end, err := makeWorld()
		noWorld = ""
		if err != nil {
			noWorld = err.Error()
		}
		code := harness.Main(m)
		end()
		os.Exit(code)
	}
	os.Exit(again(m))
}

// again runs these tests in a network and mount namespace of their own, as the
// same user.
func again(m *testing.M) int {
	// The flags of the test runner stand first: what is no flag ends them.
	cmd := exec.Command("/proc/self/exe", append(slices.Clone(os.Args[1:]), inWorld)...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN, unix.CAP_NET_BIND_SERVICE}
	}
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		noWorld = "no network namespace can be made here: " + err.Error()
		return harness.Main(m)
	}
	var ee *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &ee) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return max(cmd.ProcessState.ExitCode(), 0) + map[bool]int{true: 1}[cmd.ProcessState.ExitCode() < 0]
}

// The places of this world, which for the product are elsewhere.
var zone = map[string]string{"git.test": "93.184.215.14", "other.test": "93.184.215.15"}

// worldDir holds what the servers have, and belongs to the user that they run as.
var worldDir string

// makeWorld gives this process's namespaces their addresses, names, users and
// servers. end takes its files away.
func makeWorld() (end func(), err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	end = func() {}
	for _, c := range []string{"link set lo up", "route add local 93.184.215.0/24 dev lo"} {
		cmd := exec.Command("ip", strings.Fields(c)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
		if out, err := cmd.CombinedOutput(); err != nil {
			return end, fmt.Errorf("ip %s: %s %w", c, out, err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return end, fmt.Errorf("make mounts private: %w", err)
	}
	if worldDir, err = os.MkdirTemp("", "w"); err != nil {
		return end, err
	}
	end = func() { os.RemoveAll(worldDir) }
	if err := os.Chmod(worldDir, 0o755); err != nil {
		return end, err
	}
	uid := harness.UserOf()
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return end, err
	}
	roots, cert, err := authority()
	if err != nil {
		return end, err
	}
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	if theirs, err := os.ReadFile(bundle); err == nil {
		roots = append(theirs, roots...)
	}
	for name, text := range map[string]string{
		"/etc/resolv.conf": "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n", "/etc/hosts": "127.0.0.1 localhost\n",
		"/etc/passwd": fmt.Sprintf("git:x:%d:%d::%s/home:/bin/sh\n%s", uid, uid, worldDir, passwd), bundle: string(roots),
	} {
		at, err := filepath.EvalSymlinks(name)
		if err != nil {
			return end, err
		}
		mine := filepath.Join(worldDir, "etc-"+filepath.Base(name))
		if err := errors.Join(os.WriteFile(mine, []byte(text), 0o644), os.Chmod(mine, 0o644)); err != nil {
			return end, err
		}
		if err := unix.Mount(mine, at, "", unix.MS_BIND, ""); err != nil {
			return end, fmt.Errorf("cover %s: %w", name, err)
		}
		// An engine shows mounts below what it shows as they are, and one of a disk that
		// can be written would be refused.
		if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return end, fmt.Errorf("make %s read-only: %w", name, err)
		}
	}
	return end, startWorld(cert)
}
