package stage

import (
	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/sys"
)

// openScores opens I's own oom_score_adj, and a /proc of I's pid namespace that
// is mounted nowhere. It must run before anything untrusted exists: the kernel
// lets a process open its own file only while it is dumpable, and for this one
// moment I is. -1 where the kernel allows it not.
func openScores() (own, tree int, err error) {
	const step, op = "tool space", "take hold of the out-of-memory killer's scores"
	if sys.Without("scores") {
		return -1, -1, nil
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return -1, -1, fail(step, op, err)
	}
	own, oerr := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return -1, -1, fail(step, op, err)
	}
	if oerr != nil {
		return -1, -1, nil
	}
	// A mount of its own has a root of its own (Linux 5.8), so that a rule can tell
	// it from the one that tools see.
	tree, terr := fsMount("proc", nil, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if terr != nil {
		tree = -1
	}
	return own, tree, nil
}
