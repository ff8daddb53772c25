//go:build linux

package realwork

import (
	"testing"

	"github.com/caisson-dev/caisson/test/harness"
)

// terminal starts a program of id on a terminal, with what a terminal sets.
func terminal(t *testing.T, id *harness.Identity, dir, prog string, args ...string) *harness.Screen {
	t.Helper()
	cmd := id.Command(t.Context(), dir, prog, args...)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", "COLORTERM=truecolor", "PS1=$ ")
	return harness.OnTerminal(t, cmd, id.UID)
}
