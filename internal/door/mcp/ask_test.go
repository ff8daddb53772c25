package mcp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// answering is a client whose person answers every form in one way.
func answering(seen chan<- *sdk.ElicitParams, action string, content map[string]any) *sdk.ClientOptions {
	return &sdk.ClientOptions{ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		seen <- r.Params
		return &sdk.ElicitResult{Action: action, Content: content}, nil
	}}
}

// TestFormIsNotForged: what a model wrote looks like no line that the host wrote.
func TestFormIsNotForged(t *testing.T) {
	text := questionText(task.Question{Tool: "shell\nwhy: forged", Task: taskID, Argv: []string{"a\nwhy: forged"}, Script: "ls\n\nwhy: forged\ndigest: forged\n", Diff: "+x\nquestion: forged\n",
		Dir: "/a\nwhy: forged", Rule: "--ask shell", Digest: "dc1", ID: "q1"})
	for l := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if strings.Contains(l, "forged") && !strings.HasPrefix(l, "  | ") && !strings.HasPrefix(l, "argv: ") && !strings.HasPrefix(l, "caisson asks: ") {
			t.Errorf("%q in\n%s", l, text)
		}
	}
	for _, w := range []string{"script: \n  | ls\n  | \n  | why: forged\n", "\nwhy: --ask shell\n", "\ndigest: dc1\n"} {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}

// TestAsk puts questions to clients of every kind. What only the client decided
// leaves the question in the queue, where another door answers it.
func TestAsk(t *testing.T) {
	for _, v := range versions {
		for _, c := range []struct {
			name    string
			action  string // "": the client cannot ask
			content map[string]any
			decided bool // by the client's person
			ran     bool
		}{
			{"allowed", "accept", map[string]any{choose: allow}, true, true},
			{"denied", "accept", map[string]any{choose: deny}, true, false},
			{"declined", "decline", nil, false, false},
			{"cancelled", "cancel", nil, false, false},
			{"unsupported", "", nil, false, false},
		} {
			t.Run(v+"/"+c.name, func(t *testing.T) {
				seen := make(chan *sdk.ElicitParams, 10)
				var o *sdk.ClientOptions
				if c.action != "" {
					o = answering(seen, c.action, c.content)
				}
				e := newEngine()
				r := start(t, e, v, o)
				type end struct {
					r   *sdk.CallToolResult
					err error
				}
				ended := make(chan end, 1)
				go func() {
					got, err := r.shell(t.Context(), "ask \x1b[2Jrm")
					ended <- end{got, err}
				}()
				if c.action != "" {
					q := <-seen
					for _, w := range []string{"may shell run in task " + taskID, `ask \u{1b}[2Jrm`, "digest: dc1", "asked by: agent (mcp)", "why: --ask shell"} {
						if !strings.Contains(q.Message, w) {
							t.Errorf("no %q in the form:\n%s", w, q.Message)
						}
					}
				}
				if !c.decided {
					// It waits; another door answers.
					q := e.waiting(t, 1)[0]
					select {
					case got := <-ended:
						t.Fatalf("the call ended by itself: %+v", got)
					case <-time.After(20 * time.Millisecond):
					}
					if _, err := e.Answer(t.Context(), door.Actor{Door: "cli", Role: door.RolePerson}, task.Answer{ID: q.ID, Allow: true}); err != nil {
						t.Fatal(err)
					}
				}
				got := <-ended
				if got.err != nil {
					t.Fatal(got.err)
				}
				text := textOf(got.r)
				if ran := strings.Contains(text, "ran ask"); ran != (c.ran || !c.decided) || got.r.IsError == ran {
					t.Errorf("the answer is %q, error %v", text, got.r.IsError)
				}
				if len(e.calls) != 1 {
					t.Errorf("the engine was called %d times", len(e.calls))
				}
				if a := e.answers[0]; c.decided && (a.by.Door != "mcp-elicitation" || a.a.Digest != "dc1" || a.a.Scope != "") {
					t.Errorf("answered by %+v: %+v", a.by, a.a)
				}
			})
		}
	}
}

// TestAskThenCancel: a call that was given up takes its question with it, and a
// later answer is void.
func TestAskThenCancel(t *testing.T) {
	form, release := make(chan struct{}), make(chan struct{})
	o := &sdk.ClientOptions{ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		close(form)
		<-release
		return &sdk.ElicitResult{Action: "accept", Content: map[string]any{choose: allow}}, nil
	}}
	e := newEngine()
	r := start(t, e, "2025-06-18", o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := r.shell(ctx, "ask"); ended <- err }()
	<-form
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	e.waiting(t, 0)
	close(release)
	if got, err := r.shell(t.Context(), "after"); err != nil || got.IsError {
		t.Errorf("after it: %v, %v", got, err)
	}
	if len(e.answers) != 0 {
		t.Errorf("an answer was taken: %+v", e.answers)
	}
}

// TestComeBack holds the stateless version's second call to the first: the state
// is good once, for the same tool and arguments; who does not come back loses the call.
func TestComeBack(t *testing.T) {
	o := answering(make(chan *sdk.ElicitParams, 10), "accept", map[string]any{choose: allow})
	o.MultiRoundTrip = &sdk.MultiRoundTripOptions{Disabled: true}
	e := newEngine()
	r := start(t, e, statelessVersion, o)
	call := func(state, tool, command string, r2 *sdk.ElicitResult) (*sdk.CallToolResult, error) {
		p := &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"command": command}, RequestState: state}
		if r2 != nil {
			p.InputResponses = sdk.InputResponseMap{inputKey: r2}
		}
		return r.c.CallTool(t.Context(), p)
	}
	first, err := call("", "shell", "ask a", nil)
	if err != nil || first.RequestState == "" || len(first.InputRequests) != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	yes := &sdk.ElicitResult{Action: "accept", Content: map[string]any{choose: allow}}
	for _, c := range [][3]string{{first.RequestState, "shell", "ask b"}, {first.RequestState, "read_file", "ask a"}, {first.RequestState + "x", "shell", "ask a"}} {
		var w *jsonrpc.Error
		if _, err := call(c[0], c[1], c[2], yes); !errors.As(err, &w) || w.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("%v: %v", c, err)
		}
	}
	if len(e.answers) != 0 {
		t.Fatalf("an approval was taken for another call: %+v", e.answers)
	}
	second, err := call(first.RequestState, "shell", "ask a", yes)
	if err != nil || !strings.Contains(textOf(second), "ran ask a") {
		t.Errorf("%+v, %v", second, err)
	}
	if _, err := call(first.RequestState, "shell", "ask a", yes); err == nil {
		t.Error("a state was good twice")
	}
	if len(e.calls) != 1 {
		t.Errorf("the engine was called %d times", len(e.calls))
	}

	e.expires = 50 * time.Millisecond
	lost, err := call("", "shell", "ask c", nil)
	if err != nil || lost.RequestState == "" {
		t.Fatalf("%+v, %v", lost, err)
	}
	e.waiting(t, 0)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		r.s.mu.Lock()
		n := len(r.s.waiting)
		r.s.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the call that nobody came back for is still there")
		}
	}
	if _, err := call(lost.RequestState, "shell", "ask c", yes); err == nil {
		t.Error("too late, and still taken")
	}
}
