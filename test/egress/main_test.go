//go:build linux

package egress

import (
	"errors"
	"flag"
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
const inWorld = "egress-test-in-world"

// noWorld is why there is no namespace of its own here; empty: this is it.
var noWorld = "it was not tried"

func TestMain(m *testing.M) {
	if i := slices.Index(os.Args, inWorld); i >= 0 {
		os.Args = slices.Delete(os.Args, i, i+1)
		if err := makeWorld(); err != nil {
			noWorld = err.Error()
		} else {
			noWorld = ""
		}
		os.Exit(harness.Main(m))
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
	if flag.Parse(); !testing.Short() {
		dir, err := managers()
		if err != nil {
			fmt.Fprintln(os.Stderr, "pnpm and yarn cannot be had:", err)
		}
		cmd.Env = append(os.Environ(), managersEnv+"="+dir)
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

// The places of this world.
const (
	public = "93.184.215.14" // a.test
	other  = "93.184.215.15" // b.test
	lan    = "10.9.0.1"
	// Hosts of real servers; registries is all of the registries.
	dbHost     = "93.184.215.16"
	nginxHost  = "93.184.215.17"
	gitHost    = "93.184.215.18"
	registries = "93.184.215.20"
	metadata   = "169.254.169.254"
)

// trust is what programs on Debian trust.
const trust = "/etc/ssl/certs/ca-certificates.crt"

// makeWorld gives this process's namespaces their addresses and name server.
func makeWorld() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Addresses that only a route makes this machine's: for the product they are
	// elsewhere.
	for _, c := range []string{"link set lo up", "route add local 93.184.215.0/24 dev lo", "route add local 10.9.0.0/16 dev lo", "route add local 169.254.0.0/16 dev lo"} {
		cmd := exec.Command("ip", strings.Fields(c)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %s %w", c, out, err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	dir, err := os.MkdirTemp("", "world-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// What is mounted from a folder that is removed cannot be covered once more.
	if err := unix.Mount("world", dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("a folder of the world: %w", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	cert, ca, err := authority()
	if err != nil {
		return err
	}
	// What programs trust on this machine, and the world's authority.
	trusted, _ := os.ReadFile(trust)
	covers := map[string]string{"/etc/resolv.conf": "nameserver 127.0.0.1\noptions timeout:30 attempts:1\n", "/etc/hosts": "127.0.0.1 localhost\n", trust: string(trusted) + string(ca)}
	for name, text := range covers {
		at, err := filepath.EvalSymlinks(name)
		if err != nil && name == trust {
			continue // not Debian: the clients that need it skip
		}
		if err != nil {
			return err
		}
		mine := filepath.Join(dir, filepath.Base(name))
		if err := errors.Join(os.WriteFile(mine, []byte(text), 0o644), os.Chmod(mine, 0o644)); err != nil {
			return err
		}
		if err := unix.Mount(mine, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("cover %s: %w", name, err)
		}
	}
	if err := unix.Mount("world", "/srv", "tmpfs", 0, "mode=755"); err == nil {
		lendTools()
	}
	return startWorld(cert)
}

// lend shows a folder at a place below /srv, which is empty in the world.
func lend(from, to string) {
	if err := os.MkdirAll(to, 0o755); err == nil {
		_ = unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	}
}
