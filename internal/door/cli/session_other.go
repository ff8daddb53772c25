//go:build !linux

package cli

import (
	"context"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// session exists where a backend of this version can run a command; there is
// none on this system.
type session struct {
	io  door.ExecIO
	ctx context.Context
	tty bool
}

func (a *app) newSession(context.Context, bool) (*session, error) {
	return nil, task.Errorf(task.CodeUnsupported, "cli.session", "this version runs commands on Linux only").
		WithHint("`caisson doctor` says what this machine can do")
}

func (s *session) command([]string, string, []string) task.Command { return task.Command{} }
func (s *session) terminalEnv() []string                           { return nil }
func (s *session) task() task.ID                                   { return "" }
func (s *session) lost() error                                     { return nil }
func (s *session) close()                                          {}
func (s *session) canceled() bool                                  { return false }
func (s *session) caughtAll()                                      {}
