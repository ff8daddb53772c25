package model

import (
	"encoding/json"
	"fmt"
	"strings"
)

// offered is one tool of a request; Responses puts those of a server in a
// namespace.
type offered struct{ space, name string }

func (o offered) full() string {
	if o.space == "" {
		return o.name
	}
	return strings.TrimSuffix(o.space, "__") + "__" + o.name
}

// query is what an answer depends on.
type query struct {
	model   string
	stream  bool
	json    bool // the answer must be a JSON text
	tools   []offered
	results []string
}

// reply is a text, or the call of one tool.
type reply struct {
	id   int
	text string
	tool offered
	args map[string]any
}

func (a reply) call() bool   { return a.tool.name != "" }
func (a reply) key() string  { return fmt.Sprintf("call_%d", a.id) }
func (a reply) argv() string { b, _ := json.Marshal(a.args); return string(b) }

type dialect interface {
	name() string
	read(path string, body []byte) (query, error)
	whole(query, reply) any
	stream(*events, query, reply)
}

type obj = map[string]any

// flat is the text of a tool result, whatever form it has.
func flat(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) == nil {
		var b strings.Builder
		for _, p := range parts {
			b.WriteString(p.Text)
		}
		if b.Len() > 0 {
			return b.String()
		}
	}
	return string(raw)
}

// ---- chat completions ----------------------------------------------------------------------------------------------

type chat struct{}

func (chat) name() string { return "chat" }

func (chat) read(_ string, body []byte) (query, error) {
	var in struct {
		Model    string
		Stream   bool
		Tools    []struct{ Function struct{ Name string } }
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	err := json.Unmarshal(body, &in)
	q := query{model: in.Model, stream: in.Stream}
	for _, t := range in.Tools {
		q.tools = append(q.tools, offered{name: t.Function.Name})
	}
	for _, m := range in.Messages {
		if m.Role == "tool" {
			q.results = append(q.results, flat(m.Content))
		}
	}
	return q, err
}

func (chat) message(a reply) (obj, string) {
	if !a.call() {
		return obj{"role": "assistant", "content": a.text}, "stop"
	}
	return obj{"role": "assistant", "content": nil, "tool_calls": []any{obj{
		"index": 0, "id": a.key(), "type": "function", "function": obj{"name": a.tool.full(), "arguments": a.argv()},
	}}}, "tool_calls"
}

var chatUsage = obj{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}

func (d chat) whole(q query, a reply) any {
	m, why := d.message(a)
	return obj{"id": a.key(), "object": "chat.completion", "created": 1, "model": q.model, "usage": chatUsage,
		"choices": []any{obj{"index": 0, "message": m, "finish_reason": why}}}
}

func (d chat) stream(e *events, q query, a reply) {
	m, why := d.message(a)
	chunk := func(choices []any, usage any) {
		e.send("", obj{"id": a.key(), "object": "chat.completion.chunk", "created": 1, "model": q.model, "choices": choices, "usage": usage})
	}
	chunk([]any{obj{"index": 0, "delta": m, "finish_reason": nil}}, nil)
	chunk([]any{obj{"index": 0, "delta": obj{}, "finish_reason": why}}, nil)
	chunk([]any{}, chatUsage)
	e.send("", "[DONE]")
}

// ---- responses -----------------------------------------------------------------------------------------------------

type responses struct{}

func (responses) name() string { return "responses" }

func (responses) read(_ string, body []byte) (query, error) {
	type tool struct {
		Type, Name string
		Tools      []struct{ Name string }
	}
	var in struct {
		Model  string
		Stream bool
		Tools  []tool
		Input  json.RawMessage
	}
	err := json.Unmarshal(body, &in)
	q := query{model: in.Model, stream: in.Stream}
	for _, t := range in.Tools {
		switch {
		case t.Type == "namespace":
			for _, n := range t.Tools {
				q.tools = append(q.tools, offered{t.Name, n.Name})
			}
		case t.Name != "":
			q.tools = append(q.tools, offered{name: t.Name})
		default:
			q.tools = append(q.tools, offered{name: t.Type})
		}
	}
	var items []struct {
		Type   string
		Output json.RawMessage
	}
	_ = json.Unmarshal(in.Input, &items) // a plain string has no results
	for _, i := range items {
		if strings.HasSuffix(i.Type, "_output") {
			q.results = append(q.results, flat(i.Output))
		}
	}
	return q, err
}

func (responses) item(a reply) obj {
	if a.call() {
		it := obj{"type": "function_call", "id": "fc_" + a.key(), "call_id": a.key(), "name": a.tool.name, "arguments": a.argv(), "status": "completed"}
		if a.tool.space != "" {
			it["namespace"] = a.tool.space
		}
		return it
	}
	return obj{"type": "message", "id": "msg_" + a.key(), "role": "assistant", "status": "completed",
		"content": []any{obj{"type": "output_text", "text": a.text, "annotations": []any{}}}}
}

func (responses) response(q query, a reply, status string, out []any) obj {
	return obj{"id": "resp_" + a.key(), "object": "response", "created_at": 1, "status": status, "model": q.model, "output": out,
		"usage": obj{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": obj{"cached_tokens": 0}, "output_tokens_details": obj{"reasoning_tokens": 0}}}
}

func (d responses) whole(q query, a reply) any {
	return d.response(q, a, "completed", []any{d.item(a)})
}

func (d responses) stream(e *events, q query, a reply) {
	n := 0
	send := func(typ string, v obj) {
		v["type"], v["sequence_number"] = typ, n
		n++
		e.send(typ, v)
	}
	it := d.item(a)
	send("response.created", obj{"response": d.response(q, a, "in_progress", []any{})})
	send("response.output_item.added", obj{"output_index": 0, "item": it})
	send("response.output_item.done", obj{"output_index": 0, "item": it})
	send("response.completed", obj{"response": d.response(q, a, "completed", []any{it})})
}

// ---- messages ------------------------------------------------------------------------------------------------------

type messages struct{}

func (messages) name() string { return "messages" }

func (messages) read(_ string, body []byte) (query, error) {
	var in struct {
		Model    string
		Stream   bool
		Tools    []struct{ Name string }
		Messages []struct{ Content json.RawMessage }
	}
	err := json.Unmarshal(body, &in)
	q := query{model: in.Model, stream: in.Stream}
	for _, t := range in.Tools {
		q.tools = append(q.tools, offered{name: t.Name})
	}
	for _, m := range in.Messages {
		var blocks []struct {
			Type    string
			Content json.RawMessage
		}
		_ = json.Unmarshal(m.Content, &blocks) // a plain string has no results
		for _, b := range blocks {
			if b.Type == "tool_result" {
				q.results = append(q.results, flat(b.Content))
			}
		}
	}
	return q, err
}

func (messages) message(q query, a reply, content []any, why any) obj {
	return obj{"id": "msg_" + a.key(), "type": "message", "role": "assistant", "model": q.model, "content": content,
		"stop_reason": why, "stop_sequence": nil, "usage": obj{"input_tokens": 1, "output_tokens": 1}}
}

func (messages) block(a reply) (empty, delta, full obj, why string) {
	if a.call() {
		id := "toolu_" + a.key()
		return obj{"type": "tool_use", "id": id, "name": a.tool.full(), "input": obj{}}, obj{"type": "input_json_delta", "partial_json": a.argv()},
			obj{"type": "tool_use", "id": id, "name": a.tool.full(), "input": a.args}, "tool_use"
	}
	return obj{"type": "text", "text": ""}, obj{"type": "text_delta", "text": a.text}, obj{"type": "text", "text": a.text}, "end_turn"
}

func (d messages) whole(q query, a reply) any {
	_, _, full, why := d.block(a)
	return d.message(q, a, []any{full}, why)
}

func (d messages) stream(e *events, q query, a reply) {
	send := func(typ string, v obj) {
		v["type"] = typ
		e.send(typ, v)
	}
	empty, delta, _, why := d.block(a)
	send("message_start", obj{"message": d.message(q, a, []any{}, nil)})
	send("content_block_start", obj{"index": 0, "content_block": empty})
	send("content_block_delta", obj{"index": 0, "delta": delta})
	send("content_block_stop", obj{"index": 0})
	send("message_delta", obj{"delta": obj{"stop_reason": why, "stop_sequence": nil}, "usage": obj{"output_tokens": 1}})
	send("message_stop", obj{})
}

// ---- gemini --------------------------------------------------------------------------------------------------------

type gemini struct{}

func (gemini) name() string { return "gemini" }

func (gemini) read(path string, body []byte) (query, error) {
	var in struct {
		Tools []struct {
			FunctionDeclarations []struct{ Name string }
		}
		Contents []struct {
			Parts []struct {
				FunctionResponse *struct{ Response json.RawMessage }
			}
		}
		GenerationConfig struct{ ResponseMimeType string }
	}
	err := json.Unmarshal(body, &in)
	_, name, _ := strings.Cut(path, "/models/")
	name, verb, _ := strings.Cut(name, ":")
	q := query{model: name, stream: verb == "streamGenerateContent"}
	for _, t := range in.Tools {
		for _, f := range t.FunctionDeclarations {
			q.tools = append(q.tools, offered{name: f.Name})
		}
	}
	for _, c := range in.Contents {
		for _, p := range c.Parts {
			if p.FunctionResponse == nil {
				continue
			}
			var r struct{ Output, Error json.RawMessage }
			_ = json.Unmarshal(p.FunctionResponse.Response, &r)
			switch {
			case r.Output != nil:
				q.results = append(q.results, flat(r.Output))
			case r.Error != nil:
				q.results = append(q.results, flat(r.Error))
			default:
				q.results = append(q.results, string(p.FunctionResponse.Response))
			}
		}
	}
	q.json = len(q.tools) == 0 && in.GenerationConfig.ResponseMimeType == "application/json"
	return q, err
}

func (gemini) whole(q query, a reply) any {
	part := obj{"text": a.text}
	if a.call() {
		part = obj{"functionCall": obj{"name": a.tool.full(), "args": a.args}}
	}
	return obj{
		"candidates":    []any{obj{"content": obj{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": obj{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}, "modelVersion": q.model,
	}
}

func (d gemini) stream(e *events, q query, a reply) { e.send("", d.whole(q, a)) }
