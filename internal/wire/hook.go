package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/broker"
	"github.com/caisson-dev/caisson/internal/task"
)

// hookEnv names the variables that a person's own program gets: those by which
// it finds its files, its desktop and its agents. A process that holds a task
// may have been started by a client that put keys into its environment.
var hookEnv = map[string]bool{
	"HOME": true, "USER": true, "LOGNAME": true, "PATH": true, "LANG": true, "TERM": true, "TZ": true, "SHELL": true,
	"DISPLAY": true, "WAYLAND_DISPLAY": true, "XAUTHORITY": true, "XDG_RUNTIME_DIR": true, "XDG_CONFIG_HOME": true, "XDG_DATA_HOME": true, "XDG_STATE_HOME": true,
	"DBUS_SESSION_BUS_ADDRESS": true, "SSH_AUTH_SOCK": true, "CAISSON_STATE_DIR": true, "CAISSON_RUNTIME_DIR": true,
}

// maxHookAnswer bounds what a program may print.
const maxHookAnswer = 64 << 10

// hook has the program at path answer a question: it reads the question as JSON
// on its standard input. Exit status 0 allows, 1 denies, every other gives no
// answer. What it prints on standard output may be an answer as JSON, whose
// "allow" then counts in place of status 0, and never in place of 1.
func (h *house) hook(ctx context.Context, path string, q task.Question) (task.Answer, bool, error) {
	in, err := json.Marshal(q)
	if err != nil {
		return task.Answer{}, false, err
	}
	cmd := persons(ctx, path)
	cmd.Stdin = bytes.NewReader(append(in, '\n'))
	var out, errs limited
	out.left, errs.left = maxHookAnswer, 4<<10
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		a := task.Answer{}
		_ = json.Unmarshal(out.Bytes(), &a) // for its reason
		return task.Answer{Reason: a.Reason}, true, nil
	default:
		text := strings.TrimSpace(errs.String())
		return task.Answer{}, false, task.Errorf(task.CodeUnavailable, "wire.hook", "%s gave no answer: %v %s", path, err, text)
	}
	a := task.Answer{Allow: true}
	if text := bytes.TrimSpace(out.Bytes()); len(text) > 0 {
		a.Allow = false // what it prints must say so
		if err := json.Unmarshal(text, &a); err != nil {
			return task.Answer{}, false, task.Errorf(task.CodeUnavailable, "wire.hook", "%s printed what is no answer: %v", path, err)
		}
	}
	return a, true, nil
}

// persons is a program of the person's that is about to run beside a task: with
// what finds its files, its desktop and its agents, in no folder of anybody's, in
// a session of its own that ends with ctx.
func persons(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = "/" // never the workspace
	cmd.Env = []string{}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); hookEnv[name] || strings.HasPrefix(name, "LC_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.SysProcAttr, cmd.WaitDelay = newSession(), time.Second
	cmd.Cancel = func() error { return endSession(cmd.Process) }
	return cmd
}

// printed runs a program that prints a secret. Nothing of what it prints is in an
// error: also what it complains about may hold it.
func printed(ctx context.Context, argv []string) ([]byte, error) {
	cmd := persons(ctx, argv[0], argv[1:]...)
	var out limited
	out.left = broker.MaxSecret + 1
	out.Grow(out.left) // no copy is left behind by growing
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		clear(out.Bytes())
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%s was not done in time", argv[0])
		case errors.As(err, &exit):
			return nil, fmt.Errorf("%s ended with %s", argv[0], exit.ProcessState)
		}
		return nil, err
	}
	return out.Bytes(), nil
}

// limited keeps the beginning of what is written.
type limited struct {
	bytes.Buffer
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.left -= n
	l.Buffer.Write(p[:n])
	return len(p), nil
}
