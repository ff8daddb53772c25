// Package caisson runs the tools of an agent in an execution boundary of their
// own, for a program that keeps the model loop, the approvals and the transcript
// itself.
//
//	func main() {
//		caisson.Main() // first: this program is also the worker inside
//		...
//		t, err := caisson.Open(ctx, caisson.Options{Dir: "/home/me/project"})
//		...
//		res, err := t.Call(ctx, "shell", map[string]any{"command": "make test"})
//		...
//		rep, err := t.Close()
//	}
//
// A program that opens tasks is built with CGO_ENABLED=0, calls Main before
// anything else, and has in the file of its main function
//
//	//go:debug containermaxprocs=0
//	//go:debug updatemaxprocs=0
//
// because a copy of it is what stands inside the boundary, where no other
// descriptor than the channel's may be open.
//
// Its limit: it is a door like the others. It adds no power: a call names a tool
// and its arguments, and what a task may do was said when it was opened.
package caisson

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/wire"
)

// What the engine's own vocabulary is to a program.
type (
	// Result is one finished call: what the host observed, and what was claimed
	// inside, apart.
	Result = task.ToolResult
	// Tool describes one tool to a model.
	Tool = task.ToolInfo
	// Question is a call that waits for a person.
	Question = task.Question
	// Artifact is a file that the task published.
	Artifact = task.Artifact
	// Report says how a task ended and where its work is.
	Report = task.CloseReport
	// Error is every error of this package: code, message, hint.
	Error = task.Error
	// Limits bounds a task; zero is the default of the plan.
	Limits = task.Limits
)

// CodeOf returns the code of an error, "internal" for one that has none.
func CodeOf(err error) string { return string(task.CodeOf(err)) }

// mained says that Main was called: without it a copy of this program would run
// as itself where the worker should.
var mained atomic.Bool

// Main plays the part that the program is started for by this package itself,
// and ends it then; else it returns at once. It must be the first thing that
// main does, and TestMain of a test that opens tasks.
func Main() {
	wire.PlayRole()
	mained.Store(true)
}

// Answer is what Options.Approve decides.
type Answer struct {
	Allow bool
	// Scope "" is this one call, "exact" also the very same again while its files
	// are as they were, "tool" this tool for the rest of the task.
	Scope  string
	Reason string // what the caller is told of a denial
}

// Options says what a task is. The zero value is a private clone of the
// repository around the working directory, without network.
type Options struct {
	Dir      string // repository, or folder to copy; empty: the working directory
	Base     string // revision to start from; empty: HEAD
	Name     string
	Source   string   // "clone" (default), "worktree", "copy", "checkout"
	Dirty    bool     // begin with uncommitted files too
	ReadOnly []string // host folders that are readable inside: DIR or DIR:DIR
	Env      []string // K=V for programs inside; nothing else of this process's environment gets there but locale and PATH
	Limits   Limits
	Parent   string // id or name of an open task: this one gets at most its authority, and ends with it
	Keep     string // "auto" (default), "always", "on-failure", "never"
	Trust    bool   // the repository's code is known and trusted

	// Deny and Ask are rules about calls, TOOL or TOOL:PATTERN; see
	// docs/approvals.md. Frozen is --frozen.
	Deny, Ask []string
	Frozen    bool
	// AskTimeout is how long a question waits; zero is ten minutes.
	AskTimeout time.Duration
	// Approve is asked about each call that a rule makes wait, from a goroutine of
	// its own. It must ask a person, or be one's decision: its answer counts as
	// theirs. ctx ends when the call does not wait any more. nil: questions wait
	// for `caisson approve`.
	Approve func(ctx context.Context, q Question) Answer

	Progress func(string) // what is going on, one line at a time
	Note     func(string) // what a person should know and no call can return
}

// request renders them in the engine's vocabulary.
func (o *Options) request() (task.Request, error) {
	q := task.Request{Person: true, Repo: o.Dir, Base: o.Base, Name: o.Name, Parent: o.Parent, Strategy: task.Strategy(o.Source), RO: o.ReadOnly, Env: o.Env, Limits: o.Limits, Keep: task.Keep(o.Keep), Trust: o.Trust,
		Need: task.Vector{}, Origin: map[string]string{"all": "go"}}
	if o.Dirty {
		q.Dirty = task.DirtyChanged
	}
	switch q.Keep {
	case "", task.KeepAuto, task.KeepAlways, task.KeepOnFailure, task.KeepNever:
	default:
		return q, task.Errorf(task.CodeUsage, "caisson.open", "Keep does not know %q", o.Keep)
	}
	q.Asking = task.Asking{Frozen: o.Frozen, Wait: o.AskTimeout}
	for _, l := range []struct {
		verdict task.Verdict
		texts   []string
	}{{task.VerdictDeny, o.Deny}, {task.VerdictAsk, o.Ask}} {
		for _, s := range l.texts {
			tool, pattern, cut := strings.Cut(s, ":")
			if tool == "" || cut && pattern == "" {
				return q, task.Errorf(task.CodeUsage, "caisson.open", "the rule %q is no tool, or tool and pattern", s)
			}
			q.Asking.Rules = append(q.Asking.Rules, task.ToolRule{Verdict: l.verdict, Tool: tool, Pattern: pattern})
		}
	}
	return q, nil
}

// Task is one open task. Its boundary ends with Close, and with this process.
// Safe for concurrent use.
type Task struct {
	id     task.ID
	engine door.Engine
	o      Options

	release func()
	ended   chan struct{}
	once    sync.Once
	report  *Report // once ended is closed
	err     error
}

// The doors of this package: who asks is not who answers.
const (
	askDoor    = "go"
	answerDoor = "go-approve"
)

// Open makes a task around a repository and returns when its boundary was
// proved. ctx bounds the opening, not the task. The caller calls Close.
func Open(ctx context.Context, o Options) (*Task, error) {
	if !mained.Load() {
		return nil, task.Errorf(task.CodeUnavailable, "caisson.open", "the program did not call caisson.Main").
			WithHint("call it first in main, and in TestMain of tests")
	}
	q, err := o.request()
	if err != nil {
		return nil, err
	}
	note := o.Note
	if note == nil {
		note = func(string) {}
	}
	e, closeEngine, err := wire.Engine(ctx, false, note)
	if err != nil {
		return nil, err
	}
	t := &Task{engine: e, o: o, ended: make(chan struct{})}
	hctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	closing, ready := make(chan struct{}), make(chan struct{})
	t.release = func() { close(closing) }
	go func() {
		defer close(t.ended)
		defer closeEngine()
		defer cancel(nil)
		t.report, t.err = e.Hold(hctx, q, o.Progress, func(ctx context.Context, id task.ID) error {
			t.id = id
			close(ready)
			select {
			case <-closing:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	select {
	case <-ready:
		if !stop() && hctx.Err() != nil { // the caller lost interest at the last moment
			_, err := t.Close()
			return nil, errors.Join(context.Cause(ctx), err)
		}
		return t, nil
	case <-t.ended:
		stop()
		return nil, t.err
	}
}

// ID is the task's id, as `caisson show` takes it.
func (t *Task) ID() string { return string(t.id) }

func (t *Task) call(role door.Role, name string) *door.Call {
	return &door.Call{Actor: door.Actor{Door: name, Role: role}, Engine: t.engine, Progress: t.o.Progress}
}

// Tools describes the tools, for a model.
func (t *Task) Tools(ctx context.Context) ([]Tool, error) {
	out, err := door.Do[*door.ToolsOut](ctx, t.call(door.RoleAgent, askDoor), "tools", &door.None{})
	if err != nil {
		return nil, err
	}
	return out.Tools, nil
}

// Call makes one tool call and returns when it ended. args is what
// encoding/json renders as one object; json.RawMessage passes a model's own
// through. When ctx ends, the call is ended, and Call returns when every process
// of it is proven dead.
//
// A tool that did nothing says why in Result.Claimed.Failure; that is no error.
// A call that a rule or a person refused is "denied".
func (t *Task) Call(ctx context.Context, tool string, args any) (*Result, error) {
	return t.Stream(ctx, tool, args, nil)
}

// Stream is Call that hands on what a program writes, as it does: stream is
// "stdout" or "stderr". Of a search that takes its time (grep, glob) it hands on
// what was found so far: stream is "found" and p one JSON object of the tool's
// result type, with files that the result begins with. output is called from any
// goroutine, not after Stream returned, and keeps nothing of p.
func (t *Task) Stream(ctx context.Context, tool string, args any, output func(stream string, p []byte)) (*Result, error) {
	return t.stream(ctx, tool, args, output, nil)
}

func (t *Task) stream(ctx context.Context, tool string, args any, output func(stream string, p []byte), file func(*os.File)) (*Result, error) {
	b, err := json.Marshal(args)
	if err != nil {
		return nil, task.Errorf(task.CodeUsage, "caisson.call", "the arguments of %s cannot be rendered as JSON: %w", tool, err)
	}
	// Also the end of the task ends it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := t.call(door.RoleAgent, askDoor)
	c.Output, c.File = output, file
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	if t.o.Approve != nil {
		c.Asked = func(q Question) { asked.Go(func() { t.approve(ctx, q) }) }
	}
	return door.Do[*Result](ctx, c, "tool", &door.ToolIn{Task: string(t.id), Call: task.ToolCall{Tool: tool, Args: b}})
}

// Open makes the call read_file and returns all of a file, however long: Call
// returns a part of one that is too long for a result. What is read is the file
// as it stands at that moment, up to the size that it had when it was opened; the
// task may change it. r is nil where the tool says why not, in
// Result.Claimed.Failure. The caller closes r.
func (t *Task) Open(ctx context.Context, path string) (r io.ReadCloser, res *Result, err error) {
	var file *os.File
	res, err = t.stream(ctx, "read_file", map[string]any{"path": path, "as": "base64"}, nil, func(f *os.File) { file = f })
	if err != nil || res.Claimed.Failure != nil {
		if file != nil {
			_ = file.Close()
		}
		return nil, res, err
	}
	var part struct {
		Base64    []byte
		Truncated bool
	}
	if err := json.Unmarshal(res.Claimed.Result, &part); err != nil || part.Truncated != (file != nil) {
		if file != nil {
			_ = file.Close()
		}
		return nil, res, task.Errorf(task.CodeInternal, "caisson.open", "the file %q did not come whole", path)
	}
	if file == nil {
		return io.NopCloser(bytes.NewReader(part.Base64)), res, nil
	}
	i, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return nil, res, task.Errorf(task.CodeInternal, "caisson.open", "the file %q: %w", path, err)
	}
	return &opened{io.LimitReader(file, i.Size()), file}, res, nil
}

// opened is a file up to a size.
type opened struct {
	io.Reader
	io.Closer
}

// approve has the program's person answer.
func (t *Task) approve(ctx context.Context, q Question) {
	a := t.o.Approve(ctx, q)
	_, err := door.Do[*Question](ctx, t.call(door.RolePerson, answerDoor), "answer",
		&door.AnswerIn{Answer: task.Answer{ID: q.ID, Digest: q.Digest, Allow: a.Allow, Scope: a.Scope, Reason: a.Reason}})
	if err != nil && ctx.Err() == nil && t.o.Note != nil {
		t.o.Note("the answer to " + q.ID + " does not count: " + err.Error())
	}
}

// Diff writes the change set of the task so far, as a patch.
func (t *Task) Diff(ctx context.Context, w io.Writer) error {
	c := t.call(door.RoleObserver, askDoor)
	c.Writer = w
	_, err := door.Do[*task.DiffReport](ctx, c, "diff", &door.DiffIn{Task: string(t.id)})
	return err
}

// Artifacts lists the files that the task published; they are on the host.
func (t *Task) Artifacts(ctx context.Context) ([]Artifact, error) {
	v, err := door.Do[*task.View](ctx, t.call(door.RoleObserver, askDoor), "show", &door.TaskIn{Task: string(t.id)})
	if err != nil {
		return nil, err
	}
	return v.Artifacts, nil
}

// Done is closed when the task ended for whatever reason.
func (t *Task) Done() <-chan struct{} { return t.ended }

// Close ends the task: processes die, work is rescued into the repository, and
// files are kept or released as Options.Keep says. It returns the same every
// time.
func (t *Task) Close() (*Report, error) {
	t.once.Do(t.release)
	<-t.ended
	return t.report, t.err
}
