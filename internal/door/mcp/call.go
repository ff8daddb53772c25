package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
	"github.com/caisson-dev/caisson/internal/worker/contract"
)

// pending is one call on its way.
type pending struct {
	tool   string
	args   [sha256.Size]byte // of the arguments as they came
	ctx    context.Context
	cancel context.CancelCauseFunc
	begun  time.Time
	asked  chan task.Question
	done   chan struct{} // closed once res and err stand
	res    *task.ToolResult
	err    error
	file   *os.File // what a read_file showed only a part of, or nil; goes with res

	mu   sync.Mutex
	now  string        // guarded by mu: what it is at
	news chan struct{} // has room for one: there is something to tell
	// handed is the question that the client was given back; guarded by mu.
	handed *task.Question
}

func (p *pending) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = text
}

func (p *pending) state() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now != "" {
		return p.now
	}
	return "running"
}

// invalid is the protocol's error for a call whose form is wrong.
func invalid(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// onCall answers tools/call.
func (s *Server) onCall(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	args, err := object(req.Params.Arguments)
	if err != nil {
		return nil, invalid("arguments of %s: %v", req.Params.Name, err)
	}
	var p *pending
	if req.Params.RequestState != "" {
		if p, err = s.back(req, args); err != nil {
			return nil, err
		}
		go s.settle(p, req)
	} else if p, err = s.begin(req.Params.Name, args); err != nil {
		return failure(nil, err), nil
	}
	return s.await(ctx, req, p)
}

// maxArgs bounds the arguments of one call; a file's content is part of them.
const maxArgs = 12 << 20

// object checks that arguments are one JSON object. What is in it is the
// contract's to judge.
func object(raw json.RawMessage) (json.RawMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}"), nil
	}
	switch {
	case len(raw) > maxArgs:
		return nil, fmt.Errorf("more than %d bytes", maxArgs)
	case raw[0] != '{' || !json.Valid(raw):
		return nil, errors.New("not one JSON object")
	case !utf8.Valid(raw):
		return nil, errors.New("not UTF-8")
	}
	return raw, nil
}

// begin starts a call. It ends with the server, not with the request that asked:
// who waits for it cancels it.
func (s *Server) begin(tool string, args json.RawMessage) (*pending, error) {
	select {
	case s.slots <- struct{}{}:
	default:
		return nil, task.Errorf(task.CodeLimit, "mcp.call", "%d calls run already", maxCalls).WithHint("wait until some of them ended")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		<-s.slots
		return nil, task.Errorf(task.CodeCanceled, "mcp.call", "the server is ending: %v", context.Cause(s.ctx))
	}
	p := &pending{tool: tool, args: fingerprint(args), begun: time.Now(), asked: make(chan task.Question, 4), done: make(chan struct{}), news: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancelCause(s.ctx)
	s.calls.Add(1)
	go func() {
		defer s.calls.Done()
		defer func() { <-s.slots }()
		defer p.cancel(nil)
		defer close(p.done)
		c := s.call()
		c.Progress = p.say
		c.Asked = func(q task.Question) {
			p.say("waits for a person: `caisson approve " + q.ID + "` or `caisson deny " + q.ID + "`")
			select {
			case p.asked <- q:
			default: // it stays in the queue, where it can be answered
			}
		}
		c.File = func(f *os.File) { p.file = f }
		if tool == contract.Grep || tool == contract.Glob {
			c.Output = p.found()
		}
		p.res, p.err = door.Do[*task.ToolResult](p.ctx, c, "tool", &door.ToolIn{Task: string(s.cfg.Task), Call: task.ToolCall{Tool: tool, Args: args}})
	}()
	return p, nil
}

// await waits for the end of a call, tells the client of it meanwhile, and
// cancels it when the client gives it up. It returns only when the call is over,
// or its client has a question to put to its person.
func (s *Server) await(ctx context.Context, req *sdk.CallToolRequest, p *pending) (*sdk.CallToolResult, error) {
	beat := time.NewTicker(s.cfg.Beat)
	defer beat.Stop()
	told := time.Time{}
	for n := 1; ; n++ {
		select {
		case <-p.done:
			if p.err != nil {
				return failure(p.res, p.err), nil
			}
			return s.answer(p), nil
		case q := <-p.asked:
			if !modern(req) {
				go s.elicit(ctx, req, p, q)
			} else if r := s.handBack(req, p, q); r != nil {
				return r, nil
			}
			s.beat(ctx, req, p, n)
		case <-beat.C:
			s.beat(ctx, req, p, n)
		case <-p.news:
			if time.Since(told) < newsEvery {
				n--
				continue
			}
			told = time.Now()
			s.beat(ctx, req, p, n)
		case <-ctx.Done():
			p.cancel(task.Errorf(task.CodeCanceled, "mcp.call", "the client gave the call up"))
			<-p.done
			if p.file != nil { // it ended well, and nobody wants to know
				_ = p.file.Close()
			}
			return failure(p.res, p.err), nil
		}
	}
}

// beat sends one progress notification to a client that asked for them.
func (s *Server) beat(ctx context.Context, req *sdk.CallToolRequest, p *pending, n int) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return
	}
	text := fmt.Sprintf("%s: %s (%s)", p.tool, visible(p.state()), time.Since(p.begun).Round(time.Second))
	_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: float64(n), Message: text})
}

// newsEvery is how often at most a client hears of what a search found so far.
const newsEvery = 200 * time.Millisecond

// found counts what a search tells of.
func (p *pending) found() func(string, []byte) {
	files, matches := 0, 0
	return func(stream string, b []byte) {
		var part struct {
			Files   []json.RawMessage
			Matches int
		}
		if stream != door.FoundStream || json.Unmarshal(b, &part) != nil {
			return
		}
		files, matches = files+len(part.Files), matches+part.Matches
		text := fmt.Sprintf("%d files so far", files)
		if p.tool == contract.Grep {
			text = fmt.Sprintf("%d matches in %d files so far", matches, files)
		}
		p.say(text)
		select {
		case p.news <- struct{}{}:
		default:
		}
	}
}

// failure is the answer to a call that was refused, or of which nobody can say
// how it ended. It goes to the model, which can do something about it; the
// protocol's own errors do not.
func failure(res *task.ToolResult, err error) *sdk.CallToolResult {
	if err == nil {
		err = task.Errorf(task.CodeInternal, "mcp.call", "the call ended without a result")
	}
	code := task.CodeOf(err)
	var b strings.Builder
	switch code {
	case task.CodeOutcomeUnknown, task.CodeChannel:
		b.WriteString("outcome unknown: the call may or may not have had its effect, and it is not repeated: ")
	case task.CodeDenied:
		b.WriteString("not started, refused: ")
	default:
		b.WriteString(string(code) + ": ")
	}
	b.WriteString(visible(err.Error()))
	if h := task.HintOf(err); h != "" {
		b.WriteString("\nhint: " + visible(h))
	}
	out := &sdk.CallToolResult{IsError: true, Meta: sdk.Meta{"caisson/code": string(code)}}
	if res != nil {
		if len(res.Refused) > 0 {
			b.WriteString("\n" + ignored(res.Refused))
		}
		// Not as the structured answer: a client that shows its model nothing but that
		// would hide the reason.
		out.Meta["caisson/result"] = structured(res)
	}
	out.Content = []sdk.Content{&sdk.TextContent{Text: b.String()}}
	return out
}

// ignored names what a model gave that is not its to give.
func ignored(names []string) string {
	return "ignored, not yours to give: " + visible(strings.Join(names, ", "))
}

// visible is s with every character that a terminal or a reader would not show
// as what it is written out.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == utf8.RuneError, r < 0x20, r >= 0x7f && r < 0xa0, r == 0x061c, r >= 0x200b && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff, r >= 0xe0000 && r <= 0xe007f:
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
