//go:build linux

package linux

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// The kernel counts inotify instances and watches per user of the machine. A
// task gets half; the control is the limit of the host, which is larger.
func TestHalfOfTheUsersWatches(t *testing.T) {
	b := open(t, newSpec(t))
	for _, name := range []string{"max_inotify_instances", "max_inotify_watches"} {
		raw, err := os.ReadFile("/proc/sys/user/" + name)
		if err != nil {
			t.Skip("this kernel has no such limit: " + err.Error())
		}
		host, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		if err != nil {
			t.Fatal(err)
		}
		// The tool space's own namespace has no limit; the one around it counts.
		if got := userLimits(false)[name]; got != host/2 {
			t.Errorf("%s: planned %d of the host's %d", name, got, host)
		}
	}
	host, _ := strconv.Atoi(strings.TrimSpace(textOf(t, "/proc/sys/user/max_inotify_instances")))
	out := b.sh(`/usr/bin/python3 -c '
import ctypes
l = ctypes.CDLL(None)
n = 0
while n < 100000 and l.inotify_init() >= 0:
    n += 1
print(n)' 2>&1`)
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Skip("no python3 in /usr/bin to count with: " + out)
	}
	if n > host/2 {
		t.Errorf("a task took %d inotify instances, the user has %d", n, host)
	}
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
