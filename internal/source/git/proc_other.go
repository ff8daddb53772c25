//go:build !unix

package git

import (
	"io/fs"
	"os/exec"
)

const programName = "git.exe"

func executable(fs.FileMode) bool { return true }

// ownGroup leaves cancellation to the default, which kills git itself.
func ownGroup(*exec.Cmd) {}
