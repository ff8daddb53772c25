//go:build linux

package linux

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// ownRoot makes a root of the tries' own in /tmp.
const ownRoot = "mount -t tmpfs x /tmp && mkdir /tmp/usr /tmp/old /tmp/proc && mount --rbind /usr /tmp/usr && mount --rbind /proc /tmp/proc && for d in bin lib lib64; do ln -s usr/$d /tmp/$d; done"

// asNobody are tries that an ordinary user of the task may make with the grant.
var asNobody = map[string]string{
	"user namespace": "unshare -U --map-current-user true",
	"own mount":      "unshare -Urm mount -t tmpfs x /tmp",
	"own /proc":      `test "$(unshare -Urmpf --mount-proc sh -c 'echo $$; ls -d /proc/[0-9]*' | head -n 1)" = 1`,
	"own network":    "unshare -Urn true",
	"bind":           "unshare -Urm sh -c 'mkdir /tmp/b && mount --bind /usr /tmp/b && test -d /tmp/b/bin'",
	"overlay":        "unshare -Urm sh -c 'mkdir -p /tmp/o && mount -t tmpfs x /tmp/o && mkdir /tmp/o/u /tmp/o/w /tmp/o/m && mount -t overlay -o lowerdir=/usr/share,upperdir=/tmp/o/u,workdir=/tmp/o/w x /tmp/o/m && touch /tmp/o/m/new'",
	"new root":       "unshare -Urm sh -c '" + ownRoot + " && cd /opt/seed && /usr/sbin/pivot_root /tmp /tmp/old && umount -l /old && test -e pkg/file && test ! -e /opt'",
}

// asOuter are tries to change or see, from a namespace where everything is
// allowed, what belongs to the boundary. Each ends with another status than 0.
var asOuter = map[string]string{
	"remount /usr":           "unshare -Urm mount -o remount,rw,bind /usr",
	"remount the root":       "unshare -Urm mount -o remount,rw,bind /",
	"remount the seed":       "unshare -Urm sh -c 'mount -o remount,rw,bind /opt/seed; touch /opt/seed/x'",
	"bind the seed writable": "unshare -Urm sh -c 'mkdir -p /tmp/s; mount --rbind /opt/seed /tmp/s && mount -o remount,rw,bind /tmp/s; touch /tmp/s/x'",
	"unmount a mask":         "unshare -Urm umount /opt/seed/.netrc",
	"detach a mask":          "unshare -Urm umount -l /opt/seed/.netrc",
	"bind below a mask":      "unshare -Urm sh -c 'mkdir -p /tmp/s; mount --bind /opt/seed /tmp/s && test -s /tmp/s/.netrc'",
	"unmask a copy":          "unshare -Urm sh -c 'mkdir -p /tmp/s; mount --rbind /opt/seed /tmp/s && umount /tmp/s/.netrc'",
	"overlay below a mask":   "unshare -Urm sh -c 'mkdir -p /tmp/s; mount -t overlay -o lowerdir=/opt/seed:/usr/share x /tmp/s && test -s /tmp/s/.netrc'",
	"detach all, stay there": "unshare -Urm sh -c '" + ownRoot + " && cd /opt/seed && /usr/sbin/pivot_root /tmp /tmp/old && umount -l /old && test -s .netrc'",
	"move a mask":            "unshare -Urm sh -c 'touch /tmp/t; mount --move /opt/seed/.netrc /tmp/t'",
	"unmount /proc":          "unshare -Urm umount -l /proc",
	"unmount a /proc mask":   "unshare -Urm umount /proc/sys",
	"write core_pattern":     "unshare -Urmpf --mount-proc sh -c 'echo x >/proc/sys/kernel/core_pattern'",
	"write core_pattern (2)": "echo x >" + wholeProc + "/sys/kernel/core_pattern",
	"write sysrq":            "unshare -Urmpf --mount-proc sh -c 'echo h >/proc/sysrq-trigger'",
	"write drop_caches":      "unshare -Urmpf --mount-proc sh -c 'echo 3 >/proc/sys/vm/drop_caches'",
	"read kcore":             "unshare -Urmpf --mount-proc head -c 1 /proc/kcore",
	"read timers":            "unshare -Urmpf --mount-proc head -c 1 /proc/timer_list",
	"read page counts":       "unshare -Urmpf --mount-proc head -c 8 /proc/kpagecount",
	"the boundary's /proc":   "unshare -Urm sh -c 'mkdir -p /tmp/s; mount -t proc x /tmp/s'",
	"sysfs":                  "unshare -Urmn sh -c 'mkdir -p /tmp/s; mount -t sysfs x /tmp/s'",
	"device files":           "unshare -Urm sh -c 'mkdir -p /tmp/s; mount -t devtmpfs x /tmp/s'",
	"device node":            "unshare -Urm sh -c 'mount -t tmpfs x /tmp; mknod /tmp/n c 1 8 && head -c 1 /tmp/n'",
	"enter process 1":        "unshare -Ur nsenter -t 1 -m true",
	"memory of process 1":    "unshare -Ur head -c 1 /proc/1/mem",
	"raise the limits":       "unshare -UrmC sh -c 'mkdir -p /tmp/s; mount -t cgroup2 x /tmp/s || exit; echo max >/tmp/s/memory.max'",
	"raise the limits (v1)":  "unshare -UrmC sh -c 'mkdir -p /tmp/s; mount -t cgroup -o memory x /tmp/s || exit; echo -1 >/tmp/s/memory.limit_in_bytes'",
	"raise pids (v1)":        "unshare -UrmC sh -c 'mkdir -p /tmp/s; mount -t cgroup -o pids x /tmp/s || exit; echo max >/tmp/s/pids.max'",
	"keyring":                "python3 -c 'import ctypes,sys; c=ctypes.CDLL(None); sys.exit(c.syscall(250,0,-3,0)<0)'",
	"packet socket":          "unshare -Urn python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'",
	"firewall socket":        "unshare -Urn python3 -c 'import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)'",
}

// TestUsernsGrant is P25, P26 with the grant: namespaces and mounts of their own
// work and have no effect on the boundary. The control is without: none work.
func TestUsernsGrant(t *testing.T) {
	home := homeWith(t, "seed/pkg/file", "seed/.netrc")
	must(t, os.WriteFile(filepath.Join(home, "seed/.netrc"), []byte("secret"), 0o644))
	with := func(userns bool) *box {
		s := newSpec(t)
		s.Userns = userns
		seeds, _, err := Screen(t.Context(), []backend.Mount{{Source: filepath.Join(home, "seed"), Target: "/opt/seed"}})
		must(t, err)
		s.RO = seeds
		return open(t, s)
	}
	plain := with(false)
	for name, script := range asNobody {
		if out, code := plain.run("/bin/sh", "-c", script+" 2>&1"); code == 0 {
			t.Errorf("without the grant, %s: %s", name, out)
		}
	}
	b := with(true)
	for name, script := range asNobody {
		if out, code := b.run("/bin/sh", "-c", script+" 2>&1"); code != 0 {
			t.Errorf("%s: exit %d %s", name, code, out)
		}
	}
	for name, script := range asOuter {
		out, code := b.run("/bin/sh", "-c", script+" 2>&1")
		if code == 0 || strings.Contains(out, "secret") {
			t.Errorf("%s worked: %s", name, out)
		}
		t.Logf("%s: %d %s", name, code, strings.TrimSpace(out))
	}
	// What they did in their namespaces is not to be seen in the boundary's.
	b.sh("test ! -e /opt/seed/x && test ! -s /opt/seed/.netrc && test -x /usr/bin/env && test ! -w /proc/sys/kernel/core_pattern && ! grep -q overlay /proc/self/mounts")
	if got := b.sh("/opt/seed/pkg/file"); got != "ran" {
		t.Error(got)
	}
}

// A task that is the kernel's user 0 could write the machine's files in a /proc
// of its own, without any capability.
func TestUsernsGrantNeedsAnotherUser(t *testing.T) {
	for _, c := range []struct {
		userns bool
		uid    int
		code   task.Code
	}{{false, 0, ""}, {false, 1000, ""}, {true, 1000, ""}, {true, 0, task.CodeUnsupported}} {
		err := grantable(backend.Spec{Userns: c.userns}, mapping{uid: c.uid})
		if task.CodeOf(err) != c.code || c.code == "" && err != nil {
			t.Errorf("userns %v, uid %d: %v", c.userns, c.uid, err)
		}
	}
}

// Groups that a task made below its own, where they belong to its user, go too.
func TestGroupsOfTheTask(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "g")
	must(t, os.MkdirAll(filepath.Join(dir, innerGroup, "a/b"), 0o755))
	must(t, os.MkdirAll(filepath.Join(dir, "c"), 0o755))
	g := &group{dir: dir, nested: true, hierarchy: hierarchy{v2: true}}
	if got := g.members(); got != filepath.Join(dir, innerGroup) {
		t.Error(got)
	}
	must(t, g.remove(t.Context()))
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// The second /proc is there with the grant alone.
func TestSpaceSteps(t *testing.T) {
	for _, userns := range []bool{false, true} {
		whole := false
		for _, s := range spaceSteps(userns) {
			whole = whole || s.Target == wholeProc
		}
		if whole != userns {
			t.Errorf("userns %v: %v", userns, whole)
		}
	}
}
