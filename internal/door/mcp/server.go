// Package mcp is the front door for clients of the Model Context Protocol: it
// offers the tools of one task, and every call goes through the operation table.
//
// Its limit: a client names a tool and its arguments, and nothing else. Which
// task, which boundary and what it may do were decided before the first message;
// no message, capability or root of a client widens anything. It is the only room
// that knows the protocol's library.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// Config is what a server is made of.
type Config struct {
	Engine  door.Engine
	Task    task.ID // the one task whose tools are offered
	Version string
	// Note takes one line for the person who started the server, from any
	// goroutine; may be nil.
	Note func(string)
	// Beat is how often a client that asked for it hears of a call that waits or
	// runs; 0 is every 10 seconds. Clients give a silent call up after 60 seconds.
	Beat time.Duration
}

// Server offers the tools of one task to any number of clients.
type Server struct {
	cfg   Config
	sdk   *sdk.Server
	tools map[string]task.ToolInfo

	ctx  context.Context // of every call; ends with the server
	stop context.CancelCauseFunc
	// calls are what runs.
	calls sync.WaitGroup
	slots chan struct{}

	mu      sync.Mutex
	waiting map[string]*pending // guarded by mu: calls whose client went to ask its person, by request state
	outputs map[string]output   // guarded by mu: what results linked to, by URI
	files   []*os.File          // guarded by mu: of them those that are open, the oldest first
}

// maxCalls is how many calls a server runs at once; further ones are refused.
const maxCalls = 256

// errGone is the cause of the end of calls whose client closed its side.
var errGone = errors.New("the client went away")

// instructions are what a model reads of the server as a whole.
const instructions = "The tools work inside the boundary of one caisson task: its files, its processes, the network that a person gave it, which may be none, nothing of the host's. " +
	"The repository stands at its usual path. What a tool changes reaches the user's checkout only when a person applies it."

// New asks the engine for its tools. The calls of the server end with ctx; the
// caller calls Close.
func New(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Note == nil {
		cfg.Note = func(string) {}
	}
	if cfg.Beat <= 0 {
		cfg.Beat = 10 * time.Second
	}
	s := &Server{
		cfg: cfg, tools: map[string]task.ToolInfo{}, slots: make(chan struct{}, maxCalls),
		waiting: map[string]*pending{}, outputs: map[string]output{},
	}
	out, err := door.Do[*door.ToolsOut](ctx, s.call(), "tools", &door.None{})
	if err != nil {
		return nil, err
	}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: "caisson", Title: "caisson", Version: cfg.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		// The list never changes while a task is open, and nothing is logged to a client.
		Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}},
		SetCacheable: s.cacheable,
	})
	for _, t := range out.Tools {
		tool, err := describe(t)
		if err != nil {
			return nil, err
		}
		s.tools[t.Name] = t
		s.sdk.AddTool(tool, s.onCall)
	}
	s.addResources()
	return s, nil
}

// call is what an operation of the table needs from this door: as an agent, who
// may call tools and nothing more.
func (s *Server) call() *door.Call {
	return &door.Call{Actor: door.Actor{Door: "mcp", Role: door.RoleAgent}, Engine: s.cfg.Engine}
}

// cacheable lets a client keep the list of tools, which is the same for all.
func (s *Server) cacheable(_ context.Context, req sdk.Request, c *sdk.Cacheable) {
	if _, ok := req.GetParams().(*sdk.ReadResourceParams); ok {
		c.TTLMs, c.CacheScope = 0, "private"
		return
	}
	c.TTLMs, c.CacheScope = 3600_000, "private"
}

// Close ends every call and waits for them.
func (s *Server) Close() {
	s.halt(errGone)
	s.calls.Wait()
	s.closeFiles()
}

// halt ends what runs and lets nothing new begin.
func (s *Server) halt(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(cause)
}

// describe is a tool as the protocol describes it. The output schema is that of
// the whole answer: what the host saw of the call and what the boundary claims of
// it stay apart.
func describe(t task.ToolInfo) (*sdk.Tool, error) {
	out, err := answerSchema(t.Output)
	if err != nil {
		return nil, task.Errorf(task.CodeInternal, "mcp.tools", "tool %s: %w", t.Name, err)
	}
	no := false
	destructive := t.Destructive
	return &sdk.Tool{
		Name: t.Name, Title: t.Title, Description: t.Doc, InputSchema: t.Input, OutputSchema: out,
		Annotations: &sdk.ToolAnnotations{Title: t.Title, ReadOnlyHint: t.ReadOnly, DestructiveHint: &destructive, IdempotentHint: t.Idempotent, OpenWorldHint: &no},
		// A client that hides tools behind a search shows these at once: they are all that the model has.
		Meta: sdk.Meta{"anthropic/alwaysLoad": true},
	}, nil
}

// answerSchema is the schema of the structured answer around that of a tool's
// result. Definitions move to its top, where references look for them.
func answerSchema(result json.RawMessage) (json.RawMessage, error) {
	inner := map[string]any{"type": "object"}
	if len(result) > 0 {
		inner = nil
		if err := json.Unmarshal(result, &inner); err != nil {
			return nil, err
		}
	}
	defs := inner["$defs"]
	for _, k := range []string{"$defs", "$schema", "$id"} {
		delete(inner, k)
	}
	type obj = map[string]any
	text := func(doc string) obj { return obj{"type": "string", "description": doc} }
	number := obj{"type": "integer"}
	out := obj{
		"type": "object",
		"properties": obj{
			"task":     text("the task"),
			"call":     text("the call in the task's evidence"),
			"digest":   text("of task, tool and arguments"),
			"refused":  obj{"type": "array", "items": obj{"type": "string"}, "description": "arguments that were ignored: they are not a model's to give"},
			"observed": obj{"type": "object", "description": "what the host saw itself", "properties": obj{"exit": number, "signal": number, "duration_ns": number, "reason": obj{"type": "string"}}},
			"claimed":  obj{"type": "object", "description": "what came out of the boundary", "properties": obj{"exit": number, "signal": number, "result": inner}},
		},
		"required": []string{"task", "call", "observed", "claimed"},
	}
	if defs != nil {
		out["$defs"] = defs
	}
	return json.Marshal(out)
}
