// Package version holds what `caisson version` prints: the version and the
// commit this program was built from.
//
// Its limit: it knows only what the linker stamped or the toolchain recorded;
// it never runs git and never reads a file.
package version

import (
	"runtime/debug"
	"strings"
)

// The Makefile stamps these with -ldflags -X. They stay empty in a plain `go build`.
var (
	version string // from git describe, without a leading v
	commit  string // full object name, "-dirty" appended when the tree had changes
)

// unstamped is what a plain `go build` or `go test` reports as version.
const unstamped = "0.0.0-dev"

// Version returns the version, for example "0.1.0" or "0.0.0-dev". It is never
// empty.
func Version() string {
	if version != "" {
		return version
	}
	// `go install module@v1.2.3` records the module version.
	if bi, ok := debug.ReadBuildInfo(); ok && len(bi.Main.Version) > 1 && bi.Main.Version[0] == 'v' {
		return bi.Main.Version[1:]
	}
	return unstamped
}

// Commit returns the commit built from, "-dirty" appended when the tree had
// changes, or "" when it is not known.
func Commit() string {
	if commit != "" {
		return commit
	}
	var rev, dirty string
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			switch {
			case s.Key == "vcs.revision":
				rev = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = "-dirty"
			}
		}
	}
	if rev == "" {
		return ""
	}
	return rev + dirty
}

// String renders version and, when known, the first twelve characters of the commit.
func String() string {
	c := Commit()
	if c == "" {
		return Version()
	}
	dirty := ""
	if base, ok := strings.CutSuffix(c, "-dirty"); ok {
		c, dirty = base, "-dirty"
	}
	if len(c) > 12 {
		c = c[:12]
	}
	return Version() + " (" + c + dirty + ")"
}
