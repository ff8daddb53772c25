package foreign

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/task"
)

// Check refuses a spec that no backend can fulfil, for op.
func Check(op string, s backend.Spec) error {
	bad := func(format string, args ...any) error { return task.Errorf(task.CodeInternal, op, format, args...) }
	if _, ok := task.ParseID(string(s.Task)); !ok {
		return bad("%q is not a task id", s.Task)
	}
	if len(s.Token) < 16 || strings.ContainsAny(s.Token, "/.") {
		return bad("the token is too short to prove anything")
	}
	if len(s.Instance) == 0 || strings.ContainsAny(s.Instance, "/.-") {
		return bad("%q does not name an installation", s.Instance)
	}
	for _, p := range []string{s.Home, s.Source.Target} {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return bad("%q is not a clean absolute path", p)
		}
	}
	for _, f := range s.Files {
		if !strings.HasPrefix(f.Target, backend.BinDir+"/") || filepath.Clean(f.Target) != f.Target {
			return bad("the generated file %q does not lie below %s", f.Target, backend.BinDir)
		}
	}
	return nil
}

// AsError is err as an error of this program's: one that is already stays, the end of
// ctx is a cancel, and all else is that the backend cannot be had, with hint.
func AsError(op string, err error, hint string) error {
	var te *task.Error
	switch {
	case errors.As(err, &te):
		return err
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return task.Errorf(task.CodeCanceled, op, "%w", err)
	}
	return task.Errorf(task.CodeUnavailable, op, "%v", err).WithHint("%s", hint)
}

// Worker is the absolute path of the worker's program, as find gives it; a build may
// have none.
func Worker(op string, find func() (string, error)) (string, error) {
	if find == nil {
		return "", task.Errorf(task.CodeUnavailable, op, "this build carries no worker program")
	}
	p, err := find()
	if err == nil && !strings.HasPrefix(p, "/") {
		err = task.Errorf(task.CodeInternal, op, "%q is no absolute path", p)
	}
	return p, err
}
