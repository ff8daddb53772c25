package git

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// limitsOthers reports whether this process may set the limits of another one.
// A system call filter, such as a boundary's, may leave it its own alone: the
// trial sets nothing new, and names this process by its number.
var limitsOthers = sync.OnceValue(func() bool {
	var now unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_AS, nil, &now) != nil {
		return false
	}
	return unix.Prlimit(os.Getpid(), unix.RLIMIT_AS, &now, nil) == nil
})

// limitItself has p bound its own memory before it becomes git, where nobody
// else can: it reports whether that was necessary.
func limitItself(p *exec.Cmd, max uint64) bool {
	if limitsOthers() {
		return false
	}
	kib := strconv.FormatUint(max>>10, 10)
	p.Args = append([]string{"sh", "-c", `ulimit -v "$0" && exec "$@"`, kib, p.Path}, p.Args[1:]...)
	p.Path = "/bin/sh"
	return true
}

// limitMemory bounds a child that has not been waited for, so its pid is its
// own. One that has already ended needs no bound.
func limitMemory(pid int, max uint64) error {
	err := unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: max, Max: max}, nil)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
