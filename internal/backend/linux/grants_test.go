//go:build linux

package linux

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-dev/caisson/internal/backend"
)

func TestPtraceGrant(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed")
	}
	const try = "strace -qq -e trace=none -f /bin/true"
	if err := exec.Command("/bin/sh", "-c", try).Run(); err != nil {
		t.Skipf("this process itself may not trace: %v", err)
	}
	if out, code := open(t, newSpec(t)).run("/bin/sh", "-c", try); code == 0 {
		t.Errorf("without the grant: %s", out)
	}
	s := newSpec(t)
	s.Ptrace = true
	b := open(t, s)
	b.sh(try)
	// The grant reaches the task's own programs only, not what runs them.
	if out, code := b.run("/bin/sh", "-c", "timeout 2 strace -qq -e trace=none -p 1 2>&1"); code == 0 || !strings.Contains(out, "not permitted") {
		t.Errorf("traced pid 1: %d %s", code, out)
	}
}

// A root file system of a person's own, with nothing of the host's /usr.
func TestRootfs(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("busybox is not installed: there is no small root file system to try")
	}
	root := filepath.Join(publicTemp(t), "root")
	script := "mkdir -p $0/bin $0/etc $0/usr/share/mark $0/var/lib/x $0/home/other && cp $1 $0/bin/busybox && for a in sh cat ls id touch; do ln -s busybox $0/bin/$a; done && " +
		"echo 'root:x:0:0::/:/bin/sh' > $0/etc/passwd && echo old > $0/etc/hosts && chmod -R a+rX $0"
	if out, err := exec.Command("sh", "-c", script, root, busybox).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	s := newSpec(t)
	s.Rootfs = root
	b := open(t, s)
	if got := b.sh("cat /etc/passwd"); !strings.Contains(got, "tester:x:1000:1000") {
		t.Errorf("passwd: %s", got)
	}
	if got := b.sh("ls /usr/share; ls /home; touch x"); got != "mark\ntester" {
		t.Errorf("seen: %s", got)
	}
	if out, code := b.run("/bin/sh", "-c", "touch /etc/x || touch /usr/x || touch /bin/x"); code == 0 {
		t.Errorf("writable: %s", out)
	}
}

// Seeds appear read-only at their place, what is hidden in them is not there.
func TestSeedIsReadOnlyAndScreened(t *testing.T) {
	home := homeWith(t, "seed/pkg/file", "seed/.netrc")
	s := newSpec(t)
	seeds, _, err := Screen(t.Context(), []backend.Mount{{Source: filepath.Join(home, "seed"), Target: "/opt/seed"}})
	must(t, err)
	s.RO = seeds
	b := open(t, s)
	if got := b.sh("/opt/seed/pkg/file"); got != "ran" {
		t.Error(got)
	}
	for _, script := range []string{"touch /opt/seed/x", "rm /opt/seed/pkg/file", "test -s /opt/seed/.netrc", "echo x > /opt/seed/.netrc"} {
		if out, code := b.run("/bin/sh", "-c", script); code == 0 {
			t.Errorf("%s: %s", script, out)
		}
	}
}
