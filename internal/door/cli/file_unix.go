//go:build unix

package cli

import (
	"os"
	"syscall"

	"github.com/caisson-dev/caisson/internal/task"
)

// openNoWait opens a file that may have become a pipe since it was looked at.
func openNoWait(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
}

// minFiles is how many files a process must be allowed to open: a boundary is
// built from some forty descriptors.
const minFiles = 64

// enoughFiles refuses a limit on open files under which a command would fail in
// the middle, at whatever needs the next one.
func enoughFiles() error {
	var l syscall.Rlimit
	// The runtime has raised the soft limit to the hard one already.
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil || l.Cur >= minFiles {
		return nil
	}
	return task.Errorf(task.CodeUnavailable, "cli.files", "this process may open %d files only, and %d are needed", l.Cur, minFiles).
		WithHint("raise the limit: `ulimit -n 1024`")
}
