package linux

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
)

// HostKey names everything known that decides what Probe finds: who asks, from
// which namespaces and with which privileges, on which boot, under which
// settings, with which worker. Two equal keys may share one answer; a setting
// that is not in it is caught by Create and by the probe from inside, which fail
// instead of giving less.
func HostKey(worker string) (string, error) {
	boot, err := sys.BootID()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintln(h, boot, os.Getuid(), os.Geteuid(), os.Getgid(), worker, os.Getenv("XDG_RUNTIME_DIR"))
	for _, ns := range []string{"user", "pid", "mnt", "net", "cgroup"} {
		l, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, ns, l)
	}
	for _, f := range []string{"/proc/self/cgroup", "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/unprivileged_userns_clone",
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "/proc/self/attr/current", "/proc/self/uid_map"} {
		b, err := readFile(f)
		fmt.Fprintln(h, f, string(b), err != nil)
	}
	// Another build asks other things, or says what it found otherwise.
	var exe unix.Stat_t
	if err := unix.Stat("/proc/self/exe", &exe); err != nil {
		return "", err
	}
	fmt.Fprintln(h, exe.Dev, exe.Ino, exe.Size, exe.Mtim, exe.Ctim)
	if err := privileges(h); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// privileges writes the lines of the own status that restrict what may be done.
func privileges(w io.Writer) error {
	b, err := readFile("/proc/self/status")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(b), "\n") {
		for _, p := range []string{"Cap", "NoNewPrivs", "Seccomp", "Groups"} {
			if strings.HasPrefix(line, p) {
				fmt.Fprintln(w, line)
			}
		}
	}
	return nil
}
