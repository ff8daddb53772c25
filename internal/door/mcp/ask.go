package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

// The queue of questions is the engine's. A client that says it can reach a
// person may show one of them and bring back what the person chose; everything
// else that a client answers leaves the question where it is.

// statelessVersion is the first version of the protocol in which a server sends
// no requests: it hands a question back as the result of the call, and the client
// calls again with the answer.
const statelessVersion = "2026-07-28"

func modern(req *sdk.CallToolRequest) bool { return req.ProtocolVersion() >= statelessVersion }

// elicits reports whether the client said that it can put a form to a person.
func elicits(req *sdk.CallToolRequest) bool {
	c := req.ClientCapabilities()
	return c != nil && c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

// The choices of the form; refusing comes first, where a client chooses by itself.
const (
	choose = "decision"
	deny   = "deny"
	allow  = "allow"
)

// form is the question as a client shows it.
func form(q task.Question) *sdk.ElicitParams {
	return &sdk.ElicitParams{
		Mode:    "form",
		Message: questionText(q),
		RequestedSchema: map[string]any{
			"type": "object",
			"properties": map[string]any{choose: map[string]any{
				"type": "string", "title": "Decision", "description": "allow runs exactly this call, once", "enum": []any{deny, allow},
			}},
			"required": []any{choose},
		},
	}
}

// maxShown is how much of a diff or script a form shows.
const maxShown = 4000

// questionText says what is asked. Everything in it was computed on the host.
func questionText(q task.Question) string {
	var b strings.Builder
	line := func(name, value string) {
		// Of a text of several lines none can look like a line of the question.
		if value = visible(value); strings.Contains(value, "\n") {
			value = "\n  | " + strings.ReplaceAll(strings.TrimSuffix(value, "\n"), "\n", "\n  | ")
		}
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	fmt.Fprintf(&b, "caisson asks: may %s run in task %s?\n", strings.ReplaceAll(visible(q.Tool), "\n", `\n`), q.Task)
	if len(q.Argv) > 0 {
		words, _ := json.Marshal(q.Argv)
		line("argv", string(words))
	}
	line("script", clip(q.Script))
	line("in", q.Dir)
	for _, f := range q.Files {
		line("file", strings.TrimSpace(f.Path+" "+f.State+" "+f.SHA256))
	}
	line("diff", clip(q.Diff))
	line("why", q.Rule)
	line("asked by", q.Actor)
	line("digest", q.Digest)
	line("question", q.ID)
	return b.String()
}

func clip(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + fmt.Sprintf("\n[%d more bytes: `caisson approve` shows them]", len(s)-maxShown)
}

// chosen reads what came back from a client. Only a form that a person filled in
// counts: a client without a person declines, cancels, or fails.
func chosen(r *sdk.ElicitResult) (permit, decided bool) {
	if r == nil || r.Action != "accept" {
		return false, false
	}
	switch r.Content[choose] {
	case allow:
		return true, true
	case deny:
		return false, true
	}
	return false, false
}

// give brings a person's choice to the queue.
func (s *Server) give(ctx context.Context, q task.Question, r *sdk.ElicitResult) {
	permit, decided := chosen(r)
	if !decided {
		return
	}
	c := &door.Call{Actor: door.Actor{Door: "mcp-elicitation", Role: door.RolePerson}, Engine: s.cfg.Engine}
	_, err := door.Do[*task.Question](ctx, c, "answer", &door.AnswerIn{Answer: task.Answer{ID: q.ID, Digest: q.Digest, Allow: permit, Reason: "in the client's form"}})
	if err != nil {
		s.cfg.Note(fmt.Sprintf("the answer to question %s was not taken: %v", q.ID, err))
	}
}

// elicit shows a question in a client of an older version, beside the call that
// waits. The form goes when the call is over.
func (s *Server) elicit(ctx context.Context, req *sdk.CallToolRequest, p *pending, q task.Question) {
	if !elicits(req) {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, q.Expires)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	r, err := req.Session.Elicit(ctx, form(q))
	if err == nil {
		s.give(p.ctx, q, r)
	}
}

// key of the one input request of a call.
const inputKey = "approval"

// handBack gives a call with a question back to a client that calls again with
// the answer; nil where the client cannot ask anybody. The call waits meanwhile,
// no longer than the question: its effect comes after the answer, once.
func (s *Server) handBack(req *sdk.CallToolRequest, p *pending, q task.Question) *sdk.CallToolResult {
	if !elicits(req) {
		return nil
	}
	state := rand.Text() // it names a call of this process and is worth nothing elsewhere
	s.mu.Lock()
	s.waiting[state] = p
	s.mu.Unlock()
	p.mu.Lock()
	p.handed = &q
	p.mu.Unlock()
	time.AfterFunc(time.Until(q.Expires), func() {
		s.mu.Lock()
		_, there := s.waiting[state]
		delete(s.waiting, state)
		s.mu.Unlock()
		if there {
			p.cancel(task.Errorf(task.CodeCanceled, "mcp.call", "the client did not come back for its call"))
		}
	})
	return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{inputKey: form(q)}, RequestState: state}
}

// back finds the call that a client was given back. A state is good once, and
// for the same tool with the same arguments only.
func (s *Server) back(req *sdk.CallToolRequest, args json.RawMessage) (*pending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.waiting[req.Params.RequestState]
	if p == nil || p.tool != req.Params.Name || p.args != fingerprint(args) {
		return nil, invalid("requestState does not belong to this call, or was used before; call again without it")
	}
	delete(s.waiting, req.Params.RequestState)
	return p, nil
}

// settle takes the answer out of the request that came back.
func (s *Server) settle(p *pending, req *sdk.CallToolRequest) {
	p.mu.Lock()
	q := p.handed
	p.handed = nil
	p.mu.Unlock()
	if q != nil {
		r, _ := req.Params.InputResponses[inputKey].(*sdk.ElicitResult)
		s.give(p.ctx, *q, r)
	}
}

// fingerprint is the same for arguments that differ in form only.
func fingerprint(args json.RawMessage) [sha256.Size]byte {
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	var v any
	if d.Decode(&v) == nil {
		if canonical, err := json.Marshal(v); err == nil {
			args = canonical
		}
	}
	return sha256.Sum256(args)
}
