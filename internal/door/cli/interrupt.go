package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/caisson-dev/caisson/internal/task"
)

// interrupts cancels the context of a command that has no session. The first
// signal asks it to stop in order, the third ends the program at once; what it
// leaves behind is on record and reaped by the next command.
type interrupts struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	ch     chan os.Signal
	done   chan struct{}
	count  atomic.Int32
}

type signaled struct{ sig os.Signal }

func (s signaled) Error() string { return "ended by " + s.sig.String() }

// interruptible returns ctx made cancellable by signals.
func (a *app) interruptible(ctx context.Context) context.Context {
	if a.sig != nil {
		return a.sig.ctx
	}
	i := &interrupts{ch: make(chan os.Signal, 4), done: make(chan struct{})}
	i.ctx, i.cancel = context.WithCancelCause(ctx)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // nohup, and background jobs of scripts
			signal.Notify(i.ch, s)
		}
	}
	a.sig = i
	go func() {
		defer close(i.done)
		for s := range i.ch {
			i.cancel(signaled{s})
			switch i.count.Add(1) {
			case 1:
				a.ui.note("stopping in order; a third time ends at once")
			case 3:
				a.ui.clear()
				os.Exit(statusCanceled)
			}
		}
	}()
	return i.ctx
}

func (i *interrupts) stop() {
	signal.Stop(i.ch)
	close(i.ch)
	<-i.done
	i.cancel(nil)
}

// canceled turns an error that a signal caused into a typed one.
func canceled(ctx context.Context, err error) error {
	var s signaled
	if err == nil || !errors.As(context.Cause(ctx), &s) {
		return err
	}
	if outlives(err) {
		return err
	}
	return task.Errorf(task.CodeCanceled, "cli", "canceled: %s", s.sig)
}

// outlives reports whether err must be told although a person cancelled: it
// says what is left. Every other error after a signal is only the form the
// cancellation took on its way.
func outlives(err error) bool {
	c := task.CodeOf(err)
	return c == task.CodeStuck || c == task.CodeKept || c == task.CodeOutcomeUnknown
}
