package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// engine is an engine that behaves: its shell understands a few words, its
// questions wait until they are answered, and it writes down who did what.
type engine struct {
	door.Engine // what this door must not use is nil and panics

	mu      sync.Mutex
	calls   []task.ToolCall
	actors  []door.Actor
	causes  []error // of calls whose context ended
	asked   map[string]*question
	answers []answered
	running map[string]chan struct{} // "hold NAME" commands: closed when they run
	expires time.Duration            // of a question
}

type question struct {
	q      task.Question
	answer chan bool
}

type answered struct {
	by door.Actor
	a  task.Answer
}

func newEngine() *engine {
	return &engine{asked: map[string]*question{}, running: map[string]chan struct{}{}, expires: time.Hour}
}

var testTools = []task.ToolInfo{
	{Name: "read_file", Title: "Read", Doc: "reads", Input: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`), ReadOnly: true, Idempotent: true},
	{Name: "shell", Title: "Shell", Doc: "runs", Input: json.RawMessage(`{"type":"object"}`), Destructive: true,
		Output: json.RawMessage(`{"$defs":{"s":{"type":"string"}},"type":"object","properties":{"stdout":{"$ref":"#/$defs/s"},"state":{"$ref":"#/$defs/s"}},"required":["stdout"]}`)},
	{Name: "grep", Title: "Search", Doc: "searches", Input: json.RawMessage(`{"type":"object"}`), ReadOnly: true, Idempotent: true},
}

func (e *engine) Tools(context.Context) ([]task.ToolInfo, error) { return testTools, nil }

// began returns a channel that is closed once the command "hold NAME" runs.
func (e *engine) began(name string) chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running[name] == nil {
		e.running[name] = make(chan struct{})
	}
	return e.running[name]
}

func (e *engine) Tool(ctx context.Context, ref string, c task.ToolCall, o door.ToolOptions) (*task.ToolResult, error) {
	e.mu.Lock()
	e.calls = append(e.calls, c)
	e.actors = append(e.actors, o.By)
	n := len(e.calls)
	e.mu.Unlock()
	r := &task.ToolResult{Schema: "caisson.tool/1", Task: task.ID(ref), Call: fmt.Sprintf("c%d", n), Tool: c.Tool, Digest: "d", Verdict: task.VerdictAllow}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(c.Args, &all); err != nil {
		return nil, task.Errorf(task.CodeUsage, "tool", "arguments: %v", err)
	}
	for k := range all {
		if k != "command" && k != "path" {
			r.Refused = append(r.Refused, k)
		}
	}
	var a struct{ Command, Path string }
	_ = json.Unmarshal(c.Args, &a)
	if c.Tool == "read_file" {
		if a.Path == "/absent" {
			r.Claimed.Failure = &task.ToolFailure{Code: "not_found", Message: "no such file"}
			return r, nil
		}
		if name, ok := strings.CutPrefix(a.Path, "/large/"); ok {
			f, err := os.Open("/" + name)
			if err != nil {
				return nil, err
			}
			o.File(f)
			r.Claimed.Result, _ = json.Marshal(map[string]any{"path": "/" + name, "kind": "text", "mime": "text/plain", "size": 9, "lines": 9, "first_line": 1, "last_line": 1, "content": "abc", "truncated": true, "next_offset": 2})
			return r, nil
		}
		r.Claimed.Result = json.RawMessage(`{"path":"/f","kind":"text","size":3,"lines":1,"first_line":1,"last_line":1,"content":"abc"}`)
		return r, nil
	}
	if c.Tool == "grep" {
		for range 3 {
			o.Output(door.FoundStream, []byte(`{"files":[{"path":"a"},{"path":"b"}],"matches":5}`))
		}
		close(e.began(a.Path))
		<-ctx.Done()
		return r, task.Errorf(task.CodeCanceled, "tool", "the call was canceled")
	}
	word, rest, _ := strings.Cut(a.Command, " ")
	switch word {
	case "hold":
		o.Progress("holding \x1b[2J")
		close(e.began(rest))
		<-ctx.Done()
		e.mu.Lock()
		e.causes = append(e.causes, context.Cause(ctx))
		e.mu.Unlock()
		r.Observed.Reason = "canceled"
		return r, task.Errorf(task.CodeCanceled, "tool", "the call was canceled")
	case "ask":
		if err := e.ask(ctx, r, a.Command, o); err != nil {
			return r, err
		}
	case "lost":
		return r, task.Errorf(task.CodeOutcomeUnknown, "tool", "the worker is gone").WithHint("look at the files")
	}
	zero := 0
	r.Observed.Exit = &zero
	out, _ := json.Marshal(map[string]any{"state": "exited", "stdout": "ran " + a.Command, "exit": 1})
	r.Claimed.Result = out
	return r, nil
}

func (e *engine) ask(ctx context.Context, r *task.ToolResult, script string, o door.ToolOptions) error {
	w := &question{answer: make(chan bool, 1), q: task.Question{
		ID: "q" + r.Call, Task: r.Task, Call: r.Call, Digest: "d" + r.Call, Actor: "agent (mcp)", Tool: r.Tool, Script: script, Rule: "--ask shell",
		Asked: time.Now(), Expires: time.Now().Add(e.expires),
	}}
	e.mu.Lock()
	e.asked[w.q.ID] = w
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.asked, w.q.ID)
		e.mu.Unlock()
	}()
	o.Asked(w.q)
	select {
	case ok := <-w.answer:
		if !ok {
			return task.Errorf(task.CodeDenied, "tool", "a person refused it")
		}
		r.Approval = w.q.ID
		return nil
	case <-ctx.Done():
		return task.Errorf(task.CodeCanceled, "tool", "the call was canceled while it waited")
	case <-time.After(e.expires):
		return task.Errorf(task.CodeDenied, "tool", "nobody answered in time").WithHint("`caisson approve` answers the next one")
	}
}

func (e *engine) Questions(context.Context, string) (out []task.Question, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.asked {
		out = append(out, w.q)
	}
	return out, nil
}

func (e *engine) Answer(_ context.Context, by door.Actor, a task.Answer) (*task.Question, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := e.asked[a.ID]
	switch {
	case w == nil:
		return nil, task.Errorf(task.CodeNotFound, "answer", "no question %s", a.ID)
	case by.Door == "mcp":
		return nil, task.Errorf(task.CodeDenied, "answer", "the door that asked may not answer")
	case a.Digest != "" && a.Digest != w.q.Digest:
		return nil, task.Errorf(task.CodeConflict, "answer", "another question")
	}
	delete(e.asked, a.ID)
	e.answers = append(e.answers, answered{by, a})
	w.answer <- a.Allow
	return &w.q, nil
}

func (e *engine) OpenOutput(_ context.Context, _, name string) (io.ReadCloser, error) {
	if name != "c1.out" {
		return nil, task.Errorf(task.CodeNotFound, "output", "no output %q", name)
	}
	return io.NopCloser(strings.NewReader("all of it\n")), nil
}

// waiting waits until n questions wait.
func (e *engine) waiting(t *testing.T, n int) []task.Question {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		qs, _ := e.Questions(t.Context(), "")
		if len(qs) == n {
			return qs
		}
		if time.Now().After(end) {
			t.Fatalf("%d questions wait, want %d", len(qs), n)
		}
	}
}
