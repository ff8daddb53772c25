//go:build unix

package git

import (
	"io/fs"
	"os/exec"
	"syscall"
)

const programName = "git"

func executable(m fs.FileMode) bool { return m&0o111 != 0 }

// ownGroup puts the call in its own process group, so that what git started
// (index-pack, pack-objects) ends with it, and a Ctrl-C on the terminal
// reaches caisson alone.
func ownGroup(p *exec.Cmd) {
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(p.SysProcAttr)
	p.Cancel = func() error {
		// SIGTERM, at which git removes its locks: one of a ref in the user's
		// repository would be in the way of everybody for good. What does not
		// end by it is killed after WaitDelay. The child has not been waited
		// for while Cancel runs, so its group id cannot have been reused.
		return syscall.Kill(-p.Process.Pid, syscall.SIGTERM)
	}
}
