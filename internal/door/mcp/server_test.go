package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

const taskID = "t5kabcdefghjkmnp"

// versions are the oldest that clients still ask for and the newest, which
// differ in who may ask whom.
var versions = []string{"2025-06-18", statelessVersion}

// rig is a server with one client.
type rig struct {
	e      *engine
	s      *Server
	c      *sdk.ClientSession
	ended  chan error // of Stdio
	end    context.CancelCauseFunc
	notes  *notes
	hangUp func() error // closes the client's side
}

type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) add(s string) { n.mu.Lock(); n.lines = append(n.lines, s); n.mu.Unlock() }

func start(t *testing.T, e *engine, version string, o *sdk.ClientOptions) *rig {
	t.Helper()
	ctx, end := context.WithCancelCause(t.Context())
	r := &rig{e: e, ended: make(chan error, 1), end: end, notes: &notes{}}
	var err error
	r.s, err = New(ctx, Config{Engine: e, Task: taskID, Version: "0", Note: r.notes.add, Beat: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	r.hangUp = toServer.Close
	go func() { r.ended <- r.s.Stdio(ctx, in, out) }()
	r.c, err = sdk.NewClient(&sdk.Implementation{Name: "tester"}, o).Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end(errors.New("the test is over"))
		r.s.Close()
		_ = r.c.Close()
	})
	return r
}

func (r *rig) shell(ctx context.Context, command string) (*sdk.CallToolResult, error) {
	return r.c.CallTool(ctx, &sdk.CallToolParams{Name: "shell", Arguments: map[string]any{"command": command}})
}

func textOf(r *sdk.CallToolResult) string {
	var b strings.Builder
	for _, c := range r.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			b.WriteString(t.Text + "\n")
		}
	}
	return b.String()
}

// TestOffer looks at what a client is told of the server.
func TestOffer(t *testing.T) {
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			r := start(t, newEngine(), v, nil)
			init := r.c.InitializeResult()
			//lint:ignore SA1019 that it is not offered is what is looked at
			if c := init.Capabilities; c.Tools == nil || c.Tools.ListChanged || c.Logging != nil || c.Prompts != nil || c.Resources == nil {
				t.Errorf("capabilities %+v", c)
			}
			if init.ServerInfo.Name != "caisson" || !strings.Contains(init.Instructions, "boundary") {
				t.Errorf("it says of itself %+v, %q", init.ServerInfo, init.Instructions)
			}
			l, err := r.c.ListTools(t.Context(), nil)
			if err != nil || len(l.Tools) != len(testTools) {
				t.Fatalf("tools: %v, %v", l, err)
			}
			read, shell := l.Tools[1], l.Tools[2] // behind grep
			if a := read.Annotations; !a.ReadOnlyHint || *a.DestructiveHint || !a.IdempotentHint || *a.OpenWorldHint {
				t.Errorf("read_file: %+v", a)
			}
			if a := shell.Annotations; a.ReadOnlyHint || !*a.DestructiveHint || a.IdempotentHint {
				t.Errorf("shell: %+v", a)
			}
			// The structured answer is of the announced schema, definitions included.
			data, _ := json.Marshal(shell.OutputSchema)
			var schema jsonschema.Schema
			if err := json.Unmarshal(data, &schema); err != nil {
				t.Fatal(err)
			}
			res, err := schema.Resolve(nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.shell(t.Context(), "hello")
			if err != nil {
				t.Fatal(err)
			}
			if err := res.Validate(got.StructuredContent); err != nil {
				t.Errorf("structured answer: %v\n%v", err, got.StructuredContent)
			}
			if err := res.Validate(map[string]any{"task": "t", "call": "c", "observed": map[string]any{}, "claimed": map[string]any{"result": map[string]any{"stdout": 1}}}); err == nil {
				t.Error("the schema says nothing of the result")
			}
		})
	}
}

// TestCalls makes calls and looks at the answers: what the model gave and may
// not give is named, refusals are answers, what has no form is the protocol's error.
func TestCalls(t *testing.T) {
	for _, v := range versions {
		r := start(t, newEngine(), v, nil)
		for _, c := range []struct {
			name, tool string
			args       any
			want       []string
			isError    bool
			code       int64 // of the protocol
		}{
			{"a file", "read_file", map[string]any{"path": "/f"}, []string{"abc"}, false, 0},
			{"no such file", "read_file", map[string]any{"path": "/absent"}, []string{"not_found: no such file"}, true, 0},
			{"a command", "shell", map[string]any{"command": "hello"}, []string{"ran hello\n[exit 0]"}, false, 0},
			{"more than it may", "shell", map[string]any{"command": "x", "backend": "host", "network": true, "disableSandbox": true, "roots": []string{"/"}},
				[]string{"ignored, not yours to give: ", "backend", "network", "disableSandbox", "roots"}, false, 0},
			{"a lost worker", "shell", map[string]any{"command": "lost"}, []string{"outcome unknown", "not repeated", "hint: look at the files"}, true, 0},
			{"no arguments", "shell", nil, []string{"ran"}, false, 0},
			{"unknown tool", "host_shell", map[string]any{}, nil, false, jsonrpc.CodeInvalidParams},
			{"a list", "shell", []any{1}, nil, false, jsonrpc.CodeInvalidParams},
			{"a word", "shell", "rm", nil, false, jsonrpc.CodeInvalidParams},
		} {
			t.Run(v+"/"+c.name, func(t *testing.T) {
				before := len(r.e.calls)
				got, err := r.c.CallTool(t.Context(), &sdk.CallToolParams{Name: c.tool, Arguments: c.args})
				if c.code != 0 {
					var w *jsonrpc.Error
					if !errors.As(err, &w) || w.Code != c.code || len(r.e.calls) != before {
						t.Fatalf("error %v, %d calls of the engine", err, len(r.e.calls)-before)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range c.want {
					if !strings.Contains(textOf(got), w) {
						t.Errorf("no %q in %q", w, textOf(got))
					}
				}
				if got.IsError != c.isError {
					t.Errorf("isError %v", got.IsError)
				}
				if a := r.e.actors[len(r.e.actors)-1]; a != (door.Actor{Door: "mcp", Role: door.RoleAgent}) {
					t.Errorf("called as %+v", a)
				}
				if last := r.e.calls[len(r.e.calls)-1]; last.Tool != c.tool {
					t.Errorf("the engine was asked for %s", last.Tool)
				}
			})
		}
	}
}

// TestRoots: a client that offers roots is not asked for them, and nothing changes.
func TestRoots(t *testing.T) {
	c := &sdk.ClientOptions{}
	r := start(t, newEngine(), "2025-06-18", c)
	got, err := r.c.CallTool(t.Context(), &sdk.CallToolParams{
		Meta: sdk.Meta{"caisson/backend": "host", "env": map[string]any{"LD_PRELOAD": "/x"}}, Name: "shell", Arguments: map[string]any{"command": "pwd"},
	})
	if err != nil || got.IsError {
		t.Fatal(got, err)
	}
	if a := string(r.e.calls[0].Args); a != `{"command":"pwd"}` {
		t.Errorf("the engine was given %s", a)
	}
}

// TestCancel gives one of two calls up: its context ends, the other goes on.
func TestCancel(t *testing.T) {
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			e := newEngine()
			r := start(t, e, v, nil)
			ctx, cancel := context.WithCancel(t.Context())
			first, second := make(chan error, 1), make(chan error, 1)
			go func() { _, err := r.shell(ctx, "hold one"); first <- err }()
			go func() { _, err := r.shell(t.Context(), "hold two"); second <- err }()
			<-e.began("one")
			<-e.began("two")
			cancel()
			if err := <-first; !errors.Is(err, context.Canceled) {
				t.Errorf("the canceled call: %v", err)
			}
			causes := func() []error { e.mu.Lock(); defer e.mu.Unlock(); return slices.Clone(e.causes) }
			for end := time.Now().Add(30 * time.Second); len(causes()) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			}
			if got := causes(); len(got) != 1 || !strings.Contains(got[0].Error(), "the client gave the call up") {
				t.Fatalf("the engine saw %v", got)
			}
			select {
			case err := <-second:
				t.Errorf("the other call ended: %v", err)
			default:
			}
			// A late cancellation of a call that is over changes nothing.
			if got, err := r.shell(t.Context(), "after"); err != nil || got.IsError {
				t.Errorf("after it: %v, %v", got, err)
			}
		})
	}
}

// TestProgress hears of a call that runs, when it asked for it, in a form that no
// terminal obeys.
func TestProgress(t *testing.T) {
	for _, v := range versions {
		for _, token := range []any{nil, "tok"} {
			e := newEngine()
			got := make(chan *sdk.ProgressNotificationParams, 1000)
			r := start(t, e, v, &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) { got <- req.Params }})
			ctx, cancel := context.WithCancel(t.Context())
			p := &sdk.CallToolParams{Name: "shell", Arguments: map[string]any{"command": "hold x"}}
			if token != nil {
				p.SetProgressToken(token)
			}
			done := make(chan struct{})
			go func() { defer close(done); _, _ = r.c.CallTool(ctx, p) }()
			<-e.began("x")
			last := 0.0
			for range 3 {
				if token == nil {
					break
				}
				n := <-got
				if n.ProgressToken != token || n.Progress <= last || !strings.Contains(n.Message, `holding \u{1b}[2J`) && last > 0 {
					t.Errorf("%s: %+v after %v", v, n, last)
				}
				last = n.Progress
			}
			cancel()
			<-done
			if token == nil && len(got) > 0 {
				t.Errorf("%s: told although nobody asked: %+v", v, <-got)
			}
		}
	}
}

// TestProgressOfSearch hears what a search found before it ends, without waiting
// for the beat.
func TestProgressOfSearch(t *testing.T) {
	e := newEngine()
	got := make(chan *sdk.ProgressNotificationParams, 1000)
	r := start(t, e, versions[0], &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) { got <- req.Params }})
	ctx, cancel := context.WithCancel(t.Context())
	p := &sdk.CallToolParams{Name: "grep", Arguments: map[string]any{"path": "x"}}
	p.SetProgressToken("tok")
	done := make(chan struct{})
	go func() { defer close(done); _, _ = r.c.CallTool(ctx, p) }()
	for n := range got {
		if strings.Contains(n.Message, "15 matches in 6 files so far") {
			break
		}
	}
	cancel()
	<-done
}

// TestEnd ends the server in each way: calls in flight end with it.
func TestEnd(t *testing.T) {
	why := errors.New("ended by terminated")
	for _, c := range []struct {
		name  string
		end   func(*rig)
		want  error
		cause string
	}{
		{"the client closes its side", func(r *rig) { _ = r.hangUp() }, nil, errGone.Error()},
		{"a signal", func(r *rig) { r.end(why) }, why, why.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEngine()
			r := start(t, e, "2025-06-18", nil)
			type end struct {
				r   *sdk.CallToolResult
				err error
			}
			told := make(chan end, 1)
			go func() {
				got, err := r.shell(context.Background(), "hold x")
				told <- end{got, err}
			}()
			<-e.began("x")
			go c.end(r)
			if err := <-r.ended; !errors.Is(err, c.want) {
				t.Errorf("ended with %v", err)
			}
			// Its answer still reaches a client that stays.
			if got := <-told; c.want != nil && (got.err != nil || !got.r.IsError || !strings.Contains(textOf(got.r), "canceled")) {
				t.Errorf("the client was told %+v, %v", got.r, got.err)
			}
			if len(e.causes) != 1 || !strings.Contains(e.causes[0].Error(), c.cause) {
				t.Errorf("the call ended because of %v", e.causes)
			}
			if _, err := r.s.begin("shell", json.RawMessage("{}")); task.CodeOf(err) != task.CodeCanceled {
				t.Errorf("a call after the end: %v", err)
			}
		})
	}
}

// TestListen serves on a private socket, and refuses places and pages.
func TestListen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("who a peer is can be told on Linux only")
	}
	dir, err := os.MkdirTemp("", "mcp") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	e := newEngine()
	ctx, cancel := context.WithCancelCause(t.Context())
	s, err := New(ctx, Config{Engine: e, Task: taskID, Beat: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"s.sock", filepath.Join(open, "s.sock"), dir + "/a/../s.sock"} {
		if err := s.Listen(ctx, bad, func() { t.Errorf("it listens at %s", bad) }); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	path := filepath.Join(dir, "own", "s.sock")
	up, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Listen(ctx, path, func() { close(up) }) }()
	select {
	case <-up:
	case err := <-ended:
		t.Fatal(err)
	}
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if fi, err := os.Stat(p); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", p, fi, err)
		}
	}
	if err := s.Listen(ctx, path, nil); task.CodeOf(err) != task.CodeConflict {
		t.Errorf("a second server at the same place: %v", err)
	}
	hc := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	defer hc.CloseIdleConnections()
	for _, v := range versions {
		cs, err := sdk.NewClient(&sdk.Implementation{Name: "tester"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: "http://localhost/mcp", HTTPClient: hc}, &sdk.ClientSessionOptions{ProtocolVersion: v})
		if err != nil {
			t.Fatal(err)
		}
		got, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "shell", Arguments: map[string]any{"command": "hello"}})
		if err != nil || !strings.Contains(textOf(got), "ran hello") {
			t.Errorf("%s: %v, %v", v, got, err)
		}
		if got := cs.InitializeResult().ProtocolVersion; got != v {
			t.Errorf("asked for %s, speaks %s", v, got)
		}
		_ = cs.Close()
	}
	for _, c := range []struct {
		name, host string
		header     http.Header
		refused    bool
	}{
		{"plain", "localhost", nil, false},
		{"itself", "localhost:8", http.Header{"Origin": {"http://localhost:8"}}, false},
		{"another host", "evil.example", nil, true},
		{"a page", "localhost", http.Header{"Origin": {"https://evil.example"}}, true},
		{"a page of this machine", "localhost:8", http.Header{"Origin": {"http://localhost:9"}}, true},
		{"no origin to tell", "localhost", http.Header{"Origin": {"null"}}, true},
		{"two", "localhost", http.Header{"Origin": {"http://localhost", "http://evil.example"}}, true},
		{"a link", "localhost", http.Header{"Referer": {"http://localhost/"}}, true},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		req.Host = c.host
		for k, v := range c.header {
			req.Header[k] = v
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := hc.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if (resp.StatusCode == http.StatusForbidden) != c.refused {
			t.Errorf("%s: status %d", c.name, resp.StatusCode)
		}
	}
	why := errors.New("over")
	cancel(why)
	if err := <-ended; !errors.Is(err, why) {
		t.Errorf("ended with %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
