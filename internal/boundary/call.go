package boundary

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/caisson-dev/caisson/internal/backend"
	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker"
)

// How long a cancelled command has between SIGTERM and SIGKILL: as long as
// `docker stop` gives; and after a second wish.
const (
	graceFirst  = 10 * time.Second
	graceSecond = time.Second
	// killTime bounds the proof of death after SIGKILL; then the whole boundary goes.
	killTime = 10 * time.Second
)

var _ = sys.RegisterFaults("call.before-intent", "call.after-intent", "call.started", "call.ended", "call.before-outcome")

// Exec implements door.Engine.
func (m *Manager) Exec(ctx context.Context, ref string, cmd task.Command, io *door.ExecIO) (task.Outcome, error) {
	// The supervisor's own door passes the id it holds; spare it the database.
	l := m.lookup(task.ID(ref))
	if l == nil {
		if m.cfg.Near != nil {
			if out, err, ok := m.execNear(ctx, ref, cmd, io); ok {
				return out, err
			}
			m.ReapDue(ctx) // as at every start that opens the inventory
		}
		t, err := m.find(ctx, ref)
		if err != nil {
			closeFiles(io.Files[:])
			return task.Outcome{}, err
		}
		if l = m.lookup(t.ID()); l == nil {
			if t.View.State != task.Ready {
				closeFiles(io.Files[:])
				return task.Outcome{}, notReady(t.View)
			}
			if err := m.answerable(ctx, t); err != nil {
				closeFiles(io.Files[:])
				return task.Outcome{}, err
			}
			return m.cfg.Remote(t.ID()).Exec(ctx, cmd, io)
		}
	}
	out, _, err := m.call(ctx, l, cmd, io)
	return out, err
}

func notReady(v task.View) error {
	err := task.Errorf(task.CodeState, "exec", "task %s is %s, not ready", v.ID, v.State)
	switch {
	case v.State == task.Kept:
		takes := "apply"
		if v.Source.Bare {
			takes = "branch"
		}
		return err.WithHint("its processes are gone: `caisson resume %s` opens it again; `caisson diff %s` and `caisson %s %s` work as it is", v.ID, v.ID, takes, v.ID)
	case v.State == task.Closed:
		return left(err, &v)
	case v.State == task.Stuck:
		return err.WithHint("`caisson reap` retries its cleanup; `caisson show %s` says what is stuck", v.ID)
	}
	return err.WithHint("`caisson show %s` says more", v.ID)
}

// call runs one command in a live boundary: evidence before, command, evidence
// after. The outcome is returned even when the evidence of it could not be
// written; then err says so. ran reports whether the command was, or may have
// been, started: only then the outcome means anything.
func (m *Manager) call(ctx context.Context, l *live, cmd task.Command, io *door.ExecIO) (out task.Outcome, ran bool, err error) {
	files := io.Files[:]
	if cmd.TTY {
		files = nil
	}
	if err := l.enter(); err != nil {
		closeFiles(files)
		return task.Outcome{}, false, err
	}
	defer l.calls.Done()
	over, err := l.turns.share(ctx)
	if err != nil {
		closeFiles(files)
		return task.Outcome{}, false, task.Errorf(task.CodeCanceled, "call", "not started, a command that runs alone (--frozen, or a check) was waited for: %w", err)
	}
	defer over()
	return m.inTurn(ctx, l, cmd, io)
}

// inTurn is call for who has counted in and has a turn.
func (m *Manager) inTurn(ctx context.Context, l *live, cmd task.Command, io *door.ExecIO) (out task.Outcome, ran bool, err error) {
	files := io.Files[:]
	if cmd.TTY {
		files = nil
	}
	if len(cmd.Argv) == 0 {
		closeFiles(files)
		return task.Outcome{}, false, task.Errorf(task.CodeUsage, "call", "no command given")
	}
	if cmd.Dir == "" {
		cmd.Dir = startDir(l, cmd.From)
	}
	if !l.once {
		if err := m.mayBegin(ctx, l, cmd.Person); err != nil {
			closeFiles(files)
			return task.Outcome{}, false, err
		}
	}
	if err := sys.Fault("call.before-intent"); err != nil {
		closeFiles(files)
		return task.Outcome{}, false, err
	}
	if ctx.Err() != nil {
		closeFiles(files)
		return task.Outcome{}, false, task.Errorf(task.CodeCanceled, "call", "not started: %w", context.Cause(ctx))
	}
	digest := callDigest(l.id, cmd)
	hooks, err := m.mayCall(ctx, l, cmd, digest)
	if err != nil {
		closeFiles(files)
		return task.Outcome{}, false, err
	}
	intent := map[string]any{"call": digest[:16], "digest": digest, "argv": cmd.Argv, "dir": cmd.Dir, "tty": cmd.TTY, "env": envNames(cmd.Env)}
	if len(hooks) > 0 {
		intent["decision_hooks"] = hooks
	}
	if _, err := l.log.Append(ctx, evidence.CallIntent, m.actor(), intent); err != nil {
		closeFiles(files)
		if task.CodeOf(err) == task.CodeCanceled { // since it was asked above
			err = task.Errorf(task.CodeCanceled, "call", "not started: %w", context.Cause(ctx))
		}
		return task.Outcome{}, false, err
	}
	if err := sys.Fault("call.after-intent"); err != nil {
		closeFiles(files)
		return task.Outcome{}, false, err
	}
	begun := time.Now()
	out, err = m.execute(ctx, l, cmd, io)
	ran = err == nil || task.CodeOf(err) == task.CodeOutcomeUnknown
	out.Duration = time.Since(begun)
	if out.Reason == "" {
		out.Reason = l.limited(ctx, out, begun)
	}
	if ferr := sys.Fault("call.ended"); ferr != nil {
		return out, ran, errors.Join(err, ferr)
	}
	body := map[string]any{"call": digest[:16], "exit": out.Exit, "signal": out.Signal, "observed": out.Observed, "duration_ms": out.Duration.Milliseconds()}
	if out.Reason != "" {
		body["reason"] = out.Reason
	}
	seen, said := out.Sides(begun)
	if err != nil {
		// Nobody told how it ended.
		seen.Exit, said.Exit = nil, nil
	}
	out.ByHost = &seen
	if said.Exit != nil {
		out.ByWorker = &said
	}
	if err != nil {
		body["error"] = err.Error()
		body["code"] = string(task.CodeOf(err))
	} else if io.Summary != nil {
		s := io.Summary()
		seen.StdoutBytes, seen.StderrBytes = s.StdoutBytes, s.StderrBytes
		body["stdin_bytes"], body["stdout_bytes"], body["stderr_bytes"] = s.StdinBytes, s.StdoutBytes, s.StderrBytes
		body["stdout_sha256"], body["stderr_sha256"] = s.StdoutSHA256, s.StderrSHA256
		body["stdout_tail"], body["stderr_tail"] = string(s.StdoutTail), string(s.StderrTail)
	}
	body["by_host"], body["by_worker"] = observedBody(&seen), claimedBody(&said)
	if ferr := sys.Fault("call.before-outcome"); ferr != nil {
		return out, ran, errors.Join(err, ferr)
	}
	dctx, done := sys.Detach(ctx, time.Minute)
	defer done()
	if _, eerr := l.log.Append(dctx, evidence.CallOutcome, self, body); eerr != nil {
		if ran && err == nil {
			eerr = task.Errorf(task.CodeOf(eerr), "call", "the command ran and ended with status %d, which could not be recorded: %w", out.Exit, eerr)
		}
		err = errors.Join(err, eerr)
	}
	return out, ran, err
}

// tooLarge is the status of what SIGXFSZ ended, in a shell too.
const tooLarge = 128 + 25

// limited says which limit ended a command that began at begun, if one did.
func (l *live) limited(ctx context.Context, out task.Outcome, begun time.Time) string {
	if out.Exit <= 128 {
		return ""
	}
	inst, _ := l.standing()
	kills := int64(0)
	if o, err := inst.Observe(ctx); err == nil {
		kills = o.OOMKills
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	more := kills > l.ooms
	l.ooms = max(l.ooms, kills)
	switch {
	case l.limitAt.After(begun):
		return l.limit
	case more:
		return fmt.Sprintf("memory: the kernel ended a process at the limit of %d bytes (OOM, out of memory; --memory)", l.spec.Limits.MemoryBytes)
	case out.Exit == tooLarge && l.spec.Limits.DiskBytes > 0:
		return fmt.Sprintf("disk: the kernel ended a process that made one file larger than the limit of %d bytes", l.spec.Limits.DiskBytes)
	}
	return ""
}

// execute starts the command and stays until it ended or was ended.
func (m *Manager) execute(ctx context.Context, l *live, cmd task.Command, io *door.ExecIO) (task.Outcome, error) {
	files, err := stdio(l, cmd, io)
	if err != nil {
		return task.Outcome{}, err
	}
	_, wk := l.standing()
	// A worker that does not answer must not hold up whoever wants an end.
	// The command may run already when its caller loses interest: then it is
	// ended as one that runs, with proof.
	sctx, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(graceFirst, func() { giveUp(context.Cause(ctx)) })
	})()
	defer context.AfterFunc(l.ctx, func() { giveUp(context.Cause(l.ctx)) })()
	wishes := countCancels(io.Cancels, giveUp)
	call, err := wk.Exec(sctx, worker.Command{Argv: cmd.Argv, Dir: cmd.Dir, Env: append(append([]string{}, l.spec.Env...), cmd.Env...), TTY: cmd.TTY, Last: l.once}, files)
	early := wishes()
	closeFiles(files)
	if err != nil {
		return task.Outcome{}, err
	}
	if err := sys.Fault("call.started"); err != nil {
		return task.Outcome{}, err
	}
	if io.Started != nil {
		io.Started(l.id)
	}
	type ended struct {
		out task.Outcome
		err error
	}
	wait := make(chan ended, 1)
	wctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		out, err := call.Wait(wctx)
		wait <- ended{out, err}
	}()

	var reason string
	steps, killing := 0, 0
	killed := make(chan error)
	gone := make(chan struct{}) // nobody listens to killed any more
	defer close(gone)
	end := func(why string, grace time.Duration) {
		if reason == "" {
			reason = why
		}
		if steps++; steps > 3 {
			return // it is being killed
		}
		killing++
		kctx, done := sys.Detach(ctx, grace+killTime)
		go func() {
			defer done()
			err := call.Cancel(kctx, grace)
			select {
			case killed <- err:
			case <-gone:
			}
		}()
	}
	wish := func() {
		switch steps {
		case 0:
			end("canceled", graceFirst)
		case 1:
			end("canceled", graceSecond)
		default:
			end("canceled", 0)
		}
	}
	caller, closing := ctx.Done(), l.ctx.Done()
	for range early {
		wish()
	}
	var last *ended
	for {
		if last != nil && killing == 0 {
			last.out.Reason = reason
			return last.out, last.err
		}
		select {
		case e := <-wait:
			last, wait = &e, nil
			if e.err != nil {
				killing = 0 // the boundary is gone, and all in it
			}
		case kerr := <-killed:
			// The wish was that all of it ends, its children too. A worker that
			// does not answer (stopped, wedged) must not hold us either.
			killing = 0
			if kerr != nil {
				m.condemn(l, kerr)
			}
		case s, ok := <-io.Signals:
			if !ok {
				io.Signals = nil
			} else if n, isNum := s.(syscall.Signal); isNum {
				_ = call.Signal(n)
			}
		case _, ok := <-io.Cancels:
			if ok {
				wish()
			} else {
				io.Cancels = nil
			}
		case <-caller:
			caller = nil
			end(whyEnded(ctx), graceSecond)
		case <-closing:
			closing = nil
			end(context.Cause(l.ctx).Error(), graceSecond)
		}
	}
}

// whyEnded says why a call's context ended.
func whyEnded(ctx context.Context) string {
	cause := context.Cause(ctx)
	if task.CodeOf(cause) == task.CodeLimit {
		return cause.Error() // it names the limit
	}
	return "canceled: " + cause.Error()
}

// countCancels counts the wishes to end a command while it is being started. It
// may run already, and its output may be what the wish is an answer to: they
// are for the command, unless the worker does not answer as long as a command
// would have had. The returned func ends it and returns the count.
func countCancels(cancels <-chan struct{}, giveUp context.CancelCauseFunc) func() int {
	quit, count := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		var late <-chan time.Time
		for {
			select {
			case <-quit:
				count <- n
				return
			case <-late:
				giveUp(task.Errorf(task.CodeCanceled, "call", "canceled while the command was being started"))
			case _, ok := <-cancels:
				if !ok {
					cancels = nil
					continue
				}
				grace := graceFirst
				if n++; n > 1 {
					grace = graceSecond // also for a kill: an answer under way gets its moment
				}
				late = time.After(grace)
			}
		}
	}()
	return func() int { close(quit); return <-count }
}

// condemn ends a boundary in which something could not be proven dead.
func (m *Manager) condemn(l *live, cause error) {
	m.cfg.Log("task " + string(l.id) + ": " + cause.Error() + "; the whole boundary is ended")
	l.cancel(task.Errorf(task.CodeStuck, "call", "a cancelled command could not be confirmed dead: %v", cause))
	ctx, done := sys.Detach(context.Background(), cleanupTime)
	defer done()
	inst, _ := l.standing()
	if err := inst.Destroy(ctx); err != nil {
		m.cfg.Log("task " + string(l.id) + ": " + err.Error())
	}
}

// stdio returns the tool's ends of its input and output.
func stdio(l *live, cmd task.Command, io *door.ExecIO) ([]*os.File, error) {
	if !cmd.TTY {
		return io.Files[:], nil
	}
	inst, _ := l.standing()
	open := worker.OpenPTY // one here, for one inside
	if o, ok := inst.(backend.PTYOpener); ok {
		open = o.OpenPTY
	}
	master, slave, err := open(cmd.Rows, cmd.Cols)
	if err != nil {
		return nil, task.Errorf(task.CodeUnavailable, "call.pty", "cannot make a terminal inside: %w", err)
	}
	io.OnPTY(master)
	return []*os.File{slave}, nil
}

// callDigest binds a call to its task, arguments, folder and the names of what it
// adds to the environment; values stay out, so that a digest gives none away.
func callDigest(id task.ID, cmd task.Command) string {
	// As bytes: two arguments that JSON strings would both garble must not
	// have one digest.
	argv := make([][]byte, len(cmd.Argv))
	for i := range cmd.Argv {
		argv[i] = []byte(cmd.Argv[i])
	}
	b, _ := json.Marshal(struct {
		Task task.ID
		Argv [][]byte
		Dir  []byte
		TTY  bool
		Env  []string
	}{id, argv, []byte(cmd.Dir), cmd.TTY, envNames(cmd.Env)})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// envNames lists the names set for one command; values never go on record.
func envNames(env []string) []string {
	names := []string{}
	for _, kv := range env {
		for i := range kv {
			if kv[i] == '=' {
				names = append(names, kv[:i])
				break
			}
		}
	}
	return names
}
