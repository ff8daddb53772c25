package boundary

import (
	"context"
	"errors"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
)

var _ = sys.RegisterFaults("run.called", "run.ended")

// Run implements door.Engine: one task, one command, then the end.
func (m *Manager) Run(ctx context.Context, req task.Request, cmd task.Command, io *door.ExecIO) (task.Outcome, bool, error) {
	octx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopListening := cancelOn(io.Cancels, cancel)
	l, err := m.open(octx, req, cmd.Argv, io.Progress)
	stopListening()
	if err != nil {
		closeFiles(io.Files[:])
		if cause := context.Cause(octx); cause != nil && errors.Is(err, context.Canceled) {
			err = cause
		}
		return task.Outcome{}, false, err
	}
	m.say(l.notes)
	l.once = true
	var out task.Outcome
	ran := false
	if req.Phase == phaseInstall {
		ictx, icancel := context.WithCancelCause(ctx)
		stopListening := cancelOn(io.Cancels, icancel)
		err = m.installAll(ictx, l, io.Progress)
		stopListening()
		icancel(nil)
	}
	if err == nil {
		out, ran, err = m.call(ctx, l, cmd, io)
	} else {
		closeFiles(io.Files[:])
	}
	// A worker that died under it leaves no status, least of all success.
	known := ran && task.CodeOf(err) != task.CodeOutcomeUnknown
	failed := err != nil || out.Exit != 0
	err = errors.Join(err, sys.Fault("run.called"))
	o := endOptions{ofRun: true, failed: failed, discard: req.Discard, mayLeave: true, tell: io.Progress}
	if known {
		o.exit = &out.Exit
	}
	if !ran {
		// The command was never started: there is nothing of it to keep.
		o.keep = task.KeepNever
	}
	rep, eerr := m.end(l, task.Errorf(task.CodeCanceled, "run", "the command of the task ended"), o)
	err = errors.Join(err, sys.Fault("run.ended"))
	if io.Ended != nil && rep != nil {
		io.Ended(rep)
	}
	return out, known, errors.Join(err, eerr)
}

// Hold implements door.Engine: one task, for as long as use does not return.
// use's context also ends when the boundary does; its cause says why. An error
// of use counts as a command that failed.
func (m *Manager) Hold(ctx context.Context, req task.Request, progress func(string), use func(context.Context, task.ID) error) (rep *task.CloseReport, err error) {
	l, err := m.open(ctx, req, nil, progress)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
			err = cause
		}
		return nil, err
	}
	m.say(l.notes)
	uctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	failed := true // a panic of use is one too, and must not leave processes behind
	defer func() {
		stop()
		cancel(nil)
		r, eerr := m.end(l, task.Errorf(task.CodeCanceled, "hold", "whoever held the task has ended"),
			endOptions{ofRun: true, failed: failed, discard: req.Discard, mayLeave: true, tell: progress})
		rep, err = r, errors.Join(err, eerr)
	}()
	err = use(uctx, l.id)
	failed = err != nil
	return nil, err
}

// cancelOn cancels while the task is being opened, when there is no command yet
// that could be asked to end. The returned func stops that before the command
// takes the channel over.
func cancelOn(cancels <-chan struct{}, cancel context.CancelCauseFunc) (stop func()) {
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-quit:
		case _, ok := <-cancels:
			if ok {
				cancel(task.Errorf(task.CodeCanceled, "run", "canceled before the command was started"))
			} else {
				<-quit
			}
		}
	}()
	return func() { close(quit); <-gone }
}

// End ends a task that OpenHere opened, as its owner's process is ending.
func (m *Manager) End(ctx context.Context, id task.ID, why string) (*task.CloseReport, error) {
	l := m.lookup(id)
	if l == nil {
		return nil, nil
	}
	return m.end(l, task.Errorf(task.CodeCanceled, "end", "%s", why), endOptions{})
}

// Forsake ends a task whose opener is gone before it could be told that the task
// is ready. One that was resumed is kept as it was before: nobody meant to end it.
func (m *Manager) Forsake(ctx context.Context, id task.ID) error {
	l := m.lookup(id)
	if l == nil {
		return nil
	}
	cause := task.Errorf(task.CodeCanceled, "supervise", "whoever opened the task went away")
	if l.resumed == nil {
		_, err := m.end(l, cause, endOptions{})
		return err
	}
	if err := m.failResume(ctx, l, cause); !errors.Is(err, cause) {
		return err
	}
	return l.endErr
}

// Done returns a channel that is closed when the boundary of a task that this
// process holds is ended for whatever reason; it is closed for a task that this
// process does not hold any more.
func (m *Manager) Done(id task.ID) <-chan struct{} {
	if l := m.lookup(id); l != nil {
		return l.ctx.Done()
	}
	over := make(chan struct{})
	close(over) // it ended before anybody asked
	return over
}
