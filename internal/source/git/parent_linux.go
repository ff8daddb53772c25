package git

import "syscall"

// endWithParent has the kernel end git when caisson is killed: a git that went
// on would write refs after somebody else has already cleaned up. SIGTERM, at
// which git removes its locks and temporary files.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGTERM }
