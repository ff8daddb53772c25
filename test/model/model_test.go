package model

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// forms is one request with a tool result per dialect, %R the results, %S streaming.
var forms = []struct {
	dialect, path, stream string
	body                  func(results int, stream bool) any
	tool                  string // under which the tool is offered
	call                  []string
	text                  []string
	last                  string // in the stream
}{
	{
		"chat", "/v1/chat/completions", "", func(n int, stream bool) any {
			msgs := []any{obj{"role": "user", "content": "go"}}
			for range n {
				msgs = append(msgs, obj{"role": "tool", "tool_call_id": "x", "content": "result"})
			}
			return obj{"model": "m", "stream": stream, "messages": msgs, "tools": []any{obj{"type": "function", "function": obj{"name": "mcp__box__shell"}}}}
		},
		"mcp__box__shell",
		[]string{`"name":"mcp__box__shell"`, `"arguments":"{\"command\":\"id\"}"`, `"finish_reason":"tool_calls"`, `"content":null`},
		[]string{`"content":"` + Done + `"`, `"finish_reason":"stop"`}, "data: [DONE]\n\n",
	},
	{
		"responses", "/v1/responses", "", func(n int, stream bool) any {
			in := []any{obj{"type": "message", "role": "user", "content": []any{obj{"type": "input_text", "text": "go"}}}}
			for range n {
				in = append(in, obj{"type": "function_call_output", "call_id": "x", "output": "result"})
			}
			return obj{"model": "m", "stream": stream, "input": in, "tools": []any{
				obj{"type": "web_search"}, obj{"type": "namespace", "name": "mcp__box", "tools": []any{obj{"type": "function", "name": "shell"}}},
			}}
		},
		"mcp__box__shell",
		[]string{`"namespace":"mcp__box"`, `"name":"shell"`, `"arguments":"{\"command\":\"id\"}"`, `"type":"function_call"`},
		[]string{`"text":"` + Done + `"`, `"annotations":[]`}, "",
	},
	{
		"messages", "/v1/messages", "", func(n int, stream bool) any {
			msgs := []any{obj{"role": "user", "content": "go"}}
			for range n {
				msgs = append(msgs, obj{"role": "user", "content": []any{obj{"type": "tool_result", "tool_use_id": "x", "content": []any{obj{"type": "text", "text": "result"}}}}})
			}
			return obj{"model": "m", "stream": stream, "messages": msgs, "tools": []any{obj{"name": "mcp__box__shell"}}}
		},
		"mcp__box__shell",
		[]string{`"type":"tool_use"`, `"name":"mcp__box__shell"`, `command`, `"stop_reason":"tool_use"`},
		[]string{Done, `"stop_reason":"end_turn"`}, "",
	},
	{
		"gemini", "/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent", func(n int, _ bool) any {
			c := []any{obj{"role": "user", "parts": []any{obj{"text": "go"}}}}
			for range n {
				c = append(c, obj{"role": "user", "parts": []any{obj{"functionResponse": obj{"name": "mcp_box_shell", "response": obj{"output": "result"}}}}})
			}
			return obj{"contents": c, "tools": []any{obj{"functionDeclarations": []any{obj{"name": "mcp_box_shell"}}}}}
		},
		"mcp_box_shell",
		[]string{`"functionCall":{"args":{"command":"id"},"name":"mcp_box_shell"}`, `"finishReason":"STOP"`},
		[]string{`"text":"` + Done + `"`}, "",
	},
}

func post(t *testing.T, url string, body any, header http.Header) (int, string) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if header.Get("Content-Encoding") == "gzip" {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(data)
		_ = z.Close()
		data = b.Bytes()
	}
	// A reader of unknown length makes a chunked body.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, io.MultiReader(bytes.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("User-Agent", "tester/1")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

// TestDialects asks in each dialect, whole and streamed, for the first step and
// for what comes past the last one.
func TestDialects(t *testing.T) {
	for _, f := range forms {
		for _, stream := range []bool{false, true} {
			name := f.dialect
			if stream {
				name += "/stream"
			}
			t.Run(name, func(t *testing.T) {
				s := New(Step{Tool: `(mcp_.*_)?shell`, Args: map[string]any{"command": "id"}})
				hs := httptest.NewServer(s)
				defer hs.Close()
				path := f.path
				if stream && f.stream != "" {
					path = f.stream
				}
				for n, want := range [][]string{f.call, f.text} {
					h := http.Header{}
					if n == 1 {
						h.Set("Content-Encoding", "gzip")
					}
					for range 2 { // a repeated request gets the same answer
						st, out := post(t, hs.URL+path+"?beta=true", f.body(n, stream), h)
						if st != http.StatusOK {
							t.Fatalf("status %d: %s", st, out)
						}
						for _, w := range want {
							if !strings.Contains(out, w) {
								t.Errorf("step %d: no %s in\n%s", n, w, out)
							}
						}
						if stream && (!strings.HasSuffix(out, "\n\n") || !strings.Contains(out, "data: ") || !strings.HasSuffix(out, f.last)) {
							t.Errorf("no stream of events:\n%s", out)
						}
						if !stream && !json.Valid([]byte(out)) {
							t.Errorf("no JSON:\n%s", out)
						}
					}
				}
				log := s.Requests()
				if len(log) != 4 {
					t.Fatalf("%d requests written down", len(log))
				}
				first, last := log[0], log[3]
				if first.Dialect != f.dialect || first.Step != 0 || first.Tool != f.tool || first.UserAgent != "tester/1" || first.Stream != stream ||
					!slices.Contains(first.Offered, f.tool) || len(first.Results) != 0 {
					t.Errorf("first request: %+v", first)
				}
				if last.Step != 1 || last.Tool != "" || last.Text != Done || last.Last() != "result" {
					t.Errorf("last request: %+v", last)
				}
				if got := s.Results(); !slices.Equal(got, []string{"result"}) {
					t.Errorf("results %q", got)
				}
			})
		}
	}
}

// TestScript holds the rules of a script: a tool nobody offered, arguments made
// from the last result, requests on the side, a step that waits.
func TestScript(t *testing.T) {
	waited := false
	s := New(
		Step{Tool: "run_shell_command", Unoffered: "run_shell_command"},
		Step{Tool: "absent"},
		Step{Tool: "mcp_box_shell", From: func(last string) map[string]any { return map[string]any{"was": last} }, Before: func(context.Context) { waited = true }},
		Step{Text: "half"},
	)
	hs := httptest.NewServer(s)
	defer hs.Close()
	g := forms[3]
	for n, want := range []string{`"name":"run_shell_command"`, "no offered tool is called absent", `"args":{"was":"result"}`, `"text":"half"`, Done} {
		if _, out := post(t, hs.URL+g.path, g.body(n, false), nil); !strings.Contains(out, want) {
			t.Errorf("step %d: no %s in %s", n, want, out)
		}
	}
	if !waited {
		t.Error("Before was not called")
	}
	_, out := post(t, hs.URL+g.path, obj{"contents": []any{}, "generationConfig": obj{"responseMimeType": "application/json"}}, nil)
	if !strings.Contains(out, "next_speaker") {
		t.Errorf("a question on the side: %s", out)
	}
	if last := s.Requests()[5]; last.Step != -1 {
		t.Errorf("it took a step: %+v", last)
	}
}

// TestRefusals answers what it does not understand with an error and says so.
func TestRefusals(t *testing.T) {
	s := New()
	hs := httptest.NewServer(s)
	defer hs.Close()
	for _, c := range []struct {
		path, enc string
		body      any
		status    int
	}{
		{"/v1/messages", "zstd", obj{}, http.StatusUnsupportedMediaType},
		{"/v1/messages", "", []any{1}, http.StatusBadRequest},
		{"/v1/embeddings", "", obj{}, http.StatusNotFound},
	} {
		if st, out := post(t, hs.URL+c.path, c.body, http.Header{"Content-Encoding": {c.enc}}); st != c.status {
			t.Errorf("%s: status %d, want %d: %s", c.path, st, c.status, out)
		}
	}
	if len(s.Odd()) != 3 || len(s.Requests()) != 0 {
		t.Errorf("odd %q, requests %v", s.Odd(), s.Requests())
	}
	if st, out := post(t, hs.URL+"/v1/messages/count_tokens", obj{}, nil); st != 200 || !strings.Contains(out, "input_tokens") {
		t.Errorf("count: %d %s", st, out)
	}
	r, err := http.Get(hs.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if out, _ := io.ReadAll(r.Body); !strings.Contains(string(out), `"object":"list"`) {
		t.Errorf("models: %s", out)
	}
}
