package linux

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-dev/caisson/internal/backend/internal/rootdir"
	"github.com/caisson-dev/caisson/internal/backend/linux/stage"
)

// replacedTries is how often a boundary is made anew whose set-up met a file of
// /etc in the moment at which a package manager put another in its place.
const replacedTries = 3

// replacedEtc says that err is such a moment: the file that was looked at lies
// nowhere any more, or another does.
func replacedEtc(err error) bool {
	var se *stage.Error
	if !errors.As(err, &se) {
		return false
	}
	_, name, found := strings.Cut(se.Op, " ")
	return found && strings.HasPrefix(name, "/etc/") && (se.Errno == unix.ENOENT || se.Detail == stage.Replaced)
}

// etc generates /etc: an identity of its own and read-only parts of the host's.
func (pl *planner) etc() error {
	pl.add(stage.Step{Op: "dir", Target: "/etc", Mode: 0o755})
	for name, text := range rootdir.Identity(pl.spec, pl.spec.Rootfs, insideID, insideID) {
		pl.add(stage.Step{Op: "file", Target: "/etc/" + name, Mode: 0o444, Data: text})
	}
	if text := rootdir.GitConfig(pl.spec); text != "" {
		pl.add(stage.Step{Op: "file", Target: "/etc/gitconfig", Mode: 0o444, Data: text})
	}
	if pl.spec.Way != nil {
		for _, dir := range rootdir.BrowserPolicies {
			pl.add(stage.Step{Op: "file", Target: dir + "/caisson.json", Mode: 0o444, Data: rootdir.BrowserPolicy})
		}
	}
	for _, name := range rootdir.EtcCopied {
		if text, ok := rootdir.ReadPublic("/etc/" + name); ok {
			pl.add(stage.Step{Op: "file", Target: "/etc/" + name, Mode: 0o444, Data: text})
		}
	}
	if dest, err := filepath.EvalSymlinks("/etc/localtime"); err == nil {
		if strings.HasPrefix(dest, "/usr/") {
			pl.add(stage.Step{Op: "link", Target: "/etc/localtime", Data: dest})
		} else if err := pl.bind(dest, "/etc/localtime", false, "ro"); err != nil {
			return err
		}
	}
	pl.add(stage.Step{Op: "link", Target: "/etc/mtab", Data: "/proc/self/mounts"})
	for _, pattern := range rootdir.EtcBound {
		names, _ := filepath.Glob("/etc/" + pattern)
		for _, name := range names {
			dest, err := filepath.EvalSymlinks(name)
			if err != nil {
				continue // absent, or a link into nothing
			}
			switch {
			case dest == name:
				err = pl.bind(name, name, false, "ro")
			case strings.HasPrefix(dest, "/usr/"):
				pl.add(stage.Step{Op: "link", Target: name, Data: dest})
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
				return err
			}
		}
	}
	return nil
}
