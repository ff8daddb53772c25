//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience is how long one untimed command may take.
const patience = 5 * time.Minute

// command prepares argv as a child that a Ctrl-C on the terminal does not
// reach: it is asked to end by us, so that it can take back what it made.
func command(ctx context.Context, argv, env []string) *exec.Cmd {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Env = append(os.Environ(), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 30 * time.Second
	return c
}

// do runs one command that is not measured and returns what it printed on
// standard output. Output goes to a file: a pipe would be held open by what the
// command leaves running.
func do(ctx context.Context, argv, env []string, on func(func())) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := command(ctx, argv, env)
	var files [2]*os.File
	for i := range files {
		f, err := os.CreateTemp("", "caisson-bench-out-")
		if err != nil {
			return "", err
		}
		defer f.Close()
		if err := os.Remove(f.Name()); err != nil {
			return "", err
		}
		files[i] = f
	}
	c.Stdout, c.Stderr = files[0], files[1]
	var err error
	from(on, func() { err = c.Start() })
	if err == nil {
		err = c.Wait()
	}
	var text [2]string
	for i, f := range files {
		st, serr := f.Stat()
		if serr != nil {
			return "", serr
		}
		b := make([]byte, st.Size())
		if _, rerr := f.ReadAt(b, 0); rerr != nil && len(b) > 0 {
			return "", rerr
		}
		text[i] = string(b)
	}
	if err != nil {
		return text[0], fmt.Errorf("%s: %w: %s", short(argv), err, lastLine(text[1]+text[0]))
	}
	return text[0], nil
}

func (b *bench) do(ctx context.Context, argv ...string) (string, error) {
	return do(ctx, argv, nil, nil)
}

// from runs f where on says.
func from(on func(func()), f func()) {
	if on == nil {
		f()
		return
	}
	on(f)
}

// short names a command in a message.
func short(argv []string) string {
	return filepath.Base(argv[0]) + " " + strings.Join(argv[1:min(4, len(argv))], " ")
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// installation is one state folder of caisson, and with it all tasks in it.
type installation struct {
	b          *bench
	state, run string
}

// install makes a new state folder below the folder of the run.
func (b *bench) installation(name string) *installation {
	in := &installation{b: b, state: filepath.Join(b.dir, name+"-state"), run: filepath.Join(b.dir, name+"-run")}
	b.tasks = append(b.tasks, in)
	return in
}

func (in *installation) env() []string {
	return []string{"CAISSON_STATE_DIR=" + in.state, "CAISSON_RUNTIME_DIR=" + in.run}
}

func (in *installation) caisson(ctx context.Context, args ...string) (string, error) {
	return do(ctx, append([]string{in.b.o.caisson}, args...), in.env(), nil)
}

// listed is what `ls --json` says of a task.
type listed struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	State      string `json:"state"`
	Supervisor struct {
		PID int `json:"pid"`
	} `json:"supervisor"`
}

// list returns the tasks that are not closed.
func (in *installation) list(ctx context.Context) ([]listed, error) {
	out, err := in.caisson(ctx, "ls", "--json")
	if err != nil {
		return nil, err
	}
	var v struct {
		Tasks []listed `json:"tasks"`
	}
	return v.Tasks, json.Unmarshal([]byte(out), &v)
}

// settle waits until nothing of a task that was closed is still being removed.
func (in *installation) settle(ctx context.Context) error {
	return until(ctx, time.Minute, "closed tasks are still being removed", func() (bool, error) {
		ents, err := os.ReadDir(filepath.Join(in.state, "tasks"))
		if errors.Is(err, os.ErrNotExist) {
			return true, nil
		}
		live, lerr := in.list(ctx)
		if err = errors.Join(err, lerr); err != nil {
			return false, err
		}
		open := map[string]bool{}
		for _, t := range live {
			open[t.ID] = true
		}
		for _, e := range ents {
			if _, err := os.Stat(filepath.Join(in.state, "tasks", e.Name(), "source")); err == nil && !open[e.Name()] {
				return false, nil
			}
		}
		return true, nil
	})
}

// close ends every task of the installation, also after an interrupt.
func (in *installation) close() error {
	if _, err := os.Stat(in.state); err != nil {
		return nil // never used
	}
	ctx := context.Background()
	live, err := in.list(ctx)
	for _, t := range live {
		_, e := in.caisson(ctx, "close", "-q", "--discard", t.ID)
		err = errors.Join(err, e)
	}
	if left, e := in.list(ctx); e != nil || len(left) > 0 {
		err = errors.Join(err, e, fmt.Errorf("%d tasks could not be closed", len(left)))
	}
	return err
}

// until asks again and again, for something that says nothing when it changes.
func until(ctx context.Context, limit time.Duration, what string, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		ok, err := ready()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s after %v", what, limit)
		case <-again.C:
		}
	}
}
