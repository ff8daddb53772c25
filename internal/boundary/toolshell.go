package boundary

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/capture"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

const (
	// shellTime is what a command has where nobody says; shellMost the most that
	// can be asked for. A server is a background shell's business.
	shellTime = 2 * time.Minute
	shellMost = 2 * time.Hour
	// maxSpill bounds the file with all that one output of one call wrote.
	maxSpill = 64 << 20
	// stdinMost bounds what a command gets as its input.
	stdinMost = 8 << 20
	// liveTime is how long an ended call waits for its caller to take the output.
	liveTime = 10 * time.Second
	ptyRows  = 24
	ptyCols  = 120
)

// commandText is a command as a rule's pattern sees it.
func commandText(a *contract.ShellArgs) string {
	if a.Command != "" {
		return a.Command
	}
	return strings.Join(a.Argv, " ")
}

func keys(env map[string]string) []string { return slices.Sorted(maps.Keys(env)) }

// program finds out what a shell call starts, and refuses what it cannot be.
func (l *live) program(k *toolCall, a *contract.ShellArgs) error {
	bad := func(format string, args ...any) error {
		return badCall(k.tool, contract.Fail(contract.BadArgs, format, args...))
	}
	if k.argv = a.Argv; a.Command != "" {
		k.argv = []string{l.shellPath(), "-c", a.Command}
	}
	k.dir = l.inside(a.Dir)
	switch {
	case a.TimeoutMS < 0, a.TimeoutMS > shellMost.Milliseconds():
		return bad("timeout_ms must be between 1 and %d", shellMost.Milliseconds())
	case len(a.Stdin) > stdinMost:
		return bad("stdin is longer than %d bytes; write it to a file first", stdinMost)
	case a.PTY && strings.ContainsRune(a.Stdin, 4):
		return bad("stdin of a terminal cannot hold ^D, which ends it")
	}
	for name := range a.Env {
		// caisson sets these itself: the model's are ignored, on record.
		if setByUs[name] {
			k.refused = append(k.refused, "env."+name)
			delete(a.Env, name)
			continue
		}
		if !validName(name) {
			return bad("env: %q is no name of a variable", short(name, 60))
		}
	}
	return nil
}

// shellPath is what reads a script inside: bash where the boundary has it,
// because scripts of models are written for it, else sh.
func (l *live) shellPath() string {
	root := l.spec.Rootfs
	if l.spec.Image != "" {
		return "/bin/sh" // what else is in it is not known here
	}
	if root == "" {
		root = "/"
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return "/bin/sh"
	}
	defer r.Close()
	for _, p := range []string{"bin/bash", "usr/bin/bash"} {
		if i, err := r.Stat(p); err == nil && i.Mode().IsRegular() && i.Mode()&0o111 != 0 {
			return "/" + p
		}
	}
	return "/bin/sh"
}

// errShellTime is the cause of a call that ran too long.
func errShellTime(d time.Duration) error {
	return task.Errorf(task.CodeLimit, "tool", "timeout: the call's time of %s is over", d)
}

// runShell runs a command to its end.
func (m *Manager) runShell(ctx context.Context, l *live, k *toolCall, a *contract.ShellArgs, res *task.ToolResult) (*contract.ShellResult, map[string]any, error) {
	limit := shellTime
	if a.TimeoutMS > 0 {
		limit = time.Duration(a.TimeoutMS) * time.Millisecond
	}
	tctx, stop := context.WithTimeoutCause(ctx, limit, errShellTime(limit))
	defer stop()
	out, errs := l.stream(k, "stdout"), l.stream(k, "stderr")
	p, err := capture.Plumb(a.PTY, out, errs)
	if err != nil {
		return nil, nil, task.Errorf(task.CodeUnavailable, "tool", "no pipe for the command: %w", err)
	}
	o, err := m.execute(tctx, l, k.command(a), &door.ExecIO{Files: p.Files, OnPTY: p.OnPTY, Started: func(task.ID) { p.Feed(a.Stdin, false) }})
	// A caller that does not take what it is handed on must not hold up the end.
	patience := time.AfterFunc(liveTime, func() { out.GiveUp(); errs.GiveUp() })
	p.End()
	patience.Stop()
	if err == nil && o.Reason == "" {
		o.Reason = l.limited(ctx, o, k.begun)
	}
	so, se := out.Result(), errs.Result()
	res.Observed.StdoutBytes, res.Observed.StderrBytes, res.Observed.Reason = so.Bytes, se.Bytes, o.Reason
	r := &contract.ShellResult{Stdout: so.Text, Stderr: se.Text, Truncated: so.Omitted+se.Omitted > 0, State: "exited"}
	switch {
	case so.Spilled > 0:
		r.Output = l.spillName(k, "stdout")
	case se.Spilled > 0:
		r.Output = l.spillName(k, "stderr")
	}
	sum := map[string]any{"stdout_sha256": so.SHA256, "stderr_sha256": se.SHA256, "stdout_tail": string(so.Tail), "stderr_tail": string(se.Tail)}
	if err != nil {
		if f := startFailure(err); f != nil {
			return nil, nil, f
		}
		return nil, sum, err
	}
	res.Ended(o)
	r.Exit, r.Signal = &o.Exit, o.Signal
	switch cause := context.Cause(tctx); {
	case o.Reason == "":
	case ctx.Err() != nil:
		r.State = "killed"
		return r, sum, task.Errorf(task.CodeCanceled, "tool", "canceled; every process of the call is gone: %w", context.Cause(ctx))
	case cause != nil && task.CodeOf(cause) == task.CodeLimit && tctx.Err() != nil:
		r.State = "timeout"
	default:
		r.State = "killed"
	}
	return r, sum, nil
}

// startFailure is what a model should know of a program that was not started;
// nil for what is no answer to it.
func startFailure(err error) error {
	var e *task.Error
	if !errors.As(err, &e) {
		return nil
	}
	switch e.Code {
	case task.CodeNoCommand, task.CodeNotFound:
		return contract.Fail(contract.NotFound, "%s", e.Error())
	case task.CodeNotExecutable:
		return contract.Fail(contract.Permission, "%s", e.Error())
	case task.CodeUsage:
		return contract.Fail(contract.BadArgs, "%s", e.Error())
	case task.CodeLimit:
		return contract.Fail(contract.Limit, "%s", e.Error())
	}
	return nil
}

func (k *toolCall) command(a *contract.ShellArgs) task.Command {
	c := task.Command{Argv: k.argv, Dir: k.dir, TTY: a.PTY, Rows: ptyRows, Cols: ptyCols}
	for _, name := range keys(a.Env) {
		c.Env = append(c.Env, name+"="+a.Env[name])
	}
	return c
}

// stream collects one output of a call.
func (l *live) stream(k *toolCall, name string) *capture.Stream {
	s := &capture.Stream{MaxSpill: maxSpill, File: l.spillName(k, name), Spill: func() (*os.File, error) { return l.spill(k, name) }}
	if k.o.Output != nil {
		s.Live = func(p []byte) { k.o.Output(name, p) }
	}
	return s
}

func spillBase(k *toolCall, name string) string { return fmt.Sprintf("shell-%s-%s.log", k.id, name) }

// spillName is the path inside of the file with all of an output.
func (l *live) spillName(k *toolCall, name string) string {
	return filepath.Join(l.spec.Out.Target, spillBase(k, name))
}

// spill makes that file. The output store belongs to the task: a link that it
// puts there under this name is not followed, and a file not taken.
func (l *live) spill(k *toolCall, name string) (*os.File, error) {
	root, err := os.OpenRoot(l.spec.Out.Source)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	base := spillBase(k, name)
	f, err := root.OpenFile(base, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o644); err != nil { // to be read inside, by whatever id
		_ = f.Close()
		return nil, err
	}
	i, err := f.Stat()
	if err == nil {
		l.tools.spilled(base, i)
	}
	return f, nil
}
