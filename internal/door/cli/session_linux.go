package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// session joins the caller's terminal or files with one command inside, and
// turns signals into what the command should get.
type session struct {
	a   *app
	io  door.ExecIO
	tty bool // a pty instead of three pipes: we are on a terminal, in its foreground

	ctx    context.Context
	cancel context.CancelCauseFunc
	early  bool // cancel ctx too while the command has not started

	cancels chan struct{}
	signals chan os.Signal // to the engine; unbuffered, see suspend
	queue   chan os.Signal
	caught  chan os.Signal
	done    chan struct{}
	ready   chan struct{}  // closed when signals are caught
	wg      sync.WaitGroup // signal goroutines

	started atomic.Bool
	id      atomic.Value // task.ID
	steps   int          // cancellation steps so far; the signal goroutine's

	mu      sync.Mutex
	stdin   *inPump     // guarded by mu
	outs    [2]*outPump // guarded by mu: standard output or the pty, standard error
	saved   *term.State // guarded by mu: the terminal's mode to restore
	master  *os.File    // guarded by mu
	endOnce sync.Once
	endSum  door.IOSummary
}

// forwarded are the signals that a command without a pty gets as they are.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT, syscall.SIGTSTP,
	syscall.SIGALRM, syscall.SIGVTALRM, syscall.SIGIO, syscall.SIGPWR, syscall.SIGXCPU, syscall.SIGXFSZ,
}

// newSession takes over signals and, without a terminal, makes the pipes.
// early says that a first signal before the start may cancel the context.
// The caller calls close.
func (a *app) newSession(ctx context.Context, early bool) (*session, error) {
	s := &session{
		a: a, early: early,
		// A background job that sets its terminal's mode is stopped.
		tty:     isTerminal(a.cfg.Stdin) && isTerminal(a.cfg.Stdout) && foreground(fdOf(a.cfg.Stdin)),
		cancels: make(chan struct{}, 3), signals: make(chan os.Signal), queue: make(chan os.Signal, 64),
		caught: make(chan os.Signal, 64), done: make(chan struct{}), ready: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.io = door.ExecIO{Signals: s.signals, Cancels: s.cancels, Progress: a.ui.progress, Started: s.onStarted, Summary: s.end}
	if s.tty {
		s.io.OnPTY = s.onPTY
	} else if err := s.pipes(); err != nil {
		s.cancel(nil)
		return nil, err
	}
	go s.catch()
	s.wg.Go(s.watch)
	s.wg.Go(s.forward)
	return s, nil
}

// catch takes over the signals. Each takes two changes of threads, so it is done
// beside the opening of the engine; no command is started before it is over.
func (s *session) catch() {
	defer close(s.ready)
	// Caught so that a reader of our output that goes away is an error of a
	// write, and not our end.
	signal.Notify(s.caught, syscall.SIGPIPE)
	for _, sig := range append([]os.Signal{os.Interrupt, syscall.SIGTERM}, forwarded...) {
		if !signal.Ignored(sig) { // nohup, and background jobs of scripts
			signal.Notify(s.caught, sig)
		}
	}
}

// caughtAll waits until signals are caught.
func (s *session) caughtAll() { <-s.ready }

// command returns the command as the engine wants it.
func (s *session) command(argv []string, dir string, env []string) task.Command {
	c := task.Command{Argv: argv, Dir: dir, From: s.a.cfg.Dir, Env: env, TTY: s.tty,
		Person: isTerminal(s.a.cfg.Stdin) && isTerminal(s.a.cfg.Stderr)}
	if s.tty {
		if w, h, err := term.GetSize(fdOf(s.a.cfg.Stdin)); err == nil {
			c.Rows, c.Cols = uint16(h), uint16(w)
		}
	}
	return c
}

// terminalEnv describes the caller's terminal to a command in a task that was
// opened on another one, or on none.
func (s *session) terminalEnv() []string {
	if !s.tty {
		return nil
	}
	var env []string
	for _, k := range []string{"TERM", "COLORTERM", "NO_COLOR"} {
		if v, ok := lookup(s.a.cfg.Env, k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
}

// pipes makes the three pipes. The tool's ends are ordinary blocking files and
// share no file description with ours; ours do not block.
func (s *session) pipes() error {
	var fds [3][2]int
	for i := range fds {
		if err := unix.Pipe2(fds[i][:], unix.O_CLOEXEC); err != nil {
			for _, p := range fds[:i] {
				unix.Close(p[0])
				unix.Close(p[1])
			}
			return task.Errorf(task.CodeUnavailable, "cli.session", "no pipe: %w", err)
		}
	}
	for _, p := range fds {
		// Programs open /dev/stderr by name, also those that run as another id
		// than ours. Only who may look into a holder's descriptors gets so far.
		_ = unix.Fchmod(p[0], 0o666)
	}
	ours := func(fd int, name string) *os.File {
		_ = unix.SetNonblock(fd, true)
		return os.NewFile(uintptr(fd), name)
	}
	s.io.Files[0] = os.NewFile(uintptr(fds[0][0]), "stdin of the command")
	s.stdin = newInPump(s.a.cfg.Stdin, ours(fds[0][1], "to the command"), true)
	for i, dst := range []*os.File{s.a.cfg.Stdout, s.a.cfg.Stderr} {
		s.io.Files[i+1] = os.NewFile(uintptr(fds[i+1][1]), "output of the command")
		s.outs[i] = newOutPump(ours(fds[i+1][0], "from the command"), dst, s.onOutput)
		go s.outs[i].run()
	}
	go s.stdin.run()
	return nil
}

// onPTY takes the master side: raw mode on the terminal, bytes both ways.
func (s *session) onPTY(master *os.File) {
	// A description of our own, in non-blocking mode, so that ending never waits for a read.
	fd, err := unix.FcntlInt(uintptr(fdOf(master)), unix.F_DUPFD_CLOEXEC, 3)
	master.Close()
	if err != nil {
		s.hungUp()
		return
	}
	_ = unix.SetNonblock(fd, true)
	own := os.NewFile(uintptr(fd), "pty")
	s.a.ui.hold(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.master = own
	s.saved, _ = term.MakeRaw(fdOf(s.a.cfg.Stdin))
	s.resizeLocked()
	s.outs[0] = newOutPump(own, s.a.cfg.Stdout, s.onOutput)
	s.outs[0].pty = true
	s.stdin = newInPump(s.a.cfg.Stdin, own, false)
	s.stdin.onEOF = s.hungUp
	go s.outs[0].run()
	go s.stdin.run()
}

// hangup says that the terminal went away without a SIGHUP.
type hangup struct{}

func (hangup) Signal()        {}
func (hangup) String() string { return "the terminal was closed" }

func (s *session) hungUp() {
	select {
	case s.caught <- hangup{}:
	default: // signals are waiting that end it as well
	}
}

func (s *session) resizeLocked() {
	if s.master == nil {
		return
	}
	ws, err := unix.IoctlGetWinsize(fdOf(s.a.cfg.Stdin), unix.TIOCGWINSZ)
	if err == nil && (ws.Row > 0 || ws.Col > 0) {
		_ = unix.IoctlSetWinsize(fdOf(s.master), unix.TIOCSWINSZ, ws)
	}
}

func (s *session) onStarted(id task.ID) {
	s.id.Store(id)
	s.started.Store(true)
	if s.a.ui.verbose && !s.a.ui.quiet {
		s.a.ui.note("task %s started", id)
	}
	s.a.ui.hold(true)
}

// onOutput is the first byte, which may come before the engine says that the
// command has started. A progress line must not mix with it.
func (s *session) onOutput() {
	s.started.Store(true)
	s.a.ui.hold(true)
}

// task returns the id of the task that ran the command, or "".
func (s *session) task() task.ID {
	id, _ := s.id.Load().(task.ID)
	return id
}

// watch decides what each signal means.
func (s *session) watch() {
	defer s.restoreOnPanic()
	for {
		select {
		case <-s.done:
			return
		case sig := <-s.caught:
			s.handle(sig)
		}
	}
}

func (s *session) handle(sig os.Signal) {
	switch {
	case sig == syscall.SIGPIPE:
	case sig == os.Interrupt, sig == syscall.SIGTERM:
		s.cancelStep()
	case sig == hangup{}, sig == syscall.SIGHUP && (s.tty || !s.started.Load()),
		sig == syscall.SIGQUIT && !s.started.Load():
		if s.steps == 0 {
			s.cancelStep()
		}
	case sig == syscall.SIGWINCH && s.tty:
		s.mu.Lock()
		s.resizeLocked()
		s.mu.Unlock()
	default:
		select {
		case s.queue <- sig:
		default: // a flood of signals coalesces, as the kernel's own do
		}
	}
}

func (s *session) cancelStep() {
	s.steps++
	select {
	case s.cancels <- struct{}{}:
	default:
	}
	if s.early && !s.started.Load() {
		s.cancel(task.Errorf(task.CodeCanceled, "cli", "canceled before the command started"))
	}
	switch {
	case s.steps == 1 && !s.tty:
		s.a.ui.note("ending the command; again to hurry, a third time to kill")
	case s.steps > 3:
		// The engine did not manage. What is left is on record, and the next
		// command reconciles it.
		s.restore()
		fmt.Fprintln(s.a.cfg.Stderr, "caisson: error: given up waiting (canceled)\ncaisson: hint: `caisson reap` finishes what was left")
		os.Exit(statusCanceled)
	}
}

// forward hands signals to the engine in order.
func (s *session) forward() {
	for {
		select {
		case <-s.done:
			return
		case sig := <-s.queue:
			if !s.hand(sig) {
				return
			}
			if sig == syscall.SIGTSTP && !s.tty {
				s.suspend()
			}
		}
	}
}

func (s *session) hand(sig os.Signal) bool {
	select {
	case s.signals <- sig:
		return true
	case <-s.done:
		return false
	}
}

// suspend stops this process as the terminal asked, after the command got its
// stop. The kernel lets SIGTSTP stop nothing in a session without a terminal,
// where the command lives: a SIGSTOP follows. The engine takes signals one
// after the other, so that it has passed both on when it takes a third: a
// window change, which does nothing to a command that did not ask for it.
func (s *session) suspend() {
	if s.hand(syscall.SIGSTOP) && s.hand(syscall.SIGWINCH) {
		_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	}
}

// end drains the streams and returns what went through. It is called when the
// command has ended, or when it will never start.
func (s *session) end() door.IOSummary {
	s.endOnce.Do(func() {
		s.mu.Lock()
		in, outs := s.stdin, s.outs
		s.mu.Unlock()
		if in != nil {
			in.stop()
			s.endSum.StdinBytes = in.n.Load()
		}
		for _, p := range outs {
			if p != nil {
				p.end()
			}
		}
		if p := outs[0]; p != nil {
			<-p.done
			s.restore() // not before: the last output is for a terminal in raw mode
			s.endSum.StdoutBytes, s.endSum.StdoutSHA256, s.endSum.StdoutTail = p.tally.n, p.tally.hex(), p.tally.tail
		}
		if p := outs[1]; p != nil {
			<-p.done
			s.endSum.StderrBytes, s.endSum.StderrSHA256, s.endSum.StderrTail = p.tally.n, p.tally.hex(), p.tally.tail
		}
		s.a.ui.hold(false) // what follows is cleanup, which may take its time
	})
	return s.endSum
}

// lost returns the error of an output that could not be written, other than by
// its reader going away.
func (s *session) lost() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.outs {
		if p != nil && p.err != nil && !p.pty && !gone(p.err) {
			return task.Errorf(task.CodeConflict, "cli.session", "%s of the command could not be written: %v", []string{"standard output", "standard error"}[i], p.err).
				WithHint("the output is incomplete")
		}
	}
	return nil
}

// restore gives the terminal its mode back.
func (s *session) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved != nil {
		_ = term.Restore(fdOf(s.a.cfg.Stdin), s.saved)
		s.saved = nil
	}
}

func (s *session) restoreOnPanic() {
	if p := recover(); p != nil {
		s.restore()
		panic(p)
	}
}

// close ends what is left, restores the terminal and lets the signals go. It
// is called in every case; a second call does nothing.
func (s *session) close() {
	defer s.restore()
	select {
	case <-s.done:
		return
	default:
	}
	// The engine closes these once they are handed over; when it never got
	// that far, our own copies would keep the pipes open.
	for _, f := range s.io.Files {
		if f != nil {
			f.Close()
		}
	}
	s.end()
	<-s.ready
	go signal.Stop(s.caught) // not waited for: mostly the program ends before
	close(s.done)
	s.wg.Wait()
	s.cancel(nil)
	s.mu.Lock()
	if s.master != nil {
		s.master.Close()
	}
	s.mu.Unlock()
	s.a.ui.hold(false)
}

// canceled reports whether a signal ended it before the start.
func (s *session) canceled() bool {
	return s.ctx.Err() != nil && task.CodeOf(context.Cause(s.ctx)) == task.CodeCanceled
}
