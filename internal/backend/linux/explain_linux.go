package linux

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
)

// explain says precisely what is missing when a boundary cannot be made here,
// and how to get it.
func explain(err error) (why, fix string) {
	var st *startError
	if errors.As(err, &st) {
		return explainStart(err)
	}
	var se *stage.Error
	if !errors.As(err, &se) {
		return err.Error(), "run `caisson doctor` to see what this machine can do"
	}
	denied := se.Errno == unix.EPERM || se.Errno == unix.EACCES
	switch {
	case (denied || se.Errno == 0) && sysctl("kernel/unprivileged_userns_clone") == "0":
		return "user namespaces within one are switched off for root too (kernel.unprivileged_userns_clone=0), and tools need one of their own: " + err.Error(), "sysctl kernel.unprivileged_userns_clone=1"
	case denied && sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1" && os.Geteuid() != 0:
		return "AppArmor lets unprivileged programs make user namespaces but takes their capabilities away (kernel.apparmor_restrict_unprivileged_userns=1): " + err.Error(),
			"ask an administrator for an AppArmor profile with `userns,` for this binary, or for `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or use --backend docker"
	case denied && se.Op == "mount proc":
		return "the kernel refuses a fresh /proc because parts of this one are masked, as inside a default container: " + err.Error(),
			"start the container with --security-opt systempaths=unconfined (Docker) or procMount: Unmasked (Kubernetes)"
	case se.Errno == unix.ENOSYS:
		return "the kernel is too old or filters the call: " + err.Error(), "Linux 5.12 or later is needed; inside a container start it with --security-opt seccomp=unconfined"
	}
	return err.Error(), "run `caisson doctor` to see what this machine can do"
}

func explainStart(err error) (why, fix string) {
	const doctor = "run `caisson doctor` to see what this machine can do"
	switch {
	case sysctl("user/max_user_namespaces") == "0":
		return "user namespaces are switched off (user.max_user_namespaces=0): " + err.Error(), "ask an administrator for: sysctl user.max_user_namespaces=65536"
	case sysctl("kernel/unprivileged_userns_clone") == "0" && os.Geteuid() != 0:
		return "unprivileged user namespaces are switched off (kernel.unprivileged_userns_clone=0): " + err.Error(), "ask an administrator for: sysctl kernel.unprivileged_userns_clone=1"
	case (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) && sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1" && os.Geteuid() != 0 && !seccompActive():
		// Ubuntu 24.04 makes the namespace, and lets nothing be executed in it.
		return "AppArmor refuses unprivileged user namespaces (kernel.apparmor_restrict_unprivileged_userns=1): " + err.Error(),
			"an AppArmor profile with `userns,` for this binary and its worker, as in docs/guide.md (\"User namespaces are not available\")"
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS):
		return "a limit on namespaces is used up, or their nesting is too deep (user.max_*_namespaces): " + err.Error(), "see `sysctl -a --pattern 'user.max_.*_namespaces'` and the same limits of an outer container"
	case errors.Is(err, unix.EPERM) && seccompActive():
		return "a seccomp filter around this process refuses new namespaces, as inside a default container: " + err.Error(),
			"start the container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined (Docker), inside a task of caisson open that with --grant userns, or use another --backend"
	case errors.Is(err, unix.EPERM):
		return "the kernel refuses new user namespaces to this process (a security module, a chroot, or a namespace that maps too few ids): " + err.Error(), doctor
	case errors.Is(err, unix.EACCES):
		return "the worker program cannot be executed: " + err.Error(), "its file system must not be mounted noexec, and its mode must be 0111"
	case errors.Is(err, unix.EINVAL):
		return "the kernel lacks one of the namespaces user, mount, pid, ipc, uts, net, cgroup: " + err.Error(), doctor
	}
	return err.Error(), doctor
}

// sysctl reads one kernel setting, "" when there is none.
func sysctl(name string) string {
	data, err := readFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// seccompActive reports whether this process itself runs under a filter.
func seccompActive() bool {
	data, err := readFile("/proc/self/status")
	return err == nil && strings.Contains(string(data), "\nSeccomp:\t2")
}
