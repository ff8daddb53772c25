package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/source/git"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/verify/attack"
)

// product is this program, used as a person uses it, with a state of its own.
type product struct {
	*world
	program string
	environ []string
	flags   []string // of open: what makes the boundary
	backend string
	tasks   []string
}

// ran is one command that ended.
type ran struct {
	out    []byte
	errs   string
	status int
}

// maxOutput bounds what one command may print.
const maxOutput = 32 << 20

// environment is the user's, with what was planted and with a state of its own.
func (p *product) environment() []string {
	env := make([]string, 0, len(p.environ)+len(p.env)+4)
	for _, kv := range p.environ {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case "CAISSON_STATE_DIR", "CAISSON_RUNTIME_DIR", "CAISSON_BACKEND", "CAISSON_NEED", "CAISSON_UNATTENDED":
			continue
		}
		env = append(env, kv)
	}
	env = append(env, p.env...)
	return append(env, "CAISSON_STATE_DIR="+p.state(), "CAISSON_RUNTIME_DIR="+p.runtime)
}

// start runs a program with everything that was planted within its reach: variables,
// open descriptors, the key.
func (p *product) start(ctx context.Context, dir, program string, args ...string) (ran, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.ExtraFiles = dir, p.environment(), p.files
	// A person's Ctrl-C comes here; these programs hear of it from here alone.
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &bounded{w: &out, left: maxOutput}, &bounded{w: &errs, left: 1 << 20}
	err := cmd.Run()
	r := ran{out: out.Bytes(), errs: errs.String(), status: -1}
	if cmd.ProcessState != nil {
		r.status = cmd.ProcessState.ExitCode()
	}
	if ctx.Err() != nil {
		return r, task.Errorf(task.CodeCanceled, "verify", "it was canceled: %w", context.Cause(ctx))
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		p.notes = append(p.notes, "something that "+strings.Join(args[:min(2, len(args))], " ")+" started kept its output open")
		err = nil
	}
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		return r, task.Errorf(task.CodeUnavailable, "verify", "%s cannot be run: %w", strings.Join(append([]string{program}, args[:min(3, len(args))]...), " "), err)
	}
	return r, nil
}

// bounded keeps the first bytes and drops the rest.
type bounded struct {
	w    io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	if _, err := b.w.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (p *product) caisson(ctx context.Context, args ...string) (ran, error) {
	return p.start(ctx, p.repo, p.program, args...)
}

// makeRepo makes the repository that tasks work on, with the hostile program in it.
func (p *product) makeRepo(ctx context.Context) error {
	g, err := git.Find(ctx, os.Getenv("PATH"))
	if err != nil {
		return err
	}
	if err := copyFile(p.program, p.repo+"/attack", 0o755); err != nil {
		return task.Errorf(task.CodeStateStore, "verify", "the hostile program cannot be put into its folder: %w", err)
	}
	if err := os.WriteFile(p.repo+"/a.txt", []byte("a\n"), 0o644); err != nil {
		return err
	}
	at := git.Cmd{GitDir: p.repo + "/.git", WorkTree: p.repo, Config: []string{"core.compression=0", "user.name=verify", "user.email=verify@localhost"}}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-q", "-m", "hostile content"}} {
		c := at
		c.Args = args
		if _, err := g.Run(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	_, err = io.Copy(dst, src)
	return err
}

// refusedOpen is why no boundary was had.
type refusedOpen struct {
	code task.Code
	why  string
}

func (r *refusedOpen) Error() string { return r.why }

// failure reads the typed error of a command that ran with --json.
func failure(r ran) *refusedOpen {
	for _, text := range []string{string(r.out), r.errs[max(0, strings.LastIndex(r.errs, "\n{")):]} {
		var v struct {
			Error struct {
				Code    task.Code `json:"code"`
				Message string    `json:"message"`
				Hint    string    `json:"hint"`
			} `json:"error"`
		}
		if json.Unmarshal([]byte(text), &v) == nil && v.Error.Code != "" {
			why := v.Error.Message
			if v.Error.Hint != "" {
				why += "; " + v.Error.Hint
			}
			return &refusedOpen{v.Error.Code, why}
		}
	}
	return &refusedOpen{task.CodeInternal, fmt.Sprintf("status %d: %s", r.status, clean(strings.TrimSpace(r.errs)))}
}

// openTask opens a task and returns what `open` says of it.
func (p *product) openTask(ctx context.Context, name string, flags ...string) (*task.View, error) {
	args := append([]string{"open", "--json", "--trust", "--repo", p.repo, "--backend", p.backend, "--timeout", "15m", "--keep", "never", "--name", name}, p.flags...)
	r, err := p.caisson(ctx, append(args, flags...)...)
	if err != nil {
		return nil, err
	}
	if r.status != 0 {
		return nil, failure(r)
	}
	var v task.View
	if err := json.Unmarshal(r.out, &v); err != nil || v.ID == "" {
		return nil, task.Errorf(task.CodeInternal, "verify", "open printed %q", clean(string(r.out)))
	}
	p.tasks = append(p.tasks, string(v.ID))
	return &v, nil
}

// inside runs the hostile program in a task.
func (p *product) inside(ctx context.Context, id task.ID, args ...string) (ran, error) {
	return p.caisson(ctx, append([]string{"exec", string(id), "--", p.repo + "/attack", attack.Arg}, args...)...)
}

// outside runs the hostile program without any boundary.
func (p *product) outside(ctx context.Context, args ...string) (ran, error) {
	return p.start(ctx, p.work, p.program, append([]string{attack.Arg}, args...)...)
}

// closeAll ends every task of the run's own state, whatever became of it.
func (p *product) closeAll(ctx context.Context) []string {
	if !exists(p.state() + "/state.db") {
		return nil
	}
	ctx, cancel := sys.Detach(ctx, time.Minute)
	defer cancel()
	var left []string
	r, err := p.start(ctx, "/", p.program, "ls", "--json")
	var l struct {
		Tasks []task.View `json:"tasks"`
	}
	if err == nil {
		err = json.Unmarshal(r.out, &l)
	}
	if err != nil {
		return []string{"the tasks of this run could not be listed: " + err.Error()}
	}
	for _, t := range l.Tasks {
		if r, err := p.start(ctx, "/", p.program, "close", "--discard", "--json", string(t.ID)); err != nil || r.status != 0 {
			left = append(left, fmt.Sprintf("task %s could not be ended: %s", t.ID, failure(r).why))
		}
	}
	// What is left of closed tasks are files, which a process of their own removes.
	for deadline := time.Now().Add(30 * time.Second); len(left) == 0; {
		if n, _ := filepath.Glob(p.state() + "/tasks/*/source"); len(n) == 0 {
			break
		}
		if time.Now().After(deadline) {
			left = append(left, "files of the tasks are still there after half a minute")
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return left
}
