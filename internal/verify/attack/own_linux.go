//go:build linux

package attack

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// status returns one line of this process's own status file.
func status(key string) (string, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	for l := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(l, key+":"); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", unix.ENOENT
}

// privileges is P31.
func privileges() {
	add("P31", "gain rights by a set-id program", func() error {
		if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil {
			return err
		} else if v == 1 {
			return unix.EPERM
		}
		return nil
	}).level(2)
	for _, k := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"} {
		t := add("P31", "hold a capability: "+k, func() error {
			v, err := status(k)
			if err == nil && strings.Trim(v, "0") == "" {
				err = unix.EPERM
			}
			return err
		})
		t.Root = k != "CapBnd"
		t.Kernel = k == "CapInh" || k == "CapAmb" // not even root has some
	}
	add("P31", "be user 0 of the machine", func() error {
		data, err := os.ReadFile("/proc/self/uid_map")
		if err != nil {
			return err
		}
		var in, out, n uint64
		if _, err := fmt.Sscan(string(data), &in, &out, &n); err != nil {
			return errConfined
		}
		if uint64(os.Getuid()) != in-out || out != 0 { // 0 inside is 0 outside
			return unix.EPERM
		}
		return nil
	}).root()
}

// record is P66 and what else tells of the launcher: ENV.
func record() {
	for _, f := range c.Record {
		add("P66", "open for reading "+f, open(f, unix.O_RDONLY))
		add("P66", "open for changing "+f, open(f, unix.O_WRONLY|unix.O_APPEND))
		add("P66", "open for changing, through /proc/self/root: "+f, open("/proc/self/root"+f, unix.O_WRONLY|unix.O_APPEND))
	}
	if c.EnvSecret != "" {
		add("ENV", "find a secret of the launcher in the environment", func() error {
			for _, kv := range os.Environ() {
				if !strings.HasPrefix(kv, configEnv+"=") && strings.Contains(kv, c.EnvSecret) {
					return nil
				}
			}
			return unix.ENOENT
		})
	}
}

// sleeperHere says that the sleeping process of the host can be meant here. In a
// boundary that is not caisson's its number may be another process's, which must be
// left alone.
func sleeperHere() error {
	if !c.Foreign {
		return nil
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Pid))
	if err == nil && c.Tag != "" && strings.Contains(string(data), c.Tag) {
		return nil
	}
	return unix.ESRCH
}

// ofSleeper makes an attempt on the sleeping process one that is only made where it
// is that process.
func ofSleeper(do func() error) func() error {
	return func() error {
		if err := sleeperHere(); err != nil {
			return err
		}
		return do()
	}
}

// loaded says that this kernel has a family of sockets already: to ask for another
// one loads a module, which stays.
func loaded(family int) bool {
	switch family {
	case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, 0:
		return true
	case unix.AF_PACKET:
		_, err := os.Stat("/proc/net/packet")
		return err == nil
	}
	return false
}
