package boundary

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/evidence"
	"github.com/caisson-dev/caisson/internal/sys"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/capture"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

const (
	// maxShells bounds the background shells that run, keptShells those that are
	// remembered once they ended.
	maxShells  = 32
	keptShells = 64
	// tapeSize is how much of a background shell's output is kept in memory, and
	// pieceSize how much of it one answer holds.
	tapeSize  = 1 << 20
	pieceSize = 64 << 10
	// waitMost bounds how long an answer about a shell is waited for.
	waitMost  = time.Minute
	inputTime = 10 * time.Second
)

// toolState is what a task knows of its tool calls. The zero value is ready.
type toolState struct {
	mu      sync.Mutex
	running int
	shells  []*shell // in the order of their start
	started int      // ever
	spills  map[string]os.FileInfo
}

// shell is a program that runs in the background.
type shell struct {
	name, call, text string
	tape             *capture.Tape
	all              *capture.Stream
	plumb            *capture.Plumbing
	cancel           context.CancelCauseFunc
	done             chan struct{}

	// valid once done is closed
	out task.Outcome
	err error

	cursor int64 // where the last reader stopped; guarded by the state's mu
}

func (s *toolState) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running >= maxCalls {
		return task.Errorf(task.CodeLimit, "tool", "not started: %d tool calls wait or run in this task already", maxCalls)
	}
	s.running++
	return nil
}

func (s *toolState) leave() {
	s.mu.Lock()
	s.running--
	s.mu.Unlock()
}

// spilled remembers a file that was made in the output store.
func (s *toolState) spilled(name string, i os.FileInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spills == nil {
		s.spills = map[string]os.FileInfo{}
	}
	s.spills[name] = i
}

var errShellKill = task.Errorf(task.CodeCanceled, "tool", "ended by shell_kill")

// startShell starts a program that goes on beside other calls, until it ends,
// is killed, or the task ends.
func (m *Manager) startShell(ctx context.Context, l *live, k *toolCall, a *contract.ShellArgs) (*contract.ShellResult, error) {
	all := l.stream(k, "output")
	all.Live = nil
	sh := &shell{call: k.id, text: commandText(a), tape: &capture.Tape{Max: tapeSize, Also: all}, all: all, done: make(chan struct{})}
	if err := l.tools.add(sh); err != nil {
		return nil, err
	}
	p, err := capture.Plumb(a.PTY, sh.tape)
	if err != nil {
		l.tools.drop(sh)
		return nil, task.Errorf(task.CodeUnavailable, "tool", "no pipe for the command: %w", err)
	}
	sh.plumb = p
	// It counts as a call of its own: the end of the task waits until it is dead.
	if err := l.enter(); err != nil {
		closeFiles(p.Files[:2])
		p.End()
		l.tools.drop(sh)
		return nil, err
	}
	sctx := context.WithoutCancel(ctx)
	sctx, sh.cancel = context.WithCancelCause(sctx)
	stop := func() {}
	if a.TimeoutMS > 0 {
		limit := time.Duration(a.TimeoutMS) * time.Millisecond
		t := time.AfterFunc(limit, func() { sh.cancel(errShellTime(limit)) })
		stop = func() { t.Stop() }
	}
	started := make(chan struct{})
	begun := time.Now()
	over := k.over // it runs as long as the program does
	k.over = nil
	go func() {
		defer over()
		defer l.calls.Done()
		defer close(sh.done)
		defer stop()
		sh.out, sh.err = m.execute(sctx, l, k.command(a), &door.ExecIO{Files: p.Files, OnPTY: p.OnPTY, Started: func(task.ID) {
			p.Feed(a.Stdin, true)
			close(started)
		}})
		p.End()
		select {
		case <-started:
			m.shellEnded(l, sh, time.Since(begun))
		default:
		}
	}()
	select {
	case <-started:
	case <-sh.done:
	case <-ctx.Done():
		// Whoever asked is gone, and would never know its name.
		sh.cancel(context.Cause(ctx))
		<-sh.done
	}
	select {
	case <-sh.done:
		select {
		case <-started:
		default:
			l.tools.drop(sh)
			if f := startFailure(sh.err); f != nil {
				return nil, f
			}
			return nil, sh.err
		}
		if ctx.Err() != nil {
			return nil, task.Errorf(task.CodeCanceled, "tool", "canceled; every process of the call is gone: %w", context.Cause(ctx))
		}
	default:
	}
	st := sh.state()
	return &contract.ShellResult{Shell: sh.name, State: st.state, Exit: st.exit, Signal: st.signal}, nil
}

// shellEnded puts on record how a background shell ended.
func (m *Manager) shellEnded(l *live, sh *shell, took time.Duration) {
	r := sh.all.Result()
	body := map[string]any{"shell": sh.name, "call": sh.call, "duration_ms": took.Milliseconds(), "output_bytes": r.Bytes, "output_sha256": r.SHA256, "output_tail": string(r.Tail)}
	side := map[string]any{"exit": sh.out.Exit, "signal": sh.out.Signal}
	switch {
	case sh.err != nil:
		body["error"], body["code"] = sh.err.Error(), string(task.CodeOf(sh.err))
	case sh.out.Observed:
		body["observed"] = side
	default:
		body["claimed"] = side
	}
	if sh.out.Reason != "" {
		body["reason"] = sh.out.Reason
	}
	ctx, done := sys.Detach(context.Background(), time.Minute)
	defer done()
	if _, err := l.log.Append(ctx, evidence.ShellEnded, self, body); err != nil {
		m.cfg.Log("task " + string(l.id) + ": " + err.Error())
	}
}

// shellState is what can be said of a shell now.
type shellState struct {
	state  string
	exit   *int
	signal int
}

func (sh *shell) state() shellState {
	select {
	case <-sh.done:
	default:
		return shellState{state: "running"}
	}
	st := shellState{state: "exited", exit: &sh.out.Exit, signal: sh.out.Signal}
	switch {
	case sh.err != nil:
		st.state, st.exit = "killed", nil
	case sh.out.Reason == "":
	case len(sh.out.Reason) >= 7 && sh.out.Reason[:7] == "timeout":
		st.state = "timeout"
	default:
		st.state = "killed"
	}
	return st
}

func (s *toolState) add(sh *shell) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := 0
	for _, o := range s.shells {
		if o.state().state == "running" {
			run++
		}
	}
	if run >= maxShells {
		return contract.Fail(contract.Limit, "%d background shells are running; end one with shell_kill", run)
	}
	if len(s.shells) >= keptShells {
		if i := slices.IndexFunc(s.shells, func(o *shell) bool { return o.state().state != "running" }); i >= 0 {
			s.shells = slices.Delete(s.shells, i, i+1)
		}
	}
	s.started++
	sh.name = fmt.Sprintf("s%d", s.started)
	s.shells = append(s.shells, sh)
	return nil
}

func (s *toolState) drop(sh *shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shells = slices.DeleteFunc(s.shells, func(o *shell) bool { return o == sh })
}

func (s *toolState) find(name string) (*shell, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.shells {
		if sh.name == name {
			return sh, nil
		}
	}
	return nil, contract.Fail(contract.NotFound, "there is no background shell %q; shell_list names them", short(name, 60))
}

// output returns what a shell wrote, and waits for news where asked to.
func (s *toolState) output(ctx context.Context, a *contract.ShellOutputArgs) (*contract.ShellOutputResult, error) {
	sh, err := s.find(a.Shell)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	at := sh.cursor
	s.mu.Unlock()
	if a.From != nil {
		at = *a.From
	}
	wait := min(time.Duration(a.WaitMS)*time.Millisecond, waitMost)
	t := time.NewTimer(wait)
	defer t.Stop()
	piece, news := sh.tape.From(at, pieceSize)
	for len(piece.Bytes) == 0 && !piece.Ended && wait > 0 {
		select {
		case <-news:
		case <-t.C:
			wait = 0
		case <-ctx.Done():
			return nil, task.Errorf(task.CodeCanceled, "tool", "canceled: %w", context.Cause(ctx))
		}
		piece, news = sh.tape.From(at, pieceSize)
	}
	if piece.Ended && wait > 0 {
		select { // its end follows at once, unless it only closed its output
		case <-sh.done:
		case <-t.C:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	sh.cursor = piece.Next
	s.mu.Unlock()
	st := sh.state()
	return &contract.ShellOutputResult{Shell: sh.name, State: st.state, Exit: st.exit, Signal: st.signal, Text: capture.Clean(piece.Bytes), From: piece.From, Next: piece.Next,
		Lost: max(0, piece.From-at)}, nil
}

// input writes to a shell.
func (s *toolState) input(ctx context.Context, a *contract.ShellInputArgs) (*contract.ShellInputResult, error) {
	sh, err := s.find(a.Shell)
	if err != nil {
		return nil, err
	}
	if sh.state().state != "running" {
		return nil, contract.Fail(contract.NotFound, "the shell %s has ended", sh.name)
	}
	until := time.Now().Add(inputTime)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	text := a.Text
	if a.EOF && sh.plumb.TTY() {
		text += "\x04"
	}
	n := 0
	if text != "" {
		if n, err = sh.plumb.Write(text, until); err != nil {
			return nil, contract.Fail(contract.Busy, "the shell took %d of %d bytes: it does not read, or its input is closed", n, len(text))
		}
	}
	if a.EOF {
		sh.plumb.CloseInput()
	}
	return &contract.ShellInputResult{Shell: sh.name, Bytes: int64(min(n, len(a.Text)))}, nil
}

// kill ends a shell and returns once every process of it is proven dead.
func (s *toolState) kill(ctx context.Context, a *contract.ShellKillArgs) (*contract.ShellKillResult, error) {
	sh, err := s.find(a.Shell)
	if err != nil {
		return nil, err
	}
	sh.cancel(errShellKill)
	select {
	case <-sh.done:
	case <-ctx.Done():
		return nil, task.Errorf(task.CodeCanceled, "tool", "it is being ended, which nobody waits for any more: %w", context.Cause(ctx))
	}
	if sh.err != nil {
		return nil, sh.err
	}
	st := sh.state()
	return &contract.ShellKillResult{Shell: sh.name, State: st.state, Exit: st.exit, Signal: st.signal}, nil
}

func (s *toolState) list() *contract.ShellListResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &contract.ShellListResult{Shells: []contract.ShellInfo{}}
	for _, sh := range s.shells {
		st := sh.state()
		r.Shells = append(r.Shells, contract.ShellInfo{Shell: sh.name, Command: short(sh.text, 500), State: st.state, Exit: st.exit, Bytes: sh.all.Result().Bytes})
	}
	return r
}
