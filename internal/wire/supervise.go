package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/boundary"
	"github.com/caisson-dev/caisson/internal/task"
)

// SuperviseArg is the first argument of a program that is a task's supervisor.
// A process learns its role from its arguments, never from the environment.
const SuperviseArg = "__supervise"

// order is what the opener tells the supervisor on its standard input: not by
// arguments or environment, because values of variables are in it.
type order struct {
	Request task.Request `json:"request"`
	Resume  task.ID      `json:"resume,omitempty"`
	// Fields of Request that may be any bytes, which JSON strings cannot hold,
	// and Env, which is never recorded.
	Texts [][]byte `json:"texts"` // Repo, Base, At, Rootfs, Name
	RO    [][]byte `json:"ro"`
	Env   [][]byte `json:"env"`
}

func newOrder(w boundary.Order) order {
	r := w.Request
	return order{r, w.Resume, task.Raw([]string{r.Repo, r.Base, r.At, r.Rootfs, r.Name}), task.Raw(r.RO), task.Raw(r.Env)}
}

// request returns what newOrder was given.
func (o order) request() (task.Request, error) {
	r := o.Request
	t := task.Texts(o.Texts)
	if len(t) != 5 {
		return r, fmt.Errorf("order with %d texts", len(t))
	}
	r.Repo, r.Base, r.At, r.Rootfs, r.Name = t[0], t[1], t[2], t[3], t[4]
	r.RO, r.Env = task.Texts(o.RO), task.Texts(o.Env)
	return r, nil
}

// spawn starts a supervisor and waits until its task is ready.
func (h *house) spawn(ctx context.Context, what boundary.Order, progress func(string)) (task.ID, error) {
	fail := func(err error) (task.ID, error) {
		code := task.CodeInternal
		if task.Shortage(err) != "" {
			code = task.CodeUnavailable
		}
		return "", task.Errorf(code, "wire.spawn", "the supervisor cannot be started: %w", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = ""
	}
	if what.Request.Repo == "" && what.Request.Parent == "" {
		what.Request.Repo = dir // the supervisor itself stands in /
	}
	cmd, in, out, err := h.resident(dir, nil, SuperviseArg)
	if err != nil {
		return fail(err)
	}
	defer out.Close()
	// Closing its input before it is ready tells it to give up.
	stop := context.AfterFunc(ctx, func() { _ = in.Close() })
	defer stop()
	defer in.Close()
	if err := json.NewEncoder(in).Encode(newOrder(what)); err != nil && ctx.Err() == nil {
		_ = in.Close()
		_ = cmd.Wait()
		return fail(err)
	}
	sc := bufio.NewScanner(out)
	sc.Buffer(nil, 4<<20)
	for sc.Scan() {
		var w word
		if err := json.Unmarshal(sc.Bytes(), &w); err != nil {
			continue
		}
		switch {
		case w.Progress != "" && progress != nil:
			progress(w.Progress)
		case w.ID != "":
			_ = cmd.Process.Release() // it stays; nobody waits for it
			return w.ID, nil
		case w.Error != nil:
			_ = cmd.Wait()
			return "", w.Error.Err()
		}
	}
	_ = in.Close()
	err = cmd.Wait()
	if ctx.Err() != nil {
		return "", task.Errorf(task.CodeCanceled, "wire.spawn", "canceled before the task was ready")
	}
	return "", task.Errorf(task.CodeInternal, "wire.spawn", "the supervisor ended before its task was ready: %v", err).
		WithHint("%s may say why; `caisson reap` cleans up", h.logPath())
}

// Supervise is the program of an open task's supervisor. It returns the exit
// status.
func Supervise() int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE) // it outlives the terminal
	debug.SetGCPercent(gcPercent)                  // and mostly sleeps: see rest
	out := json.NewEncoder(os.Stdout)
	in := bufio.NewReader(os.Stdin)
	var o order
	if err := takeOrder(in, "supervise", &o); err != nil {
		return tellError(out, err)
	}
	req, err := o.request()
	if err != nil {
		return tellError(out, noOrder("supervise", err))
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	h, err := openResident(ctx)
	if err != nil {
		return tellError(out, err)
	}
	defer h.close()

	// While the task is being opened the opener's departure means: give up.
	octx, giveUp := context.WithCancelCause(ctx)
	ready := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		select {
		case <-ready:
		default:
			giveUp(task.Errorf(task.CodeCanceled, "supervise", "whoever opened the task went away"))
		}
	}()
	h.front.closed = true
	progress := func(text string) { _ = out.Encode(word{Progress: text}) }
	id := o.Resume
	if id != "" {
		err = h.manager.ResumeHere(octx, id, req.Env, progress)
	} else {
		id, err = h.manager.OpenHere(octx, req, progress)
	}
	close(ready)
	if err != nil {
		if cause := context.Cause(octx); cause != nil && errors.Is(err, context.Canceled) {
			err = cause
		}
		return tellError(out, err)
	}
	_ = os.Chdir("/")
	if err := h.afresh(id); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		noteOnStderr("the supervisor of task " + string(id) + " goes on as it is, which takes more memory: " + err.Error())
	}
	h.front.open()
	return h.attend(ctx, id, out)
}

// gcPercent is how much a supervisor's heap may grow before it is collected.
const gcPercent = 30

// attend tells the opener that the task is ready, and stays until it has ended.
// It returns the exit status.
func (h *house) attend(ctx context.Context, id task.ID, out *json.Encoder) int {
	ended := h.manager.Done(id)
	if err := out.Encode(word{ID: id}); err != nil {
		// Nobody heard: the task would be forgotten.
		if err := h.manager.Forsake(ctx, id); err != nil {
			noteOnStderr("the supervisor of task " + string(id) + ", whose opener went away: " + err.Error())
		}
		return 1
	}
	detachStdio()
	rctx, stopResting := context.WithCancel(ctx)
	var resting sync.WaitGroup
	resting.Go(func() { rest(rctx) })
	defer func() { stopResting(); resting.Wait() }()
	why := "its boundary ended"
	select {
	case <-ended:
	case <-ctx.Done():
		why = "its supervisor was asked to end"
	}
	_, err := h.manager.End(context.Background(), id, why)
	h.drain(5 * time.Second)
	if err != nil {
		fmt.Fprintf(os.Stderr, "caisson: %s supervisor of task %s (%s): %v\n", time.Now().UTC().Format(time.RFC3339), id, why, err)
		return 1
	}
	return 0
}

// detachStdio lets go of the opener's pipes.
func detachStdio() {
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		dup(null, 0)
		dup(null, 1)
		_ = null.Close()
	}
}
